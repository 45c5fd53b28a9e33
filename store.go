package svc

import (
	"context"
	"iter"
	"time"

	"github.com/google/uuid"
)

// Store persists what the Service decides. It is made of one role for each noun; the comments of their methods are
// the contract, and package storetest checks it.
//
// What holds for every method: values passed in and handed out are the receiver's own (nothing is shared with the
// store's memory); times are UTC with microseconds; strings are compared byte by byte; an ended ctx fails the call
// with an error that wraps ctx.Err() or [ErrUnavailable]; a method that fails has written nothing; a method that
// returns nil is durable and seen by every later call. All methods are safe for concurrent use.
type Store interface {
	SourceStore
	TemplateStore
	APIKeyStore
	AccessStore
	ChangeStore
	OutboxStore
	AnswerStore
	AuditStore
	TransactionStore
}

// SourceStore keeps sources.
type SourceStore interface {
	// CreateSource adds a source. ErrExists when its key is taken.
	CreateSource(ctx context.Context, source Source) error
	// Source returns the source with that key. ErrNotFound.
	Source(ctx context.Context, key SourceKey) (Source, error)
	// Sources returns a chunk of the sources of page's scope and owner, by name in byte order, after page.After.
	// A chunk of fewer than page.Limit is the end.
	Sources(ctx context.Context, page SourcePage) ([]Source, error)
	// ChangeSource reads the source with that key, calls change with it and, when that returns true, writes what change made of
	// its Description, URL, SealedToken, Serial and UpdatedAt, and nothing else, in one transaction: changes of one source
	// happen one after the other. change does no I/O and may be called again, with the source read anew; its error is
	// returned as it is and nothing is written. ErrNotFound.
	ChangeSource(ctx context.Context, key SourceKey, change func(source *Source) (write bool, err error)) error
	// DeleteSource removes the source with that key. ErrNotFound. What was installed from it stays.
	DeleteSource(ctx context.Context, key SourceKey) error
	// KeepSourceFile keeps what a source has answered, in the place of what was kept under its path before. It is no mutation: the
	// generation stays. Of a source those [MaxSourceFiles] files are kept, beside the one whose path is "", whose KeptAt is the
	// latest; all go with the source. ErrNotFound when that is not registered.
	KeepSourceFile(ctx context.Context, key SourceKey, file SourceFile) error
	// SourceFile returns what was kept of a file. ErrNotFound.
	SourceFile(ctx context.Context, key SourceKey, path string) (SourceFile, error)
}

// SourcePage asks for one chunk of a list of sources.
type SourcePage struct {
	Scope Scope
	Owner string
	After string // the last name of the chunk before; "" from the start
	Limit int    // at most so many, > 0
}

// TemplateStore keeps templates.
type TemplateStore interface {
	// CreateTemplate adds a template with its origin and base. ErrExists when its key is taken.
	CreateTemplate(ctx context.Context, template Template) error
	// Template returns the template with that key, Origin.Base included. ErrNotFound.
	Template(ctx context.Context, key TemplateKey) (Template, error)
	// Templates returns a chunk of the templates that page asks for, by name and then id in byte order, behind
	// page's last row. Origin.Base is zero. A chunk may be shorter than page.Limit; only an empty one is the end.
	Templates(ctx context.Context, page TemplatePage) ([]Template, error)
	// ChangeTemplate reads the template as Template does, calls change with it and, when that returns true, writes
	// what change made of it, in one transaction: changes of one template happen one after the other. The key and
	// InstalledAt are not written. Where change has raised Version, what the template was is added to its versions, of which
	// those are kept whose numbers are at least Version - [MaxTemplateVersions]. change does no I/O and may be called again,
	// with the template read anew; its error is returned as it is and nothing is written. ErrNotFound.
	ChangeTemplate(ctx context.Context, key TemplateKey, change func(*Template) (write bool, err error)) error
	// TemplateVersions returns a chunk of the former versions of a template whose numbers are below before, greatest first, at
	// most limit (> 0) of them. A chunk may be shorter than limit; only an empty one is the end, or says that there
	// is no such template.
	TemplateVersions(ctx context.Context, key TemplateKey, before int64, limit int) ([]TemplateVersion, error)
	// Installations returns a chunk of the templates of page's scope and owner that have an Origin, by id in byte order, after
	// page.After. A chunk of fewer than page.Limit is the end.
	Installations(ctx context.Context, page InstallationPage) ([]Installation, error)
	// RebindTemplates gives the Origin of all templates that came from source and have another URL this one, in one transaction, and
	// returns their keys, sorted in byte order by scope, owner and id; none: nothing was written.
	RebindTemplates(ctx context.Context, source SourceKey, url string) ([]TemplateKey, error)
	// DeleteTemplate removes the template with that key and all that belongs to it, unless check, which may be nil, refuses it: that is
	// called with the template in the same transaction, does no I/O and may be called again; its error is returned as it
	// is and nothing is written. ErrNotFound.
	DeleteTemplate(ctx context.Context, key TemplateKey, check func(Template) error) error
}

