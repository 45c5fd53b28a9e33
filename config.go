package svc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/extsvc/svc/internal/aead"
	"github.com/extsvc/svc/internal/keyring"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/parameter"
)

// Config configures a [Service]. Store is required; the zero value of every other field works.
// [New] copies it, with its slices.
type Config struct {
	// Store keeps everything. Required.
	Store Store
	// Authenticator finds the caller of every bearer that is not a key issued here. Nil: only
	// issued keys are accepted.
	Authenticator Authenticator
	// Logger gets warnings and faults, never a secret. Nil: records of [slog.LevelError] go to
	// [slog.Default] and the others are dropped.
	Logger *slog.Logger
	// Now is the clock, for the times of rows and events and for the expiry of keys, kept in UTC to
	// the microsecond. It is called concurrently. Nil: [time.Now].
	Now func() time.Time

	Users     UserConfig
	Keys      KeyConfig
	Sources   SourceConfig
	Templates TemplateConfig
	Events    EventConfig
	Memory    Memory
	// Parameters are what statements may set, in the order of answers. Nil: [parameter.Memory];
	// empty: none. A document with the key of a parameter that is gone no longer parses, so its
	// holders are denied everything: change the documents first.
	Parameters []parameter.Definition
	// ReadOnly refuses all mutations with CodeReadOnly, also those of [Host], and writes neither
	// last uses of keys nor answers of sources. Answers and decisions go on as before.
	ReadOnly bool
}

// UserConfig says which users there are.
type UserConfig struct {
	// Known reports whether the host has a user with that id. An unknown user and its service
	// accounts get no keys. The Service calls it concurrently, without a transaction, before it
	// issues, imports, rotates or enables a key and before it changes the key's end, unless the
	// caller is [Host]. [Service.Authenticate] and [Service.Accept] call it with RequireKnown only:
	// else, after a user has left, call [Service.ForgetUser] and end the user's sessions. An error
	// fails the method with CodeInternal, or with CodeUnavailable when it wraps [ErrUnavailable].
	// Nil: every id belongs to a user, unless AreRows is set.
	Known func(ctx context.Context, id string) (bool, error)
	// AreRows says that each user has a row here ([Bundle.Users]), and that an id without one is of
	// nobody. It replaces Known for a host that keeps no users elsewhere, and costs no call. Set
	// one of the two.
	AreRows bool
	// RequireKnown makes Authenticate and Accept ask Known, or for the row, one of which is then
	// required: a key or a session of a user who is not known is CodeUnauthenticated. A service
	// account is as known as its owner. When Known fails, they return CodeUnavailable. A positive
	// answer counts for [KnownUserPeriod]. The answers take at most 16 MiB; a negative one is not
	// cached.
	RequireKnown bool
}

// DefaultMaxKeysPerHolder is the default of [KeyConfig].MaxPerHolder.
const DefaultMaxKeysPerHolder = 1000

// KeyConfig configures how API keys are made and stored.
type KeyConfig struct {
	// UserPrefix and ServiceAccountPrefix start every key: "" means "svcu_" and "svcs_". A prefix
	// has 1 to 16 characters of a–z, 0–9 and _, and ends in _. None may be the start of another.
	UserPrefix, ServiceAccountPrefix string
	// EarlierUserPrefixes and EarlierServiceAccountPrefixes are former prefixes whose keys stay
	// accepted. A rotation issues a key with the present prefix.
	EarlierUserPrefixes, EarlierServiceAccountPrefixes []string
	// Peppers are the secrets under which keys are hashed: the first for new keys, all of them to
	// check keys. None, or a zero one first: keys are hashed without a pepper, and [New] logs a
	// warning.
	Peppers []Pepper
	Imports []KeyImport // the keys of other systems that [Keys.Import] accepts
	// MaxPerHolder is the most keys that one user or service account can have. Revoked keys do not
	// count, expired and disabled keys do. One more is [CodeLimit], also to [Host]. A holder that
	// already has more keeps them. The limit is exact only when all processes have the same value.
	// Each issued key costs a count up to it, in an index. 0: [DefaultMaxKeysPerHolder]. Not
	// negative.
	MaxPerHolder int
	// IgnoreExpired leaves expired keys out of MaxPerHolder. A patch or a rotation that makes one
	// valid again then needs a free place. Lists still show them: see [Keys.Sweep].
	IgnoreExpired bool
}

