package svc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
)

// Kind is the kind of a principal. It is always given beside an id and never read out of one.
type Kind string

// The kinds of principals.
const (
	KindUser           Kind = "user"
	KindServiceAccount Kind = "service_account"
	KindHost           Kind = "host" // the host application itself; see [Host]
)

// Identity is who a principal is: a kind and an id, comparable.
type Identity struct {
	Kind Kind
	ID   string // "" for [Host]
}

// Scope says to whom a source or template belongs.
type Scope string

// The scopes. Rows of the server have no owner; personal ones belong to a user.
const (
	ScopeServer   Scope = "server"
	ScopePersonal Scope = "personal"
)

// KindUnmapped is the kind of a sender that belongs to nobody, or to an inactive user.
const KindUnmapped Kind = "unmapped"

// Unmapped is a sender that belongs to nobody: it may do what a bank's policy gives to the public.
var Unmapped = Principal{Kind: KindUnmapped}

// Principal is the caller of a [Service] method. One that [Service.Authenticate] returns remembers
// the issued key that it came by, so hand it on as it is: with that key it makes and changes keys
// only as long as the key is accepted.
type Principal struct {
	Kind Kind
	ID   string
	// Actions are action patterns that the host's [Authenticator] vouches for on bank "*", in this request only:
	// "template:admin", "iam:*", or "*" for every control-plane action ("iam:*" and "template:*", and nothing else).
	// A stored deny still wins over them; an issued key never carries any. Nil: it vouches for none. With any other "*",
	// or an empty pattern, Authenticate fails with [CodeInternal] and an Err that quotes the pattern.
	Actions []string
	// ScopingPolicyID is that of an access policy which narrows what p may do, in this request
	// only: both must allow, and it gives p no parameter that p has not. An issued
	// key brings its own; an [Authenticator] may set one. Actions do not count beside it. "": p is not narrowed.
	ScopingPolicyID string

	// key is the id of the issued key that the caller came by; "" none. What makes or changes a key
	// judges that key again.
	key string
}

// Host is the host application itself. It may do everything, so it is for the host's own code and never the answer
// of an [Authenticator].
var Host = Principal{Kind: KindHost}

// kindMe is the kind of [Me] alone.
const kindMe Kind = "me"

// Me stands for the caller, where a holder of keys is asked for. One's own keys need no action; as the holder, the id of the
// caller is treated as any other user's.
var Me = Identity{Kind: kindMe}

// or returns the caller's identity for [Me], and any other holder as it is.
func (p Principal) or(holder Identity) Identity {
	if holder == Me {
		return p.Identity()
	}
	return holder
}

// Identity returns who p is, without what was vouched for.
func (p Principal) Identity() Identity { return Identity{Kind: p.Kind, ID: p.ID} }

// actor is somebody, and the policy that narrows it in a request.
type actor struct {
	Identity
	narrowedBy string // "": none
}

func (p Principal) actor() actor { return actor{p.Identity(), p.ScopingPolicyID} }

// vouched returns what the host answers for.
func (p Principal) vouched() []string {
	if p.ScopingPolicyID != "" {
		return nil
	}
	return p.Actions
}

// Authenticator finds the principal behind a bearer token that is not a key issued here: the host's sessions, its
// OAuth tokens, its administrator's password.
//
// Authenticate returns a user or a service account, [ErrUnauthenticated] (wrapped or not) when it
// does not accept the bearer, or any other error when it cannot tell just now, which answers 503.
// It is called concurrently. Package httpapi calls it twice for a request that has a body: when the
// headers have come, and when the body has. So a bearer must be good for more than one call, and an
// Authenticator that is slow should remember what it has found for a moment.
type Authenticator interface {
	Authenticate(ctx context.Context, bearer string) (Principal, error)
}

// AuthenticatorFunc is an [Authenticator] that is a function.
type AuthenticatorFunc func(ctx context.Context, bearer string) (Principal, error)

// Authenticate calls f.
func (f AuthenticatorFunc) Authenticate(ctx context.Context, bearer string) (Principal, error) {
	return f(ctx, bearer)
}

// Secret is a string that does not show itself: fmt, slog and encoding/json print "***". Convert it with string to
// read it. They cannot help printing it where it is an unexported field of a struct (fmt) or the key of a map (encoding/json).
type Secret string

const masked = "***"

// minHidden is the length of the shortest secret that [Secret.Hide] hides: shorter ones may stand anywhere by chance.
const minHidden = 8

func (Secret) String() string { return masked }

func (Secret) GoString() string { return masked }

func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }

func (Secret) LogValue() slog.Value { return slog.StringValue(masked) }

func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }

// Format prints a pepper without its Secret.
func (p Pepper) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "{%s %s}", p.Version, masked) }

// Format prints no key.
func (c SourceConfig) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }

// Hide returns a text of somebody else's, which may repeat the secret, as it is or escaped for a URL, with "***" instead of it. A
// secret of less than 8 bytes is left as it is.
func (s Secret) Hide(text string) string {
	if len(s) < minHidden {
		return text
	}
	return strings.NewReplacer(string(s), masked, url.QueryEscape(string(s)), masked, url.PathEscape(string(s)), masked).Replace(text)
}

// hideIn returns err as it is unless its text holds the secret, else what is left of it: texts, and no chain that shows more.
func (s Secret) hideIn(err error) error {
	text := err.Error()
	hidden := s.Hide(text)
	if hidden == text {
		return err
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return errors.New(hidden)
	}
	left := &Error{Code: e.Code, Field: s.Hide(e.Field), Message: s.Hide(e.Message)}
	if e.Err != nil {
		left.Err = errors.New(s.Hide(e.Err.Error()))
	}
	return left
}
