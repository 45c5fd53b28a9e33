package linearizability_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

// keyState is the state of a key: "" before it is issued, "good" or "revoked".
type keyState string

// keyCall is a call about one key.
type keyCall struct {
	id string
	do string // issue, authenticate, issue by it, revoke or revoke another's

	elsewhere bool // not in the process in which the key is authenticated and revoked
}

// views returns the sets of calls that each have an order. Where Services are not exact, a call that
// follows a revocation in another process may see it before the revoking call returns, while the
// revoking process still accepts the key from memory. So there one order explains the calls of the
// key's own process, and another one all calls that the database decides.
func views(keys []moment[keyCall, keyAnswer]) [][]moment[keyCall, keyAnswer] {
	var own, decided []moment[keyCall, keyAnswer]
	for _, m := range keys {
		if !m.call.elsewhere {
			own = append(own, m)
		}
		if m.call.do != "authenticate" {
			decided = append(decided, m)
		}
	}
	if len(own) == len(keys) {
		return [][]moment[keyCall, keyAnswer]{keys}
	}
	return [][]moment[keyCall, keyAnswer]{own, decided}
}

func (c keyCall) subject() string { return c.id }
func (c keyCall) kind() string    { return c.do }
func (c keyCall) reads() bool     { return c.do == "authenticate" || c.do == "issue by it" } // as for this key
func (c keyCall) String() string  { return c.do }

// keyAnswer is the result of a call.
type keyAnswer struct{ code svc.Code }

func (a keyAnswer) unknown() bool { return a.code == svc.CodeUnavailable }

func (a keyAnswer) kind() string   { return cmp.Or(string(a.code), "ok") }
func (a keyAnswer) String() string { return a.kind() }

// step returns the possible states after a call with this answer, or none.
func (s keyState) step(call keyCall, have keyAnswer) []keyState {
	after, want := s.after(call)
	switch {
	case have.unknown():
		return []keyState{s, after}
	case have != want:
		return nil
	}
	return []keyState{after}
}

// after holds the rules: the new state and the answer of a call.
func (s keyState) after(call keyCall) (keyState, keyAnswer) {
	switch {
	case call.do == "issue":
		return "good", keyAnswer{}
	case s == "good" && (call.do == "authenticate" || call.do == "issue by it"):
		return s, keyAnswer{}
	case s == "good" && call.do == "revoke":
		return "revoked", keyAnswer{}
	case call.do == "authenticate", call.do == "issue by it":
		return s, keyAnswer{svc.CodeUnauthenticated}
	}
	return s, keyAnswer{svc.CodeNotFound}
}

// While a call revokes a key, processes may differ; after it, none may accept the key.
func TestRevocationUnderWay(t *testing.T) {
	at := func(do, from string, called, answered time.Duration, code svc.Code) moment[keyCall, keyAnswer] {
		return moment[keyCall, keyAnswer]{0, keyCall{"k", do, from == "elsewhere"}, keyAnswer{code}, called, answered}
	}
	until := func(last moment[keyCall, keyAnswer]) []moment[keyCall, keyAnswer] {
		return []moment[keyCall, keyAnswer]{
			at("issue", "here", 0, 1, ""), at("revoke", "here", 2, 9, ""),
			at("issue by it", "elsewhere", 3, 4, svc.CodeUnauthenticated), last,
		}
	}
	for _, c := range []struct {
		last     moment[keyCall, keyAnswer]
		violates bool
	}{
		{at("authenticate", "here", 5, 6, ""), false},
		{at("authenticate", "here", 10, 11, ""), true},
		{at("issue by it", "here", 5, 6, ""), true},
		{at("issue by it", "elsewhere", 5, 6, ""), true},
	} {
		h := &history{clients: []*client{{keys: until(c.last)}}}
		if found := h.violation(newTally()); (found != "") != c.violates {
			t.Errorf("%v at %s: violation %q", c.last.call, c.last.called, found)
		}
	}
}
