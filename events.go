package svc

import (
	"context"
	"time"

	"github.com/extsvc/svc/internal/tasks"
	"github.com/google/uuid"
)

// EventAction is what happened to an [Event]'s target.
type EventAction string

// The actions of events: one for every kind of mutation, and for what a process has found out about a source, which changes
// nothing in the store.
const (
	EventSourceRegistered   EventAction = "source.registered"
	EventSourceRemoved      EventAction = "source.removed"
	EventSourceFailing      EventAction = "source.failing"   // it could not be asked, or answered badly; the first time
	EventSourceRecovered    EventAction = "source.recovered" // it answers again
	EventTemplateCreated    EventAction = "template.created"
	EventTemplateInstalled  EventAction = "template.installed"
	EventTemplatePatched    EventAction = "template.patched"
	EventTemplateUpdated    EventAction = "template.updated"
	EventTemplateRolledBack EventAction = "template.rolled_back"
	EventTemplateDiverged   EventAction = "template.diverged" // was what its source gave, and is edited here now; with patched, rolled_back or updated
	EventTemplateRebound    EventAction = "template.rebound"  // is updated from where its source is now
	EventTemplateDeleted    EventAction = "template.deleted"
	EventAPIKeyIssued       EventAction = "api_key.issued"
	EventAPIKeyImported     EventAction = "api_key.imported"
	EventAPIKeyChanged      EventAction = "api_key.changed"
	EventAPIKeyRevoked      EventAction = "api_key.revoked"
	EventAccessWritten      EventAction = "access.written" // by Apply, one for each thing that changed
)

// TargetKind is the kind of thing that a [Target] is.
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
	// Scope and Owner are those of a source or template, "" for others.
	Scope Scope
	Owner string
	// Holder is whom an API key belongs to; zero for others.
	Holder Identity
}

// Event is one committed mutation. It holds no secret.
type Event struct {
	ID    uuid.UUID // a UUIDv7 (RFC 9562), so events of one process sort by time
	Time  time.Time // UTC, microseconds: what the rows were stamped with
	Actor Identity
	// ActorKey is the ID of the issued key that Actor came by; "": it came by none, but by the
	// host's Authenticator or in the host's own code.
	ActorKey string
	Action   EventAction
	Target   Target
}

// happened returns events, which have no ID and no Actor yet.
func happened(at time.Time, action EventAction, targets ...Target) []Event {
	events := make([]Event, len(targets))
	for i, target := range targets {
		events[i] = Event{Time: at, Action: action, Target: target}
	}
	return events
}

// journal commits mutations, and says what has happened.
type journal struct {
	*base
	answerKeys *keyring // under which the answers of repeatable requests are sealed
}

// mutation writes, and returns the events that it is. It may be called again.
type mutation func(ctx context.Context, store Store) ([]Event, error)

// mutate runs a mutation. When it is committed, copies of what was changed are dropped, and the host is told, or finds the events in
// the outbox of its transaction.
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

// mutateAndKeep is mutate with the records of the events: both are written, or neither.
func (s *journal) mutateAndKeep(ctx context.Context, by Principal, write mutation) error {
	var events []Event
	err := s.store.Atomically(ctx, func(ctx context.Context, tx Store) (err error) {
		if events, err = write(ctx, tx); err != nil || len(events) == 0 {
			return err
		}
		by.signs(events)
		err = tx.AppendAudit(ctx, func(last AuditRecord) []AuditRecord { return last.followedBy(events) })
		return fault("keep events", err)
	})
	if err != nil {
		return err
	}
	return s.announce(ctx, events)
}

// signs completes events that are p's doing.
func (p Principal) signs(events []Event) []Event {
	for i := range events {
		events[i].ID, events[i].Actor, events[i].ActorKey = uuid.Must(uuid.NewV7()), p.Identity(), p.key
	}
	return events
}

// announce drops the copies of what events are about, and tells the host of them.
func (s *journal) announce(ctx context.Context, events []Event) error {
	for _, event := range events {
		s.forget(event.Target)
	}
	if s.config.OnEvent == nil || len(events) == 0 {
		return nil
	}
	if s.copies == nil { // in a transaction of the host
		return fault("keep events", s.store.AddEvents(ctx, events))
	}
	for _, event := range events {
		s.tell(ctx, event)
	}
	return nil
}

// tell calls OnEvent. What it tells of has happened, so a panic of the host's is logged, and is no failure of ours.
func (s *journal) tell(ctx context.Context, event Event) {
	defer func() {
		if cause := recover(); cause != nil {
			s.config.Logger.ErrorContext(ctx, "svc: Config.OnEvent panicked", "event", event.ID, "action", event.Action, "panic", cause)
		}
	}()
	s.config.OnEvent(context.WithoutCancel(ctx), event) // it has happened, whether its caller waits or not
}

// The delivery of outbox events.
const (
	outboxPoll  = time.Second      // how long an event waits for it at most
	outboxClaim = 30 * time.Second // how long a process has for a batch before another one may try
	outboxBatch = 100

	outboxDelete = 5 * time.Second // for forgetting a batch
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

// deleteEvents forgets events that were delivered, those of the last batch before the end, too: they would come again.
func (s *journal) deleteEvents(ctx context.Context, ids []uuid.UUID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outboxDelete)
	defer cancel()
	return s.store.DeleteEvents(ctx, ids)
}