// KeyImport describes the keys of another system. Bearers with its Prefix never reach the host's
// Authenticator.
type KeyImport struct {
	// Prefix starts every key of the other system: 1 to 32 visible ASCII characters. No prefix of
	// keys may be the start of another.
	Prefix string
	// Hash returns what the other system keeps of a key, prefix included: 16 to 64 bytes, without a
	// salt; no bytes for what cannot be a key. It is called for every bearer with the prefix,
	// concurrently, and by [New] with a sample. Nil: SHA-256.
	Hash func(key string) []byte
}

// Pepper is one version of the secret under which keys are hashed. Keep it apart from the database:
// read access to that is then not enough to test a guess, or to invent an id that reaches the
// store. The zero Pepper accepts the keys that were issued before the first pepper.
type Pepper struct {
	Version string // in each key's row, 1 to 32 characters; never reuse it for another Secret
	Secret  []byte `json:"-"` // at least 16 bytes
	// Retired ends the keys under this pepper. Before, while both peppers are in the list, a key is
	// hashed again under the first pepper when it is used; such keys stay good. A retired pepper
	// needs no Secret. The first pepper is never Retired.
	Retired bool
	// AcceptUnsealed accepts keys under this pepper whose rows have no seal, and seals them at
	// their next use. It is for a pepper that was in use before rows were sealed. While it is set,
	// a writer of the database can remove seals and change the holder of a key.
	AcceptUnsealed bool
}

// Format prints a pepper without its Secret. fmt does not ask it for %p: avoid that.
func (p Pepper) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "{%s %s}", p.Version, masked) }

// SourceConfig configures how sources are kept.
type SourceConfig struct {
	Marketplace Marketplace // fetches templates from sources; nil: none can be registered or asked
	// SealingKey encrypts the access tokens of sources at rest: 32 bytes. Nil: the Service refuses
	// to register a token.
	SealingKey []byte `json:"-"`
	// OldSealingKeys open tokens that were sealed under an earlier SealingKey, until
	// [Sources.Reseal]. Each has 32 bytes, no key appears twice, and they need a SealingKey.
	OldSealingKeys [][]byte `json:"-"`
}

// Format prints "***" instead of the keys. fmt does not ask it for %p: avoid that.
func (c SourceConfig) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }

// TemplateConfig configures how templates are checked and kept.
type TemplateConfig struct {
	// ValidateManifest is the host's own check, in addition to the built-in one. The caller sees
	// the text of its error, at the Field of an [*Error]: a JSON pointer into the manifest
	// ("/steps/0"; "steps" is "/steps", and "" the whole manifest). All errors that [errors.Join]
	// joins are shown. The function must be pure. It may be called concurrently. Nil: every
	// manifest with a version is valid.
	ValidateManifest func(manifest json.RawMessage) error
	LocalEdits       LocalEdits // the rule for fields edited locally; "": [EditsConflict]
	Banks            BankMaker  // makes banks from templates; nil: [Banks.Create] finds nothing
}

// EventConfig says where events and decisions go.
type EventConfig struct {
	// Keep writes a record of each event in the transaction of its mutation, for [Audit.Records].
	// Without the record, the mutation fails. Events of sources that fail or recover are not kept.
	// The Store must be an [AuditStore].
	Keep bool
	// OnEvent receives every mutation but [Sources.Reseal] and [Audit.Forget], after its commit and
	// before the method returns, in the caller's goroutine, concurrently. In transactions of the
	// host it needs a Store that is an [OutboxStore] ([Service.WithTx]).
	//
	// Its ctx has the values of the caller's, but does not end. A panic is logged and fails nothing;
	// an event of the outbox comes again about half a minute later, until OnEvent returns. When the
	// process ends between a commit and the call, or the store cannot say whether it has committed,
	// the event is lost, unless the outbox holds it, or the answer to the idempotency key of the
	// request shows the commit. Its record (Keep) is not lost. Nil: events are dropped.
	OnEvent func(ctx context.Context, event Event)
	// OnDecision is called concurrently after each answer of [Service.Decide] and [Service.May],
	// and so of httpapi's Require. It is not called for errors, nor for what a method of the
	// Service decides about its own caller. The caller waits for it, and its panics are the
	// caller's. Nil: nothing is called, and Decide does not allocate.
	OnDecision func(ctx context.Context, event DecisionEvent)
	// NoDelivery leaves the events in the outbox to other processes. Without it, every process with
	// an OnEvent delivers them, whichever has written them: a short command whose OnEvent only logs
	// would take events away from the program that they are for.
	NoDelivery bool
}

