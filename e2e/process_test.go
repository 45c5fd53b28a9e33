package e2e_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/e2e/contract"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/marketplace"
)

// programs is the directory of built programs.
var programs string

func TestMain(m *testing.M) {
	var err error
	if programs, err = os.MkdirTemp("", "svc-e2e-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// buildServer builds examples/server, once for all tests.
func buildServer(t *testing.T) string {
	t.Helper()
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

var built = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(programs, "server")
	args := []string{"build", "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "./server")...)
	build.Dir = filepath.Join("..", "examples")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return binary, nil
})

// process is a server in its own process.
type process struct {
	command *exec.Cmd
	url     string
	key     string // of the administrator, when the server printed it
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
	for deadline := time.After(time.Minute); ; {
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
			if p.url != "" && answers(newClient(t, time.Minute), p.url) {
				return p
			}
		case <-deadline:
			t.Fatalf("the server does not answer: %q %s", p.url, p.stderr)
		}
	}
}

// newClient returns a client for a process.
func newClient(t *testing.T, timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: contract.Transport(t, &http.Transport{MaxIdleConnsPerHost: clients})}
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

// kill ends the process as kill -9 does, and waits for its end.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
}

// ledger holds what a server has acknowledged.
type ledger struct {
	mu                     sync.Mutex
	there, gone            map[string]bool // template ids
	good, revoked          map[string]bool // keys
	descriptions           map[string]string
	unsure                 map[string]bool // requested, never answered
	acknowledged, attempts int
	varied                 bool // operations of each kind were acknowledged at one moment
}

func newLedger() *ledger {
	return &ledger{there: map[string]bool{}, gone: map[string]bool{}, good: map[string]bool{}, revoked: map[string]bool{}, descriptions: map[string]string{}, unsure: map[string]bool{}}
}

// write writes until the server is gone, and notes what it acknowledged.
func (l *ledger) write(admin caller, writer string) {
	ctx := admin.t.Context()
	for n := 0; ; n++ {
		id := fmt.Sprintf("%s-%d", writer, n)
		if !l.step(admin, id, func() error { return admin.create(id, "n") }, func() { l.there[id] = true }) ||
			!l.step(admin, id, func() error {
				return failure(admin.Templates.Patch(ctx, id, svc.TemplatePatch{Description: textOf(new("d" + id))}))
			}, func() { l.descriptions[id] = "d" + id }) {
			return
		}
		if n%3 == 0 && !l.step(admin, id, func() error { return admin.Templates.Delete(ctx, id) }, func() { delete(l.there, id); l.gone[id] = true }) {
			return
		}
		var issued svc.IssuedKey
		if !l.step(admin, "", func() (err error) {
			issued, err = admin.Keys.Issue(ctx, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{})
			return err
		}, func() { l.good[string(issued.Key)] = true }) {
			return
		}
		key := string(issued.Key)
		if n%2 == 0 && !l.step(admin, key, func() error { return admin.Keys.Revoke(ctx, svc.Identity{Kind: svc.KindUser, ID: "alice"}, issued.ID) }, func() { delete(l.good, key); l.revoked[key] = true }) {
			return
		}
	}
}

// step makes one request. It returns false when the server is gone.
func (l *ledger) step(admin caller, what string, do func() error, note func()) bool {
	err := do()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts++
	if err != nil {
		if answer, answered := errors.AsType[*client.StatusError](err); answered && answer.Status >= 400 {
			admin.t.Error(err)
		}
		l.unsure[what] = true
		return false
	}
	l.acknowledged++
	note()
	return true
}

// perRound is how many operations are acknowledged before the server is killed.
var perRound = longtest.Times(40, 100)

// various reports whether operations of each kind are acknowledged. Call it under mu.
func (l *ledger) various() bool {
	return len(l.there) > 0 && len(l.gone) > 0 && len(l.good) > 0 && len(l.revoked) > 0
}

// await waits until that many operations are acknowledged, of each kind, and then a moment; a minute
// at most.
func (l *ledger) await(acknowledged int) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		l.mu.Lock()
		l.varied = l.varied || l.various()
		enough := l.acknowledged >= acknowledged && l.varied
		l.mu.Unlock()
		if enough {
			break
		}
	}
	time.Sleep(50 * time.Millisecond)
}