// TemplatePage asks for one chunk of a list of templates.
type TemplatePage struct {
	Scope Scope
	Owner string
	TemplateFilter
	AfterName, AfterID string // of the last row of the chunk before; "" from the start
	Skip               int    // so many rows first are left out
	Limit              int    // at most so many, > 0
}

// Installation is where a template came from, without what it says.
type Installation struct {
	ID     string // of the template
	Origin Origin // its Base is zero
}

// InstallationPage asks for one chunk of a list of installations.
type InstallationPage struct {
	Scope Scope
	Owner string
	After string // the last id of the chunk before; "" from the start
	Limit int    // at most so many, > 0
}

// APIKeyStore keeps API keys. How one is read by its id is [AccessStore]'s Access.
type APIKeyStore interface {
	// CreateAPIKey adds a key. ErrExists when its id is taken.
	CreateAPIKey(ctx context.Context, key APIKey) error
	// LockAPIKeys counts the holder's keys that are not revoked, up to most. In a transaction it
	// locks them first: another transaction that calls it for this holder waits until this one
	// ends, in every process, and then counts what this one has written. It is no mutation: the
	// generation stays.
	LockAPIKeys(ctx context.Context, holder Identity, most int) (live int, err error)
	// APIKeys returns a chunk of the holder's keys that are not revoked, newest first (CreatedAt, then ID,
	// descending), behind page's last row. A chunk of fewer than page.Limit is the end.
	APIKeys(ctx context.Context, page APIKeyPage) ([]APIKey, error)
	// ChangeAPIKey reads the holder's key, calls change with it and, when that returns true, writes
	// what change made of its Description, ExpiresAt, Disabled, RevokedAt, Hash, Pepper and Seal,
	// and nothing else, in one transaction: changes of one key happen one after the other. change
	// does no I/O and may be called again, with the key read anew; its error is returned as it is
	// and nothing is written. ErrNotFound when the key is unknown, another's or revoked. In a
	// transaction nobody else changes or revokes the key until the end, also where change returns
	// false.
	ChangeAPIKey(ctx context.Context, holder Identity, id string, change func(key *APIKey) (write bool, err error)) error
	// RotateAPIKey does as ChangeAPIKey does, and adds the key that rotate returns, in the same transaction: both, or
	// neither. ErrExists when the new key's id is taken.
	RotateAPIKey(ctx context.Context, holder Identity, id string, rotate func(old *APIKey) (next APIKey, err error)) error
	// RevokeAPIKey marks the holder's key as revoked, and forgets its Hash and Seal: no edit of the row brings it back.
	// ErrNotFound when it is unknown, another's or revoked before.
	RevokeAPIKey(ctx context.Context, holder Identity, id string, at time.Time) error
	// RevokeAPIKeys does so with the newest keys of the holder that are not revoked, at most limit
	// (> 0), as one mutation, and returns their ids, in no order. Fewer than limit: the holder has
	// no others. Where there are none, nothing is written.
	RevokeAPIKeys(ctx context.Context, holder Identity, at time.Time, limit int) (ids []string, err error)
	// UseAPIKeys sets LastUsedAt of each key to the later of what it is and of the use's At. Unknown keys are left out. It is
	// no mutation: the generation stays.
	UseAPIKeys(ctx context.Context, uses []KeyUse) error
	// KeepValue returns the value kept under name, after keeping value if there was none. All callers, in all
	// processes, get the same.
	KeepValue(ctx context.Context, name string, value []byte) ([]byte, error)
}

