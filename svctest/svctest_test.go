package svctest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/svctest"
)

const (
	templates = "/ext/svc/admin/templates"
	sources   = "/ext/svc/admin/template-sources"
	myKeys    = "/ext/svc/me/api-keys"
)

// must is the value of a call that does not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func status(who *svctest.Caller, method, path, body string) int {
	got, _ := who.Do(method, path, body)
	return got
}

func TestCallers(t *testing.T) {
	is, server := is.New(t), svctest.New(t)
	for _, test := range []struct {
		who       *svctest.Caller
		admin, me int
	}{
		{server.Admin, 200, 200},
		{server.Alice, 403, 200},
		{server.Robot, 200, 403},
		{server.User("bob"), 403, 200},
		{server.Bearer(server.Admin.Key), 200, 200},
		{server.Bearer("nobody's"), 401, 401},
		{server.Bearer(""), 401, 401},
	} {
		is.Equal(status(test.who, "GET", templates, ""), test.admin)
		is.Equal(status(test.who, "GET", myKeys, ""), test.me)
	}
	d := must(server.Service.Decide(t.Context(), server.Robot.Principal, "bank:recall", "any", svc.Context{}))
	is.True(d.Allowed())
	d = must(server.Service.Decide(t.Context(), server.Alice.Principal, "bank:recall", "any", svc.Context{}))
	is.True(!d.Allowed())
}

// The comment of the package shows this.
func TestFirstLines(t *testing.T) {
	server := svctest.New(t)
	status, answer := server.Alice.Do("GET", "/ext/svc/admin/templates", "") // 403: she has no rights
	expect.Equal(t, answer, status, 403)
}

func TestDo(t *testing.T) {
	is, server := is.New(t), svctest.New(t)
	got, body := server.Alice.Do("POST", myKeys, `{"description": "laptop"}`)
	is.Equal(got, 201)
	var issued struct {
		ID  string     `json:"id"`
		Key svc.Secret `json:"api_key"`
	}
	is.NoErr(json.Unmarshal([]byte(body), &issued))
	is.Equal(status(server.Bearer(issued.Key), "DELETE", myKeys+"/"+issued.ID, ""), 204)
	is.Equal(status(server.Bearer(issued.Key), "GET", myKeys, ""), 401)

	server.Mux.Handle("/old", http.RedirectHandler("/new", http.StatusSeeOther))
	is.Equal(status(server.Alice, "GET", "/old", ""), http.StatusSeeOther)
	server.Mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.FormValue("q")+" "+r.Header.Get("Content-Type"))
	})
	_, body = server.Alice.Do("PUT", "/echo?q=1", "{}")
	is.Equal(body, "PUT 1 application/json")
	_, body = server.Alice.Do("GET", "/echo?q=2", "")
	is.Equal(body, "GET 2 ")

	response, err := http.Get(server.URL + templates) // with a client of the host
	is.NoErr(err)
	is.NoErr(response.Body.Close())
	is.Equal(response.StatusCode, 401)
}

func TestClock(t *testing.T) {
	is, server := is.New(t), svctest.New(t)
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	is.Equal(server.Clock.Now(), began)
	issued := must(server.Service.Keys.Issue(t.Context(), server.Alice.Principal, svc.Me, svc.NewAPIKey{ExpiresAt: began.Add(time.Hour)}))
	is.Equal(issued.CreatedAt, began)
	guest := server.Bearer(issued.Key)

	server.Clock.Advance(time.Hour - time.Microsecond)
	is.Equal(status(guest, "GET", myKeys, ""), 200)
	server.Clock.Advance(time.Microsecond)
	is.Equal(status(guest, "GET", myKeys, ""), 401)
	is.Equal(status(server.Alice, "GET", myKeys, ""), 200)
	is.Equal(server.Clock.Now(), began.Add(time.Hour))
}

