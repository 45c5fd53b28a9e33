// Package svc is a library for the administration of a Go server: access policies, templates, API
// keys.
//
// A host builds one [Service] over a [Store], mounts package httpapi under /ext/svc, and calls the
// nouns of the Service. These are the methods that a host meets first:
//
//   - service.Templates, the server's catalogue of templates: service.Templates.Install, List,
//     Read, CheckUpdate and Update ([Templates]);
//   - service.Sources, the trusted addresses to install templates from: service.Sources.Register,
//     List, Browse, Search and Remove ([Sources]);
//   - service.Keys, the API keys of users and service accounts, listed without their secret:
//     service.Keys.Issue, List, Patch, Rotate and Revoke ([Keys]);
//   - service.Policies, questions about what a user, a service account or an unmapped sender may
//     do on a bank (one memory store), with which parameters, and which statement decides it:
//     service.Policies.Resolve, WhoCan, WhatCan and Simulate ([Policies]); [Lint] needs no Service;
//   - service.Access, the rows that decide access: service.Access.Preview and Apply ([Access]);
//     [ParseBundle], [Bundle.JSON] and [Diff] need no Service;
//   - service.Audit, the events that the Service keeps: service.Audit.Records and Verify ([Audit]).
//
// On each request the host calls the Service itself. [Service.Authenticate] finds the caller of a
// bearer. [Service.Decide] says whether the caller may do an action on a bank.
//
// The packages, and the work of each:
//
//	httpapi ──► svc ◄── store/memstore, store/sqlstore   a Store persists, filters, sorts and
//	             ▲                                       keeps keys unique
//	             │  ◄── store/sqlite, store/postgres     open a database for sqlstore
//	             └───── marketplace                      fetches catalogues, guarded
//
// The Service authorizes, validates, stamps, decides and records. No rule lives anywhere else.
// Every method that acts takes the caller as a [Principal] and authorizes it. A host's own code
// passes [Host]. Every failure is an [*Error] with a stable [Code]. The Service reports every
// mutation to [Config].OnEvent after its commit.
//
// A host brings its own bearers with an [Authenticator], its own database with a [Store] (package
// storetest checks the contract), and its own logger and clock with [Config]. Users belong to the
// host. A user needs no row here until the host gives it rights. [Access.Apply] writes rights as
// one [Bundle].
//
// All methods of a Service are safe for concurrent use.
package svc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/extsvc/svc/internal/copies"
	"github.com/extsvc/svc/internal/errorlog"
	"github.com/extsvc/svc/internal/keyring"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/seal"
	"github.com/extsvc/svc/internal/tasks"
)

// Config configures a [Service]. Store is required; the zero value of every other field works. New
// copies it, with its slices: a later change has no effect.
type Config struct {
	// Store keeps everything. Required.
	Store Store
	// Marketplace fetches templates from sources. Nil: no source can be registered or asked.
	Marketplace Marketplace
	// Authenticator finds the caller of every bearer that is not a key issued here. Nil: only
	// issued keys are accepted.
	Authenticator Authenticator
	// KnownUser reports whether the host has a user with that id. An unknown user gets no keys.
	//
	// The Service calls it before it issues, imports, rotates or enables a key and before it
	// changes the key's end, unless the caller is [Host]. To list, disable or revoke a key it does
	// not call it, and neither does Authenticate: after a user has left, revoke the user's keys.
	// The Service holds no transaction of its own during the call. An error fails the method with
	// CodeInternal, or with CodeUnavailable when it wraps [ErrUnavailable].
	//
	// Nil: every id belongs to a user. The Service calls it concurrently.
	KnownUser func(ctx context.Context, id string) (bool, error)
	// OnEvent receives every mutation but [Sources.Reseal], after its commit and before the method
	// returns. The Service calls it in the caller's goroutine, and concurrently. In transactions of
	// the host it needs a Store that is an [OutboxStore] ([Service.WithStore]).
	//
	// Its ctx has the values of the caller's, but does not end. A panic is logged and fails
	// nothing. When the process ends between a commit and the call, the event is lost, unless the
	// outbox holds it. Its record ([EventConfig]) is not. Nil: events are dropped.
	OnEvent func(ctx context.Context, event Event)
	// Logger gets warnings and faults, never a secret. Nil: records of [slog.LevelError] go to
	// [slog.Default] and the others are dropped.
	Logger *slog.Logger
	// Now is the clock, for the times of rows and events and for the expiry of keys. The Service
	// keeps times in UTC, to the microsecond. It calls Now concurrently. Nil: [time.Now].
	Now func() time.Time

	Keys      KeyConfig
	Sources   SourceConfig
	Templates TemplateConfig
	Events    EventConfig
	Limits    Limits
}

