package httpapi_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/store/memstore"
)

// askedTenants counts the questions for tenants.
type askedTenants struct {
	svc.TenantStore
	asked, made atomic.Int64
	broken      atomic.Bool // no tenant opens
}

func (s *askedTenants) Tenant(ctx context.Context, name string) (svc.Tenant, error) {
	s.asked.Add(1)
	return s.TenantStore.Tenant(ctx, name)
}

func (s *askedTenants) CreateTenant(ctx context.Context, name string, state svc.TenantState, at time.Time) (svc.Tenant, error) {
	s.made.Add(1)
	return s.TenantStore.CreateTenant(ctx, name, state, at)
}

func (s *askedTenants) OpenTenant(ctx context.Context, tenant svc.Tenant) (svc.Store, func() error, error) {
	if s.broken.Load() {
		return nil, nil, errors.New("no such disk")
	}
	return s.TenantStore.OpenTenant(ctx, tenant)
}

// city has tenants, each with the administrator ada, and a server of all on pipes.
type city struct {
	t       *testing.T
	store   *askedTenants
	tenants *svc.Tenants
	server  *httptest.Server
	keys    map[string]string // of ada, by tenant
	log     *record
	seen    watcher
}

func newCity(t *testing.T, names []string, changes ...func(*setup)) *city {
	t.Helper()
	c := &city{t: t, store: &askedTenants{TenantStore: memstore.NewTenants()}, keys: map[string]string{}, log: &record{}}
	logger := slog.New(slog.NewJSONHandler(c.log, nil))
	u := setup{
		Config: svc.Config{
			Logger: logger, Events: svc.EventConfig{Keep: true},
			Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}}},
		},
		Options: httpapi.Options{Prefix: "/t/{tenant}/ext/svc", Logger: logger, Observer: &c.seen},
	}
	for _, change := range changes {
		change(&u)
	}
	c.tenants = must(svc.NewTenants(svc.TenantsConfig{Store: c.store, Config: u.Config}))
	for _, name := range names {
		must(c.tenants.Create(t.Context(), name))
		c.use(name, func(service *svc.Service) error {
			to := svc.GrantedTo{Type: svc.GrantedToUser, ID: "ada"}
			err := service.Access.Apply(t.Context(), svc.Host, svc.Bundle{
				Users: []svc.User{{ID: "ada"}}, Attachments: []svc.Attachment{
					{PolicyID: svc.PolicyIAMAdmin, Principal: to}, {PolicyID: svc.PolicyTemplateAdmin, Principal: to},
				},
			})
			ada := svc.Identity{Kind: svc.KindUser, ID: "ada"}
			c.keys[name] = string(must(service.Keys.Issue(t.Context(), svc.Host, ada, svc.NewAPIKey{})).Key)
			return err
		})
	}
	api := httpapi.NewTenants(c.tenants, u.Options)
	mux := http.NewServeMux()
	mux.Handle("/t/", api.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // as other routers call it
		httpapi.WriteError(w, r, &svc.Error{Code: svc.CodeExists, Message: r.PathValue("tenant") + " is here"})
	})))
	mux.Handle("/protected/{tenant}", api.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by, _ := httpapi.PrincipalFrom(r.Context())
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "%q", by.ID)
	})))
	c.server = onPipes(api.Mount(mux), nil)
	t.Cleanup(func() {
		c.server.Close()
		_ = c.tenants.Close()
	})
	return c
}

func (c *city) use(name string, do func(*svc.Service) error) {
	c.t.Helper()
	expect.Equal(c.t, name, c.tenants.Use(c.t.Context(), name, do), nil)
}

// at is a caller of a part of the server.
func (c *city) at(prefix, bearer string) caller {
	return caller{&site{t: c.t, server: c.server, prefix: prefix, said: &record{}, answered: map[string]int{}}, bearer, c.t}
}

// as is a caller of a tenant's interface. The name is a part of a URL.
func (c *city) as(name, bearer string) caller { return c.at("/t/"+name+"/ext/svc", bearer) }

func (c *city) ada(name string) caller { return c.as(name, c.keys[name]) }

const ownKeys, allTemplates = "/me/api-keys", "/admin/templates"

func TestTenants(t *testing.T) { synctest.Test(t, tenants) }

