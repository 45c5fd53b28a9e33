package svc

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc/internal/copies"
	"github.com/extsvc/svc/internal/keyring"
	"github.com/extsvc/svc/internal/seal"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/internal/tasks"
)

// base is what all parts of a Service work on. One base belongs to one Store: a Service and its
// nouns share one, and each [Service.WithStore] makes another.
type base struct {
	store         Store
	roles         roles  // of store
	tenant        string // whose Service this is; "": of none
	log           *slog.Logger
	clock         func() time.Time
	inTransaction bool           // the store belongs to a transaction of the host
	copies        *copies.Copies // nil in a transaction of the host: each call reads the store
	drops         []func(changed Target, generation int64)
}

// now returns the time to stamp on rows and events. Stores keep microseconds: with a finer time, a
// row that was just written would differ from the same row when it is read again.
func (s *base) now() time.Time { return s.clock().UTC().Truncate(time.Microsecond) }

// onChange makes drop forget what is cached of a target that changed at a generation or earlier.
//
// Call it while the Service is assembled: no lock guards the list. Mutations and the follower of
// the store call drop concurrently, so it must be quick, safe for that, and do no I/O.
func (s *base) onChange(drop func(changed Target, generation int64)) {
	s.drops = append(s.drops, drop)
}

// forget drops cached rows that changed. Calls also use it for targets that the store shows to be
// changed by another call, which may not have dropped them yet. It runs after the commit and before
// the method returns: so after its answer, no call of this process gets an older value.
func (s *base) forget(targets ...Target) { s.drop(targets, math.MaxInt64) }

// drop forgets cached rows of targets that changed at a generation or earlier. The generation of an
// own commit is not known here; forget passes the greatest, which spares no cached value.
func (s *base) drop(targets []Target, generation int64) {
	var changed copies.Changed
	for _, t := range targets {
		t.mark(&changed)
		for _, drop := range s.drops {
			drop(t, generation)
		}
	}
	s.copies.Drop(changed)
}

// feed tells the cache what has changed in the store. It turns the targets of commits, of any
// process, into the values to drop.
type feed struct{ *base }

