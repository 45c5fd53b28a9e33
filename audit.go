package svc

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"time"
)

// Audit lists and verifies the kept events ([EventConfig].Keep). It writes and deletes nothing:
// records are written by mutations, and only operators delete old ones.
type Audit struct {
	*guard
	keep bool // false: this server keeps no events
}

// Records lists the kept events, newest first. The caller needs iam:audit:read.
//
// Nothing happens before the loop over the sequence begins. Range over it once: a second loop may
// begin where the first has ended. It reads 128 records at a time, so a caller may be slow and
// memory stays small. Records that are written during the loop do not appear.
//
// Errors: CodeInvalid (its Field is the name of a parameter of GET /admin/events), CodeForbidden,
// CodeNotFound (this server records no events). An error is yielded once, last.
func (s *Audit) Records(
	ctx context.Context, by Principal, query AuditQuery,
) iter.Seq2[AuditRecord, error] {
	page := query
	page.Limit = chunkOf(query.Limit)
	page.Since, page.Until = roundUp(query.Since), roundUp(query.Until)
	return upTo(query.Limit, list(ctx, "list events", page.Limit,
		func() error {
			if err := query.check(); err != nil {
				return err
			}
			if err := s.authorize(ctx, by, ActionAuditRead); err != nil {
				return err
			}
			if !s.keep {
				return notFound("this server records no events")
			}
			if s.roles.audit == nil {
				return lacks(auditRole)
			}
			return nil
		},
		func() ([]AuditRecord, error) { return s.roles.audit.AuditRecords(ctx, page) },
		func(last AuditRecord) { page.Before = last.Number }))
}

// roundUp returns the first time at or after t that a record can have. Stores compare microseconds:
// a bound that was cut off there would include records before Since and lose some before Until.
func roundUp(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Add(time.Microsecond - 1).Truncate(time.Microsecond)
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
	c.text("actor", q.ActorID, MaxIDLength)
	switch q.TargetKind {
	case "", TargetSource, TargetTemplate, TargetAPIKey,
		TargetUser, TargetGroup, TargetServiceAccount,
		TargetPolicy, TargetAttachment, TargetBankPolicy:
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

// year refuses a time that some stores cannot compare.
func (c *checker) year(field string, t time.Time) {
	if t = t.UTC(); t.Year() < 0 || t.Year() > 9999 {
		c.add(field, "must lie in the years 0 to 9999")
	}
}

// AuditMark names a record, and through the chain all records before it. The zero mark is that of
// a store without records.
type AuditMark struct {
	Number int64
	Hash   []byte
}

// AuditCheck is the result of [Audit.Verify].
type AuditCheck struct {
	Oldest, Newest AuditMark   // zero when the store has no records
	Fault          *AuditFault // the first fault, from the oldest record on; nil: the chain is good
}

// AuditFault names a record that breaks the chain. Records after it may have faults as well.
type AuditFault struct {
	Number int64
	Reason string // the rest of a sentence that begins with the record
}

// Verify reads all records and checks their chain. The caller needs iam:audit:read.
//
// It checks that each record is as it was written and follows the record before it. So it finds a
// record that was changed, removed, inserted or moved. It begins with the oldest record in the
// store, because operators may delete old ones.
//
// The chain alone does not show that the newest records are gone, or that a writer of the database
// replaced the whole chain. To find this, save the Newest of each check in a place that writers of
// the database cannot change, and pass it to later checks as known. A known record that is missing
// or different is a fault. So do not delete a record that you pass as known. A zero mark is
// ignored, so the Newest of every check can be passed.
//
// A fault of the chain is no error: it is in the AuditCheck, the oldest one when there are several.
// Verify reads each record once and keeps only one of them, and the marks. 100,000 records take
// about a second. It locks nothing: records of mutations meanwhile are left to the next check.
//
// Errors: CodeForbidden, CodeNotFound (this server records no events).
func (s *Audit) Verify(
	ctx context.Context, by Principal, known ...AuditMark,
) (AuditCheck, error) {
	v := auditVerifier{known: map[int64][]AuditMark{}}
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
// written meanwhile cannot disturb it.
type auditVerifier struct {
	AuditCheck
	begun bool
	last  AuditRecord           // the last record that it has checked
	known map[int64][]AuditMark // the known records that it has not met yet
}

// see checks the next older record: its own hash, and whether the record checked before follows
// from it. The fault of a gap or a wrong Previous belongs to that newer record.
func (v *auditVerifier) see(r AuditRecord) {
	mark := AuditMark{r.Number, r.Hash}
	if !v.begun {
		v.Newest, v.begun = mark, true
	} else if r.Number+1 != v.last.Number {
		v.breaks(v.last.Number,
			fmt.Sprintf("follows record %d: the records between them are missing", r.Number))
	} else if !bytes.Equal(v.last.Previous, r.Hash) {
		v.breaks(v.last.Number, "does not follow from the record before it")
	}
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
