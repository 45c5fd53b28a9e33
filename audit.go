package svc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"time"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/sequencer"
	"github.com/extsvc/svc/limits"
)

// Audit lists and verifies the kept events ([EventConfig].Keep), and erases texts of a person. It
// deletes nothing: only operators delete old records. On a server that records no events its
// methods return CodeNotFound, but Forget erases what an earlier one has kept.
type Audit struct {
	*authorizer
	keep bool // false: this server keeps no events
}

// Keeps reports whether this server records events.
func (s *Audit) Keeps() bool { return s.keep }

// Records lists the kept events, newest first. The caller needs iam:audit:read. An error is yielded
// once, last; of CodeInvalid the Field is the name of a parameter of GET /admin/events.
//
// Nothing happens before the loop over the sequence begins. It reads 128 records at a time. Events
// of all calls that have returned by then appear: those that wait in the queue are chained first
// (but not on a standby). Records that are written during the loop do not. In a transaction of the host,
// other lists and checks then wait for its end where the store has a queue.
func (s *Audit) Records(
	ctx context.Context, by Principal, query AuditQuery,
) iter.Seq2[AuditRecord, error] {
	page := query
	page.Limit = chunkOf(query.Limit)
	page.Since, page.Until = roundUp(query.Since), roundUp(query.Until)
	return lists.Take(query.Limit, lists.Chunks(ctx, page, page.Limit, doing("list events"),
		func(*AuditQuery) error {
			if err := query.check(); err != nil {
				return err
			}
			if err := s.authorize(ctx, by, action.AuditRead); err != nil {
				return err
			}
			if !s.keep {
				return notFound("this server records no events")
			}
			if s.roles.audit == nil {
				return lacks(auditRole)
			}
			if s.readOnly { // the queue waits
				return nil
			}
			return fault("chain events", chainAll(ctx, s.roles.audit))
		},
		func(page AuditQuery) ([]AuditRecord, error) {
			return s.roles.audit.AuditRecords(ctx, page)
		},
		func(page *AuditQuery, last AuditRecord) { page.Before = last.Number }))
}

// check returns an Error unless every store can answer the query. An actor or a target may have any
// text: a name that no principal can have finds nothing.
func (q AuditQuery) check() error {
	var c checker
	switch q.ActorKind {
	case "", KindUser, KindServiceAccount, KindHost:
	default:
		c.add("actor_kind", `must be "user", "service_account" or "host"`)
	}
	c.text("actor", q.ActorID, limits.IDLength)
	switch q.TargetKind {
	case "", event.TargetSource, event.TargetTemplate, event.TargetAPIKey,
		event.TargetUser, event.TargetGroup, event.TargetServiceAccount,
		event.TargetPolicy, event.TargetAttachment, event.TargetBankPolicy, event.TargetTest:
	default:
		c.add("target_kind", "must be the kind of a target")
	}
	c.text("target", q.TargetID, maxTargetLength)
	c.year("since", q.Since)
	c.year("until", q.Until)
	if q.Before < 0 {
		c.add("cursor", "must not be negative")
	}
	c.count("limit", q.Limit)
	return c.err()
}

// chainAll chains all events in the queue.
func chainAll(ctx context.Context, audit AuditStore) (err error) {
	for more := true; more && err == nil; {
		more, err = audit.ChainAudit(ctx, AuditRecord.followedBy)
	}
	return err
}

// forgetUser erases, in the transaction of a deletion, what records have of a user and of the
// service accounts among its events. All calls before have then chained their events, and none
// chains before the transaction ends.
func forgetUser(ctx context.Context, audit AuditStore, user string, events []Event) error {
	err := chainAll(ctx, audit)
	gone := []Target{{Kind: event.TargetUser, ID: user}}
	for _, e := range events {
		if e.Target.Kind == event.TargetServiceAccount {
			gone = append(gone, e.Target)
		}
	}
	for _, t := range gone {
		e := eraser{who: Identity{Kind(t.Kind), t.ID}, query: AuditQuery{
			TargetKind: t.Kind, TargetID: t.ID, Limit: erasedAtOnce,
		}}
		for more := true; more && err == nil; {
			more, err = e.erase(ctx, audit)
		}
	}
	return err
}