// APIKeyPage asks for one chunk of a list of keys.
type APIKeyPage struct {
	Holder    Identity
	AfterTime time.Time // CreatedAt and ID of the last row of the chunk before; zero from the start
	AfterID   string
	Limit     int // at most so many, > 0
}

// KeyUse is what is kept of a key's having been accepted.
type KeyUse struct {
	ID string
	At time.Time // the minute
}

// AccessStore keeps what decisions are made from.
type AccessStore interface {
	// User returns the user with that id, its channels sorted by provider and sender. ErrNotFound.
	User(ctx context.Context, id string) (User, error)
	// ServiceAccount returns the service account with that id. ErrNotFound.
	ServiceAccount(ctx context.Context, id string) (ServiceAccount, error)
	// Access returns all that one decision needs, read in one consistent snapshot. What is not there is nil: that
	// is no error.
	Access(ctx context.Context, query AccessQuery) (AccessSnapshot, error)
	// AllAccess returns every row of access, read in one consistent snapshot: sorted by their ids (attachments by policy,
	// principal type and id), Channels and Members sorted and never nil, and the lists never nil.
	AllAccess(ctx context.Context) (AccessRows, error)
	// ChangeAccess reads the rows that named names, hands them to change and writes what that returns, in one
	// transaction: changes of access happen one after the other.
	//
	// current holds, of the rows whose keys are in named, those that exist, whole, and beside them the users who hold a
	// channel in named; each once, in no order, its channels or members sorted and never nil. What change returns is
	// upserted whole: a user with exactly its Channels, a group with exactly its Members, nil meaning none. An empty Bundle writes
	// nothing. change does no I/O and may be called again, with rows read anew; its error is returned as it is.
	// It returns a channel only where no other user holds it afterwards, and refers only to rows that exist.
	ChangeAccess(ctx context.Context, named AccessNames, change func(current Bundle) (Bundle, error)) error
}

// AccessRows is every row of access, and the generation that they are of.
type AccessRows struct {
	Generation int64
	Bundle
}

// AccessNames names access rows.
type AccessNames struct {
	Users, Groups, ServiceAccounts, Policies, BankPolicies []string
	Channels                                               []Channel
	Attachments                                            []AttachmentKey
}

// AccessQuery asks for what one decision needs. At most one of KeyID, Identity and Channel is set, and says about whom; none:
// about nobody.
type AccessQuery struct {
	KeyID    string   // whoever holds the API key with that id, revoked or not
	Identity Identity // a user or a service account
	Channel  Channel  // the user whose channel it is
	BankID   string   // whose bank policy to read; "" none
	// ScopingPolicyID is that of a policy that narrows Identity beside what is stored about it; "" none. A key's comes with it.
	ScopingPolicyID string
}

// AccessSnapshot is what one decision is made from.
type AccessSnapshot struct {
	Generation     int64           // grows with every mutation of the store; 0 where nothing was ever written
	Key            *APIKey         // the key that was asked about
	ServiceAccount *ServiceAccount // the service account that was asked about, or that holds the key
	User           *User           // the user asked about, who holds the key or the channel, or owns ServiceAccount; without Channels
	Grants         []Grant         // what is attached to User, and to its groups, in no order
	Scoping        *Policy         // the scoping policy of ServiceAccount
	Narrowing      *Policy         // the scoping policy of Key, or the one that was asked for beside Identity
	BankPolicy     *BankPolicy
}

// Grant is a policy that reaches a user, one for each attachment.
type Grant struct {
	Policy
	Principal GrantedTo // the user itself, or a group it is a member of
	Priority  int64
}

// ChangeStore tells what has changed, in this process or another, for whoever keeps copies.
//
// Every mutation counts the store's generation up by one and leaves the targets that it changed, in one transaction, so a
// reader that asks again and again misses none, whatever it has slept through.
type ChangeStore interface {
	// Changes returns what was committed after generation since, and the generation that this leads to. The store
	// remembers at least the last 1,000 generations: when since is older, or greater than the store's own (which was
	// restored from a backup, then), the answer is a Reset.
	Changes(ctx context.Context, since int64) (Changes, error)
	// AwaitChange returns nil as soon as the store may have another generation than since, after a second at
	// the latest. It is a wake-up and proves nothing: ask Changes. It fails when ctx ends.
	AwaitChange(ctx context.Context, since int64) error
}

