package linear_test

import (
	"cmp"

	"github.com/extsvc/svc"
)

// keyState is the state of a key: "" before it is issued, "good" or "revoked".
type keyState string

// keyCall is a call about one key.
type keyCall struct {
	id string
	do string // issue, authenticate, issue by it, revoke or revoke another's
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
