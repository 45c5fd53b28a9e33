// Package svc is the administration, template-marketplace and API-key service of a Go application, as a library.
//
// A host builds one [Service] over a [Store], mounts package httpapi under /ext/svc, and has:
//
//   - policies: [Policies.Resolve] decides what a user, a service account or an unmapped sender may do on a bank (one
//     memory store), with which parameters, and says why, statement by statement;
//   - sources: trusted addresses from which templates may be installed;
//   - templates: a catalogue to list, create, read, patch and delete, to install from a source and to keep up to date;
//   - API keys: issued, listed without their secret, rotated, disabled, revoked; [Service.Authenticate] accepts them as bearers.
//
// The parts, and who does what:
//
//	httpapi ──► svc ◄── store/memstore, store/sqlstore      a Store persists, filters, sorts and keeps uniqueness
//	             ▲  ◄── store/sqlite, store/postgres        open a database with a driver, for sqlstore
//	             └───── marketplace                         a Marketplace fetches catalogues, guarded
//
// The Service authorizes, validates, stamps, decides and records: no rule lives anywhere else. Every method that acts
// takes the caller as a [Principal] and authorizes it; a host's own code passes [Host]. Every failure is an [*Error]
// with a stable [Code]. Every mutation tells [Config].OnEvent after it is committed.
//
// A host brings its own bearers with an [Authenticator], its own database with a [Store] (package storetest is the
// contract), its own logger and clock with [Config]. Users belong to the host: a user needs no row here until it is
// given rights, which [Access.Apply] writes as one [Bundle].
//
// All methods of a Service are safe for concurrent use.
package svc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc/internal/errorlog"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/seal"
	"github.com/extsvc/svc/internal/tasks"
)

// Config is what a [Service] is built from. Store is required; the zero value of every other field works.
type Config struct {
	// Store keeps everything. Required.
	Store Store
	// Marketplace fetches templates from sources. Nil: no source can be registered or asked.
	Marketplace Marketplace
	// Authenticator is asked about every bearer that is not a key issued here. Nil: only issued keys are accepted.
	Authenticator Authenticator
	// KnownUser tells whether the host has a user of that id: an unknown one gets no keys. It is
	// asked before a key is issued, imported, rotated, enabled or given another end, on all ways
	// but for [Host]. Listing, disabling and revoking do not ask it, nor does Authenticate: the
	// keys of a user who has left are good until they are revoked. Nil: every id is a user's. It is
	// called concurrently.
	KnownUser func(ctx context.Context, id string) (bool, error)
	// OnEvent is told of every mutation but [Sources.Reseal], after its commit and before the method returns, in the
	// caller's goroutine and concurrently. Nil: nobody is told.
	OnEvent func(ctx context.Context, event Event)
	// Logger gets warnings and faults, never a secret. Nil: records of [slog.LevelError] go to [slog.Default], the others
	// are dropped.
	Logger *slog.Logger
	// Now is the clock; times are kept in UTC, to the microsecond. Nil: [time.Now].
	Now func() time.Time

	Keys      KeyConfig
	Sources   SourceConfig
	Templates TemplateConfig
	Events    EventConfig
}

// KeyConfig is how API keys are made and stored.
type KeyConfig struct {
	// UserPrefix and ServiceAccountPrefix start every key: "" means "svcu_" and "svcs_". One to 16 of a–z, 0–9
	// and _, ending in _, neither of them the start of the other. Changing one makes the keys issued before unusable.
	UserPrefix, ServiceAccountPrefix string
	// Peppers are the secrets under which keys are hashed: the first for new keys, all of them for checking.
	// None: keys are hashed without one, which a warning at the start says.
	Peppers []Pepper
	// Imports are the keys of other systems that [Keys.Import] takes over. None: only keys issued here are accepted.
	Imports []KeyImport
	// MaxPerHolder is how many keys a user or a service account has at most: all that are
	// listed, so expired and disabled ones as well, and no revoked ones. One more answers
	// [CodeLimit], to [Host] as well. A holder that has more already keeps them. The limit holds
	// exactly when all processes have the same. Each issued key costs a count up to it, in an
	// index. 0: [DefaultMaxKeysPerHolder]. Not negative.
	MaxPerHolder int
	// Cached is how many keys, at least, are kept in memory for checking; 0: 65,536. Each takes about 130 bytes, of a million 110, once it is
	// used, and no time of the garbage collector. As many holders are kept with them, at least 16,384 and at most 65,536, which take some
	// 500 bytes each and more with rights of their own.
	Cached int
}

