//go:build unix

package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"
)

// hearHangUps makes the processes of a test hear hang-ups, also where nohup runs the test.
func hearHangUps(t *testing.T) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(heard) })
}

// SIGHUP reloads log.level. A configuration that is wrong is logged, and the old level stays. The log
// says that all was reloaded only when it was.
func TestReloadedLevel(t *testing.T) {
	t.Parallel()
	hearHangUps(t)
	is := is.New(t)
	config := writeFile(t, "c.toml", "[log]\nlevel = \"error\"\n")
	var log output
	cmd := command(t, "-config", config, "-db", newDB(t))
	cmd.Stderr = &log
	base := process(t, cmd)
	hangUp := func(text string) {
		t.Helper()
		is.NoErr(os.WriteFile(config, []byte(text), 0o600))
		is.NoErr(cmd.Process.Signal(syscall.SIGHUP))
	}
	hangUp("[log]\nlevel = \"info\"\n")
	is.True(soon(func() bool { return strings.Contains(log.String(), "reloaded log.level") }))
	hangUp("[log]\nlevel = \"loud\"\n")
	is.True(soon(func() bool { return strings.Contains(log.String(), "cannot reload log.level: the old stays") }))
	is.True(answers(base))
	hangUp("read_only = true\n[log]\nlevel = \"info\"\n")
	is.True(soon(func() bool { return strings.Contains(log.String(), "all settings but log.level need a restart") }))
	is.True(soon(func() bool { return strings.Count(log.String(), "reloaded log.level") >= 2 }))
	is.NoErr(cmd.Process.Signal(syscall.SIGTERM))
	is.NoErr(cmd.Wait())
	is.Equal(strings.Count(log.String(), "reloaded log.level"), 2) // not with the level "loud"
}

// New secrets count without a restart, while requests go on. Keys of before stay good. A file that is
// damaged, lacks secrets in use, or is gone, changes nothing, and the log says so once.
func TestReloadedSecrets(t *testing.T) {
	is := parallel(t)
	db := newDB(t)
	s := startServer(t, "-db", db)
	key, keys := s.key(), db+".keys"
	old := must(os.ReadFile(keys))
	stop, failed := make(chan struct{}), ""
	var callers sync.WaitGroup
	callers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if status, text, err := s.send(key, "GET", "/ext/svc/users/alice", ""); status != 200 {
				failed = fmt.Sprint(status, text, err)
				return
			}
		}
	})
	took := func() int { return strings.Count(s.stderr.String(), "took new secrets") }
	does(t, "keys", "rotate", "-db", db)
	is.True(soon(func() bool { return took() == 1 }))
	var issued struct {
		Key string `json:"api_key"`
	}
	is.NoErr(json.Unmarshal([]byte(s.wants(t, 201, key, "POST", "/ext/svc/me/api-keys", "{}")), &issued))
	close(stop)
	callers.Wait()
	is.Equal(failed, "")

	rotated := must(os.ReadFile(keys))
	refused := 0
	for _, spoil := range []func() error{
		func() error { return os.WriteFile(keys, []byte("{"), 0o600) },
		func() error { return os.Remove(keys) },
		func() error { return os.WriteFile(keys, old, 0o600) }, // lacks the new pair
	} {
		is.NoErr(spoil())
		refused++
		is.True(soon(func() bool { return strings.Count(s.stderr.String(), "cannot reload the keys file") == refused }))
		s.wants(t, 200, issued.Key, "GET", "/ext/svc/me/api-keys", "")
	}
	is.NoErr(os.WriteFile(keys, rotated, 0o600))
	s.wants(t, 200, key, "GET", "/ext/svc/me/api-keys", "")
	is.Equal(took(), 1)
	is.NoErr(s.stop(t))
	again := startServer(t, "-db", db)
	again.wants(t, 200, issued.Key, "GET", "/ext/svc/me/api-keys", "")
	is.NoErr(again.stop(t))
}

