package httpapi_test

import (
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

func (c caller) introspect(target, form string) answer {
	c.t.Helper()
	return c.sendWith("POST", "/introspect"+target, form, func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
}

// All tokens that are not accepted get the same bytes and the same headers.
func TestIntrospectEveryBadToken(t *testing.T) {
	is := is.New(t)
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
