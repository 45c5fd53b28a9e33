package svc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/aead"
	"github.com/extsvc/svc/internal/answers"
	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/sequencer"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/limits"
)

// lateStore returns err as ErrUnavailable when own, which limits a call of the store, has ended and
// the caller's ctx has not.
func lateStore(ctx, own context.Context, err error) error {
	if err == nil || own.Err() == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: the store does not answer in time: %v", ErrUnavailable, err)
}

// committer commits changes and reports their events. Every mutation with an event goes through
// commit: no other function writes records or calls OnEvent for it.
type committer struct {
	*base
	keep       bool // each event is kept as a record
	onEvent    func(ctx context.Context, event Event)
	answerKeys [][]byte             // the first seals answers to repeatable requests; all open
	callers    callers              // judge the callers of changes again
	chains     *sequencer.Sequencer // of queued events; nil: none are kept
	// forgets erases what records have of a user whom events remove, in the same transaction.
	forgets func(ctx context.Context, audit AuditStore, user string, events []Event) error
}

// callers judges callers in the transactions of their changes.
type callers interface {
	// recheck refuses a caller that is no longer allowed a change. errStaleRights: weigh first.
	recheck(ctx context.Context, tx Store, by Principal, b *basis) error
	// weigh judges again what takes long to judge, and notes in b the policies that it saw.
	weigh(ctx context.Context, by Principal, b *basis) error
}

// errSingle is the outcome of a change that needs a transaction for itself. It never leaves the
// package.
var errSingle = errors.New("needs a transaction for itself")

// rejudgments is how often a change is judged again because rights have changed in the meantime.
const rejudgments = 8

// errStaleRights says that the rights of a caller or a holder differ from those that were judged.
var errStaleRights = errors.New("rights have changed since they were judged")

// change is a mutation of the store, and what belongs to it.
type change struct {
	by Principal // signs the events
	// basis is judged again in the transaction. Nil: write judges the caller, or it is Host.
	basis *basis
	// write writes and returns the events. It may be called again, when the store runs its
	// transaction again. So it sets what it hands to its caller and never appends to it. It uses
	// only tx, and returns its errors.
	write func(ctx context.Context, tx Store) ([]Event, error)
	// locks are taken first, in the transaction of write. Of two calls that lock a holder, count its
	// rows and then add, one counts what the other has added. Its deletion comes before or after.
	locks Locks
	// room may refuse the change under its locks.
	room func(ctx context.Context, tx Store) error
	// atomic: write makes several calls of the store. Else, without locks and room, it needs no
	// transaction, because it makes one call that is atomic by itself.
	atomic bool
	// together carries out the change with those of other callers, and returns its events. errSingle:
	// it has not. Nil: there is no such way.
	together func(ctx context.Context) ([]Event, error)
	// answer is kept in the same transaction. Nil: none.
	answer *StoredAnswer
	// access: what decisions depend on changes. The store's feed then says what to drop, because
	// events do not tell a new name from a new right.
	access bool
	// forget is the user whose texts the records erase. "": nobody.
	forget string
	// begin runs before, and the function that it returns when the outcome is known, also when the
	// store panics. done runs after the commit, when the cached rows that changed are dropped. Both
	// end before OnEvent. Nil: none.
	begin func() (end func())
	done  func()
}