// Pepper is one version of the secret under which keys are hashed. It is kept apart from the database: who
// reads only the database can neither test a guess nor make up an id that reaches the store. The zero Pepper stands for
// none: in a list, it accepts the keys that were issued before there was one.
type Pepper struct {
	Version string // names it in each key's row: 1 to 32 characters, never reused for another Secret
	Secret  []byte `json:"-"` // at least 16 bytes
	// Retired says that keys under this pepper are not accepted any more. Those that were hashed anew under the first pepper,
	// as every key is that is used while both are in the list, stay good. Its Secret is needed no longer. The first is
	// never Retired.
	Retired bool
	// AcceptUnsealed says that keys under this pepper whose rows have no seal are accepted, and sealed when they are used: for a pepper
	// that was in use before rows were sealed. Whoever can write the database can then take the seals away, and change whose
	// the keys are.
	AcceptUnsealed bool
}

// SourceConfig is how sources are kept.
type SourceConfig struct {
	// SealingKey encrypts the access tokens of sources at rest: 32 bytes. Nil: registering a token is refused.
	SealingKey []byte `json:"-"`
	// OldSealingKeys open what was sealed before SealingKey was changed; nothing is sealed under them. 32 bytes each, no key
	// twice, and none without a SealingKey. [Sources.Reseal] makes them needless. Nil: SealingKey is the only key.
	OldSealingKeys [][]byte `json:"-"`
}

// TemplateConfig is how templates are checked and kept.
type TemplateConfig struct {
	// ValidateManifest is the host's own check of a manifest, beside the built-in one. What its error says is shown
	// to the caller: that of an [*Error] at its Field, a JSON pointer into the manifest ("/steps/0", "" the whole); joined
	// errors ([errors.Join]) are shown all. It must be pure and may be called concurrently. Nil: every manifest with a version
	// is good.
	ValidateManifest func(manifest json.RawMessage) error
	// LocalEdits is what an update does with what was edited here. "": [EditsConflict].
	LocalEdits LocalEdits
	// Cached is how many bytes of the server's templates are kept in memory for reading them, at most, and twice as many while they
	// are read anew; 0: none. When all have room, [Templates.Read], [Templates.List] and [Templates.ListAfter] need no call
	// of the store, and return what is shared with other callers: it must not be changed. When not, each call reads the store. What this
	// process writes counts at once, what others write, or a transaction of the host, within a second or so (PostgreSQL:
	// milliseconds). When the store has not been reached for 5 seconds, each call reads it.
	Cached int
}

// EventConfig is what becomes of events, beside OnEvent.
type EventConfig struct {
	// Keep writes a record of each event in the transaction of its mutation, which fails when that cannot be written:
	// [Audit.Records] lists them. What a process has found out about a source is no mutation, and not kept.
	Keep bool
}

// Service is svc: its nouns, and what a host calls on every request. Use [New].
type Service struct {
	Templates *Templates // the server's catalogue of templates
	Sources   *Sources   // the server's trusted marketplace sources
	Keys      *Keys      // API keys of users and service accounts
	Policies  *Policies  // questions about access: who may do what, and why
	Access    *Access    // users, groups, policies and what else decides access
	Audit     *Audit     // the events that were kept

	*base
	guard   *guard
	journal *journal
	callers *authenticator
	work    *tasks.Group // nil: works in a transaction of the host
}

// base is what all parts of a Service work with.
type base struct {
	config      Config
	store       Store
	compiler    *policy.Compiler
	copies      *copies // nil: works in a transaction of the host (see WithStore), and reads the store at each call
	followStore func()  // starts the follower of the store, once
}

