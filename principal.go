package svc

import "context"

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