// DefaultMaxKeysPerHolder is how many API keys a holder has at most, not counting revoked ones,
// unless [KeyConfig].MaxPerHolder says otherwise.
const DefaultMaxKeysPerHolder = 1000

// KeyConfig configures how API keys are made and stored.
type KeyConfig struct {
	// UserPrefix and ServiceAccountPrefix start every key: "" means "svcu_" and "svcs_". A prefix
	// has 1 to 16 characters of a–z, 0–9 and _, and ends in _. Neither may be the start of the
	// other. A changed prefix makes the keys issued before unusable.
	UserPrefix, ServiceAccountPrefix string
	// Peppers are the secrets under which keys are hashed: the first for new keys, all of them to
	// check keys. None: keys are hashed without a pepper, and [New] logs a warning.
	Peppers []Pepper
	// Imports are the keys of other systems that [Keys.Import] accepts. None: only keys issued here
	// are accepted.
	Imports []KeyImport
	// MaxPerHolder is the most keys that one user or service account can have. Expired and disabled
	// keys count, because lists show them; revoked keys do not.
	//
	// One key more answers [CodeLimit], also to [Host]. A holder that already has more keeps them.
	// The limit is exact only when all processes have the same value. Each issued key costs a count
	// up to it, in an index. 0: [DefaultMaxKeysPerHolder]. Not negative.
	MaxPerHolder int
	// Cached is the least number of keys that can be cached in memory. 0: 65,536. Not negative.
	//
	// A cached key takes about 130 bytes (110 each for a million) after its first use, and costs
	// the garbage collector no time. As many holders are cached, but at least 16,384 and at most
	// 65,536. A holder takes about 500 bytes, and more when it has rights of its own.
	Cached int
}

// KeyImport describes the keys of another system: their prefix and their hash. Bearers with its
// Prefix are keys: the host's [Authenticator] never sees them.
type KeyImport struct {
	// Prefix starts every key of the other system: 1 to 32 visible ASCII characters. No prefix of
	// keys may be the start of another.
	Prefix string
	// Hash returns what the other system keeps of a key, prefix included: 16 to 64 bytes. It
	// returns the same hash for the same key, so it uses no salt of its own. The Service calls it
	// for every bearer with the prefix, concurrently. Nil: SHA-256.
	Hash func(key string) []byte
}

// Pepper is one version of the secret under which keys are hashed.
//
// Keep it apart from the database. A reader of the database alone can then neither test a guess
// nor invent an id that reaches the store. The zero Pepper stands for "no pepper": in a list, it
// accepts the keys that were issued before the first pepper.
type Pepper struct {
	// Version names the pepper in each key's row: 1 to 32 characters. Never reuse it for another
	// Secret.
	Version string
	Secret  []byte `json:"-"` // at least 16 bytes
	// Retired ends the keys under this pepper: they are no longer accepted. While both peppers are
	// in the list, a key is hashed again under the first pepper when it is used; such keys stay
	// good. A retired pepper needs no Secret. The first pepper is never Retired.
	Retired bool
	// AcceptUnsealed accepts keys under this pepper whose rows have no seal, and seals them at
	// their next use. It is for a pepper that was in use before rows were sealed. While it is set,
	// a writer of the database can remove seals and change the holder of a key.
	AcceptUnsealed bool
}

// Format prints a pepper without its Secret.
func (p Pepper) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "{%s %s}", p.Version, masked) }

// SourceConfig configures how sources are kept.
type SourceConfig struct {
	// SealingKey encrypts the access tokens of sources at rest: 32 bytes. Nil: the Service refuses
	// to register a token.
	SealingKey []byte `json:"-"`
	// OldSealingKeys open tokens that were sealed under an earlier SealingKey. They seal nothing.
	// Each has 32 bytes, no key appears twice, and they need a SealingKey. After [Sources.Reseal]
	// they are no longer needed. Nil: SealingKey is the only key.
	OldSealingKeys [][]byte `json:"-"`
}