// Memory limits what a process caches.
type Memory struct {
	// Keys is the least number of keys that can be cached. 0: 65,536. Not negative. A cached key
	// takes about 130 bytes (110 each for a million) after its first use, and costs the garbage
	// collector no time. As many holders are cached, but at least 16,384 and at most 65,536. A
	// holder takes about 500 bytes, and more when it has its own rights.
	Keys int
	// Templates is the most bytes of the server's templates that are cached, and half as many of
	// the bases of templates edited locally. 0: 32 MiB. Negative: none. When all templates fit,
	// [Templates.Read] and [Templates.List] do not call the store, but for what has changed. They
	// return values shared with other callers: do not change them. The cache shows the writes of
	// this process immediately, and others when [Service.Decide] does. When the templates do not
	// fit, or the store has been out of reach for 5 seconds, each call reads the store.
	Templates int
	// Access is the most bytes of rows of access that are cached for [Policies.WhoCan],
	// [Policies.WhatCan], [Policies.Simulate] and [Access.Preview]. A user takes about 150 bytes.
	// The rows are read at the first question, and then moved by what changes. When they do not
	// fit, each question reads them all. 0: 256 MiB. Negative: none are cached.
	Access int
}

// receiver returns what gets the events; nil: nobody needs them. With NoDelivery but no OnEvent,
// other processes do.
func (c EventConfig) receiver() func(context.Context, Event) {
	if c.OnEvent == nil && c.NoDelivery {
		return func(context.Context, Event) {}
	}
	return c.OnEvent
}

// clone returns a copy that shares no slice with c.
func (c Config) clone() Config {
	k, s := &c.Keys, &c.Sources
	k.EarlierUserPrefixes = slices.Clone(k.EarlierUserPrefixes)
	k.EarlierServiceAccountPrefixes = slices.Clone(k.EarlierServiceAccountPrefixes)
	k.Imports, k.Peppers = slices.Clone(k.Imports), slices.Clone(k.Peppers)
	for i := range k.Peppers {
		k.Peppers[i].Secret = slices.Clone(k.Peppers[i].Secret)
	}
	s.SealingKey, s.OldSealingKeys = slices.Clone(s.SealingKey), slices.Clone(s.OldSealingKeys)
	for i := range s.OldSealingKeys {
		s.OldSealingKeys[i] = slices.Clone(s.OldSealingKeys[i])
	}
	c.Parameters = slices.Clone(c.Parameters)
	for i := range c.Parameters {
		c.Parameters[i].Levels = slices.Clone(c.Parameters[i].Levels)
	}
	return c
}

const cachedAccess = 256 << 20 // unless Memory says otherwise

// Stats are figures of a Service at one time. The counts begin at 0 with each process, and only
// grow.
type Stats struct {
	// Decisions counts the answers of [Service.Decide] and [Service.May], in transactions of the
	// host as well, and Denials those that were not allowed. Errors count in neither.
	Decisions, Denials uint64
	CacheBytes         int64         // an estimate of the bytes that all caches hold
	CacheReads         uint64        // reads of the store on a cache miss
	Following          bool          // the cache follows the store, from the first decision or key on
	Age                time.Duration // since it has last seen the store; 0 when not Following
	Lag                int64         // mutations that it is known not to have followed yet
	Listening          bool          // commits of others are notified immediately, as by PostgreSQL
	// OutboxWaiting counts the events in the outbox, claimed or not, of all tenants that share it.
	// It stops at 10,000. -1: the store does not answer, or is no [StatsStore].
	OutboxWaiting int
}

const maxOutboxWaiting = 10_000