func tenants(t *testing.T) {
	is := is.New(t)
	c := newCity(t, []string{"acme", "Acme"})
	for name := range c.keys {
		c.ada(name).get(ownKeys).is(200)
		is.Equal(c.seen.newest().Tenant, name)
		is.Equal(c.seen.newest().Route, "GET /t/{tenant}/ext/svc/me/api-keys") // a label of metrics
	}
	c.at("/t/acme", c.keys["acme"]).get("/notes").fails(409, "already_exists")
	is.Equal(c.seen.newest().Code, svc.CodeExists) // an Observer hears what the host answers
	c.as("acme", c.keys["Acme"]).get(ownKeys).is(401)
	c.as("acme", "invented").get(ownKeys).is(401)
	c.as("Acme", "").get(ownKeys).is(401)

	asked := c.store.asked.Load()
	for _, name := range []string{"nobody", "acme", "a%2Fb"} {
		c.as(name, "").get(ownKeys).is(401) // nothing is looked up
	}
	is.Equal(c.store.asked.Load(), asked)
	c.as("nobody", "invented").get(ownKeys).is(404)
	is.Equal(c.seen.newest().Tenant, "") // a name that anybody can invent is not told
	is.Equal(c.store.made.Load(), int64(2))

	is.NoErr(c.tenants.Suspend(t.Context(), "acme"))
	c.ada("acme").get(ownKeys).is(404)
	c.ada("Acme").get(ownKeys).is(200)
	is.NoErr(c.tenants.Resume(t.Context(), "acme"))
	c.ada("acme").get(ownKeys).is(200)
	is.NoErr(c.tenants.Drop(t.Context(), "acme"))
	c.ada("acme").get(ownKeys).is(404)
	c.store.broken.Store(true)
	must(c.tenants.Create(t.Context(), "new"))
	c.as("new", "invented").get(ownKeys).is(503)
	is.Equal(c.seen.newest().Tenant, "new")
	c.ada("Acme").get(ownKeys).is(200) // one that is open
	is.True(strings.Contains(c.log.String(), "no such disk"))
	is.Equal(serverOf(t, c.as("anything", "").get("/openapi.json").is(200).body), "/t/anything/ext/svc")
}

func TestHostileTenants(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := newCity(t, []string{"acme"})
	for _, line := range raw("hostile names", nil) {
		name := line[1]
		for _, bearer := range []string{"", "invented", c.keys["acme"]} {
			target := "/t/" + name + "/ext/svc" + ownKeys
			r := must(http.NewRequest("GET", c.server.URL, nil))
			r.URL.Opaque = target // as it is
			if bearer != "" {
				r.Header.Set("Authorization", "Bearer "+bearer)
			}
			answer := must(c.server.Client().Do(r))
			answer.Body.Close()
			switch {
			case answer.StatusCode == 400 && strings.Contains(name, "%zz"): // of net/http
			case answer.StatusCode != 404 && (bearer != "" || answer.StatusCode != 401):
				t.Errorf("%s with %q: %d", target, bearer, answer.StatusCode)
			}
		}
	}
	is.Equal(c.store.made.Load(), int64(1))
	for _, name := range []string{"pg_x", "'", `"`, "svc_t1", "-- x", strings.Repeat("y", 64)} { // names are data
		must(c.tenants.Create(t.Context(), name))
		c.as(url.PathEscape(name), c.keys["acme"]).get(ownKeys).is(401)
	}
	log := c.log.String()
	is.True(!strings.Contains(log, "DROP TABLE") && !strings.Contains(log, c.keys["acme"]))
}

// While others are busy, requests of a tenant that overlap have a rate, and those that wait for too long get 429. Others do not wait.
func TestTenantRate(t *testing.T) { synctest.Test(t, tenantRate) }

func tenantRate(t *testing.T) {
	is := is.New(t)
	posted := make(chan struct{})
	c := newCity(t, []string{"storm", "quiet"}, func(u *setup) {
		u.Options.TenantRate = 2
		u.Options.Limit = func(r *http.Request, _ svc.Principal) time.Duration {
			if r.Method == http.MethodPost {
				close(posted)
			}
			return 0
		}
	})
	var all sync.WaitGroup
	storm := make(chan int, 20)
	body, stalled := io.Pipe()
	all.Go(func() { // it has a turn until its body ends
		is.Equal(c.ada("storm").sendWith("POST", ownKeys, "-", func(r *http.Request) { r.Body, r.ContentLength = body, -1 }).status, 201)
	})
	must(io.WriteString(stalled, "{"))
	<-posted
	synctest.Wait() // until it has its turn
	quiet := func() { c.ada("quiet").get(ownKeys).is(200) }
	quiet()
	const most = 10
	for range most { // some wait for their turn, and more than 2 seconds is too long
		all.Go(func() {
			a := c.ada("storm").get(ownKeys)
			if a.status == 429 {
				a.fails(429, "rate_limited")
			}
			storm <- a.status
		})
	}
	answered := map[int]int{}
	for done := 0; done < most; {
		quiet()
		select {
		case status := <-storm:
			answered[status]++
			done++
		case <-time.After(10 * time.Millisecond):
		}
	}
	is.True(answered[200] >= 2 && answered[429] >= 2)
	must(io.WriteString(stalled, "}"))
	is.NoErr(stalled.Close())
	all.Wait()
}

