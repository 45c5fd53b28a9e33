package httpapi_test

import (
	"context"
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

// Every site looks for secrets when it ends: that must be able to fail, and look at answers, logs and events.
func TestLeaksAreNoticed(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	admin.post("/users/alice/api-keys", "").is(201)
	s.store.plant(func(string) error { return errors.New("logged fault") })
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

// A full key where its id belongs is a mistake that people make: it must not end up in an answer …
func TestKeyInAPathIsNotAnswered(t *testing.T) {
	s := newSite(t)
	key := s.key("alice")
	s.as("session-of-alice").delete("/me/api-keys/" + key).is(404)
	s.admin().delete("/users/alice/api-keys/" + key).is(404)
	s.admin().patch("/users/alice/api-keys/"+key, `{"disabled": true}`).is(404)
	s.admin().post("/users/alice/api-keys/"+key+"/rotate", "").is(404)
	s.admin().get("/admin/templates/" + key).is(404)
}

// … nor in a log.
func TestKeyInAPathIsNotLogged(t *testing.T) {
	s := newSite(t)
	key := s.key("alice")
	s.store.plant(func(call string) error {
		if call == "ChangeAPIKey" {
			return svc.ErrUnavailable
		}
		return nil
	})
	s.as("session-of-alice").delete("/me/api-keys/" + key).is(503)
}

// Where an id is kept, or told back, a key is none.
func TestKeyIsNoID(t *testing.T) {
	s := newSite(t)
	key := s.key("alice")
	admin := s.admin()
	admin.post("/users/"+key+"/api-keys", "").refuses("user_id")
	admin.post("/admin/templates", `{"id": "`+key+`", "name": "n", "manifest": {"version": "1"}}`).refuses("/id")
	admin.post("/admin/templates/chat/install", `{"source_name": "acme", "alias_id": "`+key+`"}`).refuses("/alias_id")
	admin.post("/admin/template-sources", `{"url": "https://h/acme", "alias": "`+key+`"}`).refuses("/alias")
	admin.post("/admin/template-sources", `{"url": "https://h/`+key+`/templates"}`).refuses("/alias")
	admin.get("/debug/resolve?bank=b&user_id=" + key).refuses("user_id")
	admin.get("/debug/resolve?bank=b&sa_id=" + key).refuses("sa_id")
	admin.get("/debug/resolve?user_id=a&bank="+key+"&action="+key).refuses("bank", "action")
	admin.post("/decide", `{"queries": [{"action": "a", "bank": "`+key+`", "sa_id": "`+key+`"}]}`).refuses("/queries/0/bank", "/queries/0/sa_id")
	admin.get("/me/resolve?action="+key+"&bank="+key).refuses("bank", "action")
	admin.get("/debug/who-can?bank=" + key).refuses("bank")
	admin.post("/debug/simulate", `{"bundle": {"users": [{"id": "`+key+`"}]}, "query": {"bank": "b", "user_id": "a"}}`).refuses("/bundle/users/0/id")
	if listed := admin.get("/admin/templates").texts("id"); len(listed) > 0 {
		t.Errorf("%q is kept", listed)
	}
}

// The caller also chooses the name of a member and the method.
func TestKeyAsANameIsMasked(t *testing.T) {
	s := newSite(t)
	key := s.key("alice")
	admin := s.admin()
	admin.post("/me/api-keys", `{"`+key+`": 1}`).refuses("/" + key[:21] + "***")
	admin.post("/admin/templates", `{"id": "a", "name": "n", "manifest": {"version": "1", "a": {"`+key+`": 1, "`+key+`": 2}}}`).refuses("/manifest/a/" + key[:21] + "***")
	s.store.plant(func(string) error { return svc.ErrUnavailable })
	s.as(key).send(key, "/me/api-keys", "").is(503)
	if !strings.Contains(s.said.String(), key[:21]+"***") {
		t.Error("nothing of it is in the log")
	}
}

// A store may say what it was asked for.
func TestKeyInAFaultOfTheStoreIsNotLogged(t *testing.T) {
	s := newSite(t)
	key := s.key("alice")
	session := s.as("session-of-alice")
	for _, fail := range []func() error{
		func() error { return errors.New(`no row has the key "` + key + `"`) },
		func() error { panic("no row has the key " + key) },
	} {
		s.store.plant(func(string) error { return fail() })
		session.delete("/me/api-keys/" + key).is(500)
	}
	if n := strings.Count(s.said.String(), key[:21]+"***"); n != 2 {
		t.Errorf("%d faults in the log", n)
	}
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
		if n := strings.Count(s.said.String(), told); n != 2 {
			t.Errorf("%q is %d times in the log", told, n)
		}
	}
}

func TestKeyInAQueryOrBodyIsNotRepeated(t *testing.T) {
	s := newSite(t)
	key := s.key("alice")
	admin := s.admin()
	admin.get("/admin/templates?category=" + key).is(200)
	admin.get("/admin/templates?access_token=" + key).is(400)
	admin.get("/admin/templates?" + key + "=x").is(400)
	admin.post("/admin/templates", `{"id": {"a": "`+key+`"}}`).is(400)
	admin.post("/admin/templates", `"`+key+`"`).is(400)
	admin.sendWith("GET", "/admin/templates", "", func(r *http.Request) {
		r.Header.Set("Authorization", "Basic "+key)
	}).is(401)
}
