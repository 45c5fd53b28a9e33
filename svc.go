// Package svc is a library for the administration of a Go server: access policies, templates, API
// keys.
//
// A host builds one [Service] over a [Store], mounts package httpapi under /ext/svc, and calls the
// nouns of the Service. These are the methods that a host meets first:
//
//   - service.Templates, the server's catalogue of templates: Install, List, Read, CheckUpdate and
//     Update ([Templates]); service.Sources, the trusted addresses to install them from: Register,
//     List, Browse, Search and Remove ([Sources]). service.MyTemplates and service.MySources are
//     the caller's own;
//   - service.Keys, the API keys of users and service accounts, listed without their secret: Issue,
//     List, Patch, Rotate and Revoke ([Keys]);
//   - service.Policies, the policies, and what a user, a service account or an unmapped sender may
//     do on a bank (one memory store), and why: Resolve, WhoCan, WhatCan, Simulate, Create and
//     Attach ([Policies]);
//   - service.Users, service.Groups, service.ServiceAccounts and service.Banks, the other rows of
//     access ([Users], [Groups], [ServiceAccounts], [Banks]), and service.Access, all of them as
//     bundles: Apply, Write, Preview and Export ([Access]). [ParseBundle], [Diff] and [Lint] need
//     no Service;
//   - service.Audit, the events that the Service keeps: Records and Verify ([Audit]).
//
// On each request the host calls the Service itself. [Service.Authenticate] finds the caller of a
// bearer, and [Service.Accept] checks one that the host found, in a session for example.
// [Service.Decide] says whether the caller may do an action on a bank.
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
// mutation to [EventConfig].OnEvent after its commit. All its methods are safe for concurrent use.
//
// A host brings its own bearers with an [Authenticator], its own parameters of policies (package
// parameter), its own database with a [Store] (package storetest checks the contract), and its own
// logger and clock with [Config]. Users belong to the host. A user needs no row here until the host
// gives it rights. [Service.ForgetUser] removes all that is of a user who leaves.
package svc

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc/internal/aead"
	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/defaultlog"
	"github.com/extsvc/svc/internal/fairqueue"
	"github.com/extsvc/svc/internal/keyring"
	"github.com/extsvc/svc/internal/outbox"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/readcache"
	"github.com/extsvc/svc/internal/semaphore"
	"github.com/extsvc/svc/internal/sequencer"
	"github.com/extsvc/svc/internal/tally"
	"github.com/extsvc/svc/parameter"
)

// Service holds the nouns of svc, and the methods that a host calls on every request. Use [New].
// Several Services, in one process or in many, may share a database, each with its own cache.
type Service struct {
	Templates, MyTemplates *Templates // the server's catalogue of templates; the caller's own
	Sources, MySources     *Sources   // the server's trusted marketplace sources; the caller's own
	Keys                   *Keys      // API keys of users and service accounts
	Policies               *Policies  // policies; who may do what, and why
	Users                  *Users     // users, and the senders that are mapped to them
	Groups                 *Groups    // groups and their members
	// ServiceAccounts has those of all users, MyServiceAccounts the caller's own.
	ServiceAccounts, MyServiceAccounts *ServiceAccounts
	Banks                              *Banks  // the policies of banks
	Access                             *Access // all rows of access, as bundles
	Audit                              *Audit  // the events that the Service keeps

	*base
	guard   *authorizer
	callers *authenticator
	config  Config
	shared  shared
	closed  atomic.Bool
}

// New returns a Service over config, or an error that names the missing or wrong field. It does not
// contact the store.
//
// The Service works in the background until [Service.Close]. It delivers the events in the outbox
// ([EventConfig]), follows the writes of other processes from the first decision on, and records
// when keys are used.
func New(config Config) (*Service, error) {
	if config.Store == nil {
		return nil, errors.New("svc: Config.Store is required")
	}
	s, err := newService(config, Tenant{}, fairqueue.OfProcessors())
	if err == nil && config.Keys.unpeppered() {
		s.log.Warn(noPepper)
	}
	return s, err
}

