package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/extsvc/svc"
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
		if call == "RevokeAPIKey" {
			return svc.ErrUnavailable
		}
		return nil
	})
	s.as("session-of-alice").delete("/me/api-keys/" + key).is(503)
}

func TestKeyInAQueryOrBodyIsNotRepeated(t *testing.T) {
	s := newSite(t)
	key := s.key("alice")
	admin := s.admin()
	admin.get("/admin/templates?category=" + key).is(200)
	admin.get("/admin/templates?access_token=" + key).is(200)
	admin.post("/admin/templates", `{"id": {"a": "`+key+`"}}`).is(400)
	admin.post("/admin/templates", `"`+key+`"`).is(400)
	admin.sendWith("GET", "/admin/templates", "", func(r *http.Request) {
		r.Header.Set("Authorization", "Basic "+key)
	}).is(401)
}