func TestEvents(t *testing.T) {
	is := is.New(t)
	var told []svc.Event
	svctest.New(t, svctest.Options{Config: func(c *svc.Config) { // it makes its rows in spite of these
		c.ReadOnly, c.Users.RequireKnown, c.Users.Known = true, true, func(context.Context, string) (bool, error) { return false, nil }
	}})
	server := svctest.New(t, svctest.Options{Config: func(c *svc.Config) {
		c.Events.OnEvent = func(_ context.Context, event svc.Event) { told = append(told, event) }
	}})
	is.Equal(len(server.Events()), 0) // no events for the initial rows
	is.Equal(status(server.Alice, "POST", myKeys, "{}"), 201)
	server.Clock.Advance(time.Minute)
	server.Apply(staffReads)

	events := server.Events()
	is.Equal(told, events)
	is.Equal(len(events), 4)
	is.Equal(events[0].Action, event.APIKeyIssued)
	is.Equal(events[0].Actor, server.Alice.Principal.Identity())
	is.Equal(events[3].Action, event.AccessWritten)
	is.Equal(events[3].Time.Sub(events[0].Time), time.Minute)
	events[0].Action = "changed"
	is.Equal(server.Events()[0].Action, event.APIKeyIssued)
}

// TestEdits: the host's own parts replace the defaults.
func TestEdits(t *testing.T) {
	is, noon := is.New(t), time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)
	server := svctest.New(t, svctest.Options{
		Config: func(c *svc.Config) {
			c.Authenticator = svc.AuthenticatorFunc(func(_ context.Context, bearer string) (svc.Principal, error) {
				if id, found := strings.CutPrefix(bearer, "session of "); found {
					return svc.Principal{Kind: svc.KindUser, ID: id, Actions: []string{"template:admin"}}, nil
				}
				return svc.Principal{}, svc.ErrUnauthenticated
			})
			c.Users.Known = func(_ context.Context, id string) (bool, error) { return id == "carol", nil } // not alice
			c.Now = func() time.Time { return noon }
			c.Templates.ValidateManifest = func(json.RawMessage) error { return errors.New("is not to the host's taste") }
		},
		HTTP: httpapi.Options{Bearer: func(r *http.Request) string { return r.Header.Get("X-Api-Key") }},
	})
	carol := server.Bearer("session of carol")
	is.Equal(status(carol, "GET", templates, ""), 200)
	is.Equal(status(server.Admin, "GET", "/ext/svc/users/carol/api-keys", ""), 200)
	is.Equal(status(server.Admin, "POST", "/ext/svc/users/alice/api-keys", ""), 404)
	is.Equal(server.User("carol").Principal.ID, "carol")
	is.Equal(server.Events()[0].Time, noon)

	request := must(http.NewRequestWithContext(t.Context(), "GET", server.URL+templates, nil))
	request.Header.Set("X-Api-Key", "session of carol")
	answered := must(http.DefaultClient.Do(request))
	is.NoErr(answered.Body.Close())
	is.Equal(answered.StatusCode, 200)

	_, answer := carol.Do("POST", templates, `{"id": "notes", "name": "Notes", "manifest": {"version": "1"}}`)
	is.True(strings.Contains(answer, "taste"))
}

func TestLogsAreTheOutputOfTheTest(t *testing.T) {
	is := is.New(t)
	var logger *slog.Logger
	ended := outside(func(t testing.TB) {
		server := svctest.New(t, svctest.Options{Config: func(c *svc.Config) {
			logger = c.Logger
			c.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) {
				return svc.Principal{}, errors.New("the sessions are gone")
			})
		}})
		expect.Equal(t, "the key of nobody", status(server.Bearer("x"), "GET", templates, ""), 503)
		expect.Equal(t, "the administrator", status(server.Admin, "GET", templates, ""), 200)
	})
	is.Equal(ended.failures, nil)
	logger.Error("nobody may write into the output of a test that has ended")
	output := ended.output.String()
	is.True(strings.Contains(output, "the sessions are gone"))
	is.Equal(strings.Count(output, "\n"), 2) // one line a request
}