func (f feed) Next(ctx context.Context, since int64) (copies.Changes, error) {
	next, err := f.changes(ctx, since)
	return copies.Changes{
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

const seeTimeout = 5 * time.Second // for one look at the store

// changes asks the store for changes, with a timeout: an unreachable store may never answer.
func (s *base) changes(ctx context.Context, since int64) (StoreChanges, error) {
	ctx, cancel := context.WithTimeout(ctx, seeTimeout)
	defer cancel()
	return s.store.Changes(ctx, since)
}

// journal commits changes and reports their events. Every mutation with an event goes through
// commit: no other function writes records or calls OnEvent for it.
type journal struct {
	*base
	keep       bool // each event is kept as a record
	onEvent    func(ctx context.Context, event Event)
	answerKeys [][]byte // the first seals the answers to repeatable requests; all of them open
}

// change is a mutation of the store, and what belongs to it.
type change struct {
	by Principal // signs the events
	// write writes and returns the events. It may be called again, when the store runs its
	// transaction again. So it sets what it hands to its caller and never appends to it. It uses
	// tx alone, and returns its errors.
	write func(ctx context.Context, tx Store) ([]Event, error)
	// lock runs first, in the transaction of write. Nil: write needs no transaction, because it
	// makes one call of the store that is atomic by itself.
	lock func(ctx context.Context, tx Store) error
	// answer is kept in the same transaction. Nil: none.
	answer *KeptAnswer
	// access: what decisions depend on changes. The store's feed then says what to drop, because
	// events do not tell a new name from a new right.
	access bool
	// begin runs before, and the function that it returns when the outcome is known, also when the
	// store panics. Nil: none.
	begin func() (end func())
}

// commit carries out a change: the write, its answer and the records of its events, or nothing.
// After the commit it drops the cached rows that changed, and calls OnEvent. In a transaction of
// the host, it puts the events into the outbox instead. errAnswered: the request of the answer
// already has one.
//
// An impossible name of [Principal.As] is refused before all else.
//
// Without records, a lock and an answer it opens no transaction of its own: that spares round trips
// to the database. It returns the store's errors unchanged, so that callers can tell ErrNotFound
// and ErrExists from faults.
func (s *journal) commit(ctx context.Context, c change) error {
	if err := c.by.checkName(); err != nil {
		return err
	}
	if c.begin != nil {
		defer c.begin()()
	}
	if s.inTransaction && s.onEvent != nil && s.roles.outbox == nil {
		return lacks("outbox for the events of a transaction (svc.OutboxStore)")
	}
	var events []Event
	write := func(ctx context.Context, tx Store) (err error) {
		events, err = s.write(ctx, tx, c)
		return err
	}
	var err error
	if s.keep || c.lock != nil || c.answer != nil {
		err = s.store.Atomically(ctx, write)
	} else {
		err = write(ctx, s.store)
	}
	if err != nil {
		return err
	}
	if c.access {
		s.dropChanged(ctx)
	} else {
		s.forgetTargets(events)
	}
	return s.announce(ctx, events)
}

// dropChanged drops what was committed before the call, in any process, and nothing else. When the
// store does not answer, it drops all rows of access.
func (s *base) dropChanged(ctx context.Context) {
	if s.copies.CatchUp(ctx) != nil {
		s.forget(Target{Kind: TargetAccess})
	}
}

func (s *base) forgetTargets(events []Event) {
	targets := make([]Target, len(events))
	for i, event := range events {
		targets[i] = event.Target
	}
	s.forget(targets...)
}

// write writes a change to the store of its transaction: locks, then the answer, the rows and the
// records.
//
// The order is the same in all mutations, so that they wait for each other in one order. The answer
// comes before the rows: of two equal requests at once, the second waits here and then fails with
// errAnswered. Records come last, because a writer holds the chain until its commit.
func (s *journal) write(ctx context.Context, tx Store, c change) ([]Event, error) {
	if c.lock != nil {
		if err := c.lock(ctx, tx); err != nil {
			return nil, err
		}
	}
	if c.answer != nil {
		if err := keepAnswer(ctx, tx, *c.answer, s.now()); err != nil {
			return nil, err
		}
	}
	events, err := c.write(ctx, tx)
	if err != nil || len(events) == 0 || !s.keep && s.onEvent == nil {
		return events, err // nothing reads the ids of these events
	}
	if s.sign(c.by, events); !s.keep {
		return events, nil
	}
	audit := rolesOf(tx).audit
	if audit == nil {
		return nil, lacks(auditRole)
	}
	err = audit.AppendAudit(ctx, func(last AuditRecord) []AuditRecord {
		return last.followedBy(events)
	})
	return events, fault("keep events", err)
}

// sign gives events their ids, their tenant, and by as their actor. It runs in the transaction: when
// the store runs that again, the events get other ids, and those of the first run are never seen.
func (s *base) sign(by Principal, events []Event) []Event {
	for i := range events {
		e := &events[i]
		e.ID, e.Tenant, e.Actor, e.ActorKey =
			uuid.Must(uuid.NewV7()), s.tenant, by.Identity(), by.key
	}
	return events
}

// announce reports events to the host. Call it after the commit, once what changed is dropped.
// Outside a transaction of the host it never fails. Inside, the events commit or roll back with the
// change.
func (s *journal) announce(ctx context.Context, events []Event) error {
	if s.onEvent == nil || len(events) == 0 {
		return nil
	}
	if s.inTransaction {
		return fault("keep events", s.roles.outbox.AddEvents(ctx, events))
	}
	for _, event := range events {
		s.tell(ctx, event)
	}
	return nil
}

// tell calls OnEvent and logs its panic. The mutation is committed, so a panic is no failure of the
// method.
func (s *journal) tell(ctx context.Context, event Event) {
	defer func() {
		if cause := recover(); cause != nil {
			s.log.ErrorContext(ctx, "svc: Config.OnEvent panicked",
				"event", event.ID, "action", event.Action, "panic", cause)
		}
	}()
	// The mutation is committed, even when its caller no longer waits.
	s.onEvent(context.WithoutCancel(ctx), event)
}

// The delivery of outbox events. All processes with an OnEvent deliver, each its own claims. When a
// process dies, another delivers its batch once outboxClaim is over. A batch that takes OnEvent
// longer than that may be delivered twice.
const (
	outboxPoll  = time.Second      // the longest wait of an event for its delivery
	outboxClaim = 30 * time.Second // the time of a process for a batch, before another may try
	outboxBatch = 100

	outboxDelete = 5 * time.Second // the time to delete a batch
)

// deliver hands outbox events to the host until ctx ends. It looks every outboxPoll, because the
// change feed does not report them: an event in the outbox is no mutation.
func (s *journal) deliver(ctx context.Context) {
	tick := time.NewTicker(outboxPoll)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := s.deliverOnce(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx,
				"svc: cannot deliver events from the outbox, will retry", "error", err)
		}
		tasks.Wait(ctx, tick.C)
	}
}

