package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
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

// TestRequire: who may passes with the decision, and every other request gets the problem of the interface.
func TestRequire(t *testing.T) {
	is, seen, s := is.New(t), &watcher{}, newSite(t)
	s.apply(`{"users": [{"id": "ann"}], "policies": [{"id": "reads", "document": {"version": "2026-03-24", "statements": [
	  {"effect": "allow", "actions": ["bank:recall"], "banks": ["diary"], "recall_max_tokens": 7}]}}],
	  "attachments": [{"policy_id": "reads", "principal_type": "user", "principal_id": "ann"}]}`)
	key := s.key("ann")
	api := httpapi.New(s.service, httpapi.Options{Observer: seen, Bearer: func(r *http.Request) string { return r.Header.Get("X-Api-Key") }})
	mux := http.NewServeMux()
	read := api.Require("bank:recall", func(r *http.Request) string { return r.PathValue("bank") })
	mux.Handle("GET /recall/{bank}", read(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, decided := httpapi.DecisionFrom(r.Context())
		by, known := httpapi.PrincipalFrom(r.Context())
		is.True(decided && known && d.Allowed() && by.ID == "ann")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, strconv.FormatInt(*d.Parameters().RecallMaxTokens, 10))
		w.(http.Flusher).Flush()
	})))
	mux.Handle("GET /any", api.Require("bank:recall", nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("let in") })))
	mux.Handle("GET /silent", api.Protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, decided := httpapi.DecisionFrom(r.Context())
		is.True(!decided)
	})))
	// A principal that is in the context already counts for nothing.
	admin := httpapi.WithPrincipal(t.Context(), svc.Principal{Kind: svc.KindHost})
	ask := func(path, name, value string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(admin, "GET", path, nil)
		r.Header.Set(name, value)
		mux.ServeHTTP(w, r)
		return w
	}
	for i, c := range []struct {
		path, name, value string
		status            int
		body, route       string
	}{
		{"/recall/diary", "Authorization", "Bearer " + key, 202, "7", "GET /recall/{bank}"},
		{"/recall/diary", "X-Api-Key", key, 202, "7", "GET /recall/{bank}"},
		{"/recall/diary", "X-Api-Key", "wrong", 401, `"code":"unauthenticated"`, "GET /recall/{bank}"},
		{"/recall/diary", "X-Api-Key", "", 401, `"code":"unauthenticated"`, "GET /recall/{bank}"},
		{"/recall/other", "Authorization", "Bearer " + key, 403, `"code":"forbidden"`, "GET /recall/{bank}"},
		{"/recall/" + strings.Repeat("x", 200), "X-Api-Key", key, 400, `"parameter":"bank"`, "GET /recall/{bank}"},
		{"/any", "X-Api-Key", key, 403, `"code":"forbidden"`, "GET /any"},
		{"/silent", "X-Api-Key", key, 200, "", "GET /silent"},
	} {
		got := ask(c.path, c.name, c.value)
		is.Equal(got.Code, c.status)
		is.True(strings.Contains(got.Body.String(), c.body))
		is.Equal(got.Header().Get("WWW-Authenticate") != "", c.status == 401)
		o := seen.last(t, i+1)
		is.Equal(o.Route, c.route)
		is.Equal(o.Status, c.status)
		is.Equal(o.Caller.ID == "ann", c.status != 401)
		is.Equal(o.Bytes, int64(got.Body.Len()))
	}
	unseen := s.key("ann")
	s.store.Plant(func(string) error { return svc.ErrUnavailable })
	is.Equal(ask("/recall/diary", "X-Api-Key", unseen).Code, 503)
	for _, action := range []string{"", "bank:*"} {
		func() {
			defer func() { is.True(recover() != nil) }()
			api.Require(action, nil)
		}()
	}
}

