package svc

import (
	"context"
	"math"
	"time"

	"github.com/extsvc/svc/internal/copies"
	"github.com/extsvc/svc/internal/tasks"
	"github.com/google/uuid"
)

// EventAction says what happened to an [Event]'s target.
type EventAction string

// The actions of events. Every kind of mutation has one. EventSourceFailing and
// EventSourceRecovered say what a process has learned about a source, and change nothing in the
// store.
const (
	EventSourceRegistered EventAction = "source.registered"
	EventSourceRemoved    EventAction = "source.removed"
	// EventSourceFailing: the source cannot be reached, or its answer is bad, for the first time.
	EventSourceFailing EventAction = "source.failing"
	// EventSourceRecovered: the source answers again.
	EventSourceRecovered    EventAction = "source.recovered"
	EventTemplateCreated    EventAction = "template.created"
	EventTemplateInstalled  EventAction = "template.installed"
	EventTemplatePatched    EventAction = "template.patched"
	EventTemplateUpdated    EventAction = "template.updated"
	EventTemplateRolledBack EventAction = "template.rolled_back"
	// EventTemplateDiverged: the template was the same as in its source and is now edited locally.
	// It comes together with patched, rolled_back or updated.
	EventTemplateDiverged EventAction = "template.diverged"
	// EventTemplateRebound: updates of the template now come from its source's present address.
	EventTemplateRebound EventAction = "template.rebound"
	EventTemplateDeleted EventAction = "template.deleted"
	EventAPIKeyIssued    EventAction = "api_key.issued"
	EventAPIKeyImported  EventAction = "api_key.imported"
	EventAPIKeyChanged   EventAction = "api_key.changed"
	EventAPIKeyRevoked   EventAction = "api_key.revoked"
	// EventAccessWritten: Apply wrote the target. Each thing that changed has its own event.
	EventAccessWritten EventAction = "access.written"
)

// TargetKind is the kind of a [Target].
type TargetKind string

// The kinds of targets.
const (
	TargetSource         TargetKind = "source"
	TargetTemplate       TargetKind = "template"
	TargetAPIKey         TargetKind = "api_key"
	TargetUser           TargetKind = "user"
	TargetGroup          TargetKind = "group"
	TargetServiceAccount TargetKind = "service_account"
	TargetPolicy         TargetKind = "policy"
	TargetAttachment     TargetKind = "attachment"
	TargetBankPolicy     TargetKind = "bank_policy"
)

// Target is the thing that an [Event] is about.
type Target struct {
	Kind TargetKind
	ID   string // its id or name; an attachment's is [AttachmentKey.String]
	// Scope and Owner are those of a source or template; "" for other kinds.
	Scope Scope
	Owner string
	// Holder is the holder of an API key; zero for other kinds.
	Holder Identity
}

// Event is one committed mutation. It holds no secret.
type Event struct {
	ID    uuid.UUID // a UUIDv7 (RFC 9562), so events of one process sort by time
	Time  time.Time // UTC, microseconds: what the rows were stamped with
	Actor Identity
	// ActorKey is the ID of the issued key that Actor used. "": Actor used none, because it came
	// through the host's Authenticator or is the host's own code.
	ActorKey string
	Action   EventAction
	Target   Target
}

// happened returns an event for each target. The events have no ID and no Actor yet.
func happened(at time.Time, action EventAction, targets ...Target) []Event {
	events := make([]Event, len(targets))
	for i, target := range targets {
		events[i] = Event{Time: at, Action: action, Target: target}
	}
	return events
}

// journal commits mutations and reports their events.
type journal struct {
	*base
	answerKeys *keyring // seals the answers to repeatable requests
}

// forget drops cached rows that changed. Calls also use it for targets that the store shows to be
// changed by another call, which may not have dropped them yet.
func (s *base) forget(targets ...Target) { s.drop(targets, math.MaxInt64) }

