package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"
)

func TestWhatIsServed(t *testing.T) {
	is := is.New(t)
	server := startServer(t, "-db", newDB(t))
	status, page := server.get(t, "", "/")
	is.Equal(status, 200)
	is.True(strings.Contains(page, "/ext/svc/"))
	status, catalogue := server.get(t, "", "/catalogue/templates.json")
	is.Equal(status, 200) // to anybody
	is.True(strings.Contains(catalogue, `"meeting-notes"`))
	status, _ = server.get(t, "", "/nothing")
	is.Equal(status, 404)
	for _, path := range []string{"/ext/svc/admin/templates", "/ext/svc", "/ext//svc/me/api-keys", "/ext/svc/../svc/nothing", "/ext/svc/nothing"} {
		status, _ = server.get(t, "", path)
		is.Equal(status, 401) // and no redirect
	}
}

func TestSourcesThatMayBeAsked(t *testing.T) {
	is := is.New(t)
	files := httptest.NewServer(http.StripPrefix("/own/", http.FileServerFS(os.DirFS("catalogue/files"))))
	defer files.Close()
	closed, open := startServer(t, "-db", newDB(t)), startServer(t, "-db", newDB(t), "-allow-source", files.URL)
	register := `{"url": "` + files.URL + `/own"}`
	status, problem := closed.ask(t, closed.key(), "POST", "/ext/svc/admin/template-sources", register)
	is.Equal(status, 400)
	is.True(strings.Contains(problem, `"/url"`))
	status, _ = open.ask(t, open.key(), "POST", "/ext/svc/admin/template-sources", register)
	is.Equal(status, 201)
	status, template := open.ask(t, open.key(), "POST", "/ext/svc/admin/templates/plant-care/install", `{"source_name": "own"}`)
	is.Equal(status, 200)
	is.True(strings.Contains(template, `"soil_moisture_is_dry_below":0.18`))
}

func TestRequestsUnderWayEndBeforeTheServer(t *testing.T) {
	is := is.New(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		_, _ = w.Write([]byte(`{"templates": [{"id": "slow", "name": "Slow", "manifest": {"version": "1"}}]}`))
	}))
	defer slow.Close()
	server := startServer(t, "-db", newDB(t), "-allow-source", slow.URL)
	key := server.key()
	status, _ := server.ask(t, key, "POST", "/ext/svc/admin/template-sources", `{"url": "`+slow.URL+`", "alias": "slow"}`)
	is.Equal(status, 201)

	installed := make(chan int, 1)
	go func() {
		status, _, _ := server.send(key, "POST", "/ext/svc/admin/templates/slow/install", `{"source_name": "slow"}`)
		installed <- status
	}()
	<-asked
	server.cancel()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && !strings.Contains(server.stderr.String(), "msg=stopping"); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond) // enough for one that does not wait to cut the request off
	close(answer)
	is.Equal(<-installed, 200)
	is.NoErr(server.stop(t))
}

func TestAddressInUse(t *testing.T) {
	is := is.New(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	defer listener.Close()
	db := newDB(t)
	err = run(t.Context(), []string{"-addr", listener.Addr().String(), "-db", db}, &output{}, &output{})
	is.Equal(exitCode(err, &output{}), 1)
	is.True(strings.Contains(err.Error(), listener.Addr().String()))
	is.True(strings.Contains(err.Error(), "in use"))
	_, err = os.Stat(db)
	is.True(os.IsNotExist(err)) // nothing was touched
}

func TestAddressForOthersIsWarnedOf(t *testing.T) {
	is := is.New(t)
	server := startServer(t, "-db", newDB(t), "-addr", "0.0.0.0:0")
	is.True(strings.Contains(server.stderr.String(), "not encrypted"))
	is.True(strings.HasPrefix(server.base, "http://127.0.0.1:")) // where the printed lines can reach it
	status, _ := server.get(t, server.key(), "/ext/svc/me/api-keys")
	is.Equal(status, 200)
}

func TestDatabaseThatCannotBe(t *testing.T) {
	is := is.New(t)
	for db, want := range map[string]string{
		"/no/such/directory/svc.db": "/no/such/directory/svc.db",
		t.TempDir():                 "directory",
		writeFile(t, "letter.db", strings.Repeat("Dear Sir,\n", 200)): "letter.db",
	} {
		err := run(t.Context(), []string{"-addr", "127.0.0.1:0", "-db", db}, &output{}, &output{})
		is.Equal(exitCode(err, &output{}), 1)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", db, err)
		}
	}
}

func TestProcess(t *testing.T) {
	if runtime.GOOS == "windows" {
		missing(t, "this system has no signals: that the server ends well")
	}
	is := is.New(t)
	db := newDB(t)
	for _, signal := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM, os.Interrupt} {
		process := command(t, "-addr", "127.0.0.1:0", "-db", db)
		stdout := &output{}
		process.Stdout = stdout
		is.NoErr(process.Start())
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && !strings.Contains(stdout.String(), "KEY=$("); {
			time.Sleep(time.Millisecond)
		}
		is.NoErr(process.Process.Signal(signal))
		err := process.Wait()
		is.True(err == nil || signal == syscall.SIGKILL) // exits with 0
	}
	checkExit(t, 0, "key", "-db", db, "-user", "alice")
	checkExit(t, 1, "key", "-db", db, "-user", "nobody")
	checkExit(t, 2, "key", "-db", db)
	checkExit(t, 0, "migrate", "-print")
	checkExit(t, 2, "migrate")
	checkExit(t, 2, "-db", "mysql://localhost/svc")
	checkExit(t, 0, "-help")
}

// checkExit runs a command. It must print to stdout if and only if it succeeds.
func checkExit(t *testing.T, want int, args ...string) {
	t.Helper()
	process := command(t, args...)
	var stdout, stderr bytes.Buffer
	process.Stdout, process.Stderr = &stdout, &stderr
	if err := process.Run(); err != nil {
		if _, exited := err.(*exec.ExitError); !exited {
			t.Fatal(err)
		}
	}
	got := process.ProcessState.ExitCode()
	if got != want || (want == 0) != (stdout.Len() > 0) || (want == 0) != (stderr.Len() == 0) {
		t.Errorf("%v: exits with %d, want %d\n%s%s", args, got, want, &stdout, &stderr)
	}
}