// deliverOnce delivers batches until the outbox has no free events. It deletes a batch only after
// all its calls of OnEvent: an event comes at least once. Each batch comes oldest first; events of
// several processes may overtake each other.
func (s *journal) deliverOnce(ctx context.Context) error {
	for {
		now := s.now()
		events, err := s.roles.outbox.ClaimEvents(ctx, now, now.Add(outboxClaim), outboxBatch)
		if err != nil || len(events) == 0 {
			return err
		}
		ids := make([]uuid.UUID, len(events))
		for i, event := range events {
			s.tell(ctx, event)
			ids[i] = event.ID
		}
		if err := s.deleteEvents(ctx, ids); err != nil {
			return err
		}
	}
}

// deleteEvents deletes delivered events from the outbox, also after ctx has ended: otherwise the
// last batch would be delivered again.
func (s *journal) deleteEvents(ctx context.Context, ids []uuid.UUID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outboxDelete)
	defer cancel()
	return s.roles.outbox.DeleteEvents(ctx, ids)
}

// errAnswered says that a request already has an answer. It never leaves the package: once reads
// that answer instead.
var errAnswered = errors.New("answered before")

// keepAnswer keeps an answer. errAnswered: the request already has an answer.
func keepAnswer(ctx context.Context, tx Store, answer KeptAnswer, now time.Time) error {
	answers := rolesOf(tx).answers
	if answers == nil {
		return lacks("kept answers (svc.AnswerStore)")
	}
	err := answers.KeepAnswer(ctx, answer, now)
	if errors.Is(err, ErrExists) {
		return errAnswered
	}
	return fault("keep answer", err)
}

// IdempotencyPeriod is the time in which a repeated request with an idempotency key gets the answer
// of the first one. It begins with the first request that succeeds, by Config.Now; a repetition
// does not prolong it. After it, the same request runs again. Failures are not kept.
const IdempotencyPeriod = 24 * time.Hour

// repeatable is a request that may come again. Without an idempotency key it runs each time. The
// zero repeatable is such a request.
//
// Two requests take an idempotency key: to issue an API key, and to install a template. A caller
// that repeats one of the others sees in the row whether the first try has succeeded.
//
// It has one time for the whole request. So an answer cannot expire between the look at it and the
// attempt to keep another, and all processes need about the same clock.
type repeatable struct {
	journal *journal
	key     string // the idempotency key; "" none
	id      []byte // see KeptAnswer.Key
	request []byte
	now     time.Time
}

// repeatable returns a request of a caller. A kind ("install") and the values in request
// distinguish it from other requests.
//
// The idempotency key counts for its caller alone, by kind and id: a user may repeat a request with
// another key or session. The two digests have constant keys. So a reader of the database can test
// guesses of an idempotency key, which is best drawn at random. CodeInvalid: the store is no
// [AnswerStore]; to ignore the key would run a repeated request twice.
func (s *journal) repeatable(
	by Principal, key, kind string, request any, now time.Time,
) (repeatable, error) {
	if key == "" {
		return repeatable{}, nil
	}
	if s.roles.answers == nil {
		return repeatable{}, Invalid(idempotencyHeader, "must be absent: this server keeps no answers")
	}
	caller := by.Identity()
	names := []string{string(caller.Kind), caller.ID, key}
	if s.tenant != "" {
		names = append(names, s.tenant)
	}
	id, err := json.Marshal(names)
	if err != nil {
		return repeatable{}, fault("identify the request", err)
	}
	text, err := json.Marshal([]any{kind, request})
	if err != nil {
		return repeatable{}, fault("identify the request", err)
	}
	return repeatable{
		journal: s,
		key:     key,
		id:      keyring.MAC([]byte("svc idempotency key"), string(id)),
		request: keyring.MAC([]byte("svc request"), string(text)),
		now:     now,
	}, nil
}

