package svc

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/extsvc/svc/internal/copies"
	"github.com/extsvc/svc/internal/tasks"
	"github.com/google/uuid"
)

// base is what all parts of a Service work on. One base belongs to one Store: a Service and its
// nouns share one, and each [Service.WithStore] makes another.
type base struct {
	store         Store
	roles         roles // of store
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

// mark adds to changed what decisions may depend on.
func (t Target) mark(changed *copies.Changed) {
	switch t.Kind {
	case TargetAPIKey:
		changed.Keys = append(changed.Keys, t.ID)
	case TargetBankPolicy:
		changed.Banks = append(changed.Banks, t.ID)
	case TargetUser:
		changed.Users.Add(t.ID)
	case TargetServiceAccount:
		changed.Accounts.Add(t.ID)
	case TargetPolicy:
		changed.Policies.Add(t.ID)
	case TargetAttachment:
		if to := t.attachment().Principal; to.Type == GrantedToUser {
			changed.Users.Add(to.ID)
		} else {
			changed.Groups.Add(to.ID)
		}
	case TargetMember:
		if t.Holder.ID == "" { // nothing says who joined
			changed.Access = true
		}
		changed.Users.Add(t.Holder.ID)
	case TargetChannel:
		of := t.channel()
		changed.Senders = append(changed.Senders, copies.Sender{Provider: of.Provider, ID: of.SenderID})
	case TargetAccess:
		changed.Access = true
	}
}

// attachment returns the key of a TargetAttachment.
func (t Target) attachment() AttachmentKey {
	id, principal, _ := strings.Cut(t.ID, "/")
	kind, of, _ := strings.Cut(principal, "/")
	return AttachmentKey{PolicyID: id, Principal: GrantedTo{Type: kind, ID: of}}
}

// channel returns the channel of a TargetChannel.
func (t Target) channel() Channel {
	provider, sender, _ := strings.Cut(t.ID, ":")
	return Channel{Provider: provider, SenderID: sender}
}

// OfAccess returns what of c concerns access, without other targets, and the rows to read for it.
// It is for stores and their readers: see [AccessRead].Since.
//
// A TargetMember names one membership, or without a Holder the group with all members. A
// TargetChannel names the user who has it now. The result is a Reset without targets when c is a
// Reset or has a TargetAccess.
func (c StoreChanges) OfAccess() (StoreChanges, AccessNames) {
	out, n := StoreChanges{Generation: c.Generation}, AccessNames{}
	for _, t := range c.Targets {
		if t.Kind == TargetAccess || c.Reset {
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

// add names the rows of a target. It reports whether the target is one of access.
func (n *AccessNames) add(t Target) bool {
	switch t.Kind {
	case TargetUser:
		n.Users = append(n.Users, t.ID)
	case TargetChannel:
		n.Channels = append(n.Channels, t.channel())
	case TargetGroup:
		n.Groups = append(n.Groups, t.ID)
	case TargetMember:
		if t.Holder == (Identity{}) {
			n.MembersOf = append(n.MembersOf, t.ID)
		} else {
			n.Members = append(n.Members, Membership{Group: t.ID, User: t.Holder.ID})
		}
	case TargetServiceAccount:
		n.ServiceAccounts = append(n.ServiceAccounts, t.ID)
	case TargetPolicy:
		n.Policies = append(n.Policies, t.ID)
	case TargetAttachment:
		n.Attachments = append(n.Attachments, t.attachment())
	case TargetBankPolicy:
		n.BankPolicies = append(n.BankPolicies, t.ID)
	default:
		return false
	}
	return true
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
// Without records, a lock and an answer it opens no transaction of its own: that spares round trips
// to the database. It returns the store's errors unchanged, so that callers can tell ErrNotFound
// and ErrExists from faults.
func (s *journal) commit(ctx context.Context, c change) error {
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
	if c.by.signs(events); !s.keep {
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

// signs gives events their ids, and p as their actor. It runs in the transaction: when the store
// runs that again, the events get other ids, and those of the first run are never seen.
func (p Principal) signs(events []Event) []Event {
	for i := range events {
		events[i].ID, events[i].Actor, events[i].ActorKey =
			uuid.Must(uuid.NewV7()), p.Identity(), p.key
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

// roles holds the optional roles of a store. nil: the store lacks the role.
type roles struct {
	files   SourceFileStore
	outbox  OutboxStore
	answers AnswerStore
	audit   AuditStore
	look    LookStore
}

// rolesOf finds the roles of a store by its type. A transaction has the roles of its store, but as
// another type: so ask for them at each store, and do not keep those of another.
func rolesOf(store Store) (r roles) {
	r.files, _ = store.(SourceFileStore)
	r.outbox, _ = store.(OutboxStore)
	r.answers, _ = store.(AnswerStore)
	r.audit, _ = store.(AuditStore)
	r.look, _ = store.(LookStore)
	return r
}

// lockAccess makes changes of access wait until the transaction of tx ends.
func lockAccess(ctx context.Context, tx Store) error {
	return tx.ChangeAccess(ctx, AccessNames{}, func(Bundle) (AccessWrite, error) {
		return AccessWrite{}, nil // takes the lock, writes nothing
	})
}

// lacks answers a call that needs an optional role of the store.
func lacks(role string) *Error {
	return &Error{Code: CodeInternal, Message: "the store has no " + role}
}

// auditRole is what a store of [Service.WithStore] may lack. New has checked its own store.
const auditRole = "audit records (svc.AuditStore)"