// drop forgets cached rows of targets that changed at a generation or earlier.
func (s *base) drop(targets []Target, generation int64) {
	for _, t := range targets {
		switch t.Kind {
		case TargetTemplate, TargetSource, TargetAPIKey:
		default:
			s.allAccess.Clear()
		}
		switch t.Kind {
		case TargetAPIKey:
			s.copies.DropKey(t.ID)
		case TargetTemplate:
			s.allInstalled.Clear()
			s.listed.dropBefore(generation)
		case TargetBankPolicy:
			s.copies.DropBank(t.ID)
		case TargetServiceAccount:
			s.copies.DropAccount(t.ID)
		case TargetUser, TargetGroup, TargetPolicy, TargetAttachment:
			s.copies.DropHolders() // any holder may have them, or have that user as its owner
		}
	}
}

// feed tells the cache what has changed in the store.
type feed struct{ *base }

func (f feed) Next(ctx context.Context, since int64) (copies.Changes, error) {
	next, err := f.changes(ctx, since)
	return copies.Changes{
		Generation: next.Generation, Reset: next.Reset,
		Drop: func() { f.drop(next.Targets, next.Generation) },
	}, err
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

// mutation writes to store and returns its events. It may be called again.
type mutation func(ctx context.Context, store Store) ([]Event, error)

// mutate runs a mutation. After the commit it drops the cached rows that changed, and calls
// OnEvent. In a transaction of the host, it puts the events into the outbox instead.
func (s *journal) mutate(ctx context.Context, by Principal, write mutation) error {
	if s.config.Events.Keep {
		return s.mutateAndKeep(ctx, by, write)
	}
	events, err := write(ctx, s.store)
	if err != nil {
		return err
	}
	return s.announce(ctx, by.signs(events))
}

// mutateAndKeep is mutate with audit records: it writes both the mutation and its records, or
// neither.
func (s *journal) mutateAndKeep(ctx context.Context, by Principal, write mutation) error {
	var events []Event
	err := s.store.Atomically(ctx, func(ctx context.Context, tx Store) (err error) {
		if events, err = write(ctx, tx); err != nil || len(events) == 0 {
			return err
		}
		by.signs(events)
		err = tx.AppendAudit(ctx, func(last AuditRecord) []AuditRecord {
			return last.followedBy(events)
		})
		return fault("keep events", err)
	})
	if err != nil {
		return err
	}
	return s.announce(ctx, events)
}

// signs gives events their ids, and p as their actor.
func (p Principal) signs(events []Event) []Event {
	for i := range events {
		events[i].ID, events[i].Actor, events[i].ActorKey =
			uuid.Must(uuid.NewV7()), p.Identity(), p.key
	}
	return events
}

// announce drops the cached targets of events and reports the events to the host.
func (s *journal) announce(ctx context.Context, events []Event) error {
	for _, event := range events {
		s.forget(event.Target)
	}
	if s.config.OnEvent == nil || len(events) == 0 {
		return nil
	}
	if s.inTransaction {
		return fault("keep events", s.store.AddEvents(ctx, events))
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
			s.config.Logger.ErrorContext(ctx, "svc: Config.OnEvent panicked",
				"event", event.ID, "action", event.Action, "panic", cause)
		}
	}()
	// The mutation is committed, even when its caller no longer waits.
	s.config.OnEvent(context.WithoutCancel(ctx), event)
}

// The delivery of outbox events.
const (
	outboxPoll  = time.Second      // the longest wait of an event for its delivery
	outboxClaim = 30 * time.Second // the time of a process for a batch, before another may try
	outboxBatch = 100

	outboxDelete = 5 * time.Second // the time to delete a batch
)

// deliver hands outbox events to the host until ctx ends.
func (s *journal) deliver(ctx context.Context) {
	tick := time.NewTicker(outboxPoll)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := s.deliverOnce(ctx); err != nil && ctx.Err() == nil {
			s.config.Logger.WarnContext(ctx, "svc: events of the outbox wait", "error", err)
		}
		tasks.Wait(ctx, tick.C)
	}
}

func (s *journal) deliverOnce(ctx context.Context) error {
	for {
		now := s.now()
		events, err := s.store.ClaimEvents(ctx, now, now.Add(outboxClaim), outboxBatch)
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
	return s.store.DeleteEvents(ctx, ids)
}