// Format prints "***" instead of the keys.
func (c SourceConfig) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }

// TemplateConfig configures how templates are checked and kept.
type TemplateConfig struct {
	// ValidateManifest is the host's own check, in addition to the built-in one. Nil: every
	// manifest with a version is valid.
	//
	// The caller sees the text of its error. The text of an [*Error] is shown at its Field, a JSON
	// pointer into the manifest ("/steps/0"; "" is the whole manifest). All errors that
	// [errors.Join] joins are shown. The function must be pure. It may be called concurrently.
	ValidateManifest func(manifest json.RawMessage) error
	// LocalEdits says what an update does with fields edited locally. "": [EditsConflict].
	LocalEdits LocalEdits
	// Cached is the most bytes of the server's templates that are cached in memory, and half as
	// many of the bases of templates edited locally. 0: 32 MiB. Negative: none.
	//
	// When all templates fit, [Templates.Read] and [Templates.List] do not call the store. They
	// return values shared with other callers: do not change them. After a change, the next call
	// reads just the changed templates again. When the templates do not fit, each call reads the
	// store.
	//
	// The cache shows the writes of this process at once, and those of other processes and of the
	// host's transactions when [Service.Decide] does. When the store has been out of reach for 5
	// seconds, each call reads it.
	Cached int
}

// EventConfig configures what happens to events in addition to OnEvent.
type EventConfig struct {
	// Keep writes a record of each event in the transaction of its mutation. When the record
	// cannot be written, the mutation fails. [Audit.Records] lists the records. What a process
	// learns about a source is no mutation: it is not kept. Keep needs a Store that is an
	// [AuditStore].
	Keep bool
}

// Limits are limits on memory.
type Limits struct {
	// CachedAccess is the most bytes of rows of access that are cached for questions about many
	// principals: [Policies.WhoCan], [Policies.WhatCan], [Policies.Simulate] and [Access.Preview].
	// A user takes about 150 bytes. The rows are read at the first question, and then moved by
	// what changes. When they do not fit, each question reads them all. 0: 256 MiB. Negative: none
	// are cached.
	CachedAccess int
}

const cachedAccess = 256 << 20 // unless Limits says otherwise

// Service holds the nouns of svc, and the methods that a host calls on every request. Use [New]:
// the zero Service does not work. Several Services, in one process or in many, may share a
// database, each with its own cache.
type Service struct {
	Templates *Templates // the server's catalogue of templates
	Sources   *Sources   // the server's trusted marketplace sources
	Keys      *Keys      // API keys of users and service accounts
	Policies  *Policies  // questions about access: who may do what, and why
	Access    *Access    // users, groups, policies and what else decides access
	Audit     *Audit     // the events that the Service keeps

	*base
	guard   *guard
	callers *authenticator
	config  Config
	shared  shared
	work    *tasks.Group // nil: works in a transaction of the host
}

// New returns a Service over config, or an error that names the missing or wrong field.
//
// New does not contact the store. The Service works in the background until [Service.Close]. With
// an OnEvent it delivers the events in the outbox from the start. From the first decision on it
// follows the writes of other processes. From the first accepted key on it records when keys are
// used.
func New(config Config) (*Service, error) {
	if config.Store == nil {
		return nil, errors.New("svc: Config.Store is required")
	}
	config.Logger = errorlog.Or(config.Logger)
	if config.Now == nil {
		config.Now = time.Now
	}
	config.Keys.MaxPerHolder = cmp.Or(config.Keys.MaxPerHolder, DefaultMaxKeysPerHolder)
	roles := rolesOf(config.Store)
	if err := config.check(roles); err != nil {
		return nil, err
	}
	keys, err := newRing(config.Keys)
	if err != nil {
		return nil, err
	}
	sealer, err := newSealer(config.Sources)
	if err != nil {
		return nil, err
	}
	if len(config.Keys.Peppers) == 0 {
		config.Logger.Warn("svc: API keys are hashed without a pepper: set Config.Keys.Peppers")
	}
	work := tasks.NewGroup(config.Logger)
	b := &base{store: config.Store, roles: roles, log: config.Logger, clock: config.Now}
	compiler := policy.NewCompiler()
	b.copies = copies.New(
		cmp.Or(config.Keys.Cached, keptKeys), compiler.Budget(), feed{b}, work.Start,
	)
	s := assemble(config, b, shared{
		compiler, keys, sealer, &failing{}, &checks{},
	})
	s.start(work)
	return s, nil
}

