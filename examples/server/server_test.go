package main

import (
	"bytes"
	"context"
	"database/sql"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/examples/internal/programtest"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/postgres/pgtest/pgschema"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

func TestSourcesThatMayBeAsked(t *testing.T) {
	is := is.New(t)
	files := httptest.NewServer(http.StripPrefix("/own/", http.FileServerFS(os.DirFS("catalogue/files"))))
	defer files.Close()
	closed, open := startServer(t, "-db", newDB(t)), startServer(t, "-db", newDB(t), "-allow-source", files.URL)
	register := `{"url": "` + files.URL + `/own"}`
	problem := closed.wants(t, 400, closed.key(), "POST", "/ext/svc/admin/template-sources", register)
	is.True(strings.Contains(problem, `"/url"`))
	open.wants(t, 201, open.key(), "POST", "/ext/svc/admin/template-sources", register)
	template := open.wants(t, 200, open.key(), "POST", "/ext/svc/admin/templates/plant-care/install", `{"source_name": "own"}`)
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
	server.wants(t, 201, key, "POST", "/ext/svc/admin/template-sources", `{"url": "`+slow.URL+`", "alias": "slow"}`)

	installed := make(chan int, 1)
	go func() {
		status, _, _ := server.send(key, "POST", "/ext/svc/admin/templates/slow/install", `{"source_name": "slow"}`)
		installed <- status
	}()
	<-asked
	server.cancel()
	is.True(soon(func() bool { return strings.Contains(server.stderr.String(), "msg=stopping") }))
	time.Sleep(50 * time.Millisecond) // enough for one that does not wait to cut the request off
	close(answer)
	is.Equal(<-installed, 200)
	is.NoErr(server.stop(t))
}

func TestAddressInUse(t *testing.T) {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	db := newDB(t)
	for _, said := range []string{listener.Addr().String(), "in use"} {
		fails(t, said, "-addr", listener.Addr().String(), "-db", db)
	}
	_, err := os.Stat(db)
	is.New(t).True(os.IsNotExist(err)) // nothing was touched
}

func TestProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("NOT TESTED, because this system has no signals: that the server ends well")
	}
	is := is.New(t)
	db := newDB(t)
	for _, signal := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM, os.Interrupt} {
		process := command(t, "-addr", "127.0.0.1:0", "-db", db)
		stdout := &output{}
		process.Stdout = stdout
		is.NoErr(process.Start())
		is.True(soon(func() bool { return strings.Contains(stdout.String(), "KEY=$(") }))
		is.NoErr(process.Process.Signal(signal))
		err := process.Wait()
		is.True(err == nil || signal == syscall.SIGKILL) // exits with 0
	}
}

// A signal that comes twice at once, as from GNU timeout, ends the process in order.
func TestSignalThatComesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, stopped := is.New(t), false
		ctx, first := context.WithCancel(t.Context())
		obeyLaterSignals(ctx, func() { stopped = true })
		first()
		for _, later := range []time.Duration{oneSignal - 1, 1} {
			synctest.Wait()
			is.True(!stopped)
			time.Sleep(later)
		}
		synctest.Wait()
		is.True(stopped)
	})
}

const smallBundle = `{
	"users": [{"id": "admin"}, {"id": "carol"}],
	"policies": [{"id": "all", "document": {"version": "2026-03-24", "statements": [
		{"effect": "allow", "actions": ["iam:*", "template:*"], "banks": ["*"]}]}}],
	"attachments": [{"policy_id": "all", "principal_type": "user", "principal_id": "admin"}]
}`

// everything lists the paths that an administrator reads.
var everything = []string{
	"/ext/svc/admin/template-sources",
	"/ext/svc/admin/templates",
	"/ext/svc/users/admin/api-keys",
	"/ext/svc/me/api-keys",
	"/ext/svc/debug/resolve?bank=support&user_id=alice",
}

func TestMeterPrintsOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, out := is.New(t), &strings.Builder{}
		report := meter(out)
		for done := range 10 {
			report(done, 9)
			time.Sleep(time.Second / 4)
		}
		is.Equal(out.String(), "bundle: 4 of 9 rows\nbundle: 8 of 9 rows\nbundle: 9 of 9 rows\n")
	})
}

func TestStartThatBrokeOffBeforeTheKey(t *testing.T) {
	is := is.New(t)
	db, ctx := newDB(t), context.Background()
	h := must(openHost(ctx, config{DB: db, Keys: db + ".keys"}, "http://127.0.0.1:1", slog.New(slog.DiscardHandler)))
	is.True(h.fresh)
	is.NoErr(h.applyDemo(ctx))
	is.NoErr(h.close())

	server := startServer(t, "-db", db)
	is.Equal(server.key(), "")
	is.True(strings.Contains(server.stdout.String(), " key -db "+db+" -user admin)"))
	key := issueKey(t, "-db", db, "-user", "admin")
	server.wants(t, 200, key, "GET", "/ext/svc/me/api-keys", "")
}

