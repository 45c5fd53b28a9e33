//go:build unix

package e2e_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

func TestServerOnPostgres(t *testing.T) {
	binary := buildServer(t)
	t.Chdir(t.TempDir()) // where the keys file is made
	t.Run("killed", func(t *testing.T) { testKilled(t, binary, pgtest.Schema(t)) })
	t.Chdir(t.TempDir())
	t.Run("two over one database", func(t *testing.T) { testTwo(t, binary, pgtest.Schema(t)) })
	t.Chdir(t.TempDir())
	t.Run("the database dies", func(t *testing.T) { testDatabaseDies(t, binary) })
}

// persistent writes until it is stopped, and goes on where it is refused with 503 and Retry-After: any other answer is wrong.
type persistent struct {
	admin caller
	stop  chan struct{}

	mu      sync.Mutex
	issued  []string // keys that were acknowledged
	revoked []string // likewise
	refused int
}

func (p *persistent) run() {
	for n := 0; ; n++ {
		select {
		case <-p.stop:
			return
		default:
		}
		a, ok := p.ask("POST", "/users/alice/api-keys", "", 201)
		if !ok {
			continue
		}
		key := a.text("api_key")
		p.note(&p.issued, key)
		if n%2 == 0 {
			if _, ok := p.ask("DELETE", "/users/alice/api-keys/"+keyID(key), "", 204); ok {
				p.note(&p.revoked, key)
			}
		}
	}
}

func (p *persistent) ask(method, target, body string, status int) (answer, bool) {
	a, err := p.admin.try(method, target, body)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		p.admin.t.Errorf("%s: %v", a.request, err)
	case a.status == 503 && strings.Contains(string(a.body), `"code":"unavailable"`):
		p.refused++
	case a.status != status:
		p.admin.t.Errorf("%s: answered %d: %s", a.request, a.status, a.body)
	default:
		return a, true
	}
	time.Sleep(5 * time.Millisecond)
	return a, false
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

// await waits until so many more keys were issued.
func (p *persistent) await(more int, within time.Duration) {
	p.admin.t.Helper()
	before, _ := p.counts()
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		if now, refused := p.counts(); now >= before+more {
			return
		} else if time.Now().After(deadline) {
			p.admin.t.Fatalf("%d keys were issued within %s, want %d; %d requests were refused", now-before, within, more, refused)
		}
	}
}

// testDatabaseDies kills PostgreSQL under a server that goes on: it answers 503 meanwhile, is good again within five seconds of the
// restart, and has lost nothing.
func testDatabaseDies(t *testing.T, binary string) {
	cluster := pgtest.Start(t)
	server := run(t, binary, cluster.URL)
	admin := caller{t, newClient(t, 20*time.Second), server.url, server.key}
	p := &persistent{admin: admin, stop: make(chan struct{})}
	var group sync.WaitGroup
	for range clients {
		group.Go(p.run)
	}
	for _, die := range []func(){cluster.Kill, cluster.Crash} {
		p.await(20, 10*time.Second)
		wantHealth(t, admin, 204)
		die()
		wantUnavailable(t, admin)
		wantHealth(t, admin, 503)
		time.Sleep(300 * time.Millisecond)
		cluster.Restart()
		p.await(1, 5*time.Second)
	}
	p.await(20, 10*time.Second)
	close(p.stop)
	group.Wait()
	gone := map[string]bool{}
	for _, key := range p.revoked {
		gone[key] = true
		if status := as(admin, key).get("/me/api-keys").status; status != 401 {
			t.Errorf("a key was revoked, and is answered with %d", status)
		}
	}
	maybe := 0 // revocations that were refused may have happened
	for _, key := range p.issued {
		switch status := as(admin, key).get("/me/api-keys").status; {
		case gone[key], status == 200:
		case status == 401:
			maybe++
		default:
			t.Errorf("a key was issued, and is answered with %d", status)
		}
	}
	if _, refused := p.counts(); refused == 0 || len(p.revoked) == 0 || maybe > 2*clients {
		t.Errorf("%d refused, %d revoked, %d issued keys are not accepted", refused, len(p.revoked), maybe)
	}
	t.Logf("%d issued, %d revoked, %d refused", len(p.issued), len(p.revoked), p.refused)
}

// wantHealth asks the server's health check, which needs no bearer.
func wantHealth(t *testing.T, c caller, status int) {
	t.Helper()
	response, err := c.client.Get(strings.TrimSuffix(c.url, httpapi.DefaultPrefix) + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != status {
		t.Errorf("the health check answered %d, want %d", response.StatusCode, status)
	}
}

// wantUnavailable wants reads and writes to be answered with 503 and Retry-After.
func wantUnavailable(t *testing.T, admin caller) {
	t.Helper()
	for _, target := range []string{"/me/api-keys", "/admin/templates", "/debug/resolve?bank=b&user_id=alice"} {
		request, err := http.NewRequest("GET", admin.url+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+admin.bearer)
		response, err := admin.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != 503 || response.Header.Get("Retry-After") == "" {
			t.Errorf("%s: answered %d, Retry-After %q, while there was no database", target, response.StatusCode, response.Header.Get("Retry-After"))
		}
	}
}
