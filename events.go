package svc

import (
	"time"

	"github.com/google/uuid"
)

// EventAction says what happened to an [Event]'s target.
type EventAction string

// The actions of events. Every kind of mutation has one, but [Sources.Reseal] has none. A call that
// changes nothing, and the repeated answer to an idempotency key, report no event.
//
// EventSourceFailing and EventSourceRecovered say what a process has learned about a source, and
// change nothing in the store. Each process reports them for itself, and none of them is kept as a
// record. Calls in a transaction of the host do not report them.
const (
	EventSourceRegistered EventAction = "source.registered"
	EventSourceRemoved    EventAction = "source.removed"
	// EventSourceFailing: the source cannot be reached, or its answer is bad, for the first time.
	// It comes once more after a restart, or when the process knows of more than 8,192 failing
	// sources.
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
	// EventAPIKeyIssued: a new key, from [Keys.Issue] or as the successor of [Keys.Rotate].
	EventAPIKeyIssued   EventAction = "api_key.issued"
	EventAPIKeyImported EventAction = "api_key.imported"
	// EventAPIKeyChanged: [Keys.Patch] changed the key, or a rotation has set its end.
	EventAPIKeyChanged EventAction = "api_key.changed"
	// EventAPIKeyRevoked: the key has ended for good, also by a rotation without an overlap. Each
	// key of [Keys.RevokeAll] has its own event. A key that expires has none.
	EventAPIKeyRevoked EventAction = "api_key.revoked"
	// EventAccessWritten: Apply wrote the target. Each thing that changed has its own event.
	EventAccessWritten EventAction = "access.written"
)

// TargetKind is the kind of a [Target].
type TargetKind string

// The kinds of targets. The kinds from TargetUser on are rows of access: [Access.Apply] writes
// them.
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

// The kinds of targets that only [StoreChanges] has. No event is about them.
const (
	// TargetMember: the user Holder joined or left the group ID. With a zero Holder, any number of
	// users did.
	TargetMember TargetKind = "member"
	// TargetChannel: the channel came to a user, left one or moved between users. ID is
	// [Channel.String].
	TargetChannel TargetKind = "channel"
	// TargetAccess: any row of access may have changed. It has no ID.
	TargetAccess TargetKind = "access"
)

// Target is the thing that an [Event] is about. Targets are comparable. The thing may no longer
// exist.
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
//
// Several events of one call come in a fixed order: an update before its divergence, a new key
// before the old one of its rotation. Events of concurrent calls come in any order. An event says
// that the target changed, not what it was before.
type Event struct {
	// ID is a UUIDv7 (RFC 9562), so events of one process sort by time. It takes the time of the
	// machine, not that of Config.Now. A second delivery from the outbox has the same ID.
	ID    uuid.UUID
	Time  time.Time // UTC, microseconds: what the rows were stamped with
	Actor Identity  // the caller of the method; [KindHost] without an ID for [Host]
	// ActorKey is the ID of the issued key that Actor used. "": Actor used none, because it came
	// through the host's Authenticator or is the host's own code.
	ActorKey string
	Action   EventAction
	Target   Target
}

// happened returns an event for each target. The events have no ID and no Actor yet: commit sets
// both, so that no mutation can name another actor than its caller.
func happened(at time.Time, action EventAction, targets ...Target) []Event {
	events := make([]Event, len(targets))
	for i, target := range targets {
		events[i] = Event{Time: at, Action: action, Target: target}
	}
	return events
}
