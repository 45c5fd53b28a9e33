package adminpage_test

import (
	"context"
	"html"
	"net/http"
	"net/http/cookiejar"
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
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/store/memstore"
)

// newTenants serves the pages of tenants, each with the administrator "of" its name.
func newTenants(t *testing.T, names ...string) (tenants *svc.Tenants, sites map[string]*site) {
	tenants = must(svc.NewTenants(svc.TenantsConfig{Store: memstore.NewTenants()}))
	page := adminpage.NewTenants(tenants, adminpage.Options{Prefix: "/t/{tenant}/admin"})
	server := httptest.NewServer(page.Mount(http.NotFoundHandler()))
	sites = map[string]*site{}
	for _, name := range names {
		must(tenants.Create(t.Context(), name))
		s := &site{t: t, page: page, url: server.URL + "/t/" + url.PathEscape(name) + "/admin/", client: &http.Client{Jar: must(cookiejar.New(nil))}}
		sites[name] = s
		must(0, tenants.Use(t.Context(), name, func(service *svc.Service) error {
			id := "of-" + name
			err := service.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: id}}, Attachments: []svc.Attachment{
				{PolicyID: svc.PolicyIAMAdmin, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: id}},
			}})
			admin := svc.Identity{Kind: svc.KindUser, ID: id}
			s.key = string(must(service.Keys.Issue(t.Context(), svc.Host, admin, svc.NewAPIKey{})).Key)
			return err
		}))
	}
	t.Cleanup(func() {
		server.Close()
		_ = tenants.Close()
	})
	return tenants, sites
}

func TestTenants(t *testing.T) {
	is := is.New(t)
	tenants, sites := newTenants(t, "a", "b", "b-2")
	for name, s := range sites {
		s.get("keys").is(t, 401, `type="password"`, "svc · "+name+"</title>")
		other := sites["a"]
		if name == "a" {
			other = sites["b"]
		}
		s.post("sign-in", form("key", other.key)).is(t, 401, "not accepted")
		s.signIn()
		s.get("who-can").is(t, 200, "of-"+name, "svc · "+name+"</title>")
	}

	// A cookie of one tenant is none of another, also when a browser sends it there.
	cookies := sites["a"].client.Jar.Cookies(must(url.Parse(sites["a"].url)))
	is.Equal(len(cookies), 1)
	r := must(http.NewRequest("GET", sites["b"].url+"keys", nil))
	r.AddCookie(cookies[0])
	is.Equal(sites["b"].read(http.DefaultClient.Do(r)).StatusCode, 401)

	// One that nobody has made, and one that is suspended, look like one where nobody is signed in.
	nobody := &site{t: t, url: strings.Replace(sites["a"].url, "/t/a/", "/t/nobody/", 1), client: &http.Client{}}
	is.NoErr(tenants.Suspend(t.Context(), "a"))
	for _, s := range []*site{nobody, sites["a"]} {
		s.get("keys").is(t, 401, `type="password"`, "svc · ")
		s.post("sign-in", form("key", sites["a"].key, "to", "keys?id=x")).is(t, 401, "not accepted", "keys?id=x")
	}
	for _, s := range []*site{nobody, sites["a"], sites["b"]} { // all tenants refuse alike
		s.post("sign-in", form("key", strings.Repeat("x", 3000))).is(t, 401, "too long")
		s.post("sign-in", form("key", " ")).is(t, 401, "not accepted")
	}
	is.NoErr(tenants.Resume(t.Context(), "a"))
	sites["a"].get("keys").is(t, 200)
}