// Of servers that have found one database fresh, the first issues a key.
func TestFirstOfSeveral(t *testing.T) {
	is, db, log, keys := parallel(t), newDB(t), slog.New(slog.DiscardHandler), 0
	c := config{DB: db, Keys: db + ".keys"}
	for _, h := range []*host{must(openHost(t.Context(), c, "http://127.0.0.1:1", log)), must(openHost(t.Context(), c, "http://127.0.0.1:1", log))} {
		if must(h.prepare(t.Context(), c, log)).first.Key != "" {
			keys++
		}
		defer h.close()
	}
	is.Equal(keys, 1)
}

// A server that is read-only answers reads and refuses writes, in its pages as well. It sees what
// another process writes, and leaves the database as it is.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, flags []string) {
		is, writer := parallel(t), startServer(t, flags...)
		key := writer.key()
		bundle := writeFile(t, "b.json", `{"users": [{"id": "added"}]}`)
		reader := startServer(t, append(flags, "-read-only", "-bundle", bundle)...)
		is.Equal(reader.key(), "")
		reader.wants(t, 200, key, "GET", "/ext/svc/users/alice", "")
		reader.wants(t, 404, key, "GET", "/ext/svc/users/added", "")
		reader.wants(t, 200, key, "GET", "/ext/svc/admin/events", "")
		for _, line := range []string{
			`POST /users {"id":"new"}`, `DELETE /users/alice`, `POST /me/api-keys {}`,
			`POST /admin/access-bundle {"users":[{"id":"new"}]}`,
		} {
			word := strings.SplitN(line+" ", " ", 3)
			said := reader.wants(t, 403, key, word[0], "/ext/svc"+word[1], strings.TrimSpace(word[2]))
			is.True(strings.Contains(said, `"code":"read_only"`))
		}
		buttons := func(s *running) bool {
			answer := must(client.PostForm(s.base+"/ext/svc-admin/sign-in", url.Values{"key": {key}}))
			is.NoErr(answer.Body.Close())
			r := must(http.NewRequest("GET", s.base+"/ext/svc-admin/keys", nil))
			r.AddCookie(answer.Cookies()[0])
			page := must(client.Do(r))
			defer page.Body.Close()
			text := must(io.ReadAll(page.Body))
			is.Equal(page.StatusCode, 200)
			return strings.Contains(string(text), "Revoke")
		}
		is.True(buttons(writer) && !buttons(reader))
		writer.wants(t, 201, key, "POST", "/ext/svc/users", `{"id":"new"}`)
		is.True(soon(func() bool { status, _ := reader.get(t, key, "/ext/svc/users/new"); return status == 200 }))
		is.NoErr(reader.stop(t))
		is.NoErr(writer.stop(t))
	})
}

// The greatest numbers of a configuration overflow nowhere.
func TestGreatestNumbers(t *testing.T) {
	for _, v := range new(config).numbers() {
		t.Setenv(variableOf(v.key), strconv.Itoa(math.MaxInt))
	}
	s := startServer(t, "-db", newDB(t))
	s.wants(t, 200, s.key(), "GET", "/ext/svc/users/alice", "")
	s.wants(t, 201, s.key(), "POST", "/ext/svc/users", `{"id": "carol"}`)
	is.New(t).NoErr(s.stop(t))
}

func TestMain(m *testing.M) { programtest.Main(m, "SVC_EXAMPLE_SERVER", main) }

// output collects the output of a running server.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// running is a server in this process.
type running struct {
	base           string // of its addresses
	stdout, stderr *output

	cancel context.CancelFunc
	ended  chan error
}

var listensOn = regexp.MustCompile(`svc listens on (https?://\S+)\n`)

// startServer runs the server on a free port until stop or the end of the test.
func startServer(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &running{stdout: &output{}, stderr: &output{}, cancel: cancel, ended: make(chan error, 1)}
	go func() { s.ended <- run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), s.stdout, s.stderr) }()
	t.Cleanup(func() { s.stop(t) })
	soon(func() bool {
		if found := listensOn.FindStringSubmatch(s.stdout.String()); found != nil {
			s.base = found[1]
		}
		return s.base != "" || len(s.ended) > 0
	})
	if s.base != "" {
		return s
	}
	t.Fatalf("the server did not start: %v\n%s", s.stop(t), s.stderr)
	return nil
}

// stop ends the server and returns the error of run. A second call returns nil.
func (s *running) stop(t *testing.T) error {
	t.Helper()
	s.cancel()
	select {
	case err, open := <-s.ended:
		if open {
			close(s.ended)
		}
		return err
	case <-time.After(5 * time.Minute):
		t.Fatal("the server does not stop")
		return nil
	}
}

var printedKey = regexp.MustCompile(`(?m)^KEY=(svcu_\w+)$`)

// key returns the key that the server printed, or "".
func (s *running) key() string {
	if found := printedKey.FindStringSubmatch(s.stdout.String()); found != nil {
		return found[1]
	}
	return ""
}

// client follows no redirects: the server must send none.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// ask sends a request with a key, and returns the status and body of the answer.
func (s *running) ask(t *testing.T, key, method, path, body string) (int, string) {
	t.Helper()
	status, text, err := s.send(key, method, path, body)
	is.New(t).NoErr(err)
	return status, text
}