// check returns an error that names a wrong field.
func (c *Config) check() error {
	edits := c.Templates.LocalEdits
	switch {
	case c.Users.AreRows && c.Users.Known != nil:
		return errors.New("svc: set Config.Users.Known or Config.Users.AreRows, not both")
	case c.Users.RequireKnown && c.Users.Known == nil && !c.Users.AreRows:
		return errors.New("svc: Config.Users.RequireKnown requires Config.Users.Known or" +
			" Config.Users.AreRows")
	case edits != "" && !edits.rules():
		return errors.New("svc: Config.Templates.LocalEdits must be conflict, overwrite or merge")
	case c.Memory.Keys < 0:
		return errors.New("svc: Config.Memory.Keys must not be negative")
	case c.Keys.MaxPerHolder < 0:
		return errors.New("svc: Config.Keys.MaxPerHolder must not be negative")
	}
	return nil
}

func newRing(config KeyConfig) (*keyring.Ring, error) {
	rules := keyring.Config{Prefixes: []keyring.Prefix{
		{Field: "UserPrefix", Kind: string(KindUser), Text: cmp.Or(config.UserPrefix, "svcu_")},
		{Field: "ServiceAccountPrefix", Kind: string(KindServiceAccount),
			Text: cmp.Or(config.ServiceAccountPrefix, "svcs_")},
	}}
	earlier := func(field string, kind Kind, prefixes []string) {
		for i, text := range prefixes {
			rules.Prefixes = append(rules.Prefixes, keyring.Prefix{
				Field: fmt.Sprintf("%s[%d]", field, i), Kind: string(kind), Text: text,
			})
		}
	}
	earlier("EarlierUserPrefixes", KindUser, config.EarlierUserPrefixes)
	earlier("EarlierServiceAccountPrefixes", KindServiceAccount,
		config.EarlierServiceAccountPrefixes)
	for _, in := range config.Imports {
		rules.Imports = append(rules.Imports, keyring.Import(in))
	}
	for _, p := range config.Peppers {
		rules.Peppers = append(rules.Peppers, keyring.Pepper(p))
	}
	ring, err := keyring.New(rules)
	if err != nil {
		return nil, fmt.Errorf("svc: Config.Keys.%w", err)
	}
	return ring, nil
}

// newSealer returns the sealer for the tokens of sources, or nil when the configuration has no key.
func newSealer(config SourceConfig) (*aead.Sealer, error) {
	if config.SealingKey == nil && len(config.OldSealingKeys) == 0 {
		return nil, nil
	}
	if config.SealingKey == nil {
		return nil, errors.New("svc: Config.Sources.OldSealingKeys: set SealingKey too")
	}
	sealer, err := aead.New(config.SealingKey)
	if err != nil {
		return nil, fmt.Errorf("svc: Config.Sources.SealingKey: %w", err)
	}
	for i, old := range config.OldSealingKeys {
		if sealer, err = sealer.WithOld(old); err != nil {
			return nil, fmt.Errorf("svc: Config.Sources.OldSealingKeys[%d]: %w", i, err)
		}
	}
	return sealer, nil
}

// schemaOf returns the engine's form of a table. nil: that of AI memory.
func schemaOf(table []parameter.Definition) (*policy.Schema, error) {
	if table == nil || reflect.DeepEqual(table, parameter.Memory()) {
		return policy.Memory, nil
	}
	schema, err := policy.NewSchema(table)
	if err != nil {
		return nil, fmt.Errorf("svc: Config.Parameters: %w", err)
	}
	return schema, nil
}

// DecisionEvent is an answer of [Service.Decide] or [Service.May], for [EventConfig].OnDecision. It
// holds no secret.
type DecisionEvent struct {
	Principal    Principal
	Action, Bank string
	Context      Context
	Outcome      Outcome
	Tenant       string // whose Service decided; "": no tenant's
	of           policy.Decision
}

// Allowed reports whether the principal may do the action.
func (e DecisionEvent) Allowed() bool { return e.of.Allowed() }

// Reason is [Decision.Reason]: a sentence, made at each call.
func (e DecisionEvent) Reason() string { return e.of.Reason() }

// Parameter is [Decision.Parameter].
func (e DecisionEvent) Parameter(name string) (value any, ok bool) {
	value = policy.Plain(e.of.Parameter(name))
	return value, value != nil
}

// unpeppered reports whether new keys are hashed without a pepper.
func (c KeyConfig) unpeppered() bool { return len(c.Peppers) == 0 || c.Peppers[0].Version == "" }

const noPepper = "svc: API keys are hashed without a pepper: set Config.Keys.Peppers"

// keptKeys is the number of keys to cache if the host sets no number.
const keptKeys = 1 << 16
