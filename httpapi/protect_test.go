package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

func TestProtect(t *testing.T) {
	s := newSite(t)
	key := s.key("alice")
	api := httpapi.New(s.service, httpapi.Options{})
	protected := httptest.NewServer(api.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by, ok := httpapi.PrincipalFrom(r.Context())
		if !ok {
			t.Error("nobody")
		}
		_, _ = io.WriteString(w, string(by.Kind)+" "+by.ID)
	})))
	t.Cleanup(protected.Close)
	ask := func(bearer string) (*http.Response, string) {
		is := is.New(t)
		r, err := http.NewRequestWithContext(t.Context(), "GET", protected.URL+"/of/the/host", nil)
		is.NoErr(err)
		if bearer != "" {
			r.Header.Set("Authorization", "Bearer "+bearer)
		}
		answer, err := http.DefaultClient.Do(r)
		is.NoErr(err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		is.NoErr(err)
		return answer, string(body)
	}
	is := is.New(t)
	for bearer, who := range map[string]string{key: "user alice", s.accountKey("robot"): "service_account robot", "session-of-plain": "user plain"} {
		answer, body := ask(bearer)
		is.Equal(answer.StatusCode, 200)
		is.Equal(body, who)
		is.Equal(answer.Header.Get("Cache-Control"), "") // the host's own answer is the host's
	}
	for _, bearer := range []string{"", "nonsense", key[:len(key)-1] + "!"} {
		answer, body := ask(bearer)
		is.Equal(answer.StatusCode, 401)
		is.Equal(answer.Header.Get("Content-Type"), "application/problem+json")
		is.Equal(answer.Header.Get("Cache-Control"), "no-store")
		is.True(answer.Header.Get("WWW-Authenticate") != "" && body != "")
	}
	unseen := s.key("alice")
	s.store.plant(func(string) error { return svc.ErrUnavailable })
	answer, _ := ask(unseen)
	is.Equal(answer.StatusCode, 503)
	is.Equal(answer.Header.Get("Retry-After"), "1")
	_, ok := httpapi.PrincipalFrom(t.Context())
	is.True(!ok)
}

func TestLimit(t *testing.T) {
	s := newSite(t)
	key := s.key("alice")
	api := httpapi.New(s.service, httpapi.Options{Limit: func(_ *http.Request, by svc.Principal) time.Duration {
		if by.ID == "alice" {
			return 1500 * time.Millisecond
		}
		return 0
	}})
	ask := func(h http.Handler, bearer string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/ext/svc/me/api-keys", nil)
		r.Header.Set("Authorization", "Bearer "+bearer)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	is := is.New(t)
	for _, h := range []http.Handler{api, api.Protect(api)} {
		slow := ask(h, key)
		is.Equal(slow.Code, 429)
		is.Equal(slow.Header().Get("Retry-After"), "2")
		is.True(strings.Contains(slow.Body.String(), `"code":"rate_limited"`))
		is.Equal(ask(h, "session-of-plain").Code, 200)
		is.Equal(ask(h, "nonsense").Code, 401)
	}
}
