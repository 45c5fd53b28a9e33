package svc

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/readcache"
)

// Store persists what the Service decides: these roles, and as many of the optional roles as the
// store has ([FullStore]).
//
// The comments of the methods are the contract, and package storetest checks it. These rules hold
// for every method:
//
//   - Arguments and results share no memory with the store: the receiver may change them.
//   - Times are UTC with microseconds. Strings are compared byte by byte.
//   - When ctx has ended, the call fails with an error that wraps ctx.Err() or [ErrUnavailable].
//   - A method that fails has written nothing.
//   - What a method wrote before it returned nil is durable, and every later call sees it.
//   - All methods are safe for concurrent use.
//   - "Not found" and "taken" are [ErrNotFound] and [ErrExists], wrapped or not.
//   - A function argument such as change does no I/O. The store may call it again, with the row
//     read once more. Its error is returned as it is, and nothing is written.
//   - A chunk of fewer rows than asked for is the last, unless the comment says otherwise. The row
//     after which a chunk begins need not exist any longer.
type Store interface {
	SourceStore
	TemplateStore
	APIKeyStore
	AccessStore
	ChangeStore
	TransactionStore
}

// SourceStore keeps sources.
type SourceStore interface {
	// CreateSource adds a source. ErrExists when its key is taken.
	CreateSource(ctx context.Context, source Source) error
	// Source returns the source with that key. ErrNotFound.
	Source(ctx context.Context, key SourceKey) (Source, error)
	// Sources returns a chunk of the sources of page's scope and owner, or of all with page.Every,
	// after page.After, by name in byte order.
	Sources(ctx context.Context, page SourcePage) ([]Source, error)
	// ChangeSource reads a source, calls change with it, and writes the result, in one transaction.
	// Changes of one source happen one after the other. When change returns true, the store writes
	// Description, URL, SealedToken, Serial and UpdatedAt, and nothing else. ErrNotFound.
	ChangeSource(
		ctx context.Context, key SourceKey, change func(source *Source) (write bool, err error),
	) error
	// DeleteSource removes the source with that key. ErrNotFound. Templates installed from it stay.
	// Those that came from a personal source and are not its owner's own lose Origin's URL, in the
	// same transaction, and Changes reports them. So no later source of that name is theirs.
	DeleteSource(ctx context.Context, key SourceKey) error
}

// TemplateStore keeps templates.
type TemplateStore interface {
	// CreateTemplate adds a template with its origin and base. ErrExists when its key is taken.
	CreateTemplate(ctx context.Context, template Template) error
	// Template returns the template with that key, Origin.Base included. ErrNotFound.
	Template(ctx context.Context, key TemplateKey) (Template, error)
	// Templates returns a chunk of the templates that page asks for, after page's last row, sorted
	// by name and then id, in byte order. Origin.Base is zero. A chunk may be shorter than
	// page.Limit; only an empty chunk is the end.
	Templates(ctx context.Context, page TemplatePage) ([]Template, error)
	// ChangeTemplate reads a template as Template does, calls change with it, and writes the
	// result, in one transaction. Changes of one template happen one after the other. ErrNotFound.
	//
	// The store writes only when change returns true, and never the key and InstalledAt. When
	// change raises Version, the store adds the template as it was before to its versions. It keeps
	// the versions whose numbers are at least Version - [limits.TemplateVersions].
	ChangeTemplate(
		ctx context.Context, key TemplateKey, change func(*Template) (write bool, err error),
	) error
	// TemplateVersions returns at most limit (> 0) of a template's earlier versions with numbers
	// below before, greatest number first. A chunk may be shorter than limit. An empty chunk is the
	// end, or the template does not exist.
	TemplateVersions(
		ctx context.Context, key TemplateKey, before int64, limit int,
	) ([]TemplateVersion, error)
	// Installations returns a chunk of the templates of page's scope and owner that have an Origin,
	// after page.After, by id in byte order.
	Installations(ctx context.Context, page InstallationPage) ([]Installation, error)
	// RebindTemplates sets Origin's URL of the templates of source's own scope and owner that came
	// from source and have another URL, in one transaction. It returns the keys of the changed
	// templates, sorted by scope, owner and id in byte order.
	RebindTemplates(ctx context.Context, source SourceKey, url string) ([]TemplateKey, error)
	// DeleteTemplate removes a template and all that belongs to it, unless check, called with the
	// template in the same transaction, has an error. A nil check refuses nothing. ErrNotFound.
	DeleteTemplate(ctx context.Context, key TemplateKey, check func(Template) error) error
}