// Changes is what happened between two generations.
type Changes struct {
	Generation int64    // the store's, now
	Reset      bool     // the store cannot tell what changed: everything may have
	Targets    []Target // in the order of their commits; one that changed twice is there twice
}

// TransactionStore joins calls of a store into one.
type TransactionStore interface {
	// Atomically calls fn with a Store whose calls are one transaction: when Atomically returns nil all is there that they have
	// written, and nothing of it when fn fails or panics, or ctx has ended by its end. What tx reads includes what it has written.
	//
	// fn uses the context and the Store that it is given, both from one goroutine and no others, does nothing else that takes
	// time, may be called again, and returns the error of a call that was to write and has failed. Its error is returned as it is, or
	// wrapped. AwaitChange and ClaimEvents of tx fail.
	Atomically(ctx context.Context, fn func(ctx context.Context, tx Store) error) error
}

// MaxSourceFiles is how many files of a source are kept in the store, beside its catalogue.
const MaxSourceFiles = 1000

// SourceFile is what a source has answered, as a [Marketplace] keeps it: only that can read it.
type SourceFile struct {
	Path   string // relative to the source; "": its catalogue
	Data   []byte
	KeptAt time.Time
}

// OutboxStore keeps events whose mutations belong to a transaction of the host, until they are delivered.
type OutboxStore interface {
	// AddEvents keeps events. It is no mutation: the generation stays.
	AddEvents(ctx context.Context, events []Event) error
	// ClaimEvents returns up to limit events that are nobody's at the time now, oldest (by ID) first, and makes them the
	// caller's until the time until. Two callers never have one event at once. Where there are none, nothing
	// is written.
	ClaimEvents(ctx context.Context, now, until time.Time, limit int) ([]Event, error)
	// DeleteEvents forgets events that were delivered; those that are gone already are no error.
	DeleteEvents(ctx context.Context, ids []uuid.UUID) error
}

// AnswerStore keeps what requests with an idempotency key were answered.
type AnswerStore interface {
	// Answer returns what is kept under key. ErrNotFound where nothing is, or what is has expired by the time now.
	Answer(ctx context.Context, key []byte, now time.Time) (Answer, error)
	// KeepAnswer keeps an answer, and forgets some that have expired by the time now. It is no mutation: the generation stays. ErrExists
	// when one is kept under its Key that has not expired.
	KeepAnswer(ctx context.Context, answer Answer, now time.Time) error
}

// Answer is what a request was answered, for when it is repeated.
type Answer struct {
	Key       []byte // a digest of who asked, and of the idempotency key: 32 bytes
	Request   []byte // a digest of what was asked for: 32 bytes
	Data      []byte // sealed
	ExpiresAt time.Time
}

// AuditStore keeps the records of events.
type AuditStore interface {
	// AppendAudit calls next with the newest record, which is zero where there is none, and adds the records that it returns, in one
	// transaction: calls happen one after the other, and in a transaction until its end. It is no mutation: the
	// generation stays. next does no I/O and may be called again. In a transaction it comes after the mutations, so
	// that those who write wait for each other in one order.
	AppendAudit(ctx context.Context, next func(last AuditRecord) []AuditRecord) error
	// AuditRecords returns a chunk of the records that page asks for, by Number, greatest first. A chunk of fewer than
	// page.Limit is the end.
	AuditRecords(ctx context.Context, page AuditPage) ([]AuditRecord, error)
}

// AuditPage asks for one chunk of a list of records. Its times are UTC with microseconds.
type AuditPage struct {
	AuditFilter
	Limit int // at most so many, > 0
}

// listChunk is how many rows a list reads at a time, so that no connection is held while a caller deals with them.
const listChunk = 128

// anyLength is for lists whose chunks may end early, because their rows are large: only an empty one is the end.
const anyLength = 0

// list yields what next returns, chunk by chunk until an empty one, or one of fewer than full rows; advance moves the page behind the
// last row. An error is yielded once, last.
func list[T any](ctx context.Context, doing string, full int, allowed func() error, next func() ([]T, error), advance func(last T)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		if err := allowed(); err != nil {
			yield(zero, err)
			return
		}
		for {
			chunk, err := next()
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(zero, fault(doing, err))
				return
			}
			for _, row := range chunk {
				if !yield(row, nil) {
					return
				}
			}
			if len(chunk) == 0 || len(chunk) < full {
				return
			}
			advance(chunk[len(chunk)-1])
		}
	}
}