// WithStore returns a Service that works on store, which belongs to one transaction of the host.
//
// Package sqlstore has such a store: Tx. With it, a key is issued if and only if the host's own row
// is written. Others see the changes after the host's commit, as the changes of another process.
//
// Events go into the outbox of the same transaction. The original Service s delivers them after
// the commit, within about a second and at least once. The ID of an [Event] identifies a second
// delivery. With an OnEvent and a store that is no [OutboxStore], every mutation fails
// ([CodeInternal]) and writes nothing.
//
// The copy ends with the transaction and needs no Close. When one of its methods fails, roll the
// transaction back, unless the error is a refusal: [CodeInvalid], [CodeUnauthenticated],
// [CodeForbidden], [CodeNotFound], [CodeExists], [CodeLimit], [CodeEdited], [CodePrecondition],
// [CodeSourceMoved] or [CodeKeyReused].
func (s *Service) WithStore(store Store) *Service {
	b := &base{
		store: store, roles: rolesOf(store), log: s.log, clock: s.clock, inTransaction: true,
	}
	return assemble(s.config, b, s.shared)
}

// Authenticate returns the principal of a bearer token. An issued key belongs to its holder; the
// host's Authenticator decides about every other bearer.
//
// A cached key costs no store call, a key that is not cached costs one, and an invented key of the
// Service's own form costs none. An accepted key is recorded as used, some seconds later. The cache
// follows changes as that of [Service.Decide] does. bearer is the token alone, without "Bearer ".
//
// Errors: CodeUnauthenticated, always with the same message, when the bearer has no principal or an
// inactive one; CodeUnavailable when the Service cannot decide at present.
func (s *Service) Authenticate(ctx context.Context, bearer string) (Principal, error) {
	return s.callers.authenticate(ctx, bearer)
}

// Decide decides whether a principal may do an action on a bank, and with which parameters. It uses
// the same code as [Policies.Resolve].
//
// Call it for every request that a host serves. It answers from the cache, so most calls take well
// under a microsecond and make no store call. Changes by this process count at once. Changes by
// others count at once where the store is a [LookStore] such as SQLite's, within milliseconds on
// PostgreSQL, and else within about a second. When the store was not reached for 5 seconds, each
// call reads it.
//
// A user without a row has no stored rights. On bank "*", the actions that the host vouches for
// ([Principal].Actions) count as well.
//
// An error never means allow. Errors: CodeInvalid (an empty action, an impossible bank),
// CodeUnavailable.
func (s *Service) Decide(
	ctx context.Context, p Principal, action, bank string, in Context,
) (d Decision, err error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, fault("decide", err)
	}
	if p.Kind == KindHost {
		return hostMay, nil
	}
	if action == "" {
		return Decision{}, Invalid("action", "is required")
	}
	isHolder := func(h *copies.Holder) bool {
		return h.ID == p.ID && h.Kind == policy.Kind(p.Kind) && h.NarrowedBy == p.ScopingPolicyID
	}
	now, known := s.copies.Again(&d.of, p.ID, isHolder, action, bank, (*policy.Context)(&in))
	if !known {
		d.of, _, err = s.guard.decide(ctx, p.holder(), action, bank, (*policy.Context)(&in), now)
		if err != nil {
			return Decision{}, err
		}
	}
	if len(p.Actions) > 0 {
		d.of = d.of.Vouch(p.vouched())
	}
	return d, nil
}

// Ping reports whether the store can be read, for a health check.
//
// It does not check sources, nor whether the store can be written. Errors: CodeUnavailable,
// CodeInternal.
func (s *Service) Ping(ctx context.Context) error {
	_, err := s.store.Changes(ctx, math.MaxInt64)
	return fault("reach the store", err)
}

// Close ends the background work, records the last uses of keys, and returns when all has ended.
//
// A second call does nothing. Close waits for a running OnEvent, so an OnEvent must not call Close.
// The store stays open: it belongs to the host, which closes it after the Service. The error is
// always nil.
func (s *Service) Close() error {
	if s.work != nil {
		s.work.End()
	}
	return nil
}

