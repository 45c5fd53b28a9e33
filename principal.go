package svc

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/readcache"
	"github.com/extsvc/svc/internal/text"
)

// Kind is the kind of a principal. It always stands next to an id, and is never part of the id.
type Kind string

// The kinds of principals.
const (
	KindUser           Kind = "user"
	KindServiceAccount Kind = "service_account"
	KindHost           Kind = "host" // the host application itself; see [Host]
)

// Identity names a principal by its kind and its id. Identities are comparable. A user and a
// service account may have the same id, and are two principals. Ids of both have 1 to
// [limits.IDLength] printable characters, no slash and no backslash, and are not "." or "..". They
// are compared byte by byte and never normalized.
type Identity struct {
	Kind Kind
	ID   string // "" for [Host], unless [Principal.As] gave it a name
}

// Scope says whether a source or template belongs to the server or to a user.
type Scope string

// The scopes. Rows of the server have no owner. Personal rows belong to a user.
const (
	ScopeServer   Scope = "server"
	ScopePersonal Scope = "personal"
)

// place holds the sources and the templates of the server, or those of one user.
type place struct {
	scope Scope
	owner string // the user's id; "" exactly for [ScopeServer]
	basis basis  // why the caller may use it
}

// locks returns the locks of a change that adds a row to a personal area; none for the server's.
func (a place) locks() Locks {
	if a.scope == ScopeServer {
		return Locks{}
	}
	return Locks{Holder: Identity{Kind: KindUser, ID: a.owner}}
}

// basis records why a caller was allowed a change. The caller was judged before the change waited:
// for a body, a source, a function of the host. The transaction of the change judges it again.
type basis struct {
	action string // what the caller needs on bank "*"; "": nothing
	// owner is the user whose personal area or whose service account it is; "": not asked.
	owner string
	row   bool // the owner of the area, or the holder, has a row

	holder  Identity // whose keys change; zero: none change
	user    string   // the holder, or the owner of the holder, whom the host must know
	within  bool     // the caller has every control-plane right of the holder
	covers  bool     // it has the holder's other rights as well, or iam:banks:grant
	scoping string   // the policy that narrows the new key; "": none
	most    int      // > 0: the transaction counts the keys of the holder, up to most, in live
	live    int
	// judged are the policies by which within and covers were judged.
	judged [2]*policy.Shared
	// at is a generation from before the caller was judged, and key its key then. While the store
	// has this generation, the caller has the same rights. 0: its rows are read again.
	at  int64
	key readcache.Key

	free    bool // a revocation: it waits for no change of access, and not for the caller's key
	keyless bool // the change may have ended the caller's own key
}

// authorizer authorizes callers. Its decisions rest on cached rows, as those of [Service.Decide]
// do, and use the same engine.
type authorizer struct {
	*base
	compiler *policy.Compiler
}

// authorize refuses callers without the control-plane action. The host always passes, unless ctx
// has ended. Methods call it before they read a row that they would show, so that a caller without
// rights cannot learn from the answer what exists.
func (s *authorizer) authorize(ctx context.Context, by Principal, action string) error {
	if by.Kind == KindHost {
		return fault("authorize", ctx.Err())
	}
	_, err := s.permitted(ctx, by, action)
	return err
}

// own returns the personal area of a caller who is allowed action. A service account uses the area
// of its owner, with its own rights. The host and unmapped senders have no area.
func (s *authorizer) own(ctx context.Context, by Principal, action string) (place, error) {
	if err := authorizeSelf(by); err != nil {
		return place{}, err
	}
	caller, err := s.permitted(ctx, by, action)
	if err != nil {
		return place{}, err
	}
	at := place{scope: ScopePersonal, owner: by.ID}
	if by.Kind == KindServiceAccount {
		at.owner = caller.Owner
	}
	if at.owner == "" {
		return place{}, forbidden("a service account without a row has no owner")
	}
	at.basis = basis{action: action, owner: at.owner, row: caller.User != ""}
	return at, nil
}

// decide decides without vouched actions, and notes the bank's policy as of now. now 0: it notes
// nothing. It is the slow half of Decide, for a request that the cache has not answered: it may
// read the store, and allocates. now is from before the read, so that a change in between makes the
// note useless. user is that whose row counts, "" none: who, or the owner of a service account.
func (s *authorizer) decide(
	ctx context.Context, who readcache.Holder, action, bank string, in *policy.Context,
	now cache.Moment,
) (d policy.Decision, user string, err error) {
	holder, policyOf, err := s.standing(ctx, who, bank)
	if err != nil {
		return d, "", err
	}
	d = holder.Rights.Decide(action, bank, in, policyOf)
	if now != 0 {
		holder.Rights.Note(action, bank, policyOf, uint64(now))
	}
	return d, holder.User, nil
}