// commit carries out a change: the write, its answer and the records of its events, or nothing.
// After the commit it drops the cached rows that changed, and calls OnEvent. In a transaction of
// the host, it puts the events into the outbox instead. errAnswered: the request has an answer. An
// impossible name of [Principal.As] is refused before everything else.
//
// Without records, a lock and an answer it opens no transaction: that spares round trips
// to the database. It returns the store's errors unchanged, so that callers can tell ErrNotFound
// and ErrExists from faults.
func (s *committer) commit(ctx context.Context, c change) error {
	if err := c.by.checkName(); err != nil {
		return err
	}
	if s.readOnly {
		return errReadOnly
	}
	end := func() {}
	if c.begin != nil {
		end = sync.OnceFunc(c.begin())
	}
	defer end()
	if s.inTransaction && s.onEvent != nil && s.roles.outbox == nil {
		return lacks("outbox for the events of a transaction (svc.OutboxStore)")
	}
	events, written := []Event(nil), false
	write := func(ctx context.Context, tx Store) (err error) {
		events, err = s.write(ctx, tx, c)
		written = err == nil
		return err
	}
	err := errSingle
	if c.together != nil {
		events, err = c.together(ctx)
	}
	if errors.Is(err, errSingle) {
		err = s.run(ctx, c, write)
	}
	for try := 0; errors.Is(err, errStaleRights) && try < rejudgments; try++ {
		if err = s.callers.weigh(ctx, c.by, c.basis); err == nil {
			err = s.run(ctx, c, write)
		}
	}
	if errors.Is(err, errStaleRights) {
		err = &Error{
			Code: CodeUnavailable, Message: "rights keep changing: try again later", Err: err,
		}
	}
	if err != nil && !(written && s.committed(ctx, c.answer)) {
		return err
	}
	s.chains.Wake()
	switch {
	case !c.access:
		s.forget(lists.Map(events, func(e Event) Target { return e.Target })...)
	case s.cached.CatchUp(ctx) != nil: // the store does not answer: any row may have changed
		s.forget(Target{Kind: event.TargetAccess})
	}
	if c.done != nil {
		c.done()
	}
	end()
	return s.announce(ctx, events)
}

// committed reports whether an answer is kept, and so its change is committed, although the store
// could not say so. The bytes of a sealed answer are those of one call only.
func (s *committer) committed(ctx context.Context, answer *StoredAnswer) bool {
	if answer == nil || s.inTransaction {
		return false
	}
	kept, err := s.roles.answers.Answer(ctx, answer.Key, s.now())
	return err == nil && bytes.Equal(kept.Data, answer.Data)
}

// run calls write in a transaction, or without one where a change is one call of the store.
func (s *committer) run(
	ctx context.Context, c change, write func(ctx context.Context, tx Store) error,
) error {
	locked := c.locks != (Locks{}) || c.room != nil || c.atomic || c.rechecked()
	if s.keep || c.forget != "" || c.answer != nil || locked {
		return s.store.Atomically(ctx, write)
	}
	return write(ctx, s.store)
}

// rechecked reports whether the transaction of a change must judge its caller or its holder.
func (c *change) rechecked() bool {
	b := c.basis
	return b != nil && (c.by.Kind != KindHost || b.row || b.scoping != "" || b.most > 0)
}

// readmit takes the locks of a change and judges its caller again.
//
// The lock on access comes first, because an Apply may take long: while this call waits for one, it
// locks no key. It makes an Apply that takes a right, and a deletion of the policy that narrows a
// new key, come before or after. The lock on the caller's own key does so for a revocation. The
// change only relies on both: other changes by the same key run concurrently.
func (s *committer) readmit(ctx context.Context, tx Store, c change) error {
	if err := s.refuses(c.by.Kind == KindHost); err != nil {
		return err
	}
	locked := c.rechecked() && c.by.Kind != KindHost && !c.basis.free
	if locked || c.basis != nil && c.basis.scoping != "" {
		if err := tx.Lock(ctx, Locks{RelyOnAccess: true}); err != nil {
			return fault("lock access", err)
		}
	}
	if c.locks != (Locks{}) {
		if err := tx.Lock(ctx, c.locks); err != nil {
			return err
		}
	}
	if c.room != nil {
		if err := c.room(ctx, tx); err != nil {
			return err
		}
	}
	if locked && c.by.key != "" {
		if err := tx.Lock(ctx, Locks{RelyOnKey: c.by.key}); err != nil {
			return fault("lock the caller's API key", err)
		}
	}
	if !c.rechecked() {
		return nil
	}
	return s.callers.recheck(ctx, tx, c.by, c.basis)
}

// write writes a change in its transaction: locks, then the answer, the rows and the records.
//
// The order is the same in all mutations, so that they wait for each other in one order. The answer
// comes before the rows: of two concurrent equal requests, the second waits here and then fails
// with errAnswered. Events are queued last, in the order of their locks, and a sequencer chains
// them.
func (s *committer) write(ctx context.Context, tx Store, c change) ([]Event, error) {
	if err := s.readmit(ctx, tx, c); err != nil {
		return nil, err
	}
	if c.answer != nil {
		if err := keepAnswer(ctx, tx, c.by, *c.answer, s.now()); err != nil {
			return nil, err
		}
	}
	events, err := c.write(ctx, tx)
	if err != nil || !s.keep && s.onEvent == nil && c.forget == "" {
		return events, err // nothing reads the ids of these events
	}
	return events, fault("keep events", s.keepEvents(ctx, tx, c, s.sign(c.by, events)))
}