// New returns a Service over config, or an error that names the field that is missing or wrong. It works without the
// store's being reachable. Where there is an OnEvent it starts delivering what is in the outbox, and with the first decision it
// starts following what others write, and with the first key that is accepted writing when keys were used, until [Service.Close].
func New(config Config) (*Service, error) {
	if config.Store == nil {
		return nil, errors.New("svc: Config.Store is required")
	}
	config.Logger = errorlog.Or(config.Logger)
	if config.Now == nil {
		config.Now = time.Now
	}
	config.Keys.MaxPerHolder = cmp.Or(config.Keys.MaxPerHolder, DefaultMaxKeysPerHolder)
	if edits := config.Templates.LocalEdits; edits != "" && !edits.known() {
		return nil, errors.New("svc: Config.Templates.LocalEdits must be conflict, overwrite or merge")
	}
	if config.Keys.Cached < 0 {
		return nil, errors.New("svc: Config.Keys.Cached must not be negative")
	}
	if config.Keys.MaxPerHolder < 0 {
		return nil, errors.New("svc: Config.Keys.MaxPerHolder must not be negative")
	}
	if config.Templates.Cached < 0 {
		return nil, errors.New("svc: Config.Templates.Cached must not be negative")
	}
	compiler := policy.NewCompiler()
	b := &base{
		config: config, store: config.Store, compiler: compiler,
		copies: newCopies(cmp.Or(config.Keys.Cached, keptKeys), config.Templates.Cached, compiler.Budget()),
	}
	keys, err := newKeyring(config.Keys)
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
	s := assemble(b, &rings{base: b, keys: keys, complete: &atomic.Pointer[keyring]{}}, sealer, &failing{}, &checks{})
	s.start()
	return s, nil
}

// start begins the background work, or prepares it for when it is needed first.
func (s *Service) start() {
	work, shelf, callers := tasks.NewGroup(s.config.Logger), s.Templates.shelf, s.callers
	s.work = work
	s.followStore = sync.OnceFunc(func() { work.Start(s.follow) })
	shelf.copyTemplates = sync.OnceFunc(func() { work.Start(shelf.keepTemplates) })
	callers.writeUses = sync.OnceFunc(func() { work.Start(callers.flush) })
	if s.config.OnEvent != nil {
		work.Start(s.journal.deliver)
	}
}

// assemble gives each noun the parts that it needs.
func assemble(b *base, r *rings, sealer *seal.Sealer, failing *failing, checks *checks) *Service {
	g, j, c := &guard{b}, &journal{base: b, answerKeys: r.keys}, &contents{b.config.Templates.ValidateManifest}
	up := &upstreams{base: b, journal: j, contents: c, sealer: sealer, failing: failing}
	shelf, installs := &shelf{base: b}, &installs{base: b, checks: checks}
	return &Service{
		Templates: &Templates{b, g, j, c, up, shelf, installs},
		Sources:   &Sources{b, g, j, c, up, shelf, installs},
		Keys:      &Keys{b, g, j, r, &holders{b, g, j, r}},
		Policies:  &Policies{b, g},
		Access:    &Access{b, g, j},
		Audit:     &Audit{b, g},
		base:      b, guard: g, journal: j,
		callers: &authenticator{base: b, guard: g, rings: r, uses: &keyUses{}},
	}
}

// WithStore returns a Service that works on store, which belongs to one transaction of the host
// (package sqlstore has one: Tx), so that a key is issued if and only if the host's own row is
// written. What it does is seen by others after the host's commit, and as if another process had
// done it. Its events go into the outbox of the same transaction; the Service that it was made from
// delivers them after the commit, within about a second, at least once: an [Event]'s ID tells a
// second delivery. The copy ends with the transaction and needs no Close. When a method of it fails
// with anything but a refusal ([CodeInvalid], [CodeUnauthenticated], [CodeForbidden],
// [CodeNotFound], [CodeExists], [CodeLimit], [CodeEdited], [CodePrecondition], [CodeSourceMoved],
// [CodeKeyReused]), roll the transaction back.
func (s *Service) WithStore(store Store) *Service {
	b := &base{config: s.config, store: store, compiler: s.compiler}
	up, r := s.Sources.upstreams, s.Keys.rings
	return assemble(b, &rings{b, r.keys, r.complete}, up.sealer, up.failing, s.Templates.installs.checks)
}

// Close ends the Service's background work, and returns when it has ended, after writing when keys were used last; calling it again
// does nothing. It waits for an OnEvent that is being told, which therefore must not call it. The store stays open: it is the host's, to be
// closed after the Service.
func (s *Service) Close() error {
	if s.work != nil {
		s.work.End()
	}
	return nil
}

// Ping asks the store whether it can be read, for a health check: it says nothing of sources, nor whether the store can be written.
// Errors: CodeUnavailable, CodeInternal.
func (s *Service) Ping(ctx context.Context) error {
	_, err := s.store.Changes(ctx, math.MaxInt64)
	return fault("reach the store", err)
}

// now is the time that is stamped on rows and events.
func (s *base) now() time.Time { return s.config.Now().UTC().Truncate(time.Microsecond) }