// Locks are what a transaction locks. All transactions lock in one order: access, holders, the
// caller's key, and then the rows that they write.
type Locks struct {
	// ChangeAccess makes others wait that change access or rely on it. ChangeAccess of the store
	// takes the same lock, or that of AddUsers.
	ChangeAccess bool
	// AddUsers makes others wait that change access. Nobody relies yet on an active user that is
	// new.
	AddUsers     bool
	RelyOnAccess bool     // makes changes of access wait; any number of transactions may have it
	Holder       Identity // others wait that lock this holder; zero: none
	// RelyOnKey is the id of a key. Others that change or revoke it wait; any number of
	// transactions may rely on it. "", or no such key: none.
	RelyOnKey string
}

// KindUnmapped is the kind of a sender that belongs to no user, or to an inactive one.
const KindUnmapped Kind = "unmapped"

// Unmapped is a sender that belongs to no user. It may do what a bank's policy gives to the public.
// Whatever that policy says, methods that need an action on bank "*" refuse it. Do not change it.
var Unmapped = Principal{Kind: KindUnmapped}

// Principal is the caller of a Service method. The Service believes a Principal that the host's
// code makes: it checks only the rights of its kind and id, at each call. Several calls may share
// one.
//
// A Principal from [Service.Authenticate] remembers the issued key of the request: pass it on as it
// is. The transaction of each change checks that this key is still accepted, and that the caller
// still has the rights that the change needs.
type Principal struct {
	Kind Kind
	ID   string
	// Actions are action patterns that the host's [Authenticator] grants on bank "*", in this
	// request only, such as "template:admin" and "iam:*". "*" means every control-plane action:
	// "iam:*" and "template:*". A stored deny still wins, and so does an inactive row. An issued
	// key never carries any.
	//
	// With any other use of "*", or an empty pattern, Authenticate fails with [CodeInternal] and an
	// Err that quotes the pattern. In a Principal that the host's code makes, such a pattern covers
	// nothing.
	Actions []string
	// ScopingPolicyID names an access policy that narrows the principal, in this request only: both
	// its own rights and this policy must allow an action, and the policy gives no parameter that
	// it does not have already. An issued key brings its own; an [Authenticator] may set one.
	// Actions do not count then. When the policy does not exist or no longer parses, every action
	// is denied. "": not narrowed.
	ScopingPolicyID string

	// key is the id of the caller's issued key; "" none. Every change judges that key again.
	key  string
	rate Rate // of that key
}

// KeyID returns the id of the issued key of the request. "": the principal is not from
// [Service.Authenticate], or its bearer is not an issued key.
func (p Principal) KeyID() string { return p.key }

// Rate returns the rate of the issued key of the request. Zero: it has none. The Service does not
// count requests; package httpapi does.
func (p Principal) Rate() Rate { return p.rate }

// Rate limits how often a key may be used, as a token bucket: within any t seconds there are at
// most Burst + t × PerSecond requests. The zero Rate is no limit. It is a safeguard against
// programs that run wild, not a quota of the holder, who may have other keys.
type Rate struct {
	PerSecond float64 // [limits.LeastRate] to [limits.Rate]
	Burst     int     // 1 to [limits.Burst]
}

// Allowance is what the rate of a key allows after a request.
type Allowance struct {
	Refused   bool          // the rate does not allow this request
	Remaining int           // requests that the key may still make at the same time; 0 when Refused
	Next      time.Duration // until the key may make one request more than Remaining
}

// Host is the host application itself. It may do everything, and the store is not asked about its
// rights. Only the host's own code uses it: when an [Authenticator] returns it, Authenticate fails
// with CodeInternal. To say who or what makes a call, use [Principal.As]. Do not change it.
var Host = Principal{Kind: KindHost}

// unnamed is the ID that As sets for an empty name: "" would pass for [Host] itself.
const unnamed = "\x00"

// As returns [Host] with a name: the person or the job behind a call of the host's own code, as the
// ID of the actor in events and audit records. An idempotency key counts for its name only. The
// name changes no right. As of any other principal returns p unchanged.
//
// A name has 1 to [limits.IDLength] printable characters and is not an API key. Otherwise every
// change that has an event fails with CodeInvalid (its Field is "actor").
func (p Principal) As(name string) Principal {
	if p.Kind == KindHost {
		p.ID = cmp.Or(name, unnamed)
	}
	return p
}