// keepEvents keeps events for the sequencer, and erases what all records have of a forgotten user.
func (s *committer) keepEvents(ctx context.Context, tx Store, c change, events []Event) error {
	audit, err := rolesOf(tx).audit, error(nil)
	switch {
	case s.keep && audit == nil:
		return lacks(auditRole)
	case s.keep:
		err = audit.QueueAudit(ctx, events, AuditRecord.followedBy)
	}
	if err == nil && audit != nil && c.forget != "" {
		err = s.forgets(ctx, audit, c.forget, events)
	}
	return err
}

// changes asks the store for changes, for 5 s at most: an unreachable store may never answer.
func (s *base) changes(ctx context.Context, since int64) (StoreChanges, error) {
	own, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	changes, err := s.store.Changes(own, since)
	return changes, lateStore(ctx, own, err)
}

// sign gives events their ids, their tenant, and by as their actor. It runs in the transaction:
// when the store runs that again, the events get other ids, and those of the
// first run are never seen.
func (s *base) sign(by Principal, events []Event) []Event {
	for i := range events {
		e := &events[i]
		e.ID, e.Tenant, e.Actor, e.ActorKey =
			uuid.Must(uuid.NewV7()), s.tenant, by.Identity(), by.key
	}
	return events
}

// eventRow returns a row of access as events have it, of its JSON form; nil: there is no row.
func eventRow(form any) json.RawMessage {
	if form == nil {
		return nil
	}
	text, _ := strictjson.Marshal(form) // rows hold valid text and documents
	return jcs.Bounded(text, limits.EventRow)
}