// APIKeyStore keeps API keys. [AccessStore]'s Access reads a key by its id.
type APIKeyStore interface {
	// CreateAPIKey adds a key. ErrExists when its id is taken, also by a revoked key or one of
	// another holder. It is not a mutation: no cache holds the absence of an id that was drawn just
	// now. If the id is older, call ChangeAPIKey as well.
	CreateAPIKey(ctx context.Context, key APIKey) error
	// APIKeys returns a chunk of the keys that page asks for, newest first (CreatedAt, then ID,
	// descending), unless page.KeyQuery says otherwise.
	APIKeys(ctx context.Context, page APIKeyPage) ([]APIKey, error)
	// ChangeAPIKey reads the holder's key, calls change with it, and writes the result, in one
	// transaction. Changes of one key happen one after the other. In a transaction, no other caller
	// changes or revokes the key until the end, even when change returns false. When change returns
	// true, the store writes Description, ExpiresAt, Disabled, RevokedAt, Rate, SuccessorID, Hash,
	// Pepper and Seal, and nothing else. ErrNotFound when the key is unknown, revoked, or belongs
	// to another holder.
	ChangeAPIKey(
		ctx context.Context, holder Identity, id string,
		change func(key *APIKey) (write bool, err error),
	) error
	// RevokeAPIKeys marks at most limit (> 0) of the holder's newest keys that are not revoked as
	// revoked, as one mutation, and returns their ids in no order. It erases their Hash and Seal,
	// so that no edit of a row brings a key back. Fewer than limit: the holder has no other keys.
	// With none it writes nothing.
	RevokeAPIKeys(
		ctx context.Context, holder Identity, at time.Time, limit int,
	) (ids []string, err error)
	// UseAPIKeys sets LastUsedAt of each key to the use's At, unless LastUsedAt is later. It
	// ignores unknown keys. It is not a mutation.
	UseAPIKeys(ctx context.Context, uses []LastUse) error
	// KeepValue returns the value kept under name. When none is kept, it keeps value first. All
	// processes get the same value. It is never replaced or deleted. To keep one is a mutation
	// without targets.
	KeepValue(ctx context.Context, name string, value []byte) ([]byte, error)
}

// AccessStore keeps the rows that decisions are made from.
type AccessStore interface {
	// Access returns all that one decision needs, read in one consistent snapshot. A missing row is
	// nil in the snapshot, and no error.
	Access(ctx context.Context, query AccessQuery) (AccessSnapshot, error)
	// ReadAccess reads rows of access in one consistent snapshot, whose generation it returns, and
	// calls yield with them in parts of at most 5,000 rows and memberships, or channels of a Page.
	//
	// Without Since, Named and Page it reads every row: users first, then groups, service accounts,
	// policies, attachments, bank policies and tests, each kind in the order of an [AccessPage]. A
	// group may continue in the next part with its next members, and the user of a Page with its
	// next channels. Channels and Members are sorted and never nil, but Channels are nil when read is
	// Bare. The rest of the answer is zero without Since. yield does no I/O. Its error ends the call
	// and is returned as it is.
	ReadAccess(
		ctx context.Context, read AccessRead, yield func(part Bundle) error,
	) (StoreChanges, error)
	// ChangeAccess reads rows of access, calls change with them, and writes what change returns, in
	// one transaction. Changes of access happen one after the other.
	//
	// current holds the rows that named asks for and that exist, each once, in no order. Channels
	// and members are sorted and never nil. An [AccessWrite] that is Empty writes nothing. change
	// returns a channel only when no other user has it afterwards. It refers only to rows that
	// exist afterwards, and leaves no reference to a row that it removes. When named asks for
	// nothing, the store may call change first and lock then.
	ChangeAccess(
		ctx context.Context, named AccessNames, change func(current Bundle) (AccessWrite, error),
	) error
}

