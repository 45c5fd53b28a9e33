package svc

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/readcache"
)

// Target is the thing that an [Event] is about. Targets are comparable. The thing may no longer
// exist.
type Target struct {
	Kind   event.TargetKind
	ID     string // its id or name; an attachment's is [AttachmentKey.String]
	Scope  Scope  // of a source or template; "" for other kinds
	Owner  string
	Holder Identity // of an API key; zero for other kinds
}

// Event is one committed mutation. It holds no secret. Several events of one call come in a fixed
// order: an update before its divergence, a new key before the old one of its rotation. Events of
// concurrent calls come in any order.
type Event struct {
	// ID is a UUIDv7 (RFC 9562) of the machine's time, so events of one process sort by time. A
	// second delivery from the outbox has the same ID.
	ID       uuid.UUID
	Time     time.Time // UTC, microseconds: what the rows were stamped with
	Actor    Identity  // the caller of the method
	ActorKey string    // the ID of the issued key that Actor used; "": none
	Action   event.Action
	Target   Target
	Tenant   string // whose Service reports the event; "": no tenant's
	// Was and Is are the target before and after the write, when it is a row of access: a JSON
	// object as in the lists of a [Bundle], in the form of RFC 8785. Nil Was: the row is new. Nil
	// Is: it is gone. Of the members of a group, Was has those that leave, and Is those that join.
	// A null and an is_active that is true are left out. Other events have neither. Do not change
	// them. In place of a row of more than [limits.EventRow] bytes, there is
	// {"bytes":N,"sha256":"…"}: its length and its SHA-256 in hex.
	Was, Is json.RawMessage
}

// happened returns an event for each target. The events have no ID and no Actor yet: commit sets
// both, so that no mutation can name another actor than its caller.
func happened(at time.Time, action event.Action, targets ...Target) []Event {
	events := make([]Event, len(targets))
	for i, target := range targets {
		events[i] = Event{Time: at, Action: action, Target: target}
	}
	return events
}

// AuditRecord is a kept Event and its place in the chain of all records. It never changes, but
// [Audit.Forget] and [Service.ForgetUser] erase texts of it. A call that began after another had
// returned has a greater Number, in all processes. Time may go back: it was taken before the
// commit. Previous and Hash have 32 bytes; do not change them.
type AuditRecord struct {
	Event
	Number   int64  // 1, 2, … without gaps
	Previous []byte // the Hash of the record before; nil: this is the first record
	// Hash is a SHA-256 of all other fields, as docs/explanation/audit-chain.md defines it. Of a
	// text with a salt it covers a digest, which stays when the text and its salt are erased.
	Hash  []byte
	Salts AuditSalts
}

// AuditSalts has a salt for each text of an [AuditRecord] that may be erased: 16 random bytes in
// hex, or for an erased text its digest, 64 characters. "": there is no such text. An erased row is
// {}. In place of an erased id stands a pseudonym.
type AuditSalts struct {
	Actor  string `json:"actor,omitempty"`  // of Actor.ID
	Target string `json:"target,omitempty"` // of Target.ID
	Owner  string `json:"owner,omitempty"`  // of Target.Owner
	Holder string `json:"holder,omitempty"` // of Target.Holder.ID
	Was    string `json:"was,omitempty"`
	Is     string `json:"is,omitempty"`
}

const (
	saltLength   = 32 // characters
	digestLength = 64
)

// AuditQuery asks for a part of the records. A record must match all fields that are set, byte by
// byte. The zero query asks for all records. For the next page, set Before to the Number of the
// last record. In package sqlstore, lists by ActorID, TargetID or time use an index.
type AuditQuery struct {
	ActorKind  Kind
	ActorID    string
	TargetKind event.TargetKind
	TargetID   string    // of any kind when TargetKind is ""
	Since      time.Time // records at that time or later
	Until      time.Time // records before that time
	Before     int64     // records with a smaller Number, not negative
	Limit      int       // the most records to list, not negative; 0: all
}