// Callers that are refused wait for each other, and nobody waits for them.
func TestFloodOfRefusals(t *testing.T) { synctest.Test(t, floodOfRefusals) }

func floodOfRefusals(t *testing.T) {
	c := newCity(t, []string{"flooded", "quiet"})
	ctx, end := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer end()
	var all sync.WaitGroup
	var count atomic.Int64
	for i := range 20 {
		all.Go(func() {
			for name := []string{"flooded", "nobody"}[i%2]; ctx.Err() == nil; count.Add(1) {
				c.as(name, "invented").get(ownKeys)
			}
		})
	}
	for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
		began := time.Now()
		if c.ada("quiet").get(ownKeys).is(200); time.Since(began) > 0 {
			t.Errorf("after %v", time.Since(began))
		}
	}
	all.Wait()
	if count.Load() > int64(500*runtime.GOMAXPROCS(0)) { // twice what is said
		t.Errorf("%d refusals in half a second", count.Load())
	}
}

// TestTenantsApart: what a request leaves behind is its tenant's alone.
func TestTenantsApart(t *testing.T) {
	is := is.New(t)
	rate := func(u *setup) {
		u.Limit = func(r *http.Request, by svc.Principal) time.Duration {
			if r.PathValue("tenant") == "c" {
				return time.Second
			}
			return 0
		}
	}
	c := newCity(t, []string{"a", "b", "c"}, rate)
	issued := map[string]string{} // by the answer
	for _, name := range []string{"a", "b"} {
		ada := c.ada(name)
		once := func() string {
			return string(ada.with("Idempotency-Key", "once", "POST", ownKeys, `{"description":"x"}`).is(201).body)
		}
		first := once()
		is.Equal(issued[first], "") // not the other tenant's
		is.Equal(once(), first)
		issued[first] = name
		events := string(ada.get("/admin/events").is(200).body)
		is.True(strings.Contains(events, `"tenant":"`+name+`"`))
		is.Equal(strings.Count(events, `"tenant"`), strings.Count(events, `"tenant":"`+name+`"`))
		is.Equal(strings.Count(events, `"actor":{"kind":"user"`), 1)
	}
	c.ada("c").get(allTemplates).is(429)
	is.True(strings.Contains(c.log.String(), `"tenant":"b"`))
	is.Equal(string(c.at("", c.keys["a"]).get("/protected/a").is(200).body), `"ada"`) // named by the host's route
	c.at("", c.keys["a"]).get("/protected/b").is(401)
}

// TestTenantFunction: the host names the tenant, for paths of its own as well.
func TestTenantFunction(t *testing.T) {
	is := is.New(t)
	c := newCity(t, []string{"a", "b"}, func(u *setup) {
		u.Prefix = ""
		u.Tenant = func(r *http.Request) string {
			return cmp.Or(r.Header.Get("X-Tenant"), strings.TrimPrefix(r.URL.Path, "/protected/"))
		}
		u.Principal = func(r *http.Request) (svc.Principal, error) {
			if r.Header.Get("Cookie") == "" {
				return svc.Principal{}, svc.ErrUnauthenticated
			}
			return svc.Principal{Kind: svc.KindUser, ID: r.PathValue("tenant") + "'s ada"}, nil
		}
	})
	ask := func(path, name, bearer string) answer {
		return c.at("", bearer).with("X-Tenant", name, "GET", path, "")
	}
	const inside = "/ext/svc" + ownKeys
	for _, name := range []string{"a", "b"} {
		ask(inside, name, c.keys[name]).is(200)
		ask(inside, "b", c.keys["a"]).is(401)
		is.Equal(string(c.at("", c.keys[name]).get("/protected/"+name).is(200).body), `"ada"`)
		is.Equal(string(c.at("", "").with("Cookie", "session=x", "GET", "/protected/"+name, "").is(200).body), `"`+name+`'s ada"`)
	}
	for _, door := range []string{inside, "/protected/nobody"} {
		ask(door, "nobody", "").is(401) // no session can be told from one of nobody's
		ask(door, "nobody", c.keys["a"]).is(404)
	}
	defer func() { is.True(recover() != nil) }()
	httpapi.NewTenants(c.tenants, httpapi.Options{})
}

