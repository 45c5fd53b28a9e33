package httpapi_test

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
)

// gateway is a session that may introspect, and nothing else.
const gateway = "session-of-plain+iam:keys:introspect"

func (c caller) introspect(target, form string) answer {
	c.t.Helper()
	return c.sendWith("POST", "/introspect"+target, form, func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
}

// All tokens that are not accepted get the same bytes and the same headers.
func TestIntrospectEveryBadToken(t *testing.T) {
	s := newSite(t)
	ask, admin := s.as(gateway), s.admin()
	revoked, disabled, expired := s.key("alice"), s.key("alice"), s.keyOf(alice, svc.NewAPIKey{ExpiresAt: s.clock.Now().Add(time.Millisecond)})
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
	for target, want := range map[string]string{"": `200 {"active":false}`, "?inactive=401": "401 "} {
		var first string
		for name, token := range tokens {
			a := ask.introspect(target, "token="+token)
			a.header.Del("Date")
			said := fmt.Sprintln(a.status, string(a.body), a.header)
			first = cmp.Or(first, said)
			expect.Equal(t, name, said, first)
		}
		expect.Holds(t, strings.HasPrefix(first, want), first)
	}
	expect.Equal(t, "200", ask.introspect("", "token=x").is(200).header.Get("Cache-Control"), "no-store")
	expect.Equal(t, "401", ask.introspect("?inactive=401", "token=x").fails(401, "unauthenticated").header.Get("X-Svc-Active"), "false")
}