// checkName refuses a name that As should not have been given.
func (p Principal) checkName() error {
	if p.Kind != KindHost || p.ID == "" {
		return nil
	}
	name := p.ID
	if name == unnamed {
		name = ""
	}
	var c checker
	c.foreign("actor", name)
	return c.err()
}

// kindMe is the kind of [Me] only.
const kindMe Kind = "me"

// Me stands for the caller where a method of [Keys] takes a holder, except [Keys.Import]. Callers
// need no action for their own keys. The caller's own id instead of Me is treated as the id of any
// other user. Do not change it.
var Me = Identity{Kind: kindMe}

// AllHolders stands for all users and service accounts in [Keys.List].
var AllHolders = Identity{}

// kindMyAccount is the kind of [MyAccount] only.
const kindMyAccount Kind = "my_service_account"

// MyAccount stands for a service account of the caller where a method of [Keys] takes a holder. A
// service account that calls means one of its owner.
func MyAccount(id string) Identity { return Identity{Kind: kindMyAccount, ID: id} }

// or returns the caller's identity for [Me], the service account for [MyAccount], and every other
// holder as it is.
func (p Principal) or(holder Identity) Identity {
	switch {
	case holder == Me:
		return p.Identity()
	case holder.Kind == kindMyAccount:
		return Identity{Kind: KindServiceAccount, ID: holder.ID}
	}
	return holder
}

// Identity returns p's kind and id, without its Actions and its scoping policy.
func (p Principal) Identity() Identity { return Identity{Kind: p.Kind, ID: p.ID} }

// holder returns whose rights a decision about p rests on.
func (p *Principal) holder() readcache.Holder {
	return readcache.Holder{Kind: policy.Kind(p.Kind), ID: p.ID, NarrowedBy: p.ScopingPolicyID}
}

// narrowed returns the holder of the rights of i under a scoping policy; "" none.
func (i Identity) narrowed(by string) readcache.Holder {
	return readcache.Holder{Kind: policy.Kind(i.Kind), ID: i.ID, NarrowedBy: by}
}

func identityOf(holder readcache.Holder) Identity {
	return Identity{Kind: Kind(holder.Kind), ID: holder.ID}
}

// vouched returns the Actions that count: none when p is narrowed. A narrowing limits what stored
// policies allow, and Actions are no part of those.
func (p Principal) vouched() []string {
	if p.ScopingPolicyID != "" {
		return nil
	}
	return p.Actions
}

// Authenticator finds the principal of a bearer token that is not a key issued here: of the host's
// sessions, or its OAuth tokens.
//
// Authenticate returns a user or a service account, which needs no row, and which the Service
// refuses when its row is inactive. Another kind, or an impossible id, is CodeInternal. For a
// bearer that it does not accept, it returns [ErrUnauthenticated], wrapped or not. Any other error
// means that it cannot decide now (CodeUnavailable); the log shows it, with the bearer masked.
//
// The Service calls it concurrently and remembers no answer. Package httpapi calls it twice for a
// request with a body: after the headers, and after the body. A slow Authenticator should remember
// its answers for a moment. The bearer is never empty, and never has a prefix of [KeyConfig].
type Authenticator interface {
	Authenticate(ctx context.Context, bearer string) (Principal, error)
}

// StaticToken returns an [Authenticator] of one bearer, such as an administrator's token from the
// environment: token is p, and no other bearer is anybody. It compares in constant time. An empty
// token accepts nothing.
func StaticToken(token string, p Principal) Authenticator {
	return AuthenticatorFunc(func(_ context.Context, bearer string) (Principal, error) {
		if token == "" || subtle.ConstantTimeCompare([]byte(bearer), []byte(token)) == 0 {
			return Principal{}, ErrUnauthenticated
		}
		return p, nil
	})
}

// AuthenticatorFunc makes an [Authenticator] of a function, which must be safe for concurrent use.
type AuthenticatorFunc func(ctx context.Context, bearer string) (Principal, error)

// Authenticate calls f.
func (f AuthenticatorFunc) Authenticate(ctx context.Context, bearer string) (Principal, error) {
	return f(ctx, bearer)
}

// Secret is a string that fmt, slog and encoding/json print as "***", also when it is empty.
// Convert it to string to read it. By %p, as an unexported field of a struct (fmt), and as the key
// of a map (encoding/json), it is printed in clear: avoid these. Reading one from JSON keeps its
// text.
type Secret string

const masked = text.Masked

func (Secret) String() string { return masked }

