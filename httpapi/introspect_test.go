package httpapi_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// gateway is a session that may introspect, and nothing else.
const gateway = "session-of-plain+iam:keys:introspect"

// introspect sends a form.
func (c caller) introspect(target, form string) answer {
	c.t.Helper()
	return c.sendWith("POST", "/introspect"+target, form, func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
}

func TestIntrospect(t *testing.T) {
	is := is.New(t)
	s := newSite(t)
	ask := s.as(gateway)
	user, account := s.key("alice"), s.accountKey("robot")
	ask.introspect("", "token="+user).is(200).json(`{"active": true, "sub": "alice", "kind": "user"}`)
	ask.introspect("", "token="+account+"&token_type_hint=access_token&x=y").is(200).json(`{"active": true, "sub": "robot", "kind": "service_account"}`)
	is.Equal(ask.introspect("?inactive=", "token="+user).is(200).header.Get("Cache-Control"), "no-store")

	expires := s.clock.Now().Add(time.Hour) // with a fraction of a second
	narrowed := s.issued(svc.NewAPIKey{ScopingPolicyID: "recalls", ExpiresAt: expires})
	want := fmt.Sprintf(`{"active": true, "sub": "alice", "kind": "user", "exp": %d, "scope": "policy:recalls"}`, expires.Unix())
	ask.introspect("", "token="+narrowed).is(200).json(want)
	a := ask.introspect("?inactive=401", "token="+narrowed).is(200)
	a.json(want)
	for name, value := range map[string]string{"X-Svc-Active": "true", "X-Svc-Sub": "alice", "X-Svc-Kind": "user", "X-Svc-Scope": "policy:recalls"} {
		is.Equal(a.header[name], []string{value})
	}
	_, scoped := ask.introspect("?inactive=401", "token="+user).is(200).header["X-Svc-Scope"]
	is.True(!scoped)
}

// issued issues a key to alice.
func (s *site) issued(in svc.NewAPIKey) string {
	s.t.Helper()
	issued := must(s.service.Keys.Issue(s.t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}, in))
	s.keepSecret(string(issued.Key))
	return string(issued.Key)
}

// Ids that are no scope or no header as they are, go through both and come back.
func TestIntrospectStrangeIDs(t *testing.T) {
	is := is.New(t)
	s := newSite(t)
	const policy, holder = `on call "ü" 100%`, `Zoë @ home`
	bundle := svc.Bundle{Policies: []svc.Policy{{ID: policy, Document: []byte(`{"version":"2026-03-24","statements":[]}`)}}}
	is.NoErr(s.service.Access.Apply(t.Context(), svc.Host, bundle))
	issued := must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: holder}, svc.NewAPIKey{ScopingPolicyID: policy}))
	a := s.as(gateway).introspect("?inactive=401", "token="+string(issued.Key)).is(200)
	const scope = "policy:on%20call%20%22%C3%BC%22%20100%25"
	is.Equal(a.text("sub"), holder)
	is.Equal(a.text("scope"), scope)
	is.Equal(a.header.Get("X-Svc-Sub"), "Zo%C3%AB%20@%20home")
	is.Equal(a.header.Get("X-Svc-Scope"), scope)
}

// All tokens that are not accepted get the same bytes and the same headers.
func TestIntrospectEveryBadToken(t *testing.T) {
	is := is.New(t)
	s := newSite(t)
	ask, admin := s.as(gateway), s.admin()
	revoked, disabled, expired := s.key("alice"), s.key("alice"), s.issued(svc.NewAPIKey{ExpiresAt: s.clock.Now().Add(time.Millisecond)})
	admin.delete("/users/alice/api-keys/" + revoked[5:21]).is(204)
	admin.patch("/users/alice/api-keys/"+disabled[5:21], `{"disabled": true}`).is(200)
	s.clock.tick()
	good := s.key("alice")
	tokens := map[string]string{
		"unknown": newSite(t).key("alice"), "revoked": revoked, "expired": expired, "disabled": disabled, "a typo": good[:58] + "!", "half": good[:30],
		"an inactive user's": s.key("ghost"), "an inactive account's": s.accountKey("asleep"), "of an inactive owner": s.accountKey("haunted"),
		"a session": "session-of-admin", "the gateway's own": gateway, "no key": "x", "100 kB": strings.Repeat("x", 100_000),
		"100 kB of a key": good + strings.Repeat("x", 100_000), "NUL": "%00", "bad UTF-8": "%ff", "a space": "+", "a form": "a%26token=" + good, "a line break": "a%0d%0ab",
		"Bearer": "Bearer%20" + good,
	}
	for _, target := range []string{"", "?inactive=401"} {
		var first answer
		for name, token := range tokens {
			a := ask.introspect(target, "token="+token)
			a.header.Del("Date")
			if first.header == nil {
				first = a
			}
			if a.status != first.status || string(a.body) != string(first.body) || !maps.EqualFunc(a.header, first.header, func(a, b []string) bool {
				return fmt.Sprint(a) == fmt.Sprint(b)
			}) {
				t.Errorf("%s: %d %q %v\nand %d %q %v", name, a.status, a.body, a.header, first.status, first.body, first.header)
			}
		}
		if target == "" {
			is.Equal(string(first.is(200).body), `{"active":false}`)
			is.Equal(first.header.Get("Cache-Control"), "no-store")
		} else {
			is.Equal(first.fails(401, "unauthenticated").header.Get("X-Svc-Active"), "false")
		}
	}
}