// TestHandlersOfTheHost: what net/http offers works behind Protect, with an Observer as well.
func TestHandlersOfTheHost(t *testing.T) {
	is := is.New(t)
	s, seen := newSite(t), &watcher{}
	api := httpapi.New(s.service, httpapi.Options{Observer: seen})
	server := httptest.NewServer(api.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := w.(http.Hijacker).Hijack()
		is.NoErr(err)
		_, _ = io.WriteString(connection, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\nby hand")
		_ = connection.Close()
	})))
	s.server.Close()
	s.server = server
	is.Equal(string(s.talk(s.lines("GET / HTTP/1.1", s.key("alice")))[0].body), "by hand")
	is.Equal(seen.last(t, 1).Status, http.StatusSwitchingProtocols)
	for _, steps := range []string{"", "hijack", "hijack write", "hijack 500", "200 500", "write 500", "flush 404", "flush", "404 flush abort", "flush abort"} {
		got := notHijacked{httptest.NewRecorder()}
		request := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		request.Header.Set("Authorization", "Bearer "+s.key("alice"))
		func() {
			defer func() { _ = recover() }()
			api.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answerBy(w, steps) })).ServeHTTP(got, request)
		}()
		o := seen.newest()
		expect.Equal(t, steps, o.Status, got.Result().StatusCode)
		expect.Equal(t, steps, o.Err != nil, o.Status >= 500 || strings.HasSuffix(steps, "abort"))
	}
}

// notHijacked fails to hand over the connection.
type notHijacked struct{ *httptest.ResponseRecorder }

func (notHijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, errors.ErrUnsupported
}

// A handler of the host finds what its ResponseWriter can do, with an Observer as without one. What is seen of it has no key.
func TestHandlersOfTheHostFindWhatThereIs(t *testing.T) {
	s, seen := newSite(t), &watcher{}
	key := s.key("alice")
	for _, w := range []http.ResponseWriter{
		notHijacked{httptest.NewRecorder()}, httptest.NewRecorder(), struct{ http.ResponseWriter }{httptest.NewRecorder()},
	} {
		var found []string
		for _, observer := range []httpapi.Observer{nil, seen} {
			api := httpapi.New(s.service, httpapi.Options{Observer: observer})
			request := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			request.Header.Set("Authorization", "Bearer "+key)
			w.Header().Set("X-Request-Id", key) // by a careless host
			api.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, flushes := w.(http.Flusher)
				_, hijacks := w.(http.Hijacker)
				found = append(found, fmt.Sprint(flushes, hijacks, http.NewResponseController(w).Flush()))
			})).ServeHTTP(w, request)
		}
		expect.Equal(t, found[0], found[0], found[1])
		expect.Equal(t, found[0], strings.Contains(fmt.Sprintf("%+v", seen.newest()), key), false)
	}
}

func answerBy(w http.ResponseWriter, steps string) {
	for step := range strings.FieldsSeq(steps) {
		switch step {
		case "hijack":
			_, _, _ = w.(http.Hijacker).Hijack()
		case "write":
			_, _ = io.WriteString(w, "text")
		case "flush":
			w.(http.Flusher).Flush()
		case "abort":
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(must(strconv.Atoi(step)))
		}
	}
}

func TestWriteError(t *testing.T) {
	is := is.New(t)
	key := newSite(t).key("alice")
	for _, c := range []struct {
		err    error
		status int
		want   string
	}{
		{svc.Invalid("/name", "must not be "+key), 400, `{"type":"about:blank","title":"Bad Request","status":400,"detail":"name must not be`},
		{&svc.Error{Code: svc.CodeForbidden, Message: "the key " + key + " may not"}, 403, `"detail":"the key svc`},
		{fmt.Errorf("read: %w", &svc.Error{Code: svc.CodeNotFound, Message: "no such note"}), 404, `"detail":"no such note."`},
		{&svc.Error{Code: svc.CodeUnauthenticated}, 401, `"detail":"a valid bearer token is required."`},
		{&svc.Error{Code: svc.CodeUnavailable, Err: errors.New("10.0.0.7")}, 503, `"code":"unavailable"`},
		{errors.New("secret " + key), 500, `"code":"internal"`},
	} {
		w := httptest.NewRecorder()
		httpapi.WriteError(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), c.err)
		is.Equal(w.Code, c.status)
		is.Equal(w.Header().Get("Content-Type"), "application/problem+json")
		is.Equal(w.Header().Get("WWW-Authenticate") != "", c.status == 401)
		is.Equal(w.Header().Get("Retry-After") != "", c.status == 503)
		for _, hidden := range []string{"10.0.0.7", key, key[len(key)-20:]} {
			is.True(strings.Contains(w.Body.String(), c.want) && !strings.Contains(w.Body.String(), hidden))
		}
	}
}