// announce reports events to the host. Call it after the commit, once what changed is dropped.
// Outside a transaction of the host it never fails. Inside, the events commit or roll back with the
// change.
func (s *committer) announce(ctx context.Context, events []Event) error {
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

// tell calls OnEvent, and reports whether that has returned. It logs a panic: the mutation is
// committed, so that is no failure of the method.
func (s *committer) tell(ctx context.Context, event Event) (told bool) {
	defer func() {
		if cause := recover(); cause != nil {
			s.log.ErrorContext(ctx, "svc: Config.Events.OnEvent panicked",
				"event", event.ID, "action", event.Action, "panic", cause)
		}
	}()
	// The mutation is committed, even when its caller no longer waits.
	s.onEvent(context.WithoutCancel(ctx), event)
	return true
}

// errAnswered says that a request already has an answer. It never leaves the package: once reads
// that answer instead.
var errAnswered = errors.New("answered before")

// keepAnswer keeps an answer to a caller. errAnswered: the request already has an answer.
func keepAnswer(
	ctx context.Context, tx Store, by Principal, answer StoredAnswer, now time.Time,
) error {
	kept := rolesOf(tx).answers
	if kept == nil {
		return lacks("kept answers (svc.AnswerStore)")
	}
	if by.Kind != KindHost {
		n, err := kept.CountAnswers(ctx, answer.Caller, now, limits.KeptAnswers)
		if err != nil {
			return fault("count answers", err)
		}
		if n >= limits.KeptAnswers {
			return &Error{Code: CodeLimit, Message: fmt.Sprintf("you have made %d requests with "+
				"idempotency keys: wait, or send none", n)}
		}
	}
	err := kept.KeepAnswer(ctx, answer, now)
	if rowExists(err) {
		return errAnswered
	}
	return fault("keep answer", err)
}

// idempotentRequest is a request that may come again. Without an idempotency key it runs each time.
// Three requests take an idempotency key: to issue or rotate an API key, and to install a template.
// A caller that repeats one of the others sees in the row whether the first try has succeeded.
//
// Answers expire by the clocks of all processes, which are about the same.
type idempotentRequest struct {
	answers.Request
	journal *committer // nil: no idempotency key
	by      Principal
	basis   basis
	now     time.Time
}

// idempotentRequest returns a request of a caller. A kind ("install") and the values in request
// distinguish it from other requests.
//
// The idempotency key counts for its caller only, by kind and id: a user may repeat a request with another key or
// session. CodeInvalid: the store is no [AnswerStore]; to ignore the key would run a repeated request twice.
func (s *committer) idempotent(
	by Principal, b basis, key, kind string, request any, now time.Time,
) (idempotentRequest, error) {
	if key == "" {
		return idempotentRequest{}, nil
	}
	if s.roles.answers == nil {
		return idempotentRequest{}, Invalid(
			idempotencyHeader, "must be absent: this server keeps no answers")
	}
	r, err := answers.New(s.caller(by.Identity()), key, kind, request)
	return idempotentRequest{r, s, by, b, now}, fault("identify the request", err)
}

// once runs do, unless the request has an answer already: then it returns that answer.
//
// do keeps the answer in the transaction of its change, so both exist or neither. When do fails,
// once looks for an answer again. Of two concurrent equal requests the slower fails, perhaps
// because the thing exists by now. It must get the answer of the faster. Without an answer, once
// returns the failure of do, and the next request with this idempotency key runs again.
func once[A any](ctx context.Context, r idempotentRequest, do func() (A, error)) (A, error) {
	if r.journal == nil {
		return do()
	}
	answer, err := keptAnswer[A](ctx, r)
	if !noRow(err) {
		return answer, err
	}
	// Nothing is locked here: only the write of the answer decides which of two requests is first.
	done, failed := do()
	if failed == nil {
		return done, nil
	}
	answer, err = keptAnswer[A](ctx, r) // another call may have kept an answer in the meantime
	if err == nil || ErrorCode(err) == CodeKeyReused ||
		errors.Is(failed, errAnswered) && !noRow(err) {
		return answer, err
	}
	return done, failed
}

// keptAnswer returns the kept answer to the request. ErrNotFound. The caller is judged now, not only at the
// first request: an answer may hold a secret.
func keptAnswer[A any](ctx context.Context, r idempotentRequest) (answer A, err error) {
	// An answer that has expired is not found, also while its row is still there.
	kept, err := r.journal.roles.answers.Answer(ctx, r.ID, r.now)
	if noRow(err) {
		return answer, ErrNotFound
	} else if err != nil {
		return answer, fault("read answer", err)
	}
	err = r.journal.callers.recheck(ctx, r.journal.store, r.by, &r.basis)
	if errors.Is(err, errStaleRights) {
		err = r.journal.callers.weigh(ctx, r.by, &r.basis)
	}
	if err == nil { // a key may be cached here that the first request has revoked
		err = r.journal.cached.CatchUp(ctx)
	}
	if err != nil {
		return answer, fault("judge the caller", err)
	}
	if !bytes.Equal(kept.Request, r.Digest) {
		return answer, keyReused("another request used this idempotency key: draw another one")
	}
	data, err := r.Open(kept.Data, r.journal.answerKeys)
	switch {
	case errors.Is(err, aead.ErrOpen):
		return answer, keyReused("the request was done; its answer went with an old pepper: read what it has made")
	case err == nil:
		err = json.Unmarshal(data, &answer)
	}
	return answer, fault("open answer", err)
}

// answer returns what to keep so that the request gets the same answer again. Nil: the request has no idempotency
// key. When the change fails, its transaction takes the answer back, and the request can run again.
func (r idempotentRequest) answer(answer any) (*StoredAnswer, error) {
	if r.journal == nil {
		return nil, nil
	}
	// Strict: encoding/json would replace invalid text, and a repetition would get another answer.
	data, err := strictjson.Marshal(answer)
	if err != nil {
		return nil, fault("keep answer", err)
	}
	sealed, err := r.Seal(data, r.journal.answerKeys[0])
	if err != nil {
		return nil, fault("keep answer", err)
	}
	return &StoredAnswer{
		Key: r.ID, Caller: r.Caller, Request: r.Digest, Data: sealed,
		ExpiresAt: r.now.Add(IdempotencyPeriod),
	}, nil
}