// losses returns the acknowledged operations whose effect is missing.
func (l *ledger) losses(admin caller) []string {
	admin.t.Helper()
	var lost []string
	listed := map[string]svc.Template{}
	for _, each := range must(all(admin.Templates.List(admin.t.Context(), svc.TemplateQuery{}))) {
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
		if as(admin, key).try() != nil && !l.unsure[key] {
			lost = append(lost, "a key was issued, and is not accepted")
		}
	}
	for key := range l.revoked {
		if svc.ErrorCode(as(admin, key).try()) != svc.CodeUnauthenticated {
			lost = append(lost, "a key was revoked, and is accepted")
		}
	}
	slices.Sort(lost)
	return lost
}

func TestServer(t *testing.T) {
	binary := buildServer(t)
	t.Run("killed", func(t *testing.T) { testKilled(t, binary, filepath.Join(t.TempDir(), "svc.db")) })
	t.Run("two over one file", func(t *testing.T) { testTwo(t, binary, filepath.Join(t.TempDir(), "svc.db")) })
}

// testKilled kills the server again and again while it writes. Everything acknowledged must be
// there.
func testKilled(t *testing.T, binary, db string) {
	p := run(t, binary, db)
	if p.key == "" {
		t.Fatalf("no key was printed: %s", p.stderr)
	}
	key, l := p.key, newLedger()
	for round := range longtest.Times(1, 3) {
		http := newClient(t, time.Minute)
		admin := newCaller(t, http, p.url, key)
		var group sync.WaitGroup
		for writer := range clients {
			group.Go(func() { l.write(admin, fmt.Sprintf("r%dw%d", round, writer)) })
		}
		l.await((round + 1) * perRound)
		p.kill()
		group.Wait()
		http.CloseIdleConnections()
		if logged := p.stderr.String(); strings.Contains(logged, "DATA RACE") || strings.Contains(logged, key) {
			t.Errorf("stderr: %s", logged)
		}
		p = run(t, binary, db)
		if p.key != "" {
			t.Error("another key was printed, though the database is not new")
		}
		for _, loss := range l.losses(newCaller(t, http, p.url, key)) {
			t.Error(loss)
		}
	}
	if l.acknowledged < 20 || !l.varied {
		t.Errorf("too little was done to tell: %d of %d acknowledged", l.acknowledged, l.attempts)
	}
	t.Logf("%d requests were acknowledged, %d were not", l.acknowledged, l.attempts-l.acknowledged)
}

// testTwo runs two servers over one database, as during an upgrade without downtime.
func testTwo(t *testing.T, binary, db string) {
	p := run(t, binary, db)
	one, ctx := newCaller(t, newClient(t, time.Minute), p.url, p.key), t.Context()
	two := newCaller(t, one.http, run(t, binary, db).url, p.key)
	for round := range 5 {
		wantOne(t, "create", together(func(i int) error { return []caller{one, two}[i%2].create(fmt.Sprint("t", round), "n") }), svc.CodeExists)
	}
	if a, b := must(all(one.Templates.List(ctx, svc.TemplateQuery{}))), must(all(two.Templates.List(ctx, svc.TemplateQuery{}))); !reflect.DeepEqual(a, b) {
		t.Errorf("one lists %v, and the other %v", a, b)
	}
	issued := must(one.Keys.Issue(ctx, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{}))
	fails(t, as(two, string(issued.Key)).try(), "")
	fails(t, one.Keys.Revoke(ctx, svc.Identity{Kind: svc.KindUser, ID: "alice"}, issued.ID), "")
	fails(t, as(one, string(issued.Key)).try(), svc.CodeUnauthenticated)
	for deadline := time.Now().Add(time.Minute); as(two, string(issued.Key)).try() == nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the other server still accepts a revoked key")
		}
	}
}

// testKilled must be able to fail.
func TestLedgerNoticesLosses(t *testing.T) {
	s := newSite(t, marketplace.Config{})
	admin := s.admin()
	fails(t, admin.create("here", "n"), "")
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
