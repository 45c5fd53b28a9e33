package svc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/extsvc/svc/internal/jcs"
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

// AuditRecord is a kept [Event] and its place in the chain of all records.
type AuditRecord struct {
	Event
	Number   int64  // 1, 2, … without gaps
	Previous []byte // the Hash of the record before; nil: this is the first record
	Hash     []byte // the SHA-256 of all other fields, as docs/audit.md defines it
}

// AuditQuery asks for a part of the records. A record must match all fields that are set. The zero
// query asks for all records.
type AuditQuery struct {
	ActorKind  Kind
	ActorID    string
	TargetKind TargetKind
	TargetID   string    // of any kind when TargetKind is ""
	Since      time.Time // records at that time or later
	Until      time.Time // records before that time
	Before     int64     // records with a smaller Number, not negative
	Limit      int       // the most records to list, not negative; 0: all
}

// followedBy returns the records of events, with r as the record before the first.
func (r AuditRecord) followedBy(events []Event) []AuditRecord {
	records := make([]AuditRecord, len(events))
	for i, event := range events {
		r = AuditRecord{Event: event, Number: r.Number + 1, Previous: r.Hash}
		r.Hash = r.digest()
		records[i] = r
	}
	return records
}

func (r AuditRecord) digest() []byte {
	sum := sha256.Sum256(r.canonical())
	return sum[:]
}

// intact reports whether r's Hash matches its other fields.
func (r AuditRecord) intact() bool { return bytes.Equal(r.Hash, r.digest()) }

// canonical returns the RFC 8785 form of a record as GET /admin/events shows it, without its hash.
// The form never changes: a change would break every existing chain.
func (r AuditRecord) canonical() []byte {
	b := jcs.AppendString([]byte(`{"action":`), string(r.Action))
	b = appendActor(append(b, `,"actor":`...), r.Actor, r.ActorKey)
	b = append(b, `,"id":"`+r.ID.String()+`","number":`...)
	b = strconv.AppendInt(b, r.Number, 10)
	b = appendOrNull(append(b, `,"previous":`...), hex.EncodeToString(r.Previous))
	b = appendIdentity(append(b, `,"target":{"holder":`...), r.Target.Holder)
	b = jcs.AppendString(append(b, `,"id":`...), r.Target.ID)
	b = jcs.AppendString(append(b, `,"kind":`...), string(r.Target.Kind))
	b = appendOrNull(append(b, `,"owner":`...), r.Target.Owner)
	b = appendOrNull(append(b, `,"scope":`...), string(r.Target.Scope))
	b = r.Time.UTC().AppendFormat(append(b, `},"time":"`...), "2006-01-02T15:04:05.000000Z")
	return append(b, `"}`...)
}

// appendActor appends an identity and its key, if any. Records older than the field have no key.
func appendActor(b []byte, who Identity, key string) []byte {
	if key == "" {
		return appendIdentity(b, who)
	}
	b = appendOrNull(append(b, `{"id":`...), who.ID)
	b = jcs.AppendString(append(b, `,"key_id":`...), key)
	b = jcs.AppendString(append(b, `,"kind":`...), string(who.Kind))
	return append(b, '}')
}

func appendIdentity(b []byte, who Identity) []byte {
	if who == (Identity{}) {
		return append(b, "null"...)
	}
	b = appendOrNull(append(b, `{"id":`...), who.ID)
	b = jcs.AppendString(append(b, `,"kind":`...), string(who.Kind))
	return append(b, '}')
}

func appendOrNull(b []byte, text string) []byte {
	if text == "" {
		return append(b, "null"...)
	}
	return jcs.AppendString(b, text)
}
