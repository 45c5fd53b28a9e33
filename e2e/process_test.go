package e2e_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc/e2e/contract"
	"github.com/extsvc/svc/marketplace"
)

// buildServer builds examples/server as it stands.
func buildServer(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "server")
	args := []string{"build", "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.CommandContext(t.Context(), "go", append(args, "./server")...)
	build.Dir = filepath.Join("..", "examples")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// process is a server that runs as a process of its own.
type process struct {
	command *exec.Cmd
	url     string
	key     string // of the administrator, when it was printed
	stderr  *bytes.Buffer
}

var (
	printedKey = regexp.MustCompile(`svcu_[0-9A-Za-z]{54}`)
	printedURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
)

// run starts the server on a free port and waits until it answers.
func run(t *testing.T, binary, db string) *process {
	t.Helper()
	p := &process{command: exec.Command(binary, "-db", db, "-addr", "127.0.0.1:0"), stderr: &bytes.Buffer{}}
	p.command.Stderr = p.stderr
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	lines := make(chan string, 100)
	go func() {
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines <- scanner.Text()
		}
		close(lines)
	}()
	for deadline := time.After(20 * time.Second); ; {
		select {
		case line, open := <-lines:
			if !open {
				t.Fatalf("the server ended: %s", p.stderr)
			}
			if key := printedKey.FindString(line); key != "" {
				p.key = key
			}
			if url := printedURL.FindString(line); url != "" {
				p.url = url + "/ext/svc"
			}
		case <-time.After(50 * time.Millisecond):
			if p.url != "" && answers(newClient(t, 10*time.Second), p.url) {
				return p
			}
		case <-deadline:
			t.Fatalf("the server does not answer: %q %s", p.url, p.stderr)
		}
	}
}

// newClient is for a process: of examples/server, which numbers requests.
func newClient(t *testing.T, timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: contract.Transport(t, &http.Transport{MaxIdleConnsPerHost: clients}, "X-Request-Id")}
}

func answers(client *http.Client, url string) bool {
	defer client.CloseIdleConnections()
	response, err := client.Get(url)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode == http.StatusUnauthorized
}

// kill ends the process as kill -9 does, and waits until it is gone.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
}

// ledger is what a server has acknowledged.
type ledger struct {
	mu                     sync.Mutex
	there, gone            map[string]bool // template ids
	good, revoked          map[string]bool // keys
	descriptions           map[string]string
	unsure                 map[string]bool // asked for, never answered
	acknowledged, attempts int
}

func newLedger() *ledger {
	return &ledger{there: map[string]bool{}, gone: map[string]bool{}, good: map[string]bool{}, revoked: map[string]bool{}, descriptions: map[string]string{}, unsure: map[string]bool{}}
}

// write keeps writing until the server is gone, and notes what it acknowledged.
func (l *ledger) write(admin caller, writer string) {
	for n := 0; ; n++ {
		id := fmt.Sprintf("%s-%d", writer, n)
		if !l.step(admin, id, "POST", "/admin/templates", `{"id": "`+id+`", "name": "n", "manifest": {"version": "1"}}`, 200, func(answer) { l.there[id] = true }) ||
			!l.step(admin, id, "PATCH", "/admin/templates/"+id, `{"description": "d`+id+`"}`, 200, func(answer) { l.descriptions[id] = "d" + id }) {
			return
		}
		if n%3 == 0 && !l.step(admin, id, "DELETE", "/admin/templates/"+id, "", 204, func(answer) { delete(l.there, id); l.gone[id] = true }) {
			return
		}
		var key string
		if !l.step(admin, "", "POST", "/users/alice/api-keys", "", 201, func(a answer) { key = a.text("api_key"); l.good[key] = true }) {
			return
		}
		if n%2 == 0 && !l.step(admin, key, "DELETE", "/users/alice/api-keys/"+keyID(key), "", 204, func(answer) { delete(l.good, key); l.revoked[key] = true }) {
			return
		}
	}
}

// step does one request. It is false when the server is gone.
func (l *ledger) step(admin caller, what, method, target, body string, status int, note func(answer)) bool {
	a, err := admin.try(method, target, body)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts++
	if err != nil {
		l.unsure[what] = true
		return false
	}
	if a.status != status {
		admin.t.Errorf("%s: answered %d, want %d: %s", a.request, a.status, status, a.body)
		return false
	}
	l.acknowledged++
	note(a)
	return true
}

