//go:build unix

package secretleaks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/token"
)

// talkative is a store that can fail with everything that it was given, as databases do: "Key
// (id)=(…) already exists".
type talkative struct {
	*intercept.Store
	fail atomic.Pointer[func(told string) error] // nil: does not fail
}

func newTalkative(good svc.FullStore) *talkative {
	s := &talkative{}
	s.Store = &intercept.Store{FullStore: good, Inside: true, Around: s.around}
	return s
}

// around makes a call and fails it. UseAPIKeys never panics: a panic in the background would end the program.
func (s *talkative) around(_ context.Context, call intercept.Call) (err error) {
	switch call.Method {
	case "UseAPIKeys":
		defer func() {
			if cause := recover(); cause != nil {
				err = fmt.Errorf("%v", cause)
			}
		}()
	case "CreateSource", "Source", "Template", "CreateAPIKey", "APIKeys", "ChangeAPIKey", "RevokeAPIKeys", "Access":
	default:
		return call.Do()
	}
	err = call.Do()
	return cmp.Or(s.tell(call), err)
}

// tell calls fail with what a call got and returned.
func (s *talkative) tell(call intercept.Call) error {
	fail := s.fail.Load()
	if fail == nil {
		return nil
	}
	told := call.Args
	if call.Result != nil {
		told = append(told, reflect.ValueOf(call.Result).Elem().Interface())
	}
	if snapshot, is := call.Result.(*svc.AccessSnapshot); is {
		told = append(told, snapshot.Key)
	}
	return (*fail)(fmt.Sprintf("%+v %#v", told, told))
}

// touching lists requests that reach the store.
var touching = []struct{ method, target, body string }{
	{"GET", "/me/api-keys", ""},
	{"POST", "/me/api-keys", ""},
	{"PATCH", "/me/api-keys/ID", `{"description": "again"}`},
	{"POST", "/me/api-keys/ID/rotate", `{"overlap_seconds": 9}`},
	{"DELETE", "/me/api-keys/ID", ""},
	{"DELETE", "/me/api-keys", ""},
	{"POST", "/users/alice/api-keys", ""},
	{"GET", "/admin/templates/chat", ""},
	{"GET", "/admin/templates/KEY", ""},
	{"POST", "/admin/template-sources", `{"url": "https://example.com/more", "auth_token": "TOKEN"}`},
	{"POST", "/admin/templates/chat/install", `{"source_name": "more", "alias_id": "more"}`},
	{"DELETE", "/me/api-keys/KEY", ""},
	{"GET", "/debug/resolve?bank=b&user_id=KEY", ""},
	{"KEY", "/me/api-keys", ""},
}

// fail makes the store and the host's Authenticator fail in every way.
func (s *site) fail() {
	s.t.Helper()
	ways := []func(told string) error{
		func(told string) error { return errors.New("duplicate key: " + told) },
		func(told string) error { return fmt.Errorf("%w: connection lost: %s", svc.ErrUnavailable, told) },
		func(told string) error { panic("told " + told) },
		func(told string) error { panic(errors.New("told " + told)) },
	}
	token := s.secret("source token", "b3NhLw8xKj6TzVq1RfGd0PmCy5UeHi9W")
	for _, way := range ways {
		seen, unseen, put := s.issue(admin), s.issue(admin), strings.NewReplacer("KEY", s.issue(alice), "ID", s.issue(admin)[5:21], "TOKEN", token)
		s.ask(200, seen, "GET", "/me/api-keys", "")
		s.store.fail.Store(&way)
		for _, bearer := range []string{seen, unseen, "session-of-admin"} {
			for _, r := range touching {
				s.ask(0, bearer, put.Replace(r.method), put.Replace(r.target), put.Replace(r.body))
			}
		}
		s.store.fail.Store(nil)
	}
	s.failSessions(append(ways, func(told string) error {
		return &url.Error{Op: "Get", URL: "https://id.example.com/session?token=" + url.QueryEscape(told), Err: errors.New("connection refused")}
	}))
}

// failSessions makes the host's Authenticator fail with its bearer. Keys mistyped at the start reach it.
func (s *site) failSessions(ways []func(told string) error) {
	key := s.issue(alice)
	for _, way := range ways {
		s.session.Store(&way)
		for _, bearer := range []string{key[1:], "SVCU_" + key[5:], key[5:], "Bearer " + key, key[21:53]} {
			s.ask(0, bearer, "GET", "/me/api-keys", "")
			s.ask(0, "", "GET", "", "", s.ownRoute(bearer))
			s.keep(s.try(bearer))
		}
	}
	s.session.Store(nil)
}

func (s *site) try(bearer string) (err error) {
	defer func() { _ = recover() }() // a panic of the host's own Authenticator
	_, err = s.service.Authenticate(s.t.Context(), bearer)
	return err
}

