//go:build unix

package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

func TestServerOnPostgres(t *testing.T) {
	binary := buildServer(t)
	t.Chdir(t.TempDir()) // the server makes its keys file there
	t.Run("killed", func(t *testing.T) { testKilled(t, binary, pgtest.Schema(t)) })
	t.Chdir(t.TempDir())
	t.Run("two over one database", func(t *testing.T) { testTwo(t, binary, pgtest.Schema(t)) })
	t.Chdir(t.TempDir())
	t.Run("stands still", func(t *testing.T) { testStandsStill(t, binary, pgtest.Schema(t)) })
	t.Chdir(t.TempDir())
	t.Run("the database dies", func(t *testing.T) { testDatabaseDies(t, binary) })
}

// A server that stands still for longer than it waits for its database, as on a machine that is
// suspended, answers its requests afterwards.
func testStandsStill(t *testing.T, binary, url string) {
	longtest.Test(t, "a server that stands still")
	p := run(t, binary, url)
	defer p.kill()
	admin, l := newCaller(t, newClient(t, time.Minute), p.url, p.key), newLedger()
	var writers sync.WaitGroup
	for i := range clients {
		writers.Go(func() { l.write(admin, fmt.Sprint("w", i)) })
	}
	l.await(perRound)
	fails(t, p.command.Process.Signal(syscall.SIGSTOP), "")
	time.Sleep(5 * time.Second)
	fails(t, p.command.Process.Signal(syscall.SIGCONT), "")
	l.mu.Lock()
	before := l.acknowledged
	l.mu.Unlock()
	l.await(before + perRound)
	p.kill()
	writers.Wait() // each that was refused has failed the test
	if t.Failed() {
		t.Logf("stderr: %s", p.stderr)
	}
}

// persistent writes until it is stopped. It goes on after a 503 with Retry-After; every other
// failure is an error.
type persistent struct {
	admin caller
	stop  chan struct{}

	mu      sync.Mutex
	issued  []string // acknowledged keys
	revoked []string // acknowledged revocations
	refused int
}

func (p *persistent) run() {
	ctx := p.admin.t.Context()
	for n := 0; ; n++ {
		select {
		case <-p.stop:
			return
		default:
		}
		var key svc.IssuedKey
		if !p.ask(func() (err error) {
			key, err = p.admin.Keys.Issue(ctx, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{})
			return err
		}) {
			continue
		}
		p.note(&p.issued, string(key.Key))
		if n%2 == 0 && p.ask(func() error { return p.admin.Keys.Revoke(ctx, svc.Identity{Kind: svc.KindUser, ID: "alice"}, key.ID) }) {
			p.note(&p.revoked, string(key.Key))
		}
	}
}

func (p *persistent) ask(do func() error) bool {
	err := do()
	if err == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if answer, answered := errors.AsType[*client.StatusError](err); answered && answer.Problem && answer.Status == 503 && answer.RetryAfter > 0 {
		p.refused++
	} else {
		p.admin.t.Error(err)
	}
	time.Sleep(5 * time.Millisecond)
	return false
}

func (p *persistent) note(list *[]string, key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*list = append(*list, key)
}

func (p *persistent) counts() (issued, refused int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.issued), p.refused
}

// await waits for so many more keys.
func (p *persistent) await(more int) {
	p.admin.t.Helper()
	before, _ := p.counts()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if now, refused := p.counts(); now >= before+more {
			return
		} else if time.Now().After(deadline) {
			p.admin.t.Fatalf("%d keys were issued, want %d; %d requests were refused", now-before, more, refused)
		}
	}
}

// testDatabaseDies kills PostgreSQL under a running server. The server answers 503 meanwhile,
// recovers after the restart, and has lost nothing.
func testDatabaseDies(t *testing.T, binary string) {
	longtest.Test(t, "that a server outlives its database")
	cluster := pgtest.Start(t)
	server := run(t, binary, cluster.URL)
	admin := newCaller(t, newClient(t, time.Minute), server.url, server.key)
	p := &persistent{admin: admin, stop: make(chan struct{})}
	var group sync.WaitGroup
	for range clients {
		group.Go(p.run)
	}
	for _, die := range []func(){cluster.Kill, cluster.Crash} {
		p.await(20)
		wantHealth(t, admin, 204)
		die()
		wantUnavailable(t, admin)
		wantHealth(t, admin, 503)
		time.Sleep(300 * time.Millisecond)
		cluster.Restart()
		p.await(1)
	}
	p.await(20)
	close(p.stop)
	group.Wait()
	gone := map[string]bool{}
	for _, key := range p.revoked {
		gone[key] = true
		if err := as(admin, key).try(); svc.ErrorCode(err) != svc.CodeUnauthenticated {
			t.Errorf("a key was revoked, and is answered with %v", err)
		}
	}
	maybe := 0 // refused revocations may have taken effect
	for _, key := range p.issued {
		switch code := svc.ErrorCode(as(admin, key).try()); {
		case gone[key], code == "":
		case code == svc.CodeUnauthenticated:
			maybe++
		default:
			t.Errorf("a key was issued, and is answered with %s", code)
		}
	}
	if _, refused := p.counts(); refused == 0 || len(p.revoked) == 0 || maybe > 2*clients {
		t.Errorf("%d refused, %d revoked, %d issued keys are not accepted", refused, len(p.revoked), maybe)
	}
	t.Logf("%d issued, %d revoked, %d refused", len(p.issued), len(p.revoked), p.refused)
}

// wantHealth checks the server's health check, which needs no bearer.
func wantHealth(t *testing.T, c caller, status int) {
	t.Helper()
	response, err := c.http.Get(strings.TrimSuffix(c.url, httpapi.DefaultPrefix) + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != status {
		t.Errorf("the health check answered %d, want %d", response.StatusCode, status)
	}
}

// wantUnavailable checks that reads and writes get 503 with Retry-After.
func wantUnavailable(t *testing.T, admin caller) {
	t.Helper()
	for _, target := range []string{"/me/api-keys", "/admin/templates", "/debug/resolve?bank=b&user_id=alice"} {
		request, err := http.NewRequest("GET", admin.url+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+admin.bearer)
		response, err := admin.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != 503 || response.Header.Get("Retry-After") == "" {
			t.Errorf("%s: answered %d, Retry-After %q, while there was no database", target, response.StatusCode, response.Header.Get("Retry-After"))
		}
	}
}