// TestFailures: what goes wrong fails the test, and says why.
func TestFailures(t *testing.T) {
	is := is.New(t)
	for _, test := range []struct {
		want string
		test func(t testing.TB)
	}{
		{"Config.Store is required", func(t testing.TB) { svctest.New(t, svctest.Options{Config: func(c *svc.Config) { c.Store = nil }}) }},
		{"must be valid JSON", func(t testing.TB) { svctest.New(t).Apply("{") }},
		{"names a user that does not exist", func(t testing.TB) {
			svctest.New(t).Apply(`{"groups": [{"id": "staff", "members": ["nobody"]}]}`)
		}},
		{`issue a key to ""`, func(t testing.TB) { svctest.New(t).User("") }},
		{`"acme" is already registered`, func(t testing.TB) {
			server := svctest.New(t)
			server.Source("acme")
			server.Source("acme")
		}},
		{`register source "a/b"`, func(t testing.TB) { svctest.New(t).Source("a/b") }},
		{`manifest of "notes" is not JSON`, func(t testing.TB) {
			svctest.NewSource(t, "acme", svctest.Template{ID: "notes", Manifest: "{"})
		}},
		{"invalid method", func(t testing.TB) { svctest.New(t).Alice.Do("GET IT", "/", "") }},
	} {
		failures := outside(test.test).failures
		is.Equal(len(failures), 1)
		expect.Holds(t, strings.Contains(failures[0], test.want), failures[0], " says ", test.want)
	}
}

// TestServersShareNothing: servers that run at the same time have separate rows, clocks, sources and events.
func TestServersShareNothing(t *testing.T) {
	t.Parallel() // as the tests of a host
	is := is.New(t)
	const servers = 4
	var all [servers]*svctest.Server
	var acme [servers]*svctest.Source
	for i := range all {
		all[i] = svctest.New(t)
		acme[i] = all[i].Source("acme", svctest.Template{ID: "notes"})
		all[i].Clock.Advance(time.Duration(i) * 24 * time.Hour)
	}
	var work sync.WaitGroup
	for i, server := range all {
		work.Go(func() {
			expect.Equal(t, "install", status(server.Admin, "POST", notes+"/install", `{"source_name": "acme"}`), 200)
			expect.Equal(t, "with the key of another server", status(all[(i+1)%servers].Bearer(server.Admin.Key), "GET", templates, ""), 401)
		})
	}
	work.Wait()
	for i, server := range all {
		events := server.Events()
		is.Equal(len(events), 2)
		is.Equal(events[1].Time.Day(), 2+i)
		is.Equal(len(acme[i].Requests()), 1)
	}
}

func recall(service *svc.Service) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := httpapi.PrincipalFrom(r.Context())
		d, err := service.Decide(r.Context(), who, "bank:recall", r.FormValue("bank"), svc.Context{})
		if err != nil || !d.Allowed() {
			w.WriteHeader(http.StatusForbidden)
		}
	})
}

const staffReads = `{
  "groups": [{"id": "staff", "members": ["alice"]}],
  "policies": [{"id": "staff-reads", "document": {"version": "2026-03-24", "statements": [
    {"effect": "allow", "actions": ["bank:recall"], "banks": ["support"]}]}}],
  "attachments": [{"policy_id": "staff-reads", "principal_type": "group", "principal_id": "staff"}]
}`

func TestRecall(t *testing.T) {
	server := svctest.New(t)
	server.Mux.Handle("POST /recall", server.API.Protect(recall(server.Service)))

	if status, answer := server.Alice.Do("POST", "/recall?bank=support", ""); status != http.StatusForbidden {
		t.Errorf("alice, who may nothing: %d %s", status, answer)
	}
	server.Apply(staffReads)
	if status, answer := server.Alice.Do("POST", "/recall?bank=support", ""); status != http.StatusOK {
		t.Errorf("alice, as one of the staff: %d %s", status, answer)
	}
}

// offboard ends what a user can do here, and removes all that is stored of the user. The host's own
// user is gone already: its Authenticator and Users.Known refuse the id.
func offboard(ctx context.Context, service *svc.Service, id string) error {
	err := service.ForgetUser(ctx, svc.Host.As("offboarding"), id)
	if svc.ErrorCode(err) == svc.CodeNotFound {
		return nil // nothing is left of the user
	}
	return err
}