// Membership is one member of a group.
type Membership struct{ Group, User string }

// AccessWrite is what one change of access writes.
type AccessWrite struct {
	// Bundle has rows to write whole, whether they exist or not: a user with exactly its Channels,
	// each once, where nil means none. Members of its groups are ignored.
	Bundle
	// Join and Leave are memberships to add and to remove. One that exists already, or does not, is
	// no error. None is in both.
	Join, Leave []Membership
	// Remove names rows to remove, before Bundle is written, with the fields Users to Tests and
	// Channels. A row that does not exist is no error. A user goes with its channels and
	// memberships, and with the personal sources and templates of its id, also when it has no row.
	// Templates of others that came from its personal sources lose Origin's URL. A group goes with
	// its memberships.
	Remove   AccessNames
	NewUsers bool // the write has only users that were not there, on whom nobody relies
	// Gone, unless nil, is called in the transaction with the sources and templates that went with
	// Remove.Users, in no order; nil: none. Changes reports them behind Targets, and the templates
	// that lost Origin's URL. A store that calls change again calls Gone of its new answer.
	Gone func(targets []Target)
	// Targets and Renamed are what Changes reports. A write that is not Empty has at least one.
	Targets, Renamed []Target
	// Progress, unless nil, is called while the write runs, at least once. done is how much of Size
	// is written: it grows with each call, and reaches Size in the last one. Progress does no I/O
	// in the store.
	Progress func(done int)
}

// AccessRead says which rows of access to read. The zero AccessRead asks for all.
type AccessRead struct {
	// Since > 0 asks only for rows whose change was recorded after that generation. Targets and
	// Renamed then list what has changed since ([StoreChanges.OfAccess]), and the parts hold these
	// rows. If OfAccess returns a Reset, so does this, with every row and no targets.
	Since int64
	Named *AccessNames // only these rows, as ChangeAccess reads them; Since is 0; nil: all
	Page  *AccessPage  // one chunk of a list; Since is 0 and Named nil; nil: no list
	Bare  bool         // DisplayName, Email and Channels are left out: they are zero
}

// AccessPage asks for one chunk of a list of rows of one kind, sorted by key, byte by byte;
// attachments by principal type, principal id and policy. A row has all that the filters ask for,
// so no attachment is to both a User and a Group.
//
// Kind is one from [event.TargetUser] to [event.TargetTest], [event.TargetChannel] or
// [event.TargetMember]. Channels of users and Members of groups are nil. Channels are returned in
// one User (ID and Channels set), members in one Group (ID and Members set).
type AccessPage struct {
	Kind event.TargetKind
	// User narrows the list to the groups that it is a member of, the service accounts that it
	// owns, or the attachments to it. Required for channels, which are those of the user.
	User   string
	Group  string // narrows attachments to those to the group; required for members
	Policy string // narrows attachments to its own, service accounts to those that it scopes
	Text   string // narrows users to those whose ID, DisplayName or Email begins with it, in any case
	// After is the ID of the last row's [Target] in the chunk before; for a member, the user. "":
	// from the start.
	After string
	Skip  int // the number of rows to leave out first, 0 to 1<<30
	Limit int // the most rows to read, > 0
}