// Forget erases what the records have of a person: the rows of access of who, before and after each
// change, and of a user those of its service accounts. The chain stays good, because it covers
// digests. Only [Host] may call it. With a pseudonym, an id, it replaces the id of who as well, as
// actor, target, owner and holder, and erases all other rows that have the id, such as lists of
// members. "": ids stay. A who of the kind of [Host] is a name of [Principal.As]: it is replaced
// only as actor.
//
// It returns how many texts it has erased. It reads all records, 1,000 in a transaction each: when
// it fails, call it again. Call it when the person has left ([Service.ForgetUser]); records of
// later calls are not touched.
func (s *Audit) Forget(
	ctx context.Context, by Principal, who Identity, pseudonym string,
) (erased int64, err error) {
	var c checker
	switch who.Kind {
	case KindUser, KindServiceAccount:
	case KindHost: // its names are only those of actors
		if pseudonym == "" {
			c.add("pseudonym", "is required for a name of the host")
		}
	default:
		c.add("kind", "must be that of a user, of a service account or of the host")
	}
	c.lookup("id", who.ID)
	if pseudonym != "" {
		c.id("pseudonym", pseudonym)
	}
	if pseudonym == who.ID && c.ok() {
		c.add("pseudonym", "must differ from the id")
	}
	switch {
	case c.err() != nil:
		return 0, c.err()
	case s.readOnly:
		return 0, errReadOnly
	case by.Kind != KindHost:
		return 0, forbidden("only the host erases texts of records")
	case s.roles.audit == nil && !s.keep:
		return 0, notFound("this server records no events")
	case s.roles.audit == nil:
		return 0, lacks(auditRole)
	}
	e := eraser{who: who, pseudonym: pseudonym, query: AuditQuery{Limit: erasedAtOnce}}
	for more := true; more && err == nil; {
		done := e
		err = s.store.Atomically(ctx, func(ctx context.Context, tx Store) (err error) {
			e = done // the store may run this again
			audit := rolesOf(tx).audit
			if err = chainAll(ctx, audit); err == nil {
				more, err = e.erase(ctx, audit)
			}
			return err
		})
		if err != nil {
			e = done
		}
	}
	return e.erased, fault("erase texts of records", err)
}

const erasedAtOnce = 1000 // records of a transaction

// eraser erases texts of a person from the records that match a query, newest first.
type eraser struct {
	who       Identity
	pseudonym string
	query     AuditQuery
	erased    int64
}

// erase erases texts of one chunk of records. Its transaction has called ChainAudit.
func (e *eraser) erase(ctx context.Context, audit AuditStore) (more bool, err error) {
	records, err := audit.AuditRecords(ctx, e.query)
	if err != nil || len(records) == 0 {
		return false, err
	}
	e.query.Before = records[len(records)-1].Number
	changed := records[:0]
	for _, r := range records {
		if n := r.forget(e.who, e.pseudonym); n > 0 {
			changed, e.erased = append(changed, r), e.erased+int64(n)
		}
	}
	if len(changed) > 0 {
		err = audit.EraseAudit(ctx, changed)
	}
	return true, err
}

// forget erases the texts of a person, and returns how many.
func (r *AuditRecord) forget(who Identity, pseudonym string) (erased int) {
	t, of := &r.Target, string(jcs.AppendString(nil, who.ID))
	own := who == Identity{Kind(t.Kind), t.ID}
	texts := r.texts()
	rows := []*json.RawMessage{&r.Was, &r.Is}
	for i, row := range rows {
		owned := who.Kind == KindUser && t.Kind == event.TargetServiceAccount &&
			bytes.Contains(*row, []byte(`"owner_user_id":`+of))
		if own || owned || pseudonym != "" && who.Kind != KindHost && names(*row, of) {
			if texts[4+i].erase() {
				*row, erased = json.RawMessage(erasedRow), erased+1
			}
		}
	}
	if pseudonym == "" {
		return erased
	}
	if t.Kind == event.TargetTest && erased > 0 && texts[1].erase() { // a digest of the row
		t.ID, erased = pseudonym, erased+1
	}
	replace := func(id *string, text auditText, of Identity, front string) {
		if of == who && text.erase() {
			*id, erased = front+pseudonym, erased+1
		}
	}
	replace(&r.Actor.ID, texts[0], r.Actor, "")
	front, attached := strings.CutSuffix(t.ID, "/user/"+who.ID)
	if attached && t.Kind == event.TargetAttachment {
		replace(&t.ID, texts[1], Identity{KindUser, who.ID}, front+"/user/")
	}
	replace(&t.ID, texts[1], Identity{Kind(t.Kind), t.ID}, "")
	replace(&t.Owner, texts[2], Identity{KindUser, t.Owner}, "")
	replace(&t.Holder.ID, texts[3], t.Holder, "")
	return erased
}

// erase replaces the salt by the digest, unless that is done or the record has no salts.
func (t auditText) erase() bool {
	if len(*t.salt) != saltLength {
		return false
	}
	*t.salt = t.digest()
	return true
}