func (s *running) send(key, method, path, body string) (int, string, error) {
	request, err := http.NewRequest(method, s.base+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// wants sends a request whose answer must have a status, and returns the body.
func (s *running) wants(t *testing.T, status int, key, method, path, body string) string {
	t.Helper()
	got, text := s.ask(t, key, method, path, body)
	expect.Holds(t, got == status, method, " ", path, ": ", got, ", want ", status, ": ", text)
	return text
}

func (s *running) get(t *testing.T, key, path string) (int, string) {
	t.Helper()
	return s.ask(t, key, "GET", path, "")
}

// newDB returns the path of a database that does not exist yet.
func newDB(t *testing.T) string {
	return filepath.Join(t.TempDir(), "svc.db")
}

// writeFile puts a file into a directory of its own.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	is.New(t).NoErr(os.WriteFile(path, []byte(text), 0o600))
	return path
}

// command runs this binary as the server, as a process of its own.
func command(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "SVC_EXAMPLE_SERVER=1")
	return cmd
}

// parallel lets a test run beside others, and returns its checks.
func parallel(t *testing.T) *is.I {
	t.Parallel()
	return is.New(t)
}

// must is the value of a call that does not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// Two servers share a database, as in an upgrade without downtime.
func TestTwoServersOnPostgres(t *testing.T) {
	is := parallel(t)
	flags := []string{"-db", pgschema.Migrated(t), "-keys", filepath.Join(t.TempDir(), "svc.keys")}
	one := startServer(t, flags...)
	two := startServer(t, flags...)
	is.Equal(two.key(), "")
	issued := one.wants(t, 201, one.key(), "POST", "/ext/svc/users/alice/api-keys", "")
	_, rest, _ := strings.Cut(issued, `"api_key":"`)
	key, _, _ := strings.Cut(rest, `"`)
	two.wants(t, 200, key, "GET", "/ext/svc/me/api-keys", "")
	one.wants(t, 204, one.key(), "DELETE", "/ext/svc/users/alice/api-keys/"+key[len("svcu_"):len("svcu_")+16], "")
	one.wants(t, 401, key, "GET", "/ext/svc/me/api-keys", "")
	is.True(soon(func() bool { status, _ := two.get(t, key, "/ext/svc/me/api-keys"); return status == 401 }))
}

func TestPasswordIsNotPrinted(t *testing.T) {
	is := is.New(t)
	const secret = "Hunter2Secret"
	for db, want := range map[string]string{
		"svc.db":                                  "svc.db",
		"postgres://u@h:5432/d?sslmode=disable":   "postgres://u@h:5432/d?sslmode=disable",
		"postgres://u:Hunter2Secret@h/d":          "postgres://u:PASSWORD@h/d",
		"postgresql://h/d?password=Hunter2Secret": "postgresql://h/d?password=PASSWORD",
		"postgres://u:Hunter2Secret%zz@h/d":       "URL",
	} {
		c := config{DB: db}
		c.Keys = c.usualKeys()
		var printed output
		is.NoErr(greet(&printed, c, "http://127.0.0.1:1", start{administrator: true}))
		is.True(strings.Contains(printed.String(), " key -db "+word(want)+" -user admin)\n"))
		is.True(!strings.Contains(printed.String(), secret))
		is.Equal(strings.Contains(printed.String(), ", with the password in place of PASSWORD\n"), strings.Contains(db, secret))
	}
}

// migrate prints the SQL that a database lacks: all, or nothing. After that SQL, the server migrates nothing. With
// -all it prints the SQL for an empty database, and opens none.
func TestMigrationsArePrinted(t *testing.T) {
	t.Parallel()
	for driver, c := range map[string]struct {
		none    string
		dialect sqlstore.Dialect
	}{
		"sqlite": {"none.db", sqlite.Dialect()},
		"pgx":    {"postgres://u:p@127.0.0.1:1/none", postgres.Dialect()},
	} {
		t.Run(driver, func(t *testing.T) {
			is, whole, at := parallel(t), sqlstore.SQL(c.dialect), newDB(t)
			is.Equal(does(t, "migrate", "-print", "-all", "-db", c.none), whole)
			if driver == "pgx" {
				longtest.Test(t, "this with PostgreSQL")
				at = pgtest.Schema(t)
			}
			is.Equal(does(t, "migrate", "-print", "-db", at), whole)
			for _, db := range []string{c.none, at} { // nothing was made
				_, err := os.Stat(db)
				is.True(os.IsNotExist(err))
			}
			db := must(sql.Open(driver, at))
			defer db.Close()
			must(db.Exec(whole))
			is.Equal(does(t, "migrate", "-print", "-db", at), "-- The tables are up to date.\n")
			startServer(t, "-db", at, "-keys", filepath.Join(t.TempDir(), "keys"))
			must(db.Exec("INSERT INTO svc_migrations (version) VALUES (1000)"))
			fails(t, "1000", "migrate", "-print", "-db", at)
		})
	}
}
