package httpapi_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
)

const (
	noToken  = `Bearer realm="svc"`
	badToken = `Bearer realm="svc", error="invalid_token"`
)

func TestBearerComesFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	revoked := s.key("alice")
	s.as(revoked).delete("/me/api-keys/" + revoked[5:21]).is(204)
	good := s.key("alice")
	wrongSecret := good[:30] + swap(good[30:31]) + good[31:]
	foreign := newSite(t).key("alice")
	authorizations := map[string][]string{
		noToken: {""},
		badToken: {
			"Bearer " + revoked, "Bearer " + wrongSecret, "Bearer " + foreign, "Bearer " + s.key("ghost"), "Bearer " + s.accountKey("asleep"),
			"Bearer " + good + "x", "Bearer " + good[:58], "Bearer svcu_", "Bearer svcu_" + strings.Repeat("0", 54), "Bearer svcs_" + good[5:],
			"Bearer session-of-ghost", "Bearer session-of-ghost+template:admin", "Bearer session-of-asleep+sa", "Bearer nonsense", "Bearer " + good + " " + good,
			"Bearer", "Basic YWxpY2U6YQ==", "Token " + good, good, "Bearer\t" + good, "Bearer " + strings.ToUpper(good), "Bearer \xff",
			"Bearer " + strings.Repeat("a", 100_000), "Digest x", "Bearer=" + good,
		},
	}
	body := string(s.as("").get("/admin/templates").is(401).body)
	for challenge, values := range authorizations {
		for i, value := range values {
			for j, r := range raw("any", nil) {
				target, sent, _ := strings.Cut(r[1], " ")
				if i > 4 && j > 3 {
					break // enough of them
				}
				a := s.as("").sendWith(r[0], target, sent, func(request *http.Request) {
					if value != "" {
						request.Header.Set("Authorization", value)
					}
				}).fails(401, "unauthenticated")
				expect.Equal(t, a.request, a.header.Get("WWW-Authenticate"), challenge)
				expect.Equal(t, a.request, string(a.body), body)
			}
		}
	}
	// Also one that comes after the admission: the key is revoked while a source is asked.
	late := s.as(s.key("admin"))
	s.market.offer("t", "T", `{"version":"1"}`)
	late.send("POST", "/admin/template-sources", `{"url":"https://a.example/x","alias":"a"}`).is(201)
	s.market.before = func(method string) {
		if method == "Template" {
			must(s.service.Keys.RevokeAll(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "admin"}))
		}
	}
	a := late.send("POST", "/admin/templates/t/install", `{"source_name":"a"}`).is(401)
	expect.Equal(t, "late", a.header.Get("WWW-Authenticate"), badToken)
	expect.Equal(t, "HEAD", s.as("").send("HEAD", "/admin/templates", "").is(401).header.Get("WWW-Authenticate"), noToken)
	s.as(good).get("/me/api-keys").is(200)
}

func swap(character string) string {
	if character == "a" {
		return "b"
	}
	return "a"
}

// allowed are the methods of each path, as Allow has them.
func allowed() map[string]string {
	methods := map[string][]string{
		"/admin/templates/a%2Fb/install": {"POST"}, "/admin/templates/{template_id}?tag=%zz&tag=;": {"DELETE", "GET", "HEAD", "PATCH"},
	}
	add := func(path, method string) {
		if methods[path] = append(methods[path], method); method == "GET" {
			methods[path] = append(methods[path], "HEAD")
		}
	}
	for _, route := range httpapi.Routes() {
		add(route.Path, route.Method)
		if half, is := strings.CutSuffix(route.Path, "/{template_id}"); is {
			add(half+"/check-updates", route.Method) // which may be the id of a template
		}
	}
	all := map[string]string{}
	for path, list := range methods {
		slices.Sort(list)
		all[path] = strings.Join(list, ", ")
	}
	return all
}

func TestMethodNotAllowed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	bearers := []string{s.key("admin"), "session-of-plain", s.accountKey("robot")}
	for target, allow := range allowed() {
		for _, bearer := range bearers {
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "BREW"} {
				if strings.Contains(", "+allow+",", ", "+method+",") {
					continue
				}
				a := s.as(bearer).send(method, target, "")
				s.as(bearer).send(method, target, "not JSON").is(405)
				expect.Equal(t, a.request, a.is(405).header.Get("Allow"), allow)
				if method != "HEAD" {
					a.fails(405, "method_not_allowed")
				}
			}
		}
	}
}

// The host is asked about bearers that are no keys of ours. TestFaultyHosts has what it must not return.
func TestAuthenticatorOfTheHost(t *testing.T) {
	s := newSite(t, func(u *setup) {
		u.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) {
			t.Error("the host was shown a key of ours")
			return svc.Principal{}, svc.ErrUnauthenticated
		})
	})
	key := s.key("alice")
	s.as(key).get("/me/api-keys").is(200)
	s.as(key + "x").get("/me/api-keys").is(401)
	s.as("svcs_anything").get("/me/api-keys").is(401)
}

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

func TestKeyUseIsShown(t *testing.T) {
	s := newSite(t)
	key := s.key("alice")
	s.as(key).get("/me/api-keys").is(200)
	expect.Equal(t, "close", s.service.Close(), nil) // writes what waits
	expect.Equal(t, "used", s.as(key).get("/me/api-keys?view=full").texts("last_used_at"), []string{"2026-01-02T03:04:00.000000Z"})
}

// A key is masked wherever it is pasted, and where a store repeats it.
func TestKeysAreMasked(t *testing.T) {
	const foreign = "sk-live-9f2Kq7Xz1Bv8Lm4Tn6Rw/3Yp0+=="
	s := newSite(t, func(u *setup) { u.Keys.Imports = []svc.KeyImport{{Prefix: "sk-"}} })
	hash := sha256.Sum256([]byte(foreign))
	imported := must(s.service.Keys.Import(t.Context(), svc.Host, alice, svc.ImportedKey{Prefix: "sk-", Hash: hash[:]}))
	for _, part := range []string{foreign, foreign[:24], "9f2Kq7Xz1B", "w~13Yp0"} {
		s.keepSecret(part)
	}
	expect.Equal(t, "listed", s.as(foreign).get("/me/api-keys").is(200).texts("api_key_prefix"), []string{imported.Prefix})
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
		expect.Equal(t, masked, strings.Count(s.log.String(), masked) >= 3, true)
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
		expect.Equal(t, kind, strings.Contains(s.said.String(), kind), true)
	}
	expect.Equal(t, "secrets, leaks", []int{len(s.secrets), len(s.leaks())}, []int{2, 0})
	fmt.Fprint(s.said, s.secrets[1])
	expect.Equal(t, "leaks", len(s.leaks()), 1)
	s.secrets = nil
}
