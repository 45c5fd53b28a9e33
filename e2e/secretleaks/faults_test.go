//go:build unix

package secretleaks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/intercept"
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

// failSessions makes the host's Authenticator fail with its bearer. Keys mistyped at the start
// reach it.
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

// try authenticates a bearer in Go.
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