// A slow body writes nothing in a tenant that is suspended or dropped meanwhile, and does not keep it.
func TestSlowBodiesOfASuspendedTenant(t *testing.T) { synctest.Test(t, slowBodiesOfASuspendedTenant) }

func slowBodiesOfASuspendedTenant(t *testing.T) {
	is := is.New(t)
	entered := make(chan bool, 2) // a request with a body is in its tenant, and waits for the body
	c := newCity(t, []string{"a", "b"}, func(u *setup) {
		u.Options.Limit = func(r *http.Request, _ svc.Principal) time.Duration {
			if r.ContentLength > 0 {
				entered <- true
			}
			return 0
		}
	})
	const user = `{"id": "eve"}`
	slow := func(name string) (body *io.PipeWriter, status chan int) {
		read, write := io.Pipe()
		r := must(http.NewRequestWithContext(t.Context(), "POST", c.server.URL+"/t/"+name+"/ext/svc/users", read))
		r.ContentLength = int64(len(user))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+c.keys[name])
		status = make(chan int, 1)
		go func() {
			answer, err := c.server.Client().Do(r)
			if err != nil {
				status <- 0
				return
			}
			_ = answer.Body.Close()
			status <- answer.StatusCode
		}()
		_, _ = io.WriteString(write, user[:len(user)-1])
		<-entered
		return write, status
	}
	unserved := func(name string) {
		for c.ada(name).get(ownKeys).status != http.StatusNotFound {
		}
	}
	late, lateStatus := slow("a")
	never, neverStatus := slow("b")
	defer never.Close()
	ended := make(chan error, 2)
	go func() { ended <- c.tenants.Suspend(t.Context(), "a") }()
	go func() { ended <- c.tenants.Drop(t.Context(), "b") }()
	unserved("a")
	unserved("b")
	_, _ = io.WriteString(late, user[len(user)-1:])
	is.NoErr(late.Close())
	is.Equal(<-lateStatus, http.StatusNotFound)
	is.NoErr(<-ended)
	is.NoErr(<-ended)
	is.True(<-neverStatus != http.StatusCreated)
	is.NoErr(c.tenants.Resume(t.Context(), "a"))
	c.ada("a").get("/users/eve").is(404)
}

// unhurried is a ResponseWriter whose deadlines take time.
type unhurried struct {
	*httptest.ResponseRecorder
	used atomic.Bool
}

func (w *unhurried) SetReadDeadline(time.Time) error {
	time.Sleep(time.Second)
	w.used.Store(true)
	return nil
}

// A request that waits for a function of the host ends when its tenant is suspended or dropped.
func TestCallersOfASuspendedTenantEnd(t *testing.T) { synctest.Test(t, callersOfASuspendedTenantEnd) }

func callersOfASuspendedTenantEnd(t *testing.T) {
	is := is.New(t)
	asked := make(chan bool, 2)
	c := newCity(t, []string{"a", "b"}, func(u *setup) {
		u.Config.Authenticator = svc.AuthenticatorFunc(func(ctx context.Context, _ string) (svc.Principal, error) {
			asked <- true
			<-ctx.Done()
			return svc.Principal{}, ctx.Err()
		})
	})
	statuses := make(chan int, 2)
	for _, path := range []string{"/t/a/ext/svc/me", "/protected/b"} {
		go func() {
			w, r := &unhurried{ResponseRecorder: httptest.NewRecorder()}, httptest.NewRequest("GET", path, nil)
			r.Header.Set("Authorization", "Bearer of-the-host")
			c.server.Config.Handler.ServeHTTP(w, r)
			expect.Equal(t, path, w.used.Swap(true), true) // before the handler has returned
			statuses <- w.Code
		}()
		<-asked
	}
	is.NoErr(c.tenants.Suspend(t.Context(), "a"))
	is.NoErr(c.tenants.Drop(t.Context(), "b"))
	is.True(<-statuses >= 400)
	is.True(<-statuses >= 400)
}
