package svc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc/internal/jcs"
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
	// EventAccessWritten: a row of access is new or has changed. Each row has its own event.
	EventAccessWritten EventAction = "access.written"
	// EventAccessRemoved: a row of access went. Each row has its own event.
	EventAccessRemoved EventAction = "access.removed"
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
	// TargetTenant: the tenant of that name came, went or has another state ([TenantStore]).
	TargetTenant TargetKind = "tenant"
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
// before the old one of its rotation. Events of concurrent calls come in any order.
type Event struct {
	// ID is a UUIDv7 (RFC 9562), so events of one process sort by time. It takes the time of the
	// machine, not that of Config.Now. A second delivery from the outbox has the same ID.
	ID   uuid.UUID
	Time time.Time // UTC, microseconds: what the rows were stamped with
	// Actor is the caller of the method. [Host] has no ID, unless [Principal.As] gave it one.
	Actor Identity
	// ActorKey is the ID of the issued key that Actor used. "": Actor used none, because it came
	// through the host's Authenticator or is the host's own code.
	ActorKey string
	Action   EventAction
	Target   Target
	// Tenant is the name of the tenant whose Service reports the event ([Tenants]). "": the Service
	// is no tenant's.
	Tenant string
	// Was and Is are the target before and after the write, when it is a row of access: a JSON
	// object as in the lists of a [Bundle], in the form of RFC 8785. Nil Was: the row is new. Nil
	// Is: it is gone. Other events have neither. Do not change them.
	//
	// In place of a row of more than MaxEventRow bytes, there is {"bytes":N,"sha256":"…"}: its
	// length and its SHA-256 in hex. So a change of a large row still shows. Stores return both
	// rows byte by byte.
	Was, Is json.RawMessage
}

// MaxEventRow is the most bytes of the Was of an [Event], and of its Is: 16 KiB each.
const MaxEventRow = 16 << 10

// eventRow returns a row of access as Was and Is have it. row is a JSON object; nil stays nil.
//
// The canonical form lets everybody compute the hash of a record from its parsed JSON.
func eventRow(row []byte) json.RawMessage {
	if row == nil {
		return nil
	}
	form, err := jcs.Canonical(row)
	if err == nil && len(form) <= MaxEventRow {
		return form
	} else if err != nil { // no row of access: it has no canonical form
		form = row
	}
	return fmt.Appendf(nil, `{"bytes":%d,"sha256":"%x"}`, len(form), sha256.Sum256(form))
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

// AuditRecord is a kept [Event] and its place in the chain of all records. A record never changes.
//
// Number follows the order of commits, of all processes. Time does not: it was taken before the
// commit, and clocks of processes differ. Previous and Hash have 32 bytes; do not change them.
type AuditRecord struct {
	Event
	Number   int64  // 1, 2, … without gaps
	Previous []byte // the Hash of the record before; nil: this is the first record
	Hash     []byte // the SHA-256 of all other fields, as docs/audit.md defines it
}

// AuditQuery asks for a part of the records. A record must match all fields that are set. The zero
// query asks for all records. Ids are compared byte by byte; an unknown one finds nothing.
//
// To read the next page, set Before to the Number of the last record. In package sqlstore, lists by
// ActorID, TargetID or time use an index.
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

// maxTargetLength is the most characters of a target's id. The longest is the id of an attachment,
// which names three things.
const maxTargetLength = 3 * MaxIDLength

// followedBy returns the records of events, with r as the record before the first. The zero r
// begins the chain. It is pure, because [AuditStore].AppendAudit may ask for the records again.
func (r AuditRecord) followedBy(events []Event) []AuditRecord {
	records := make([]AuditRecord, len(events))
	for i, event := range events {
		r = AuditRecord{Event: event, Number: r.Number + 1, Previous: r.Hash}
		r.Hash = r.digest()
		records[i] = r
	}
	return records
}

// digest returns the Hash that r should have. It covers Previous, so a Hash vouches for the whole
// chain before it.
func (r AuditRecord) digest() []byte {
	sum := sha256.Sum256(r.canonical())
	return sum[:]
}

// intact reports whether r's Hash matches its other fields. Was and Is must be JSON objects: with
// other texts in them, two records could have the same form.
func (r AuditRecord) intact() bool {
	object := func(row []byte) bool { return len(row) == 0 || row[0] == '{' && json.Valid(row) }
	return object(r.Was) && object(r.Is) && bytes.Equal(r.Hash, r.digest())
}

// canonical returns the RFC 8785 form of a record as GET /admin/events shows it, without its hash.
// The form never changes: a change would break every existing chain. A field that is added later
// must be absent, not null, in records that were written without it: appendActor does this.
//
// RFC 8785 sorts members by their names, so the order of these lines matters.
func (r AuditRecord) canonical() []byte {
	b := jcs.AppendString([]byte(`{"action":`), string(r.Action))
	b = appendActor(append(b, `,"actor":`...), r.Actor, r.ActorKey)
	b = appendRow(append(b, `,"id":"`+r.ID.String()+`","is":`...), r.Is)
	b = append(b, `,"number":`...)
	b = strconv.AppendInt(b, r.Number, 10)
	b = appendOrNull(append(b, `,"previous":`...), hex.EncodeToString(r.Previous))
	b = appendIdentity(append(b, `,"target":{"holder":`...), r.Target.Holder)
	b = jcs.AppendString(append(b, `,"id":`...), r.Target.ID)
	b = jcs.AppendString(append(b, `,"kind":`...), string(r.Target.Kind))
	b = appendOrNull(append(b, `,"owner":`...), r.Target.Owner)
	b = appendOrNull(append(b, `,"scope":`...), string(r.Target.Scope))
	b = append(b, '}')
	if r.Tenant != "" { // records of a single Service have no tenant
		b = jcs.AppendString(append(b, `,"tenant":`...), r.Tenant)
	}
	b = r.Time.UTC().AppendFormat(append(b, `,"time":"`...), "2006-01-02T15:04:05.000000Z")
	return append(appendRow(append(b, `","was":`...), r.Was), '}')
}

// appendRow appends a row of access, or null where there is none.
func appendRow(b []byte, row json.RawMessage) []byte {
	if len(row) == 0 {
		return append(b, "null"...)
	}
	return append(b, row...)
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

// appendIdentity appends null for the zero Identity: the holder of a target that is no key.
func appendIdentity(b []byte, who Identity) []byte {
	if who == (Identity{}) {
		return append(b, "null"...)
	}
	b = appendOrNull(append(b, `{"id":`...), who.ID)
	b = jcs.AppendString(append(b, `,"kind":`...), string(who.Kind))
	return append(b, '}')
}

// appendOrNull appends a text, or null for an empty one: the form has no empty texts. A host's
// actor has no id, and most targets have no owner and no scope.
func appendOrNull(b []byte, text string) []byte {
	if text == "" {
		return append(b, "null"...)
	}
	return jcs.AppendString(b, text)
}