// newService returns the Service of a tenant; a zero one: of none. All tenants share analyses.
func newService(config Config, tenant Tenant, analyses *fairqueue.Queue) (*Service, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	config.Keys.MaxPerHolder = cmp.Or(config.Keys.MaxPerHolder, DefaultMaxKeysPerHolder)
	roles := rolesOf(config.Store)
	if config.Events.Keep && roles.audit == nil {
		const problem = "svc: Config.Events.Keep needs a Store that implements svc.AuditStore"
		return nil, errors.New(problem)
	}
	keys, badKeys := newRing(config.Keys)
	sealer, badSources := newSealer(config.Sources)
	schema, badParameters := schemaOf(config.Parameters)
	if err := cmp.Or(config.check(), badKeys, badSources, badParameters); err != nil {
		return nil, err
	}
	config.Logger = defaultlog.Masked(config.Logger, keys.Mask)
	b := &base{
		store: config.Store, roles: roles, tenant: tenant.Name, log: config.Logger,
		clock: config.Now, readOnly: config.ReadOnly, refuses: func(bool) error { return nil },
		work: background.NewGroup(config.Logger),
	}

	chains := newChains(config.Events.Keep, b.tenant, roles.audit, b.log)
	compiler := policy.NewCompiler(schema)
	b.cached = readcache.New(
		cmp.Or(config.Memory.Keys, keptKeys), compiler.Budget(), feed{b},
		func(follow func(context.Context)) { b.work.Start(follow) },
	)
	s := assemble(config, b, shared{
		compiler, keys, sealer, &sourceHealth{}, &checkCache{}, tenant, chains, &tally.Tally{},
		analyses, Decision{compiler.Always("allowed: the host application may do everything")},
	})
	s.start()
	return s, nil
}

// WithTx returns a Service that works on store, which belongs to one transaction of the host, such
// as that of sqlstore.Tx. Others see the changes after the host's commit, as the changes of another
// process.
//
// Events go into the outbox of the same transaction. The original Service delivers them after the
// commit, within about a second and at least once: the ID of an Event identifies a second delivery.
// Every mutation fails (CodeInternal) and writes nothing when the store is in the PostgreSQL schema
// of another tenant or, with an OnEvent, is no [OutboxStore].
//
// The copy ends with the transaction and needs no Close. When one of its methods fails, roll the
// transaction back, unless the error is a refusal: CodeInvalid, CodeUnauthenticated, CodeForbidden,
// CodeReadOnly, CodeNotFound, CodeExists, CodeLimit, CodeInUse, CodeBuiltin, CodeLastAdministrator,
// CodeTooComplex, CodeEdited, CodePrecondition, CodeSourceMoved or CodeKeyReused.
func (s *Service) WithTx(store Store) *Service {
	b := &base{
		store: store, roles: rolesOf(store), tenant: s.tenant, log: s.log, clock: s.clock,
		readOnly: s.readOnly, inTransaction: true, refuses: s.refusesIn(store),
	}
	return assemble(s.config, b, s.shared)
}

// Authenticate returns the principal of a bearer token, without "Bearer ". An issued key belongs to
// its holder; the host's [Authenticator] decides about every other bearer.
//
// A cached key costs no store call, a key that is not cached costs one, and an invented key of the
// Service's own form costs none. An accepted key is recorded as used, some seconds later. The cache
// follows changes as that of [Service.Decide] does.
//
// Errors: CodeUnauthenticated, always with the same message, when the bearer has no principal or an
// inactive one; CodeUnavailable when the Service cannot decide at present.
func (s *Service) Authenticate(ctx context.Context, bearer string) (Principal, error) {
	if err := s.refuses(true); err != nil {
		return Principal{}, err
	}
	return s.callers.authenticate(ctx, bearer)
}

// Accept checks a principal that the host found without a bearer, in a session for example, as
// [Service.Authenticate] checks an Authenticator's. Call it on every request. Most calls make no
// store call. The principal is a user or a service account and needs no row. It must not come from
// Authenticate: a session would outlive the key of such a principal.
//
// Errors: CodeUnauthenticated for an inactive principal; CodeInternal for a principal of another
// kind, with an impossible id or pattern of Actions, or from Authenticate.
func (s *Service) Accept(ctx context.Context, p Principal) error {
	if p.key != "" {
		return fault("authenticate", errors.New("the host returned the principal of an API key"))
	}
	if err := s.refuses(true); err != nil {
		return err
	}
	return s.callers.acceptPrincipal(ctx, p)
}

