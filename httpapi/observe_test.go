package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// watcher records the observations.
type watcher struct {
	mu   sync.Mutex
	seen []httpapi.Observation
}

func (w *watcher) Observe(_ context.Context, o httpapi.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, o)
}

// last is the observation of the last request; it comes when the answer has been sent.
func (w *watcher) last(t *testing.T, n int) httpapi.Observation {
	t.Helper()
	eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.seen) >= n
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) != n {
		t.Fatalf("told %d times, want %d", len(w.seen), n)
	}
	return w.seen[n-1]
}

func TestObserver(t *testing.T) {
	is := is.New(t)
	w := &watcher{}
	s := newSite(t, func(u *setup) { u.Observer = w })
	admin := s.admin()
	user := svc.Identity{Kind: svc.KindUser, ID: "admin"}
	n := 0
	want := func(a answer, route string, code svc.Code, caller svc.Identity) httpapi.Observation {
		t.Helper()
		n++
		o := w.last(t, n)
		is.Equal(o.Route, route)
		is.Equal(o.Status, a.status)
		is.Equal(o.Code, code)
		is.Equal(o.Caller, caller)
		is.True(o.RequestID != "")
		if a.status == 401 { // all alike
			is.Equal(a.header.Get("X-Request-Id"), "")
		} else {
			is.Equal(o.RequestID, a.header.Get("X-Request-Id"))
		}
		if a.request[:4] != "HEAD" {
			is.Equal(o.Bytes, int64(len(a.body)))
		}
		is.True(!o.Began.IsZero() && o.Took > 0)
		return o
	}
	none := svc.Identity{}
	want(admin.get("/admin/templates").is(200), "GET /ext/svc/admin/templates", "", user)
	want(admin.get("/admin/templates/none").is(404), "GET /ext/svc/admin/templates/{template_id}", svc.CodeNotFound, user)
	want(admin.send("HEAD", "/admin/templates", ""), "GET /ext/svc/admin/templates", "", user)
	want(admin.get("/nothing").is(404), "", svc.CodeNotFound, user)
	want(admin.send("PUT", "/admin/templates", "").is(405), "", "method_not_allowed", user)
	want(s.as("").get("/admin/templates").is(401), "", svc.CodeUnauthenticated, none)
	want(s.as("session-of-plain").get("/admin/templates").is(403), "GET /ext/svc/admin/templates", svc.CodeForbidden, svc.Identity{Kind: svc.KindUser, ID: "plain"})
	want(s.as("").get("/openapi.json").is(200), "GET /ext/svc/openapi.json", "", none)
	o := want(admin.post("/admin/templates", "{").is(400), "POST /ext/svc/admin/templates", svc.CodeInvalid, user)
	is.Equal(o.Err, nil)
	s.store.plant(func(call string) error {
		if call == "Templates" {
			return svc.ErrUnavailable
		}
		return nil
	})
	o = want(admin.get("/admin/templates").is(503), "GET /ext/svc/admin/templates", svc.CodeUnavailable, user)
	is.True(o.Err != nil)
	s.store.plant(func(call string) error { panic("in " + call) })
	o = want(admin.get("/admin/templates").is(500), "GET /ext/svc/admin/templates", svc.CodeInternal, user)
	is.True(o.Err != nil)
}

// eventually waits for something that comes after an answer.
func eventually(t *testing.T, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never came")
		}
	}
}

func TestRequestID(t *testing.T) {
	is := is.New(t)
	s := newSite(t)
	admin := s.admin()
	seen := map[string]bool{}
	for id, taken := range map[string]bool{
		"a": true, "01-abc_D.e:f/g+h=@~": true, strings.Repeat("x", 128): true,
		"": false, " ": false, "a b": false, "a\tb": false, strings.Repeat("x", 129): false, "\u00e9": false, "a\nb": false, `"`: false, "<a>": false,
		s.key("alice"): false,
	} {
		for _, target := range []string{"/admin/templates", "/nothing", "/openapi.json"} {
			have := admin.with("X-Request-Id", id, "GET", target, "").header.Get("X-Request-Id")
			is.True(have != "")
			if taken {
				is.Equal(have, id)
			} else {
				is.True(have != id && !seen[have])
			}
			seen[have] = !taken
		}
	}
	is.True(admin.with("X-Request-Id", "a\nb", "GET", "/nothing", "").header.Get("X-Request-Id") != "a") // two of them

	ahead := newSite(t, func(u *setup) {
		u.mount = func(h *httpapi.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Request-Id", "the host's")
				h.ServeHTTP(w, r)
			})
		}
	})
	is.Equal(ahead.admin().with("X-Request-Id", "mine", "GET", "/nothing", "").header.Get("X-Request-Id"), "the host's")
	is.Equal(ahead.as("").get("/nothing").is(401).header.Get("X-Request-Id"), "the host's")
	is.Equal(s.as("").with("X-Request-Id", "mine", "GET", "/nothing", "").is(401).header.Get("X-Request-Id"), "")
}