// A gateway that is refused itself is not taken for a bad token.
func TestIntrospectCallers(t *testing.T) {
	is := is.New(t)
	s := newSite(t)
	good := "token=" + s.key("alice")
	for bearer, status := range map[string]int{
		"": 401, "nonsense": 401, s.key("ghost"): 401, s.key("alice"): 403, "session-of-plain+iam:users:read": 403, gateway: 200, s.key("admin"): 200, s.accountKey("robot"): 200,
	} {
		for _, target := range []string{"", "?inactive=401"} {
			a := s.as(bearer).introspect(target, good).is(status)
			is.Equal(a.header.Get("X-Svc-Active") != "", status == 200 && target != "")
		}
	}
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
		is.Equal(s.as(gateway).send(method, "/introspect?token=x", "").is(405).header.Get("Allow"), "POST")
	}
}

func TestIntrospectBodies(t *testing.T) {
	s := newSite(t)
	ask, key := s.as(gateway), s.key("alice")
	for form, places := range map[string][]string{
		"": {"token"}, "token": {"token"}, "token=": {"token"}, "TOKEN=x": {"token"}, "token_type_hint=x": {"token"}, `{"token": "x"}`: {"token"},
		"token=x&token=x": {"token"}, "token=" + key + "&token=": {"token"}, "token=x&token_type_hint=a&token_type_hint=b": {"token_type_hint"}, "token=x&a=1&a=1": {"a"},
		"token=x&&": nil, "token=x&/a=1&/a=1": {""}, "token=x&=1&=1": {""}, "token=%zz": {""}, "token=x;a=b": {""}, "token=x" + strings.Repeat("&a", 100): {""},
		"token=x&" + key + "=1&" + key + "=1": {key[:21] + "***"},
	} {
		if a := ask.introspect("", form); places == nil {
			a.is(200)
		} else {
			a.refuses(places...)
		}
	}
	ask.introspect("?inactive=403", "token=x").refuses("inactive")
	ask.introspect("?token="+key, "token=x").refuses("token")
	ask.introspect("", "token="+strings.Repeat("x", 1<<20)).fails(413, "body_too_large")
	s.as("session-of-alice").introspect("", "token=x&token=x").refuses("token") // 400 comes before 403
	for _, kind := range []string{"", "application/json", "text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded; charset=latin1"} {
		ask.sendWith("POST", "/introspect", "token=x", func(r *http.Request) { r.Header.Set("Content-Type", kind) }).fails(415, "unsupported_media_type")
	}
	for _, kind := range []string{"application/x-www-form-urlencoded;charset=UTF-8", "Application/X-WWW-Form-URLEncoded"} {
		ask.sendWith("POST", "/introspect", "token=x", func(r *http.Request) { r.Header.Set("Content-Type", kind) }).is(200)
	}
	ask.sendWith("POST", "/introspect", "", nil).refuses("token")
}

// The token is in no log and no answer, whatever happens: the site checks that for its keys when it ends.
func TestIntrospectWhileTheStoreFails(t *testing.T) {
	s := newSite(t)
	ask := s.as(gateway)
	ask.introspect("", "token=x").is(200)
	for status, fault := range map[int]error{500: errors.New("on fire"), 503: svc.ErrUnavailable} {
		key := s.key("alice")
		s.store.plant(func(string) error { return fault })
		ask.introspect("", "token="+key).is(status)
		ask.introspect("?inactive=401", "token="+key).is(status)
		s.store.plant(nil)
		ask.introspect("", "token="+key).is(200)
	}
}