// names reports whether a row in RFC 8785 form has a text among its values.
func names(row []byte, text string) bool {
	for {
		before, rest, found := bytes.Cut(row, []byte(text))
		within := bytes.HasSuffix(before, []byte(`\`)) // of another text, whose quote is escaped
		if !found || !within && len(rest) > 0 && rest[0] != ':' {
			return found
		}
		row = rest
	}
}

// AuditPosition names a record, and through the chain all records before it. Zero: there are no
// records.
type AuditPosition struct {
	Number int64
	Hash   []byte
}

// AuditCheck is the result of [Audit.Verify].
type AuditCheck struct {
	Oldest, Newest AuditPosition // zero when the store has no records
	Erased         int64         // the texts that were erased, each id and row by itself
	Fault          *AuditFault   // the first fault, from the oldest record; nil: the chain is good
}

// AuditFault names a record that breaks the chain. Records after it may have faults as well.
type AuditFault struct {
	Number int64
	Reason string // the rest of a sentence that begins with the record
}

// Verify reads all records, from the oldest in the store, and checks that each is as it was written
// and follows the one before it: it finds a record that was changed, removed, inserted or moved.
// The caller needs iam:audit:read. A fault of the chain is no error: the oldest is in the
// [AuditCheck]. 100,000 records take about a second. It locks nothing: records of mutations in the
// meantime are left to the next check.
//
// The chain does not show that the newest records are gone, or that a writer of the database
// replaced the whole chain. To find this, save the Newest of each check in a place that writers of
// the database cannot change, and pass it to later checks as known. A known record that is missing
// or different is a fault, so do not delete it. A zero position is ignored. An erased text is no
// fault: as a writer of the database can erase as well, compare Erased with what [Audit.Forget] has
// returned.
func (s *Audit) Verify(
	ctx context.Context, by Principal, known ...AuditPosition,
) (AuditCheck, error) {
	v := auditVerifier{known: map[int64][]AuditPosition{}}
	for _, mark := range known {
		v.known[mark.Number] = append(v.known[mark.Number], mark)
	}
	delete(v.known, 0) // the mark of a check that found no records
	for record, err := range s.Records(ctx, by, AuditQuery{}) {
		if err != nil {
			return AuditCheck{}, err
		}
		v.see(record)
	}
	v.end()
	return v.AuditCheck, nil
}

// auditVerifier checks the records from the newest to the oldest, as Records lists them: so records
// written in the meantime cannot disturb it.
type auditVerifier struct {
	AuditCheck
	begun bool
	last  AuditRecord               // the last record that it has checked
	known map[int64][]AuditPosition // the known records that it has not met yet
}

// see checks the next older record: its own hash, and whether the record checked before follows
// from it. The fault of a gap or a wrong Previous belongs to that newer record.
func (v *auditVerifier) see(r AuditRecord) {
	mark := AuditPosition{r.Number, r.Hash}
	if !v.begun {
		v.Newest, v.begun = mark, true
	} else if r.Number+1 != v.last.Number {
		v.breaks(v.last.Number,
			fmt.Sprintf("follows record %d: the records between them are missing", r.Number))
	} else if !bytes.Equal(v.last.Previous, r.Hash) {
		v.breaks(v.last.Number, "does not follow from the record before it")
	}
	v.Erased += int64(r.erased())
	if !r.intact() {
		v.breaks(r.Number, "was changed after it was written")
	}
	for _, known := range v.known[r.Number] {
		if !bytes.Equal(known.Hash, r.Hash) {
			v.breaks(r.Number, "differs from the known record")
		}
	}
	delete(v.known, r.Number)
	v.Oldest, v.last = mark, r
}

// end checks what only the whole list shows. An oldest record with a later number than 1 is no
// fault, whatever its Previous is: operators may have deleted those before it.
func (v *auditVerifier) end() {
	if v.Oldest.Number == 1 && len(v.last.Previous) > 0 {
		v.breaks(1, "is the first record, but names a previous one")
	}
	for number := range v.known {
		v.breaks(number, "is known, but missing")
	}
}

// breaks notes a fault, unless an older record has one already. Of two faults of one record, the
// later call wins.
func (v *auditVerifier) breaks(number int64, reason string) {
	if v.Fault == nil || number <= v.Fault.Number {
		v.Fault = &AuditFault{number, reason}
	}
}

// chainEvery is how often a Service looks for events that another process has left in the queue. A
// tenant's looks less often, because there may be thousands.
const (
	chainEvery       = time.Second
	chainTenantEvery = time.Minute
)

// newChains returns what chains the queued events of a Service. Nil: it keeps none.
func newChains(
	keep bool, tenant string, audit AuditStore, log *slog.Logger,
) *sequencer.Sequencer {
	if !keep {
		return nil
	}
	every := chainEvery
	if tenant != "" {
		every = chainTenantEvery
	}
	return sequencer.New(every, func(ctx context.Context) error {
		return chainAll(ctx, audit)
	}, background.Reporter(log, "chain audit records"))
}

// maxTargetLength is the most characters of a target's id. The longest is the id of an attachment,
// which names three things.
const maxTargetLength = 3 * limits.IDLength