// losses names what was acknowledged, and is not so.
func (l *ledger) losses(admin caller) []string {
	admin.t.Helper()
	var lost []string
	listed := map[string]template{}
	for _, each := range unmarshal[struct{ Templates []template }](admin.t, admin.get("/admin/templates").is(200).body).Templates {
		listed[each.ID] = each
	}
	for id := range l.there {
		have, there := listed[id]
		if !there && !l.unsure[id] {
			lost = append(lost, id+" was created, and is not there")
		} else if want := l.descriptions[id]; there && want != "" && (have.Description == nil || *have.Description != want) {
			lost = append(lost, id+" was patched, and is as before")
		}
	}
	for id := range l.gone {
		if _, there := listed[id]; there {
			lost = append(lost, id+" was deleted, and is back")
		}
	}
	for key := range l.good {
		if as(admin, key).get("/me/api-keys").status != 200 && !l.unsure[key] {
			lost = append(lost, "a key was issued, and is not accepted")
		}
	}
	for key := range l.revoked {
		if as(admin, key).get("/me/api-keys").status != 401 {
			lost = append(lost, "a key was revoked, and is accepted")
		}
	}
	slices.Sort(lost)
	return lost
}

func as(c caller, bearer string) caller { c.bearer = bearer; return c }

func TestServer(t *testing.T) {
	binary := buildServer(t)
	t.Run("killed", func(t *testing.T) { testKilled(t, binary, filepath.Join(t.TempDir(), "svc.db")) })
	t.Run("two over one file", func(t *testing.T) { testTwo(t, binary, filepath.Join(t.TempDir(), "svc.db")) })
}

// testKilled ends the server in the midst of writing, again and again: what was acknowledged is there.
func testKilled(t *testing.T, binary, db string) {
	p := run(t, binary, db)
	if p.key == "" {
		t.Fatalf("no key was printed: %s", p.stderr)
	}
	key, l := p.key, newLedger()
	for round := range 3 {
		client := newClient(t, 10*time.Second)
		admin := caller{t, client, p.url, key}
		var group sync.WaitGroup
		for writer := range clients {
			group.Go(func() { l.write(admin, fmt.Sprintf("r%dw%d", round, writer)) })
		}
		time.Sleep(700 * time.Millisecond)
		p.kill()
		group.Wait()
		client.CloseIdleConnections()
		if logged := p.stderr.String(); strings.Contains(logged, "DATA RACE") || strings.Contains(logged, key) {
			t.Errorf("stderr: %s", logged)
		}
		p = run(t, binary, db)
		if p.key != "" {
			t.Error("another key was printed, though the database is not new")
		}
		admin.url = p.url
		for _, loss := range l.losses(admin) {
			t.Error(loss)
		}
	}
	if l.acknowledged < 20 || len(l.there) == 0 || len(l.gone) == 0 || len(l.good) == 0 || len(l.revoked) == 0 {
		t.Errorf("too little was done to tell: %d of %d acknowledged", l.acknowledged, l.attempts)
	}
	t.Logf("%d requests were acknowledged, %d were not", l.acknowledged, l.attempts-l.acknowledged)
}

// testTwo has two servers that share a database, as at an upgrade without a pause.
func testTwo(t *testing.T, binary, db string) {
	p := run(t, binary, db)
	one := caller{t, newClient(t, 10*time.Second), p.url, p.key}
	two := one
	two.url = run(t, binary, db).url
	for round := range 5 {
		wantOne(t, "create", together(func(i int) answer {
			return []caller{one, two}[i%2].post("/admin/templates", fmt.Sprintf(`{"id": "t%d", "name": "n", "manifest": {"version": "1"}}`, round))
		}), 200, 409)
	}
	two.get("/admin/templates").is(200).json(string(one.get("/admin/templates").is(200).body))
	issued := one.post("/users/alice/api-keys", "").is(201)
	key := issued.text("api_key")
	as(two, key).get("/me/api-keys").is(200)
	one.delete("/users/alice/api-keys/" + issued.text("id")).is(204)
	as(one, key).get("/me/api-keys").is(401)
	for deadline := time.Now().Add(2 * time.Second); as(two, key).get("/me/api-keys").status != 401; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the other server accepts a key two seconds after it was revoked")
		}
	}
}

// The check above must be able to fail.
func TestLedgerNoticesLosses(t *testing.T) {
	s := newSite(t, marketplace.Config{})
	admin := s.admin()
	admin.post("/admin/templates", `{"id": "here", "name": "n", "manifest": {"version": "1"}}`).is(200)
	l := newLedger()
	l.there["here"], l.there["never"], l.there["perhaps"], l.unsure["perhaps"] = true, true, true, true
	l.descriptions["here"] = "patched"
	l.gone["here"], l.gone["never"] = true, true
	l.good["svcu_nonsense"], l.good[admin.bearer], l.revoked[s.key("alice")], l.revoked["svcu_nonsense"] = true, true, true, true
	want := []string{
		"a key was issued, and is not accepted", "a key was revoked, and is accepted",
		"here was deleted, and is back", "here was patched, and is as before", "never was created, and is not there",
	}
	if have := l.losses(admin); !slices.Equal(have, want) {
		t.Errorf("have %q, want %q", have, want)
	}
}