func (Secret) GoString() string { return masked }

func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }

func (Secret) LogValue() slog.Value { return slog.StringValue(masked) }

func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }

func (s Secret) hide(in string) string { return text.Hide(string(s), in) }

// hideIn returns err without the secret. An err whose text holds no secret is returned as it is.
// Otherwise hideIn keeps only texts and drops the error chain, which could show the secret. A
// secret of less than 8 bytes is not hidden: it can be part of a text by chance.
func (s Secret) hideIn(err error) error {
	hidden := s.hide(err.Error())
	if hidden == err.Error() {
		return err
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return errors.New(hidden)
	}
	left := &Error{Code: e.Code, Field: s.hide(e.Field), Message: s.hide(e.Message)}
	if e.Err != nil {
		left.Err = errors.New(s.hide(e.Err.Error()))
	}
	return left
}

// hidePanic, deferred, goes on with a panic without the secret in its text.
func (s Secret) hidePanic() {
	if cause := recover(); cause != nil {
		said := fmt.Sprint(cause)
		if hidden := s.hide(said); hidden != said {
			cause = hidden
		}
		panic(cause)
	}
}

// listChunk is the number of rows that a list reads at a time. So a list holds no connection while
// the caller works with the rows.
const listChunk = 128

// longChunk is the most rows that a list of short rows without a limit reads at a time.
const longChunk = 16 * listChunk

// anyLength is for lists of large rows, whose chunks may be short: only an empty chunk is the end.
const anyLength = 0

// chunkOf returns the size of the chunks for a list of at most limit rows. 0: it has no limit.
func chunkOf(limit int) int { return min(cmp.Or(limit, listChunk), listChunk) }

// skipOf returns how many rows the store leaves out. No list has more, and stores add to it.
func skipOf(skip int) int { return min(skip, 1<<30) }

// later returns now, or the next microsecond after before when the clock went back.
func later(before, now time.Time) time.Time {
	if next := before.Add(time.Microsecond); next.After(now) {
		return next
	}
	return now
}

// Context is where a request comes from. The overrides of a bank policy compare it byte by byte:
// the topic before the channel, the channel before the provider. An empty part matches no override.
// Policies of users do not look at it.
type Context struct {
	Provider string // "telegram", for example
	Channel  string
	Topic    string
}

// Outcome is how a request is decided. Every value other than Allow, also a new one, is a denial.
type Outcome string

// The outcomes.
const (
	Allow        Outcome = "allow"
	ExplicitDeny Outcome = "explicit_deny" // a statement denies the request
	ImplicitDeny Outcome = "implicit_deny" // no statement allows the request
)

// Effect is what a statement does with the requests that it matches. One deny that matches
// outweighs every allow.
type Effect string

// The effects.
const (
	EffectAllow Effect = "allow"
	EffectDeny  Effect = "deny"
)

// Document is an access policy as a Go value. [Document.JSON] and [ParseDocument] convert it, and
// lose nothing.
type Document struct {
	Statements []Statement // nil: the policy allows and denies nothing
}

// Statement allows or denies actions on banks.
type Statement struct {
	Effect  Effect
	Actions []string // patterns, at least one
	Banks   []string // patterns, at least one
	// Set has the parameters of an allow, by name. A value may have any type with the right JSON;
	// [ParseDocument] returns the types of a [ParameterValue]. Nil is null, and sets nothing.
	Set map[string]any
}

// JSON returns the document for a [Policy], with the names of Set in order. It checks nothing. A
// value without JSON, such as a text that is not UTF-8, becomes false, which the methods that write
// a policy refuse, as any wrong document, at its pointer.
func (d Document) JSON() json.RawMessage {
	statements := make([]policy.Loose, len(d.Statements))
	for i, st := range d.Statements {
		statements[i] = policy.Loose{
			Effect: policy.Effect(st.Effect), Actions: st.Actions, Banks: st.Banks, Set: st.Set,
		}
	}
	return policy.MarshalLoose(statements)
}

// ParseDocument returns the document of a policy. It refuses what no Service accepts: CodeInvalid,
// with the pointer in Field. It accepts every name and type that a parameter of some Service can
// have. An empty list is a []string. The result shares no memory with raw.
func ParseDocument(raw []byte) (Document, error) {
	var c checker
	statements, err := policy.ParseLoose(raw)
	c.refused("", err)
	d := Document{Statements: make([]Statement, len(statements))}
	for i, st := range statements {
		d.Statements[i] = Statement{Effect(st.Effect), st.Actions, st.Banks, st.Set}
	}
	return d, c.err()
}
