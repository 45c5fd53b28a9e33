package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
)

// rated is a site in a bubble of synctest: its time passes when the test sleeps, and while it does not, no request waits.
// Connections are pipes, for time in a bubble stands still while a goroutine waits for the network.
func rated(t *testing.T, options httpapi.Options) *site {
	s := newSite(t, func(u *setup) {
		options.Logger = u.Options.Logger
		u.Options = options
		u.mount = func(h *httpapi.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/of/the/host", h.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				by, _ := httpapi.PrincipalFrom(r.Context())
				_, _ = io.WriteString(w, by.KeyID()+" "+fmt.Sprint(by.Rate()))
			})))
			return h.Mount(mux)
		}
	})
	s.usePipes(nil)
	return s
}

// usePipes serves the site over pipes, with what a test changes of the server.
func (s *site) usePipes(change func(*http.Server)) {
	s.server.Close()
	s.server = onPipes(s.server.Config.Handler, change)
}

func onPipes(handler http.Handler, change func(*http.Server)) *httptest.Server {
	pipes := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &httptest.Server{Listener: pipes, Config: &http.Server{Handler: handler}}
	if change != nil {
		change(server.Config)
	}
	server.Start()
	server.Client().Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
		return pipes.dial(), nil
	}
	return server
}

// pipes is a listener for connections within the process.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (s *site) ratedKey(rate svc.Rate) (id, key string) {
	issued := s.as("session-of-alice").post("/me/api-keys?view=full",
		fmt.Sprintf(`{"rate": {"per_second": %v, "burst": %d}}`, rate.PerSecond, rate.Burst)).is(201)
	return issued.text("id"), issued.text("api_key")
}

func (a answer) shows(policy, limit string) {
	a.t.Helper()
	expect.Holds(a.t, a.header.Get("RateLimit-Policy") == policy && a.header.Get("RateLimit") == limit, a.request, a.header)
}

func TestRateOfProtectedRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		s := rated(t, httpapi.Options{})
		id, key := s.ratedKey(svc.Rate{PerSecond: 0.01, Burst: 2})
		ask := func() *http.Response {
			r := must(http.NewRequestWithContext(t.Context(), "GET", s.server.URL+"/of/the/host", nil))
			r.Header.Set("Authorization", "Bearer "+key)
			answer := must(s.server.Client().Do(r))
			t.Cleanup(func() { _ = answer.Body.Close() })
			return answer
		}
		first := ask()
		body := must(io.ReadAll(first.Body))
		is.Equal(string(body), id+" {0.01 2}")
		is.Equal(first.Header.Get("RateLimit"), `"key";r=1;t=100`)
		s.as(key).get("/me/api-keys").is(200).shows(`"key";q=2;w=200`, `"key";r=0;t=100`) // it shares the count
		refused := ask()
		is.Equal(refused.StatusCode, 429)
		is.Equal(refused.Header.Get("Retry-After"), "100")
	})
}

// A request that passes Protect and then the interface counts once. The header fields of the host stay.
func TestRateBehindProtect(t *testing.T) {
	is := is.New(t)
	s := newSite(t)
	_, key := s.ratedKey(svc.Rate{PerSecond: 0.0001, Burst: 2})
	api := httpapi.New(s.service, httpapi.Options{})
	for _, status := range []int{200, 200, 429} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/ext/svc/me/api-keys", nil)
		r.Header.Set("Authorization", "Bearer "+key)
		w.Header().Set("RateLimit", `"day";r=5`)
		api.Protect(api).ServeHTTP(w, r)
		is.Equal(w.Code, status)
		fields := w.Header().Values("RateLimit")
		is.True(len(fields) == 2 && fields[0] == `"day";r=5`)
	}
}

// The rate comes before the host's limit: a refused request does not reach the host.
func TestRateBeforeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		asked := 0
		s := rated(t, httpapi.Options{Limit: func(*http.Request, svc.Principal) time.Duration {
			asked++
			return time.Duration(asked-2) * 1500 * time.Millisecond // from the third request on
		}})
		_, key := s.ratedKey(svc.Rate{PerSecond: 0.01, Burst: 2})
		me := s.as(key)
		me.get("/me/api-keys").is(200)
		limited := me.get("/me/api-keys").fails(429, "rate_limited")
		limited.shows(`"key";q=2;w=200`, `"key";r=0;t=100`)
		is.Equal(limited.header.Get("Retry-After"), "2") // rounded up
		is.Equal(me.get("/me/api-keys").is(429).header.Get("Retry-After"), "100")
		is.Equal(asked, 3) // with the request that issued the key
	})
}

func TestKeyRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		var asked []string
		var left svc.Allowance
		var fault error
		s := rated(t, httpapi.Options{KeyRate: func(r *http.Request, keyID string, rate svc.Rate) (svc.Allowance, error) {
			asked = append(asked, fmt.Sprint(r.Method, " ", keyID, " ", rate))
			return left, fault
		}})
		id, key := s.ratedKey(svc.Rate{PerSecond: 0.01, Burst: 2})
		me := s.as(key)
		left = svc.Allowance{Remaining: 7, Next: 1500 * time.Millisecond}
		me.post("/me/api-keys", `{}`).is(201).shows(`"key";q=2;w=200`, `"key";r=7;t=2`)
		is.Equal(asked, []string{"POST " + id + " {0.01 2}"})
		left = svc.Allowance{Refused: true, Remaining: -1}
		refused := me.get("/me/api-keys").fails(429, "rate_limited")
		refused.shows(`"key";q=2;w=200`, `"key";r=0;t=1`)
		is.Equal(refused.header.Get("Retry-After"), "1")

		// When it fails, requests count in memory.
		fault = errors.New("connection refused: " + key)
		me.get("/me/api-keys").is(200).shows(`"key";q=2;w=200`, `"key";r=1;t=100`)
		me.get("/me/api-keys").is(200)
		me.get("/me/api-keys").is(429)
		is.True(strings.Contains(s.log.String(), "cannot ask KeyRate"))
		is.True(!strings.Contains(s.log.String(), key))
		s.as(s.key("alice")).get("/me/api-keys").is(200)
		is.Equal(len(asked), 5) // keys without a rate are not counted
	})
}

// A bearer that ends while its body arrives gets the answer of any wrong bearer.
func TestRateOfAKeyThatEnds(t *testing.T) {
	is := is.New(t)
	s := newSite(t)
	id, key := s.ratedKey(svc.Rate{PerSecond: 1, Burst: 5})
	api := httpapi.New(s.service, httpapi.Options{})
	send := func(bearer string, body io.Reader) http.Header {
		w := recorded(api, "POST", "/ext/svc/me/api-keys", bearer, "", func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(body), -1 })
		is.Equal(w.Code, 401)
		return w.Header()
	}
	ended := send(key, readFunc(func(p []byte) (int, error) {
		is.NoErr(s.service.Keys.Revoke(context.Background(), svc.Host, alice, id))
		return copy(p, "{}"), io.EOF
	}))
	is.Equal(ended, send("svcu_wrong", strings.NewReader("{}")))
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