// AccessNames names access rows. A row that several fields name is read once. A group in MembersOf
// is read with all its members, one in Groups, Members or GroupsOf with those that Members and
// GroupsOf name.
type AccessNames struct {
	Users, Groups, ServiceAccounts, Policies, BankPolicies, Tests []string

	Channels    []Channel // name the users who have them
	Attachments []AttachmentKey
	Members     []Membership
	MembersOf   []string // groups

	// These name rows by what they refer to.
	GroupsOf      []string    // users: the groups that have them as members, with these members
	AccountsOf    []string    // users: the service accounts that they own
	AttachmentsTo []GrantedTo // the attachments to these principals
	UsesOf        []string    // policies: their attachments, and the service accounts they scope
}

// AccessQuery asks for the rows that one decision needs. At most one of KeyID, Identity and Channel
// is set, and names its subject. None: the query is about no principal.
type AccessQuery struct {
	KeyID           string   // the subject is the holder of the API key with that id, revoked or not
	Identity        Identity // the subject is this user or service account
	Channel         Channel  // the subject is the user who has this channel
	BankID          string   // the bank whose policy to read; "" none
	ScopingPolicyID string   // a policy that narrows Identity as well, not that of a key; "" none
	KeysOf          Identity // whose keys that are not revoked to count, up to Most; zero: of none
	Most            int
	ValidAt         time.Time // leaves out of that number the keys that have expired then; zero: none
	Bare            bool      // leaves out Groups and Grants
}

// AccessSnapshot holds the rows that one decision is made from.
type AccessSnapshot struct {
	Generation     int64           // grows with every mutation; 0: nothing was ever written
	Key            *APIKey         // the key of the query
	ServiceAccount *ServiceAccount // that of the query, or the holder of Key
	// User is the user of the query, the holder of Key or of the channel, or the owner of
	// ServiceAccount. Its Channels are left out.
	User       *User
	Groups     []string    // the ids of User's groups, in no order, also without attachments
	Grants     []Grant     // of User and its groups, in no order; equal policies share Document
	Scoping    *Policy     // the scoping policy of ServiceAccount
	Narrowing  *Policy     // that of Key, or the one that the query names with Identity
	BankPolicy *BankPolicy // of the query's bank
	Keys       int         // the number of keys that the query asks for
}

// Grant is a policy that reaches a user, one for each attachment.
type Grant struct {
	Policy
	Principal GrantedTo // the user itself, or one of its groups
	Priority  int64
}

// ChangeStore reports the changes of this process and of others, so that readers can cache rows.
// Every mutation raises the store's generation by one and records the targets that it changed, in
// one transaction. So a reader that polls misses no change, however long it has paused.
type ChangeStore interface {
	// Changes returns what was committed after generation since, and the generation reached. The
	// store remembers at least the last 1,000 generations. The answer is a Reset when since is
	// older, or greater than the store's own generation (the store was restored from a backup). It
	// may repeat what was committed before since, if no call of Changes has returned since.
	Changes(ctx context.Context, since int64) (StoreChanges, error)
	// AwaitChange returns nil once the store may have another generation than since, or after about
	// a second. It only wakes the caller, which calls it in a loop, and proves nothing: call Changes.
	// It fails when ctx ends.
	AwaitChange(ctx context.Context, since int64) error
}

// StoreChanges says what changed between two generations.
type StoreChanges struct {
	Generation int64    // the store's generation now
	Reset      bool     // the store cannot say what changed: every row may have changed
	Targets    []Target // in the order of the commits; one may be twice
	Renamed    []Target // rows of access with another DisplayName or Email only
}

// OfAccess returns what of c concerns access, without other targets, and the rows to read for it.
// It is for stores and their readers: see [AccessRead].Since. An [event.TargetMember] names one
// membership, or without a Holder the group with all members. An [event.TargetChannel] names the
// user who has it now. The result is a Reset without targets when c is a Reset or has an
// [event.TargetAccess].
func (c StoreChanges) OfAccess() (StoreChanges, AccessNames) {
	out, n := StoreChanges{Generation: c.Generation}, AccessNames{}
	for _, t := range c.Targets {
		if t.Kind == event.TargetAccess || c.Reset {
			return StoreChanges{Generation: c.Generation, Reset: true}, AccessNames{}
		}
		if n.add(t) {
			out.Targets = append(out.Targets, t)
		}
	}
	for _, t := range c.Renamed {
		n.add(t)
	}
	out.Renamed, out.Reset = c.Renamed, c.Reset
	return out, n
}

