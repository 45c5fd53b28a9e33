package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
)

// hooks are what a host plugs in, each of which panics while broken. The part "hooks" of requests.raw needs them.
var hooks = map[string]func(u *setup, call func()){
	"Authenticator": func(u *setup, call func()) {
		u.Authenticator = svc.AuthenticatorFunc(func(ctx context.Context, bearer string) (svc.Principal, error) { call(); return sessions(ctx, bearer) })
	},
	"Limit": func(u *setup, call func()) {
		u.Limit = func(*http.Request, svc.Principal) time.Duration { call(); return 0 }
	},
	"Bearer": func(u *setup, call func()) {
		u.Bearer = func(*http.Request) string { call(); return "" }
	},
	"KnownUser": func(u *setup, call func()) {
		u.Users.Known = func(context.Context, string) (bool, error) { call(); return true, nil }
	},
	"ValidateManifest": func(u *setup, call func()) {
		u.Templates.ValidateManifest = func(json.RawMessage) error { call(); return nil }
	},
	"Marketplace.CheckURL": inMarket("CheckURL"), "Marketplace.Template": inMarket("Template"), "Marketplace.Catalog": inMarket("Catalog"),
	"Now": func(u *setup, call func()) {
		now := u.Now
		u.Now = func() time.Time { call(); return now() }
	},
}

// inMarket calls before a method of the site's Marketplace does its work.
func inMarket(method string) func(*setup, func()) {
	return func(u *setup, call func()) {
		u.Sources.Marketplace.(*market).before = func(called string) {
			if called == method {
				call()
			}
		}
	}
}

// What a host plugs in may panic: a 500 tells nothing, nothing is half-done, and no lock is held.
func TestHooksThatPanic(t *testing.T) {
	const inside = "at 10.1.2.3\n\x1b[31m"
	for name, requests := range requestsBy("hooks") {
		for how, value := range map[string]any{"text": inside, "error": errors.New(inside), "no element": nil} {
			t.Run(name+"/"+how, func(t *testing.T) {
				var broken atomic.Bool
				s := newSite(t, func(u *setup) {
					hooks[name](u, func() {
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
				unchanged := admin.keeps()
				for _, r := range requests {
					broken.Store(true)
					a := admin.send(r[0], r[1], r[2]).fails(500, "internal")
					broken.Store(false)
					inside := strings.Contains(string(a.body), "10.1") || strings.Contains(string(a.body), "out of range")
					expect.Equal(t, string(a.body), inside, false)
				}
				expect.Equal(t, "records", strings.Count(s.said.String(), `"msg":"svc: request failed"`), len(requests))
				unchanged()
				for _, r := range requests { // not one is stuck
					a := admin.send(r[0], r[1], r[2])
					expect.Equal(t, a.request+string(a.body), a.status < 500, true)
				}
			})
		}
	}
}

// requestsBy are requests of an admin to a stocked site with "chat", by what each needs.
func requestsBy(title string) map[string][][3]string {
	all := map[string][][3]string{}
	for _, line := range raw(title, nil) {
		words := append(strings.SplitN(line[1], " ", 3), "")
		all[line[0]] = append(all[line[0]], [3]string(words))
	}
	return all
}

// in is a fault of one call of a store.
func in(call string, fail func() error) func(string) error {
	return func(called string) error {
		if called != call {
			return nil
		}
		return fail()
	}
}

func TestStoreFaults(t *testing.T) {
	t.Parallel()
	const inside = "pq: password authentication failed at 10.1.2.3"
	for _, c := range []struct {
		name   string
		fail   func() error
		status int
		code   string
	}{
		{"unavailable", func() error { return fmt.Errorf("%s: %w", inside, svc.ErrUnavailable) }, 503, "unavailable"},
		{"out of time", func() error { return fmt.Errorf("%s: %w", inside, context.DeadlineExceeded) }, 503, "unavailable"},
		{"unknown", func() error { return errors.New(inside) }, 500, "internal"},
		{"panic", func() error { panic(inside) }, 500, "internal"},
		{"panic of an error", func() error { panic(errors.New(inside)) }, 500, "internal"},
		{"changed", func() error { return fmt.Errorf("%s: %w", inside, svc.ErrChanged) }, 409, "changed_meanwhile"},
	} {
		for call, requests := range requestsBy("store calls") {
			if c.status == 409 && call != "ChangeTemplate" {
				continue
			}
			t.Run(c.name+"/"+call, func(t *testing.T) {
				s, admin := stocked(t, keeping)
				admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
				s.key("alice") // that there is one to revoke
				unchanged := admin.keeps()
				for _, r := range requests {
					s.store.Plant(in(call, c.fail))
					a := admin.send(r[0], r[1], r[2]).fails(c.status, c.code)
					expect.Equal(t, string(a.body), strings.Contains(string(a.body), "pq") || strings.Contains(string(a.body), "10.1"), false)
					expect.Equal(t, a.request, c.status < 500 || strings.Contains(s.said.String(), inside), true) // in the log
				}
				s.store.Plant(nil)
				unchanged()
				admin.patch("/admin/templates/chat", `{"name": "not stuck"}`).is(200)
			})
		}
	}
}

// A detail is a sentence for a person, whatever is wrong.
func TestDetailIsASentence(t *testing.T) {
	admin := newSite(t).admin()
	for _, a := range []answer{
		admin.post("/me/api-keys", `{"colour": "red"}`), admin.post("/me/api-keys", `{"description": "a", "description": "b"}`), admin.post("/me/api-keys", `{`),
		admin.post("/me/api-keys", `[]`), admin.post("/me/api-keys", `{"description": 1}`), admin.get("/admin/templates?tag=a&tag=b"), admin.get("/admin/templates?%zz"),
		admin.post("/admin/templates", ``), admin.get("/nothing"), admin.get("/admin/templates/x"), admin.send("PUT", "/admin/templates", ""),
	} {
		detail := a.text("detail")
		verb := strings.ContainsAny(detail, " ") && slices.ContainsFunc([]string{" must ", " is ", " has ", " holds ", " takes ", "no "}, func(verb string) bool { return strings.Contains(detail, verb) })
		expect.Holds(t, verb && strings.HasSuffix(detail, "."), a.request, detail)
	}
}
