package marketplace_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/marketplace"
)

const oneEntry = `{"templates":[{"id":"a","name":"A","manifest":{"version":"1"}}]}`

// TestHostileAnswers has the others.
func TestAnswers(t *testing.T) {
	large := strings.Repeat(" ", 10_000-len(oneEntry))
	for name, handler := range map[string]http.HandlerFunc{
		"text":     header("Content-Type", "text/plain; charset=utf-8", answer(oneEntry)),
		"identity": header("Content-Encoding", "identity", answer(oneEntry)),
		"gzip":     header("Content-Encoding", "GZIP", answer(zipped(oneEntry))),
		"exact":    answer(oneEntry + large),
		"too long": answer(oneEntry + large + " "),
	} {
		client, from := serve(t, handler, marketplace.Limits{Catalog: 10_000})
		if name != "too long" {
			version(t, client, from)
		} else {
			refuses(t, client, from, "is larger than 10000 bytes")
		}
	}
}

func header(key, value string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(key, value)
		next(w, r)
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestRequest(t *testing.T) {
	is := is.New(t)
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		_, _ = io.WriteString(w, oneEntry)
	}))
	defer server.Close()
	client := newClient(t, marketplace.Config{AllowOrigins: []string{server.URL}, UserAgent: "mine/1 ~"})
	for range 2 {
		must(client.Template(t.Context(), upstream(server.URL), "a"))
		is.Equal(got, http.Header{"Accept": {"application/json, */*;q=0.5"}, "Accept-Encoding": {"gzip"}, "User-Agent": {"mine/1 ~"}})
	}
}

// TestSlowAnswers has the others.
func TestTimeouts(t *testing.T) {
	hangInManifest := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/m.json" {
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, `{"templates":[{"id":"a","name":"A","manifest_file":"m.json"}]}`)
	}
	redirectSlowly := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		http.Redirect(w, r, "/again", http.StatusFound)
	}
	for want, test := range map[string]struct {
		handler http.HandlerFunc
		limits  marketplace.Limits
	}{
		"the manifest_file of entry 0 of the catalogue": {hangInManifest, marketplace.Limits{HeaderTimeout: 50 * time.Millisecond}},
		"its catalogue": {redirectSlowly, marketplace.Limits{Redirects: 1000, Timeout: 100 * time.Millisecond}},
	} {
		t.Run(want, func(t *testing.T) {
			client, from := serve(t, test.handler, test.limits)
			want += " did not arrive in time"
			var err error
			var took time.Duration
			for try := 0; try < 11 && (err == nil || !strings.Contains(err.Error(), want)); try++ { // a busy machine may be late with what comes before
				start := time.Now()
				_, err = client.Template(t.Context(), from, "a")
				took = time.Since(start)
			}
			wantError(t, err, svc.CodeSourceTimeout, want)
			expect.Equal(t, took, took < time.Minute, true)
		})
	}
}

// A timeout does not look like a cancellation by the caller: that caller would get no older copy.
func TestTimeoutIsNoCancellation(t *testing.T) {
	for _, err := range []error{context.Canceled, fmt.Errorf("read: %w", context.Canceled), io.ErrUnexpectedEOF} {
		got := marketplace.SlowHeaders(err)
		expect.Holds(t, !errors.Is(got, context.Canceled) && strings.Contains(got.Error(), "did not arrive in time: "), err, got)
	}
}

// A connection that carries a token ends with its request: net/http would log what a source sends on an idle one.
func TestTokenIsNotLoggedByHTTP(t *testing.T) {
	closes := map[string]bool{}
	client, from := serve(t, func(w http.ResponseWriter, r *http.Request) {
		closes[r.Header.Get("Authorization")] = r.Close
		_, _ = io.WriteString(w, oneEntry)
	}, marketplace.Limits{})
	must(client.Template(t.Context(), from, "a"))
	from.Token = "the-token-canary"
	must(client.Template(t.Context(), from, "a"))
	is.New(t).Equal(closes, map[string]bool{"": false, "Bearer the-token-canary": true})
	further := func(w http.ResponseWriter, r *http.Request) { closes["further"] = r.Close }
	client, _ = newWeb(t, hosts{"one.example/templates.json": redirectTo("https://two.example/?t=the-token-canary", 302), "two.example/": further})
	from = upstream("https://one.example")
	from.Token = "the-token-canary"
	_, _ = client.Template(t.Context(), from, "a")
	is.New(t).True(closes["further"])
}

func captureLog(t *testing.T) *syncBuffer {
	t.Helper()
	var logged syncBuffer
	before := log.Writer()
	log.SetOutput(&logged)
	t.Cleanup(func() { log.SetOutput(before) })
	return &logged
}

// syncBuffer is a buffer for concurrent use.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