// shared holds what a Service shares with its copies for transactions of the host. All of it must
// be safe for concurrent use, and must hold nothing that a rollback would make wrong.
type shared struct {
	compiler *policy.Compiler
	keys     *keyring.Ring
	sealer   *seal.Sealer
	failing  *failing
	checks   *checks
}

// keptKeys is the number of keys to cache if the host sets no number.
const keptKeys = 1 << 16

// check returns an error that names a wrong field, or one that needs a role that the store lacks.
func (c *Config) check(store roles) error {
	edits := c.Templates.LocalEdits
	switch {
	case edits != "" && !edits.known():
		return errors.New("svc: Config.Templates.LocalEdits must be conflict, overwrite or merge")
	case c.Keys.Cached < 0:
		return errors.New("svc: Config.Keys.Cached must not be negative")
	case c.Keys.MaxPerHolder < 0:
		return errors.New("svc: Config.Keys.MaxPerHolder must not be negative")
	case c.Events.Keep && store.audit == nil:
		return errors.New("svc: Config.Events.Keep needs a Store that implements svc.AuditStore")
	}
	return nil
}

func newRing(config KeyConfig) (*keyring.Ring, error) {
	rules := keyring.Config{Prefixes: []keyring.Prefix{
		{Field: "UserPrefix", Kind: string(KindUser), Text: cmp.Or(config.UserPrefix, "svcu_")},
		{Field: "ServiceAccountPrefix", Kind: string(KindServiceAccount),
			Text: cmp.Or(config.ServiceAccountPrefix, "svcs_")},
	}}
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
func newSealer(config SourceConfig) (*seal.Sealer, error) {
	if config.SealingKey == nil && len(config.OldSealingKeys) == 0 {
		return nil, nil
	}
	if config.SealingKey == nil {
		return nil, errors.New("svc: Config.Sources.OldSealingKeys: set SealingKey too")
	}
	sealer, err := seal.New(config.SealingKey)
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

// assemble gives each noun the parts that it needs. Service and all nouns share one base, so a
// noun that commits drops what the others have cached. It starts nothing.
func assemble(config Config, b *base, of shared) *Service {
	g, c := &guard{b, of.compiler}, &contents{config.Templates.ValidateManifest}
	j := &journal{b, config.Events.Keep, config.OnEvent, of.keys.AnswerKeys()}
	up := &upstreams{b, j, c, config.Marketplace, of.sealer, of.failing}
	reader := newTemplateReader(b, config.Templates.Cached)
	rosters := newRosters(g, cmp.Or(config.Limits.CachedAccess, cachedAccess))
	installs := newInstalls(b, of.checks)
	r := &rings{b, of.keys}
	h := &holders{b, g, j, r, config.Keys.MaxPerHolder, config.KnownUser}
	return &Service{
		Templates: &Templates{b, g, j, c, up, reader, installs, config.Templates.LocalEdits},
		Sources:   &Sources{b, g, j, c, up, reader, installs},
		Keys:      &Keys{h},
		Policies:  &Policies{g, rosters},
		Access:    &Access{b, g, j, rosters},
		Audit:     &Audit{g, config.Events.Keep},
		base:      b, guard: g, config: config, shared: of,
		callers: &authenticator{
			base: b, guard: g, rings: r, host: config.Authenticator, uses: &keyUses{},
		},
	}
}

// start begins the background work, or prepares it for its first use. So a Service that never
// accepts a key never writes key uses. Copies for transactions of the host are not started: they
// deliver nothing, cache no templates and record no uses.
func (s *Service) start(work *tasks.Group) {
	reader, callers, journal := s.Templates.templateReader, s.callers, s.Templates.journal
	s.work = work
	reader.follow = sync.OnceFunc(func() { work.Start(reader.kept.Run) })
	callers.writeUses = sync.OnceFunc(func() { work.Start(callers.flush) })
	if journal.onEvent != nil && s.roles.outbox != nil {
		work.Start(journal.deliver)
	}
}

// hostMay is the decision about [Host] on every bank. It is made once: Decide must not allocate.
var hostMay = Decision{policy.Always("allowed: the host application may do everything")}