// Decide decides whether a principal may do an action on a bank, and with which parameters, as
// [Policies.Resolve] does. Call it for every request that a host serves. It answers from the cache,
// so most calls take well under a microsecond and make no store call.
//
// Changes by this Service count immediately. Those by any other do so where the store is a
// [FreshnessStore] such as SQLite's; they count within milliseconds on PostgreSQL, and else within
// about a second. When the store was not reached for 5 seconds, each call reads it.
//
// A user without a row has no stored rights. On bank "*", what the host vouches for
// ([Principal].Actions) counts as well. An error never means allow: CodeInvalid (the zero
// Principal, no action or a pattern, an impossible bank), CodeUnavailable.
func (s *Service) Decide(
	ctx context.Context, p Principal, action, bank string, in Context,
) (Decision, error) {
	d, err := s.decide(ctx, p, action, bank, in)
	if err != nil {
		return d, err
	}
	s.shared.counts.Count(d.Allowed())
	if s.config.Events.OnDecision != nil {
		event := DecisionEvent{p, action, bank, in, d.Outcome(), s.tenant, d.of}
		s.config.Events.OnDecision(ctx, event)
	}
	return d, nil
}

// decide is Decide, not yet counted. Answers from the cache must not allocate.
func (s *Service) decide(
	ctx context.Context, p Principal, action, bank string, in Context,
) (d Decision, err error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, fault("decide", err)
	}
	if err := s.decidable(p, action); err != nil {
		return Decision{}, err
	}
	if p.Kind == KindHost {
		return s.shared.hostMay, nil
	}
	isHolder := func(h *readcache.Holder) bool {
		return h.ID == p.ID && h.Kind == policy.Kind(p.Kind) && h.NarrowedBy == p.ScopingPolicyID
	}
	now, known := s.cached.Again(&d.of, p.ID, isHolder, action, bank, (*policy.Context)(&in))
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

// May is [Service.Decide] in short, in no particular channel: whether a principal may do an action
// on a bank. It is false with an error.
func (s *Service) May(ctx context.Context, p Principal, action, bank string) (bool, error) {
	d, err := s.Decide(ctx, p, action, bank, Context{})
	return err == nil && d.Allowed(), err
}

// decidable refuses a question that is a mistake of the host's code.
func (s *Service) decidable(p Principal, action string) error {
	switch {
	case s.closed.Load():
		return &Error{Code: CodeUnavailable, Message: "the service is closed"}
	case p.Kind == "":
		return Invalid("principal", "must have a Kind, such as svc.KindUser")
	case action == "":
		return Invalid("action", "is required")
	case action[len(action)-1] == '*':
		return Invalid("action", notAnAction)
	}
	return nil
}

// KeepsAnswers reports whether requests may have an idempotency key: the store is an [AnswerStore].
func (s *Service) KeepsAnswers() bool { return s.roles.answers != nil }

// Ping says, for a health check, whether the store can be read. It checks no writes, no sources.
func (s *Service) Ping(ctx context.Context) error {
	_, err := s.store.Changes(ctx, math.MaxInt64)
	return fault("reach the store", err)
}