// Each tenant keeps its sign-in whatever its name is made of, also where the browser sends the name
// in another spelling, and behind a proxy that cuts a prefix off.
func TestTenantsWithOddNames(t *testing.T) {
	names := []string{"a;b", "ab", "50%", "ü b", "a%2Fb", "a:b"}
	_, sites := newTenants(t, names...)
	client := &http.Client{Jar: must(cookiejar.New(nil))}
	for _, spelling := range []func(string) string{url.PathEscape, func(name string) string { return name }} {
		for _, name := range names {
			s := *sites[name]
			text := spelling(name)
			if strings.ContainsAny(text, " ü") || strings.Contains(text, "%") && text == name {
				continue // no spelling of a path
			}
			s.url = strings.Replace(s.url, url.PathEscape(name), text, 1)
			s.client = client
			s.signIn().get("keys").is(t, 200, "<b>of-"+html.EscapeString(name)+"</b>")
			for _, other := range []string{"a;b", "ab"} {
				if _, signedIn := sites[other]; signedIn && other != name {
					s.get("why").is(t, 200, "", "<b>of-"+html.EscapeString(other)+"</b>")
				}
			}
			behind := s
			behind.url = cutting(t, "/ops", s.origin()).URL + "/ops" + strings.TrimPrefix(s.url, s.origin())
			behind.signIn().get("").is(t, 200, "<b>of-"+html.EscapeString(name)+"</b>")
			s.post("sign-out", nil).is(t, 401)
		}
	}
}

// A tenant does not wait for a form to be suspended, and the form then does nothing.
func TestFormHoldsNoTenant(t *testing.T) {
	is := is.New(t)
	tenants, sites := newTenants(t, "a")
	s := sites["a"].signIn()
	for _, path := range adminpage.Posts() {
		is.NoErr(tenants.Resume(t.Context(), "a"))
		text := form("key", s.key, "do", "issue", "once", "o"+path, "kind", "user", "for", "of-a").Encode()
		w := s.send(s.page, path, &late{strings.NewReader(text), func() {
			ctx, end := context.WithTimeout(t.Context(), time.Minute)
			defer end()
			is.NoErr(tenants.Suspend(ctx, "a"))
		}}, len(text))
		is.Equal(w.Code, 401)
		is.True(!strings.Contains(w.Body.String(), "of-a"))
	}
}

// A page that the host's session keeps waiting ends with its tenant, or in time for its answer.
func TestPageEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		tenants := must(svc.NewTenants(svc.TenantsConfig{Store: memstore.NewTenants(), Config: svc.Config{
			Authenticator: svc.AuthenticatorFunc(func(ctx context.Context, _ string) (svc.Principal, error) {
				<-ctx.Done()
				return svc.Principal{}, ctx.Err()
			}),
		}}))
		defer tenants.Close()
		must(tenants.Create(t.Context(), "a"))
		page := adminpage.NewTenants(tenants, adminpage.Options{
			Prefix: "/{tenant}/", Bearer: func(r *http.Request) string { return r.PathValue("tenant") },
		})
		w, ended := httptest.NewRecorder(), atomic.Bool{}
		go func() {
			page.ServeHTTP(w, httptest.NewRequest("GET", "/a/keys", nil))
			ended.Store(true)
		}()
		synctest.Wait()
		is.NoErr(tenants.Suspend(t.Context(), "a"))
		synctest.Wait()
		is.True(ended.Load())
		is.Equal(w.Code, 503)

		is.NoErr(tenants.Resume(t.Context(), "a"))
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/a/keys", nil)
		server := &http.Server{WriteTimeout: time.Second}
		page.ServeHTTP(w, r.WithContext(context.WithValue(t.Context(), http.ServerContextKey, server)))
		is.Equal(w.Code, 503)
	})
}

func TestTenantsNeedAName(t *testing.T) {
	defer func() { is.New(t).True(recover() != nil) }()
	adminpage.NewTenants(nil, adminpage.Options{})
}

// Pages without a sign-in wait for each other, and for nobody else.
func TestFloodOfPages(t *testing.T) {
	t.Parallel()
	_, sites := newTenants(t, "a", "b")
	sites["b"].signIn()
	var all sync.WaitGroup
	var flood atomic.Int64
	ctx, end := context.WithCancel(t.Context())
	for range 20 {
		all.Go(func() {
			for ctx.Err() == nil {
				r := must(http.NewRequestWithContext(ctx, "GET", sites["a"].url, nil))
				if answer, err := http.DefaultClient.Do(r); err == nil {
					answer.Body.Close()
					flood.Add(1)
				}
			}
		})
	}
	begun := time.Now()
	time.Sleep(time.Second)
	sites["b"].get("keys").is(t, 200)
	end()
	all.Wait()
	perSecond := float64(flood.Load()) / time.Since(begun).Seconds()
	is.New(t).True(perSecond < float64(2*50*runtime.GOMAXPROCS(0))) // twice what is said
}