// closeInTheMiddle closes the store while the Service goes on.
func (s *site) closeInTheMiddle(peppers []svc.Pepper) {
	s.t.Helper()
	way := func(told string) error { return errors.New("not written: " + told) }
	s.ask(200, s.issue(admin), "GET", "/me/api-keys", "")
	s.store.fail.Store(&way)
	s.stop() // cannot write the use
	s.start(peppers...)
	seen, unseen := s.issue(admin), s.issue(admin)
	s.ask(200, seen, "GET", "/me/api-keys", "")
	s.db.close()
	for _, bearer := range []string{seen, unseen, "session-of-admin"} {
		for _, r := range touching {
			s.ask(0, bearer, strings.Replace(r.method, "KEY", "PUT", 1), strings.ReplaceAll(r.target, "KEY", seen), r.body)
		}
		s.keep(s.try(bearer))
	}
	_, err := s.service.Keys.RevokeLeaked(s.t.Context(), svc.Host, []string{seen})
	s.keep(err)
	s.keep(s.service.Access.Apply(s.t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "late"}}}))
	s.stop()
}

// paste is a request with a key, written KEY, in a place where it does not belong.
type paste struct {
	status               int
	method, target, body string
}

// pastes are those of testdata/pastes.txt, and some that are no lines.
var pastes = func() []paste {
	all := []paste{
		{400, "POST", "/me/api-keys", "{\"description\": \"\xffKEY\"}"},
		{400, "POST", "/me/api-keys", strings.Repeat("[", 100) + `"KEY"` + strings.Repeat("]", 100)},
		{413, "POST", "/me/api-keys", `{"description": "` + strings.Repeat("KEY", 40_000) + `"}`},
		{400, "POST", "/me/api-keys", `{"description": "` + strings.Repeat("KEY", 100) + `"}`},
	}
	text, err := os.ReadFile("testdata/pastes.txt")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(text)) {
		if words := append(strings.SplitN(strings.TrimSpace(line), " ", 4), ""); words[0] != "#" {
			status, _ := strconv.Atoi(words[0])
			all = append(all, paste{status, words[1], words[2], words[3]})
		}
	}
	return all
}()