// AuditStore is an optional role: it keeps the records of events. Without it, [New] refuses
// [EventConfig].Keep. A mutation queues its events, and a later transaction gives them their places
// in the chain: so mutations do not wait for each other's. Its writes are no mutations: the
// generation stays.
type AuditStore interface {
	// QueueAudit keeps events for ChainAudit, in the transaction of their mutation. It waits for no
	// other transaction, unless all writes of the store do. Such a store may chain immediately:
	// what the queue has, then events.
	QueueAudit(
		ctx context.Context, events []Event,
		chain func(last AuditRecord, events []Event) []AuditRecord,
	) error
	// ChainAudit moves queued events into the records, in one transaction. It calls chain with the
	// newest record, zero if there is none, and the events, and adds the records that chain
	// returns.
	//
	// Calls happen one after the other, and each takes what was committed before it began. Events
	// of one call of QueueAudit stay in their order, behind those of earlier calls that its
	// transaction could see. more says that the queue may have others. In a transaction, no other
	// call chains until the end, even when the queue is empty. Outside of one, a store that can
	// only read leaves the queue as it is, without an error.
	ChainAudit(
		ctx context.Context, chain func(last AuditRecord, events []Event) []AuditRecord,
	) (more bool, err error)
	// EraseAudit replaces the texts of records, found by Number: the ids of Actor and Target, Owner
	// and Holder of Target, Was, Is and Salts. Everything else stays. Call ChainAudit in the same
	// transaction before the records are read.
	EraseAudit(ctx context.Context, records []AuditRecord) error
	// AuditRecords returns a chunk of the records that query asks for, greatest Number first;
	// query.Limit is > 0.
	AuditRecords(ctx context.Context, query AuditQuery) ([]AuditRecord, error)
}

// followedBy returns the records of events, with r as the record before the first. The zero r
// begins the chain. [AuditStore].ChainAudit may ask again: then the salts are others.
func (r AuditRecord) followedBy(events []Event) []AuditRecord {
	records := make([]AuditRecord, len(events))
	for i, event := range events {
		r = AuditRecord{Event: event, Number: r.Number + 1, Previous: r.Hash}
		r.salt()
		r.Hash = r.digest()
		records[i] = r
	}
	return records
}

// auditText is a text of a record that may be erased, and its salt or digest.
type auditText struct {
	text string
	salt *string
	row  bool // the text is JSON
}

// texts returns the texts of r that may be erased. A text may be empty.
func (r *AuditRecord) texts() [6]auditText {
	t, s := &r.Target, &r.Salts
	return [...]auditText{
		{r.Actor.ID, &s.Actor, false}, {t.ID, &s.Target, false}, {t.Owner, &s.Owner, false},
		{t.Holder.ID, &s.Holder, false}, {string(r.Was), &s.Was, true}, {string(r.Is), &s.Is, true},
	}
}

// salt draws the salts of r. Without them, a digest would tell whoever guesses the text.
func (r *AuditRecord) salt() {
	var random [6 * saltLength / 2]byte
	_, _ = rand.Read(random[:]) // never fails
	salts := hex.EncodeToString(random[:])
	for i, text := range r.texts() {
		if text.text != "" {
			*text.salt = salts[i*saltLength:][:saltLength]
		}
	}
}

// digest returns what the hash of a record covers of a text with a salt.
func (t auditText) digest() string {
	if len(*t.salt) == digestLength {
		return *t.salt
	}
	sum := sha256.Sum256(append(append(make([]byte, 0, 512), *t.salt...), t.text...))
	return hex.EncodeToString(sum[:])
}

// append appends what the hash of a record covers of a text: an array of its digest, or the JSON of
// a text without a salt.
func (t auditText) append(b []byte) []byte {
	switch {
	case *t.salt != "":
		return append(append(append(b, `["`...), t.digest()...), `"]`...)
	case t.row && t.text != "":
		return append(b, t.text...)
	}
	return appendOrNull(b, t.text)
}

// digest returns the Hash that r should have. It covers Previous, so a Hash vouches for the whole
// chain before it.
func (r AuditRecord) digest() []byte {
	sum := sha256.Sum256(r.canonical())
	return sum[:]
}

// intact reports whether r's Hash matches its other fields. Was and Is must be JSON objects, and
// salts hexadecimal: with other texts in them, two records could have the same form.
func (r AuditRecord) intact() bool {
	for _, text := range r.texts() {
		if _, err := hex.DecodeString(*text.salt); err != nil {
			return false
		}
	}
	return intactRow(r.Was, r.Salts.Was) && intactRow(r.Is, r.Salts.Is) &&
		bytes.Equal(r.Hash, r.digest())
}

// intactRow reports whether a row is none, a JSON object, or {} where it was erased.
func intactRow(row json.RawMessage, salt string) bool {
	if len(salt) == digestLength {
		return string(row) == erasedRow
	}
	return len(row) == 0 || row[0] == '{' && json.Valid(row)
}

// erasedRow stands for a row of access that was erased.
const erasedRow = "{}"

// erased returns how many texts of r are erased.
func (r AuditRecord) erased() (n int) {
	for _, text := range r.texts() {
		if len(*text.salt) == digestLength {
			n++
		}
	}
	return n
}