// TransactionStore joins calls of a store into one transaction.
type TransactionStore interface {
	// Atomically calls fn with a Store whose calls are one transaction, committed when it returns
	// nil. When fn fails or panics, or ctx has ended by the end of fn, nothing is written. Reads of
	// tx include its own writes. tx has the optional roles of the store. AwaitChange and
	// ClaimEvents of tx fail.
	//
	// fn uses only the context and the Store that it receives, both from one goroutine, does
	// nothing else that takes time, and may be called again. When a write of tx fails, fn returns
	// that error. Atomically returns the error of fn as it is, or wrapped. A nested call is a part of
	// the transaction: when its fn fails, its writes are undone, or the outer call fails.
	Atomically(ctx context.Context, fn func(ctx context.Context, tx Store) error) error
	// Lock takes locks until the end of a transaction. Later calls see what was committed before.
	Lock(ctx context.Context, locks Locks) error
}

// FullStore is a [Store] with all optional roles, which [New] and [Service.WithTx] look for. Every
// store of this module is one. A type that wraps a store embeds FullStore: with an embedded Store,
// it would lack the optional roles.
type FullStore interface {
	Store
	SourceFileStore
	OutboxStore
	AnswerStore
	AuditStore
	FreshnessStore
	StatsStore
}

// OutboxStore is an optional role: it keeps the events of a host's transactions until the Service
// delivers them. Without it and with [EventConfig].OnEvent, mutations fail in a transaction of the
// host.
type OutboxStore interface {
	// AddEvents keeps events. It is not a mutation.
	AddEvents(ctx context.Context, events []Event) error
	// ClaimEvents returns up to limit events that no caller has claimed at the time now, oldest (by
	// ID) first, and claims them until the time until. Two callers never have the same event at the
	// same time. A claim that ends over a minute after until no longer counts: it is from before
	// the clock went back. When the outbox has no free events, nothing is written.
	ClaimEvents(ctx context.Context, now, until time.Time, limit int) ([]Event, error)
	// DeleteEvents deletes delivered events. It ignores ids that are already deleted.
	DeleteEvents(ctx context.Context, ids []uuid.UUID) error
}

// AnswerStore is an optional role: it keeps the answers to requests with an idempotency key, and
// the report for [Templates.LastCheck]. Without it such requests are refused. Its writes are no
// mutations: the generation stays. An answer that has expired by the time now counts as deleted.
type AnswerStore interface {
	// Answer returns the answer kept under key. ErrNotFound when none is kept.
	Answer(ctx context.Context, key []byte, now time.Time) (StoredAnswer, error)
	// KeepAnswer keeps an answer, and deletes some that have expired. ErrExists when one is kept
	// under its Key.
	KeepAnswer(ctx context.Context, answer StoredAnswer, now time.Time) error
	// CountAnswers counts, up to most, the answers to a caller.
	CountAnswers(ctx context.Context, caller []byte, now time.Time, most int) (int, error)
	// DeleteAnswers deletes all answers to a caller.
	DeleteAnswers(ctx context.Context, caller []byte) error
}

// IdempotencyPeriod is the time in which a repeated request with an idempotency key gets the answer
// of the first one that succeeded, by [Config].Now. Afterwards the same request runs again. A
// repetition does not prolong it, and failures are not kept.
const IdempotencyPeriod = 24 * time.Hour

// StoredAnswer is the answer to a request, kept for repetitions of the request.
type StoredAnswer struct {
	Key       []byte // a digest of the caller and the idempotency key: 32 bytes
	Caller    []byte // a digest of the caller: 32 bytes
	Request   []byte // a digest of the request: 32 bytes
	Data      []byte // sealed, or a report for [Templates.LastCheck]
	ExpiresAt time.Time
}

