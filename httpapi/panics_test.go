package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

// hooks are what a host plugs in, each of which panics while broken; requests need it.
var hooks = map[string]struct {
	plug     func(u *setup, call func())
	requests []string
}{
	"Authenticator": {func(u *setup, call func()) {
		u.Authenticator = svc.AuthenticatorFunc(func(ctx context.Context, bearer string) (svc.Principal, error) { call(); return sessions(ctx, bearer) })
	}, []string{"GET /nothing", "GET /admin/templates", "DELETE /admin/templates/chat", "POST /me/api-keys", "PUT /me/api-keys"}},
	"Limit": {func(u *setup, call func()) {
		u.Limit = func(*http.Request, svc.Principal) time.Duration { call(); return 0 }
	}, []string{"GET /nothing", "GET /admin/templates", "DELETE /admin/templates/chat", "POST /me/api-keys", "PUT /me/api-keys"}},
	"KnownUser": {func(u *setup, call func()) {
		u.KnownUser = func(context.Context, string) (bool, error) { call(); return true, nil }
	}, []string{"POST /me/api-keys", "POST /users/alice/api-keys", "POST /users/unseen/api-keys"}},
	"ValidateManifest": {func(u *setup, call func()) {
		u.Templates.ValidateManifest = func(json.RawMessage) error { call(); return nil }
	}, []string{
		"POST /admin/templates " + create, `PATCH /admin/templates/chat {"manifest": {"version": "2"}}`,
		`POST /admin/templates/chat/install {"source_name": "acme", "alias_id": "b"}`, "POST /admin/templates/chat/update?force=1",
	}},
	"Marketplace.CheckURL": {func(u *setup, call func()) { u.Marketplace = &brokenMarket{u.Marketplace, "CheckURL", call} },
		[]string{`POST /admin/template-sources {"url": "https://h/other"}`}},
	"Marketplace.Template": {func(u *setup, call func()) { u.Marketplace = &brokenMarket{u.Marketplace, "Template", call} },
		[]string{`POST /admin/templates/chat/install {"source_name": "acme", "alias_id": "b"}`, "POST /admin/templates/chat/update", "GET /admin/templates/chat/check-update", "GET /admin/templates/chat/diff"}},
	"Marketplace.Catalog": {func(u *setup, call func()) { u.Marketplace = &brokenMarket{u.Marketplace, "Catalog", call} },
		[]string{"GET /admin/template-sources/acme/templates", "POST /admin/templates/check-updates", "GET /admin/source-templates"}},
	"Now": {func(u *setup, call func()) {
		now := u.Now
		u.Now = func() time.Time { call(); return now() }
	}, []string{"POST /me/api-keys", "POST /admin/templates " + create, `PATCH /admin/templates/chat {"name": "x"}`}},
}

// brokenMarket is a Marketplace one method of which calls before it does its work.
type brokenMarket struct {
	svc.Marketplace
	broken string
	call   func()
}

func (m *brokenMarket) at(method string) {
	if m.broken == method {
		m.call()
	}
}

func (m *brokenMarket) CheckURL(url string) error {
	m.at("CheckURL")
	return m.Marketplace.CheckURL(url)
}

func (m *brokenMarket) Template(ctx context.Context, from svc.Upstream, id string) (svc.Content, error) {
	m.at("Template")
	return m.Marketplace.Template(ctx, from, id)
}

func (m *brokenMarket) Catalog(ctx context.Context, from svc.Upstream, maxAge time.Duration) (svc.Catalog, error) {
	m.at("Catalog")
	return m.Marketplace.Catalog(ctx, from, maxAge)
}

// What a host plugs in may panic: that is a 500 which tells nothing, nothing is half-done, and once it is whole again all goes on, no lock
// held by anybody.
func TestHooksThatPanic(t *testing.T) {
	const inside = "at 10.1.2.3\n\x1b[31m"
	for name, hook := range hooks {
		for how, value := range map[string]any{"text": inside, "error": errors.New(inside), "no element": nil} {
			t.Run(name+"/"+how, func(t *testing.T) {
				var broken atomic.Bool
				s := newSite(t, func(u *setup) {
					hook.plug(u, func() {
						if broken.Load() && value == nil {
							_ = strings.Split(inside, ",")[1]
						} else if broken.Load() {
							panic(value)
						}
					})
				})
				admin := s.as("session-of-admin")
				admin.post("/admin/template-sources", `{"url": "https://h/acme"}`).is(201)
				s.market.offer("chat", "Chat", `{"version": "1"}`)
				admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
				before := s.everything(admin)
				for _, request := range hook.requests {
					method, rest, _ := strings.Cut(request, " ")
					target, body, _ := strings.Cut(rest, " ")
					broken.Store(true)
					a := admin.send(method, target, body).fails(500, "internal")
					broken.Store(false)
					if strings.Contains(string(a.body), "10.1") || strings.Contains(string(a.body), "out of range") {
						t.Errorf("%s tells what is inside: %s", a.request, a.body)
					}
				}
				if n := strings.Count(s.said.String(), `"msg":"svc: request failed"`); n != len(hook.requests) {
					t.Errorf("%d records of %d faults", n, len(hook.requests))
				}
				if after := s.everything(admin); after != before {
					t.Errorf("a 500 changed something:\nbefore %s\nafter %s", before, after)
				}
				for _, request := range hook.requests { // not one is stuck
					method, rest, _ := strings.Cut(request, " ")
					target, body, _ := strings.Cut(rest, " ")
					if a := admin.send(method, target, body); a.status >= 500 {
						t.Errorf("%s: %d %s", request, a.status, a.body)
					}
				}
			})
		}
	}
}

// A store that panics within a change, while it holds whatever it holds, is let go of.
func TestStoreThatPanicsIsNotStuck(t *testing.T) {
	s, admin := stocked(t, keeping)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	s.key("alice") // that there is one to revoke
	for call, requests := range touching {
		for _, r := range requests {
			s.store.plant(func(called string) error {
				if called == call {
					panic(fmt.Sprint("in ", call))
				}
				return nil
			})
			admin.send(r[0], r[1], r[2]).fails(500, "internal")
		}
		s.store.plant(nil)
		admin.patch("/admin/templates/chat", `{"name": "`+call+`"}`).is(200)
	}
}