// canonical returns the RFC 8785 form of a record as GET /admin/events shows it, without its hash
// and its salts, and with an array of the digest in place of each text that has a salt. The form
// never changes: a change would break every existing chain. A field that is added later must be
// absent, not null, in records that were written without it: actor's key_id and the salts are.
//
// RFC 8785 sorts members by their names, so the order of these lines matters.
func (r AuditRecord) canonical() []byte {
	of := r.texts()
	actor, target, owner, holder, was, is := of[0], of[1], of[2], of[3], of[4], of[5]
	t := r.Target
	b := append(make([]byte, 0, 1024), `{"action":`...)
	b = jcs.AppendString(b, string(r.Action))
	b = appendIdentity(append(b, `,"actor":`...), r.Actor.Kind, actor, r.ActorKey)
	b = is.append(append(b, `,"id":"`+r.ID.String()+`","is":`...))
	b = append(b, `,"number":`...)
	b = strconv.AppendInt(b, r.Number, 10)
	b = appendOrNull(append(b, `,"previous":`...), hex.EncodeToString(r.Previous))
	b = append(b, `,"target":{"holder":`...)
	if t.Holder == (Identity{}) { // the target is no key
		b = append(b, "null"...)
	} else {
		b = appendIdentity(b, t.Holder.Kind, holder, "")
	}
	b = target.append(append(b, `,"id":`...))
	b = jcs.AppendString(append(b, `,"kind":`...), string(t.Kind))
	b = owner.append(append(b, `,"owner":`...))
	b = appendOrNull(append(b, `,"scope":`...), string(t.Scope))
	b = append(b, '}')
	if r.Tenant != "" { // records of a single Service have no tenant
		b = jcs.AppendString(append(b, `,"tenant":`...), r.Tenant)
	}
	b = r.Time.UTC().AppendFormat(append(b, `,"time":"`...), "2006-01-02T15:04:05.000000Z")
	return append(was.append(append(b, `","was":`...)), '}')
}

// appendIdentity appends an identity and its key, if any. Records older than the field have no key.
func appendIdentity(b []byte, kind Kind, id auditText, key string) []byte {
	b = id.append(append(b, `{"id":`...))
	if key != "" {
		b = jcs.AppendString(append(b, `,"key_id":`...), key)
	}
	b = jcs.AppendString(append(b, `,"kind":`...), string(kind))
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

// mark adds to changed what decisions may depend on.
func (t Target) mark(changed *readcache.Changed) {
	switch t.Kind {
	case event.TargetAPIKey:
		changed.Keys = append(changed.Keys, t.ID)
	case event.TargetBankPolicy:
		changed.Banks = append(changed.Banks, t.ID)
	case event.TargetUser:
		changed.Users.Add(t.ID)
	case event.TargetServiceAccount:
		changed.Accounts.Add(t.ID)
	case event.TargetPolicy:
		changed.Policies.Add(t.ID)
	case event.TargetAttachment:
		if to := t.Attachment().Principal; to.Type == GrantedToUser {
			changed.Users.Add(to.ID)
		} else {
			changed.Groups.Add(to.ID)
		}
	case event.TargetMember:
		if t.Holder.ID == "" { // nothing says who joined
			changed.Access = true
		}
		changed.Users.Add(t.Holder.ID)
	case event.TargetChannel:
		of := t.Channel()
		sender := readcache.Sender{Provider: of.Provider, ID: of.SenderID}
		changed.Senders = append(changed.Senders, sender)
	case event.TargetAccess:
		changed.Access = true
	}
}

// add names the rows of a target. It reports whether the target is one of access.
func (n *AccessNames) add(t Target) bool {
	switch {
	case t.Kind == event.TargetChannel:
		n.Channels = append(n.Channels, t.Channel())
	case t.Kind != event.TargetMember:
		return slices.ContainsFunc(kinds, func(k anyKind) bool { return k.name(n, t) })
	case t.Holder == (Identity{}):
		n.MembersOf = append(n.MembersOf, t.ID)
	default:
		n.Members = append(n.Members, Membership{Group: t.ID, User: t.Holder.ID})
	}
	return true
}

func (k *kind[R, K]) name(n *AccessNames, t Target) bool {
	if t.Kind != k.target {
		return false
	}
	switch keys := any(k.named(n)).(type) {
	case *[]string:
		*keys = append(*keys, t.ID)
	case *[]AttachmentKey:
		*keys = append(*keys, t.Attachment())
	}
	return true
}

// Attachment returns the key of the attachment that an [event.TargetAttachment] is about.
func (t Target) Attachment() AttachmentKey {
	id, principal, _ := strings.Cut(t.ID, "/")
	kind, of, _ := strings.Cut(principal, "/")
	return AttachmentKey{PolicyID: id, Principal: GrantedTo{Type: kind, ID: of}}
}

// Channel returns the channel that an [event.TargetChannel] is about.
func (t Target) Channel() Channel {
	provider, sender, _ := strings.Cut(t.ID, ":")
	return Channel{Provider: provider, SenderID: sender}
}