// TestLeaving: after offboard nothing of the user is accepted: no key and no key of an account. Rows under the same ids bring no key
// and no right back.
func TestLeaving(t *testing.T) {
	is, left := is.New(t), false
	server := svctest.New(t, svctest.Options{Config: func(c *svc.Config) {
		c.Users.Known = func(_ context.Context, id string) (bool, error) { return !left || id != "carol", nil }
	}})
	server.Apply(`{"users": [{"id": "carol"}], "service_accounts": [{"id": "ci", "owner_user_id": "carol"}],
	  "groups": [{"id": "team", "members": ["carol"]}],
	  "attachments": [{"policy_id": "bank:admin", "principal_type": "user", "principal_id": "carol"}]}`)
	key := func(holder svc.Identity) svc.Secret {
		issued := must(server.Service.Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{}))
		return issued.Key
	}
	carol, ci := key(svc.Identity{Kind: svc.KindUser, ID: "carol"}), key(svc.Identity{Kind: svc.KindServiceAccount, ID: "ci"})
	good := func(key svc.Secret) bool {
		_, err := server.Service.Authenticate(t.Context(), string(key))
		return err == nil
	}
	left = true
	is.True(good(carol) && good(ci)) // Users.Known alone ends nothing
	is.NoErr(offboard(t.Context(), server.Service, "carol"))
	is.True(!good(carol) && !good(ci))
	is.NoErr(offboard(t.Context(), server.Service, "carol")) // twice is no error
	server.Apply(`{"users": [{"id": "carol"}], "service_accounts": [{"id": "ci", "owner_user_id": "carol"}]}`)
	is.True(!good(carol) && !good(ci))
	rows := must(server.Service.Access.Export(t.Context(), svc.Host))
	is.Equal(rows.Groups[0].Members, []string{})
	for _, attachment := range rows.Attachments {
		is.True(attachment.Principal.ID != "carol")
	}
}

// TestNothingIsLeft: everything that a server has started ends with the test, including requests that hang.
func TestNothingIsLeft(t *testing.T) {
	checked, done := make(chan error, 1), make(chan []string)
	go pprof.Do(t.Context(), pprof.Labels(label, "yes"), func(context.Context) { // goroutines inherit the label
		done <- outside(func(t testing.TB) { leave(t, checked) }).failures
	})
	if failures := <-done; len(failures) > 0 {
		t.Fatal(failures)
	}
	if err := <-checked; err != nil { // the source has answered after all
		t.Error(err)
	}
	for began := time.Now(); strings.Contains(running(), label); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal(running())
		}
	}
}

const label = "svctest-leak"

// leave is a test that ends while two calls wait for sources.
func leave(t testing.TB, checked chan<- error) {
	server := svctest.New(t)
	acme, other := server.Source("acme", svctest.Template{ID: "notes"}), server.Source("other")
	if got := status(server.Admin, "POST", notes+"/install", installNotes); got != 200 {
		t.Fatalf("install: %d", got)
	}
	asked, _ := acme.Hang()
	go func() { // ends whatever its context
		_, err := server.Service.Templates.CheckUpdate(context.Background(), svc.Host, "notes")
		checked <- err
	}()
	<-asked
	asked, _ = other.Hang()
	go status(server.Admin, "GET", sources+"/other/templates", "")
	<-asked
	expect.Holds(t, strings.Contains(running(), label), "it is running")
}

func running() string {
	var all strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return err.Error()
	}
	return all.String()
}

// outside runs a test outside of go test, and returns it after its end.
func outside(test func(t testing.TB)) *tb {
	ctx, cancel := context.WithCancel(context.Background())
	t, done := &tb{ctx: ctx}, make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			cancel()
			for _, end := range slices.Backward(t.ends) {
				end()
			}
		}()
		test(t)
	}()
	<-done
	return t
}

// tb is the part of testing.TB that svctest needs.
type tb struct {
	testing.TB
	ctx      context.Context
	ends     []func()
	failures []string
	output   bytes.Buffer
}

func (t *tb) Helper()                  {}
func (t *tb) Context() context.Context { return t.ctx }
func (t *tb) Cleanup(end func())       { t.ends = append(t.ends, end) }
func (t *tb) Output() io.Writer        { return &t.output }
func (t *tb) Errorf(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}
func (t *tb) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}