// once runs do, unless the request has an answer already: then it returns that answer.
//
// do keeps the answer in the transaction of its change, so both exist or neither. When do fails,
// once looks for an answer again. Of two equal requests at once the slower fails, perhaps because
// the thing exists by now. It must get the answer of the faster. Without an answer, once returns
// the failure of do, and the next request with this idempotency key runs again.
func once[A any](ctx context.Context, r repeatable, do func() (A, error)) (A, error) {
	if r.key == "" {
		return do()
	}
	answer, err := answered[A](ctx, r)
	if !errors.Is(err, ErrNotFound) {
		return answer, err
	}
	// Nothing is locked here: only the write of the answer decides which of two requests is first.
	done, failed := do()
	if failed == nil {
		return done, nil
	}
	answer, err = answered[A](ctx, r) // another call may have kept an answer meanwhile
	if err == nil || ErrorCode(err) == CodeKeyReused ||
		errors.Is(failed, errAnswered) && !errors.Is(err, ErrNotFound) {
		return answer, err
	}
	return done, failed
}

// answered returns the kept answer to the request. ErrNotFound. An answer under a pepper that was
// removed meanwhile cannot be opened: that is CodeInternal until the answer expires.
//
// The caller has been authorized now, not only at the first request: an answer may hold a secret.
func answered[A any](ctx context.Context, r repeatable) (answer A, err error) {
	// An answer that has expired is not found, also while its row is still there.
	kept, err := r.journal.roles.answers.Answer(ctx, r.id, r.now)
	if errors.Is(err, ErrNotFound) {
		return answer, ErrNotFound
	} else if err != nil {
		return answer, fault("read answer", err)
	}
	if !bytes.Equal(kept.Request, r.request) {
		return answer, &Error{
			Code:    CodeKeyReused,
			Field:   idempotencyHeader,
			Message: "another request used this idempotency key: draw another one",
		}
	}
	data, err := r.open(kept.Data)
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	return answer, fault("open answer", err)
}

// answer returns what to keep so that the request gets the same answer again. Nil: the request has
// no idempotency key. Each call seals with a new nonce; the store sees nothing of the answer but
// its length. When the change fails, its transaction takes the answer back, and the request can run
// again.
func (r repeatable) answer(answer any) (*KeptAnswer, error) {
	if r.key == "" {
		return nil, nil
	}
	// Strict: encoding/json would replace invalid text, and a repetition would get another answer.
	data, err := strictjson.Marshal(answer)
	if err != nil {
		return nil, fault("keep answer", err)
	}
	sealer, err := r.sealer(r.journal.answerKeys[0])
	if err != nil {
		return nil, fault("keep answer", err)
	}
	return &KeptAnswer{
		Key:       r.id,
		Request:   r.request,
		Data:      sealer.Seal(data, r.binding()),
		ExpiresAt: r.now.Add(IdempotencyPeriod),
	}, nil
}

// sealer returns a Sealer whose key is derived (HKDF, RFC 5869) from the idempotency key and one of
// the answer keys. The store keeps neither, so a reader of the database alone cannot read answers.
// Without a pepper, answerKey is nil: then an answer is as safe as its idempotency key is hard to
// guess.
func (r repeatable) sealer(answerKey []byte) (*seal.Sealer, error) {
	key, err := hkdf.Key(sha256.New, []byte(r.key), answerKey, "svc answer", seal.KeySize)
	if err != nil {
		return nil, err
	}
	return seal.New(key)
}

// binding ties an answer to its caller and its request: moved to another row, it does not open.
func (r repeatable) binding() []byte { return slices.Concat(r.id, r.request) }

// open opens data that was sealed under any of the peppers. So a change of the first pepper within
// IdempotencyPeriod loses no answer, as long as the old one stays in the list with its Secret.
// Only the right key and binding open it: a wrong pepper fails and cannot return other data.
func (r repeatable) open(data []byte) ([]byte, error) {
	for _, key := range r.journal.answerKeys {
		sealer, err := r.sealer(key)
		if err != nil {
			return nil, err
		}
		if opened, err := sealer.Open(data, r.binding()); err == nil {
			return opened, nil
		}
	}
	return nil, seal.ErrOpen
}

// lockAccess makes changes of access wait until the transaction of tx ends.
func lockAccess(ctx context.Context, tx Store) error {
	return tx.ChangeAccess(ctx, AccessNames{}, func(Bundle) (AccessWrite, error) {
		return AccessWrite{}, nil // takes the lock, writes nothing
	})
}
