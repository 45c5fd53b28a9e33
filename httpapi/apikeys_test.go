package httpapi_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

func TestKeyUseIsShown(t *testing.T) {
	s := newSite(t)
	key := s.key("alice")
	s.as(key).get("/me/api-keys").is(200)
	if err := s.service.Close(); err != nil { // writes what waits
		t.Fatal(err)
	}
	if answer := s.as(key).get("/me/api-keys?view=full"); !strings.Contains(string(answer.body), `"last_used_at":"2026-01-02T03:04:00.000000Z"`) {
		t.Errorf("%s", answer.body)
	}
}

// A key, of another system as well, is masked wherever it is pasted: in a path, as a name, as a method. A store may say
// what it was asked for.
func TestKeysAreMasked(t *testing.T) {
	const foreign = "sk-live-9f2Kq7Xz1Bv8Lm4Tn6Rw/3Yp0+=="
	s := newSite(t, func(u *setup) { u.Keys.Imports = []svc.KeyImport{{Prefix: "sk-"}} })
	hash := sha256.Sum256([]byte(foreign))
	holder := svc.Identity{Kind: svc.KindUser, ID: "alice"}
	imported := must(s.service.Keys.Import(t.Context(), svc.Host, holder, svc.ImportedKey{Prefix: "sk-", Hash: hash[:]}))
	for _, part := range []string{foreign, foreign[:24], "9f2Kq7Xz1B", "w~13Yp0"} {
		s.keepSecret(part)
	}
	if listed := s.as(foreign).get("/me/api-keys").is(200).texts("api_key_prefix"); len(listed) != 1 || listed[0] != imported.Prefix {
		t.Errorf("listed as %q", listed)
	}
	own, admin := s.key("alice"), s.admin()
	for key, masked := range map[string]string{foreign: "sk-***", own: own[:21] + "***"} {
		pasted, unseen := strings.ReplaceAll(key, "/", ""), s.as(s.key("alice"))
		s.keepSecret(pasted)
		s.as(key).delete("/me/api-keys/" + pasted).is(404)
		admin.get("/admin/templates/" + pasted).is(404)
		admin.post("/me/api-keys", `{"`+key+`": 1}`).refuses("/" + masked)
		admin.post("/me/api-keys", `{"`+strings.Repeat("long", 45)+" "+key+`": 1}`).is(400) // cut behind its beginning
		admin.post("/admin/templates", `{"id": "a", "name": "n", "manifest": {"version": "1", "a": {"`+key+`": 1, "`+key+`": 2}}}`).refuses("/manifest/a/" + masked)
		s.store.Plant(func(string) error { return errors.New(`no row has the key "` + key + `" ` + pasted) })
		admin.delete("/me/api-keys/" + pasted).is(500)
		s.store.Plant(func(string) error { panic("no row has the key " + key) })
		admin.delete("/me/api-keys/" + pasted).is(500)
		s.store.Plant(func(string) error { return svc.ErrUnavailable })
		unseen.send(own, "/me/api-keys", "").is(503)
		s.store.Plant(nil)
		if n := strings.Count(s.log.String(), masked); n < 3 {
			t.Errorf("%s is %d times in the log", masked, n)
		}
	}
}

// Every site looks for secrets when it ends: that must be able to fail, and look at answers, logs and events.
func TestLeaksAreNoticed(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	admin.post("/users/alice/api-keys", "").is(201)
	s.store.Plant(func(string) error { return errors.New("logged fault") })
	admin.get("/admin/templates").is(500)
	for _, kind := range []string{"api_key.issued", "logged fault", "application/problem+json"} {
		if !strings.Contains(s.said.String(), kind) {
			t.Errorf("%q is not among what was said", kind)
		}
	}
	if leaks := s.leaks(); len(s.secrets) != 2 || len(leaks) > 0 {
		t.Fatalf("%d secrets, leaks %q", len(s.secrets), leaks)
	}
	fmt.Fprint(s.said, s.secrets[1])
	if leaks := s.leaks(); len(leaks) != 1 {
		t.Errorf("leaks %q", leaks)
	}
	s.secrets = nil
}

// An Authenticator may say what it was asked about.
func TestBearerIsNotLogged(t *testing.T) {
	var fail func(bearer string) error
	s := newSite(t, func(u *setup) {
		u.Authenticator = svc.AuthenticatorFunc(func(_ context.Context, bearer string) (svc.Principal, error) { return svc.Principal{}, fail(bearer) })
	})
	const bearer = "session-canary"
	s.keepSecret(bearer)
	protected := httptest.NewServer(httpapi.New(s.service, httpapi.Options{Logger: slog.New(slog.NewJSONHandler(s.said, nil))}).Protect(http.NotFoundHandler()))
	t.Cleanup(protected.Close)
	for status, how := range map[int]func(bearer string) error{
		503: func(bearer string) error { return errors.New("GET /introspect?token=" + bearer) },
		500: func(bearer string) error { panic("no session " + bearer) },
	} {
		fail = how
		s.as(bearer).get("/me/api-keys").is(status)
		r := must(http.NewRequestWithContext(t.Context(), "GET", protected.URL, nil))
		r.Header.Set("Authorization", "Bearer "+bearer)
		answer := must(http.DefaultClient.Do(r))
		body := must(io.ReadAll(answer.Body))
		if answer.StatusCode != status || answer.Header.Get("Cache-Control") != "no-store" || answer.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("protected: answered %d, %v: %s", answer.StatusCode, answer.Header, body)
		}
		_ = answer.Body.Close()
	}
	for _, told := range []string{"/introspect?token=***", "no session ***"} {
		equal(t, told, strings.Count(s.said.String(), told), 2)
	}
}