// FreshnessStore is an optional role: it tells immediately whether anything was committed. With it,
// each request includes all earlier commits of other processes, and not only those that AwaitChange
// saw.
type FreshnessStore interface {
	// Look returns a number that differs from an earlier one of this process when any process has
	// committed a mutation in between. The Service calls it before it uses what is cached:
	// concurrent calls should share one that takes long. 0, then always: this store cannot tell
	// cheaply.
	Look(ctx context.Context) (uint64, error)
}

// StatsStore is an optional role: it answers [Service.Stats].
type StatsStore interface {
	// Hears reports whether notifications of other processes' commits arrive now. It does no I/O.
	Hears() bool
	// CountEvents counts, up to most, the events in the outbox, claimed or not.
	CountEvents(ctx context.Context, most int) (int, error)
}

// roles holds the optional roles of a store. nil: the store lacks the role.
type roles struct {
	files   SourceFileStore
	outbox  OutboxStore
	answers AnswerStore
	audit   AuditStore
	look    FreshnessStore
	stats   StatsStore
	batches keyBatcher
}

// rolesOf finds the roles of a store by its type. A transaction has the roles of its store, but as
// another type: so ask for them at each store, and do not keep those of another.
func rolesOf(store Store) (r roles) {
	r.files, _ = store.(SourceFileStore)
	r.outbox, _ = store.(OutboxStore)
	r.answers, _ = store.(AnswerStore)
	r.audit, _ = store.(AuditStore)
	r.look, _ = store.(FreshnessStore)
	r.stats, _ = store.(StatsStore)
	r.batches, _ = store.(keyBatcher)
	return r
}

// base is what all parts of a Service work on. One base belongs to one Store: a Service and its
// nouns share one, and each [Service.WithTx] makes another.
type base struct {
	store         Store
	roles         roles  // of store
	tenant        string // whose Service this is; "": of none
	log           *slog.Logger
	clock         func() time.Time
	readOnly      bool             // nothing is written
	inTransaction bool             // the store belongs to a transaction of the host
	cached        *readcache.Cache // nil in a transaction of the host: each call reads the store
	drops         []func(changed Target, generation int64)
	refuses       func(host bool) error // refuses callers of a tenant that is not served any longer
	work          *background.Group     // nil: in a transaction of the host
}

// now returns the time to stamp on rows and events. Stores keep microseconds: with a finer time, a
// row that was just written would differ from the same row when it is read again.
func (s *base) now() time.Time { return s.clock().UTC().Truncate(time.Microsecond) }

// onChange makes drop forget what is cached of a target that changed at a generation or earlier.
// Call it while the Service is assembled: no lock guards the list. Mutations and the follower of
// the store call drop concurrently, so it must be quick, safe for that, and do no I/O.
func (s *base) onChange(drop func(changed Target, generation int64)) {
	s.drops = append(s.drops, drop)
}

// forget drops cached rows that changed. Calls also use it for targets that the store shows to be
// changed by another call, which may not have dropped them yet. It runs after the commit and before
// the method returns: so after its answer, no call of this Service gets an older value.
func (s *base) forget(targets ...Target) { s.drop(targets, math.MaxInt64) }

// drop forgets cached rows of targets that changed at a generation or earlier. The generation of an
// own commit is not known here; forget passes the greatest, which spares no cached value.
func (s *base) drop(targets []Target, generation int64) {
	var changed readcache.Changed
	for _, t := range targets {
		t.mark(&changed)
		for _, drop := range s.drops {
			drop(t, generation)
		}
	}
	s.cached.Drop(changed)
}

// caller names a caller of requests with idempotency keys.
func (s *base) caller(who Identity) []string {
	names := []string{string(who.Kind), who.ID}
	if s.tenant != "" {
		names = append(names, s.tenant)
	}
	return names
}