// SIGHUP takes a renewed certificate at once. A bad one is logged, and the old stays.
func TestReloadedCertificate(t *testing.T) {
	t.Parallel()
	hearHangUps(t)
	is := is.New(t)
	cert, key, _ := certificate(t)
	next, nextKey, _ := certificate(t)
	var log output
	cmd := command(t, "-db", newDB(t), "-addr", "127.0.0.1:0", "-config",
		writeFile(t, "c.toml", fmt.Sprintf("[tls]\ncert_file = %q\nkey_file = %q\n", cert, key)))
	var said output
	cmd.Stdout, cmd.Stderr = &said, &log
	is.NoErr(cmd.Start())
	is.True(soon(func() bool { return listensOn.MatchString(said.String()) }))
	base := listensOn.FindStringSubmatch(said.String())[1]
	served := func() string {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
		answer := must(client.Get(base + "/healthz"))
		defer answer.Body.Close()
		return answer.TLS.PeerCertificates[0].NotBefore.Format(time.RFC3339Nano) + string(answer.TLS.PeerCertificates[0].Signature)
	}
	first := served()
	is.NoErr(os.WriteFile(cert, []byte("none"), 0o600))
	is.NoErr(cmd.Process.Signal(syscall.SIGHUP))
	is.True(soon(func() bool { return strings.Contains(log.String(), "cannot reload the certificate") }))
	is.Equal(served(), first)
	is.NoErr(os.Rename(next, cert))
	is.NoErr(os.Rename(nextKey, key))
	is.NoErr(cmd.Process.Signal(syscall.SIGHUP))
	is.True(soon(func() bool { return strings.Contains(log.String(), "the certificate was renewed") }))
	is.True(served() != first)
	is.NoErr(cmd.Process.Signal(syscall.SIGTERM))
	is.NoErr(cmd.Wait())
}

// onSocket starts the server as a process on a socket, and waits until it serves there.
func onSocket(t *testing.T, socket string, args ...string) (cmd *exec.Cmd, said *output) {
	t.Helper()
	cmd, said = command(t, append(args, "-addr", "unix:"+socket)...), &output{}
	cmd.Stdout, cmd.Stderr = said, said
	is.New(t).NoErr(cmd.Start())
	client := &http.Client{Transport: dialing(socket)}
	if !soon(func() bool {
		answer, err := client.Get("http://localhost/healthz")
		return err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusNoContent
	}) {
		t.Fatalf("the server does not start: %s", said)
	}
	return cmd, said
}

// A server on a socket is reached by its owner and group alone. It replaces the socket of a process
// that was killed, and removes its own when it ends.
func TestServerOnASocket(t *testing.T) {
	is := is.New(t)
	socket, db := filepath.Join(t.TempDir(), "svc.sock"), newDB(t)
	first, said := onSocket(t, socket, "-db", db)
	is.Equal(must(os.Stat(socket)).Mode(), os.ModeSocket|0o660)
	printed := regexp.MustCompile(`(?m)^KEY=(svcu_\w+)$`)
	is.True(soon(func() bool { // it serves before it says so
		return strings.Contains(said.String(), "svc listens on unix:"+socket+"\n") && printed.MatchString(said.String())
	}))
	t.Setenv("SVC_KEY", printed.FindStringSubmatch(said.String())[1])
	is.True(strings.Contains(does(t, "user", "list", "-url", "unix:"+socket), "alice"))
	does(t, "lint", "-url", "unix:"+socket)
	does(t, "health", "-addr", "unix:"+socket)

	err := run(t.Context(), []string{"-db", newDB(t), "-addr", "unix:" + socket}, io.Discard, io.Discard)
	is.True(err != nil && strings.Contains(err.Error(), "another process listens on "+socket))
	is.NoErr(first.Process.Kill())
	_ = first.Wait()
	must(os.Stat(socket)) // a process that was killed leaves it
	second, _ := onSocket(t, socket, "-db", db)
	does(t, "user", "list", "-url", "unix:"+socket)
	is.NoErr(second.Process.Signal(syscall.SIGTERM))
	is.NoErr(second.Wait())
	_, err = os.Stat(socket)
	is.True(os.IsNotExist(err))
}

// Nothing but a stale socket is replaced.
func TestFilesInPlaceOfASocket(t *testing.T) {
	is := is.New(t)
	file := writeFile(t, "svc.sock", "data")
	_, err := listen(t.Context(), "unix:"+file)
	is.True(err != nil && strings.Contains(err.Error(), "is not a socket"))
	is.Equal(string(must(os.ReadFile(file))), "data")
	socket := filepath.Join(t.TempDir(), "live.sock")
	live := must(net.Listen("unix", socket))
	_, err = listen(t.Context(), "unix:"+socket)
	is.True(err != nil)
	is.NoErr(live.Close())
	for _, bad := range []string{"unix:", "unix:/" + strings.Repeat("x", 103)} {
		is.Equal(exitCode(run(t.Context(), []string{"-addr", bad}, io.Discard, io.Discard), io.Discard), 2)
	}
}