// pasteKeys sends all pastes with a valid key.
func (s *site) pasteKeys() {
	s.t.Helper()
	root, key := s.issue(admin), s.issue(alice)
	for _, p := range pastes {
		put := strings.NewReplacer("KEY", key)
		for _, bearer := range []string{root, key, ""} {
			status := p.status
			if bearer != root {
				status = 0
			}
			s.ask(status, bearer, put.Replace(p.method), put.Replace(p.target), put.Replace(p.body))
		}
	}
	for name, value := range map[string]string{
		"X-Api-Key": key, "X-Request-Id": key, "Cookie": "key=" + key, "User-Agent": key, "Referer": "https://example.com/" + key, "Accept": key, "If-None-Match": key, "Idempotency-Key": key,
		"X-Forwarded-For": key, "Traceparent": key, "Authorization": "Basic " + key, "Proxy-Authorization": key, "Content-Type": key, "Content-Encoding": key, "Expect": key, key: key,
	} {
		for _, bearer := range []string{root, ""} {
			s.ask(0, bearer, "POST", "/me/api-keys/nothing/rotate", "{}", func(r *http.Request) { r.Header.Set(name, value) })
		}
	}
	s.pasteInGo(key)
	s.ask(401, "", "GET", "/me/api-keys", "", func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer " + key, "Bearer " + key} })
	s.ask(401, "", "GET", "/me/api-keys", "", func(r *http.Request) { r.Header.Set("Authorization", key) })
	s.ask(200, key, "GET", "/me/api-keys", "") // the key is still valid
}

// pasteInGo passes a key to Go methods in wrong places.
func (s *site) pasteInGo(key string) {
	ctx := s.t.Context()
	listed(s, s.service.Keys.List(ctx, admin, svc.Identity{Kind: svc.KindUser, ID: key}, svc.KeyQuery{}))
	for _, by := range []svc.Principal{svc.Host, admin, alice, robot, {Kind: svc.KindUser, ID: key}} {
		_, err := s.service.Templates.Read(ctx, by, key)
		s.evidence.fault(err)
		s.evidence.fault(s.service.Keys.Revoke(ctx, by, alice.Identity(), key))
		s.evidence.fault(s.service.Keys.Revoke(ctx, by, svc.Me, key))
		_, err = s.service.Keys.Rotate(ctx, by, svc.Me, key, svc.Rotation{Overlap: -1})
		s.evidence.fault(err)
		_, err = s.service.Policies.Resolve(ctx, by, svc.Question{Bank: "b", UserID: key})
		s.evidence.fault(err)
		_, err = s.service.Keys.RevokeLeaked(ctx, by, []string{"svcu_nonsense", key + "x"})
		s.evidence.fault(err)
		_, err = s.service.Keys.Issue(ctx, by, svc.Identity{Kind: svc.KindServiceAccount, ID: key}, svc.NewAPIKey{})
		s.evidence.fault(err)
	}
}

// The search finds a planted secret in its place and nowhere else.
func TestPlantsAreFound(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	databases(t, func(t *testing.T, db database) {
		s := newSite(t, db, older)
		for name, plant := range map[string]struct {
			places []string
			put    func(secret string)
		}{
			"a line of the log":  {[]string{"log, JSON", "log, text"}, func(secret string) { s.config.Logger.Debug("it", "key", secret) }},
			"a line of Go's log": {[]string{"the default log"}, func(secret string) { log.Print(secret) }},
			"an event":           {[]string{"events"}, func(secret string) { s.config.Events.OnEvent(t.Context(), svc.Event{Target: svc.Target{ID: secret}}) }},
			"an error":           {[]string{"errors"}, func(secret string) { s.evidence.fault(&svc.Error{Message: secret}) }},
			"the cause of one":   {[]string{"errors"}, func(secret string) { s.evidence.fault(silent{silent{errors.New(secret)}}) }},
			"a body":             {[]string{"answers"}, func(secret string) { s.echo(url.Values{"body": {secret}}) }},
			"a header":           {[]string{"answers"}, func(secret string) { s.echo(url.Values{"header": {secret}}) }},
			"a key that is listed": {[]string{"answers"}, func(secret string) {
				s.echo(url.Values{"body": {`{"api_key":"svcu_0123456789abcdef` + secret + `123456"}`}})
			}},
			"a key that is repeated": {[]string{"answers"}, func(secret string) {
				s.echo(url.Values{"status": {"201"}, "body": {`{"api_key":"svcu_0123456789abcdef` + secret + `123456","description":"` + secret + `"}`}})
			}},
			"a value": {[]string{"values"}, func(secret string) { s.evidence.value("values", struct{ key svc.Secret }{svc.Secret(secret)}) }},
		} {
			t.Run(name, func(t *testing.T) {
				s.evidence.forget()
				plant.put(s.secret("planted", made()))
				wantFound(t, s, plant.places)
			})
		}
		plantRows(t, s)
	})
}

func made() string { return token.New("", func(string) uint32 { return 0 }).Secret }

// echo makes the server answer with a text.
func (s *site) echo(with url.Values) {
	_ = must(s.client.Get(s.url + "/echo?" + with.Encode())).Body.Close()
}

// wantFound checks that the search finds secrets in these places and no others.
func wantFound(t *testing.T, s *site, places []string) {
	t.Helper()
	slices.Sort(places)
	if found := slices.Sorted(maps.Keys(s.evidence.leaks(&s.hunt))); !slices.Equal(found, places) {
		t.Errorf("found in %q, want %q", found, places)
	}
}

// plantRows writes a secret with SQL, as text and as bytes.
func plantRows(t *testing.T, s *site) {
	pool, dialect := s.db.db()
	texts, bytes := made(), made()
	for statement, value := range map[string]any{
		`CREATE TABLE texts (leak ` + dialect.Text + `)`: texts, `CREATE TABLE bytes (leak ` + dialect.Bytes + `)`: []byte(bytes),
	} {
		execute(t, pool, statement)
		execute(t, pool, `INSERT INTO `+strings.Fields(statement)[2]+` VALUES ($1)`, value)
	}
	find := func(name, secret string, look func(e *evidence), places []string) {
		t.Run(name, func(t *testing.T) {
			s.evidence.forget()
			s.hunt = hunt{}
			s.secret("planted", secret)
			look(&s.evidence)
			wantFound(t, s, places)
		})
	}
	s.db.settle()
	find("a row of text", texts, s.db.running, s.db.holdRows())
	find("a row of bytes", bytes, s.db.running, s.db.holdRows())
	s.stop()
	find("a row of text, closed", texts, s.db.stopped, s.db.keepRows())
	find("a row of bytes, closed", bytes, s.db.stopped, s.db.keepRows())
}

// The test notices an answer that issues a key and may be cached.
func TestCachedAnswersAreNoticed(t *testing.T) {
	s := newSite(t, &file{t: t, path: t.TempDir() + "/svc.db"})
	s.ask(201, "session-of-alice", "POST", "/me/api-keys", "")
	if len(s.cached) > 0 {
		t.Errorf("%q", s.cached)
	}
	s.echo(url.Values{"status": {"201"}, "body": {`{"api_key":"svcu_0123456789abcdef` + made() + `123456"}`}})
	if len(s.cached) != 1 {
		t.Errorf("not noticed: %q", s.cached)
	}
}