// Stats returns figures for metrics, none of which needs a label. It makes one call of the store,
// which counts the outbox, and waits at most a second for it.
func (s *Service) Stats() Stats {
	following := s.cached.Stats()
	stats := Stats{
		CacheBytes: s.memory(), CacheReads: following.Reads, Following: following.Seen,
		Age: following.Age, Lag: following.Lag, OutboxWaiting: -1,
	}
	stats.Decisions, stats.Denials = s.shared.counts.Counts()
	if s.roles.stats == nil {
		return stats
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	stats.Listening = s.roles.stats.Hears()
	if waiting, err := s.roles.stats.CountEvents(ctx, maxOutboxWaiting); err == nil {
		stats.OutboxWaiting = waiting
	}
	return stats
}

// ForgetUser is [Users.Delete], for a host that owns its users: call it when a user leaves, also in
// a transaction of the host. CodeNotFound: nothing was left of the user.
//
// It also erases, in the same transaction, the rows of the user and of its service accounts from
// the records, those of this call included. Ids stay: [Audit.Forget] replaces them. Until the
// transaction ends, [Audit.Records] waits, but no mutation does.
func (s *Service) ForgetUser(ctx context.Context, by Principal, id string) error {
	return s.Users.delete(ctx, by, id, id, nil)
}

// Close ends the background work, records the last uses of keys, and returns when all has ended.
// After it, Decide returns CodeUnavailable, and nothing follows the store: close the Service when
// the server has ended. A second call does nothing. Close waits for an OnEvent with an event of the
// outbox, and a few more: some seconds, or one OnEvent long. So an OnEvent must not call Close. The
// host closes the store after the Service. The error is always nil.
func (s *Service) Close() error {
	s.closed.Store(true)
	if s.work != nil {
		s.work.End()
	}
	return nil
}

// Parameters returns those of the configuration, or of AI memory. The caller owns them.
func (s *Service) Parameters() []parameter.Definition {
	return s.shared.compiler.Schema().Parameters()
}

// Tenant returns the tenant whose Service this is, as it was when it was opened ([Tenants]). Zero:
// none.
func (s *Service) Tenant() Tenant { return s.shared.tenant }

// memory estimates the bytes that the caches hold.
func (s *Service) memory() int64 {
	templates := s.Templates.bytes() + s.Templates.installedCache.kept.Bytes()
	return s.shared.compiler.Budget().Used() + s.cached.Bytes() + templates +
		s.shared.checks.memory() + s.Access.accessCache.bytes()
}

// giveBack empties the caches.
func (s *Service) giveBack() {
	s.cached.Reset()
	s.Access.accessCache.release()
	s.shared.checks.release()
	s.shared.compiler.Budget().Empty()
}

// shared holds what a Service shares with its copies for transactions of the host. All of it must
// be safe for concurrent use, and must hold nothing that a rollback would make wrong.
type shared struct {
	compiler *policy.Compiler
	keys     *keyring.Ring
	sealer   *aead.Sealer
	failing  *sourceHealth
	checks   *checkCache
	tenant   Tenant
	chains   *sequencer.Sequencer // nil: no events are kept
	counts   *tally.Tally         // of decisions
	analyses *fairqueue.Queue
	hostMay  Decision // about [Host] on every bank: Decide must not allocate it
}

// feed tells the cache what has changed in the store. It turns the targets of commits, of any
// process, into the values to drop.
type feed struct{ *base }

func (f feed) Next(ctx context.Context, since int64) (readcache.Changes, error) {
	next, err := f.changes(ctx, since)
	return readcache.Changes{
		Generation: next.Generation, Reset: next.Reset,
		Drop: func() { f.drop(next.Targets, next.Generation) },
	}, err
}

// Look looks at the store, where that is cheap.
func (f feed) Look(ctx context.Context) (uint64, error) {
	if f.roles.look == nil {
		return 0, nil
	}
	return f.roles.look.Look(ctx)
}

func (f feed) AwaitChange(ctx context.Context, since int64) error {
	return f.store.AwaitChange(ctx, since)
}

// assemble gives each noun the parts that it needs. Service and all nouns share one base, so a
// noun that commits drops what the others have cached. It starts nothing.
func assemble(config Config, b *base, of shared) *Service {
	g, c := &authorizer{b, of.compiler}, &contentChecker{config.Templates.ValidateManifest}
	j := &committer{
		base: b, keep: config.Events.Keep, onEvent: config.Events.receiver(),
		answerKeys: of.keys.AnswerKeys(), chains: of.chains, forgets: forgetUser,
	}
	up := &upstreams{b, j, c, config.Sources.Marketplace, of.sealer, of.failing}
	reader := newTemplateReader(b, config.Memory.Templates)
	rows := newAccessCache(g, cmp.Or(config.Memory.Access, cachedAccess), of.analyses)
	installs := newInstalls(b)
	r := &keyHasher{b, of.keys}
	edits := config.Templates.LocalEdits
	h := &keyIssuer{
		b, g, j, r, config.Keys.MaxPerHolder, config.Keys.IgnoreExpired, config.Users.Known,
		config.Users.AreRows,
	}
	j.callers = h
	callers := &authenticator{
		base: b, authorizer: g, keyHasher: r, host: config.Authenticator,
		uses: &keyring.Uses[newHash]{},
	}
	if config.Users.RequireKnown {
		callers.known = newKnownUsers(config.Users.Known)
	}
	d := &accessWriter{b, g, j, r, rows, make(semaphore.Semaphore, 1)}
	return &Service{
		Templates: &Templates{b, &scoped{g, false}, j, c, up, reader, installs, of.checks, edits},
		Sources:   &Sources{b, &scoped{g, false}, j, c, up, reader, installs},
		MyTemplates: &Templates{
			b, &scoped{g, true}, j, c, up, newTemplateReader(b, -1), installs, of.checks, edits,
		},
		MySources: &Sources{b, &scoped{g, true}, j, c, up, reader, installs},
		Keys:      &Keys{h, callers, newIssuer(h)},
		Policies:  &Policies{d},
		Users:     &Users{d}, Groups: &Groups{d},
		ServiceAccounts:   &ServiceAccounts{accessWriter: d},
		MyServiceAccounts: &ServiceAccounts{d, true},
		Banks:             &Banks{d, config.Templates.Banks},
		Access:            &Access{d},
		Audit:             &Audit{g, config.Events.Keep},
		base:              b, guard: g, config: config, shared: of, callers: callers,
	}
}

// start begins the background work, or prepares it for its first use. So a Service that never
// accepts a key never writes key uses. Copies for transactions of the host are not started: they
// deliver nothing, cache no templates and record no uses. The Tenants deliver for a tenant.
func (s *Service) start() {
	reader, callers, journal := s.Templates.templateReader, s.callers, s.Templates.committer
	reader.follow = sync.OnceFunc(func() { s.work.Start(reader.kept.Run) })
	callers.writeUses = sync.OnceFunc(func() { s.work.Start(callers.flush) })
	if s.readOnly {
		return
	}
	delivers := journal.onEvent != nil && !s.config.Events.NoDelivery
	if s.tenant == "" && delivers && s.roles.outbox != nil {
		s.work.Start(journal.delivery().Run)
	}
	if journal.chains != nil {
		s.work.Start(journal.chains.Run)
	}
}

// Decision is the answer to one request. It is immutable and cheap to copy, and may be used by
// several goroutines. The zero Decision is a denial.
type Decision struct{ of policy.Decision }

// Allowed reports whether the principal may do the action.
func (d Decision) Allowed() bool { return d.of.Allowed() }

// Outcome distinguishes a denial by a statement from one without an allowing statement.
func (d Decision) Outcome() Outcome { return Outcome(d.of.Outcome()) }

// Reason is one sentence for a person, made at each call.
func (d Decision) Reason() string { return d.of.Reason() }

// Parameters returns a copy of the parameters of the allowed action. They are zero in a denial.
func (d Decision) Parameters() Parameters {
	return parametersOf(d.of.Schema(), d.of.Parameters(), true)
}

// Parameter returns one parameter, as [Parameters.Value] does. The caller owns it.
func (d Decision) Parameter(name string) (value any, ok bool) {
	value = policy.Plain(d.of.Parameter(name))
	return value, value != nil
}

// Strategy returns the retain strategy in force: the principal's own, else that of the bank policy.
// ok is false when there is none, or when the action is denied.
func (d Decision) Strategy() (strategy string, ok bool) { return d.of.Strategy() }

// delivery delivers outbox events to the host.
func (s *committer) delivery() outbox.Delivery[Event] {
	return outbox.Delivery[Event]{
		Store: s.roles.outbox, Now: s.now, ID: func(e Event) uuid.UUID { return e.ID },
		Tell: func(ctx context.Context, e Event) (told bool) { // when OnEvent ends its goroutine: false
			if err := background.Call(func() error { told = s.tell(ctx, e); return nil }); err != nil {
				s.log.ErrorContext(ctx, "svc: Config.Events.OnEvent has ended its goroutine",
					"event", e.ID, "action", e.Action)
			}
			return told
		},
		Report: background.Reporter(s.log, "deliver events from the outbox"),
	}
}
