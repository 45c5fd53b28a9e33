package svc

import (
	"bytes"
	"context"
	"fmt"
)

// AuditMark names a record, and with it all that came before.
type AuditMark struct {
	Number int64
	Hash   []byte
}

// AuditCheck is what [Service.VerifyAudit] has found.
type AuditCheck struct {
	Oldest, Newest AuditMark   // zero where there is no record
	Fault          *AuditFault // the first, from the oldest record on; nil: all fit
}

// AuditFault is a record that does not fit.
type AuditFault struct {
	Number int64
	Reason string // of a sentence that begins with the record
}

// VerifyAudit reads all records that there are and checks that each is as it was written, and follows the one before it: that none was
// changed, removed, inserted or moved. It begins with the oldest that is there, since operators may delete old ones. The caller needs
// iam:audit:read.
//
// What it cannot see by itself is that the newest records are gone, or that somebody has written all of it anew: keep the Newest of a
// check where whoever can write the database cannot, and give it to later ones as known. A known record that is not there, or
// not the same, does not fit; so delete no record that is to be known.
//
// Errors: CodeForbidden, CodeNotFound (this server keeps no events).
func (s *Service) VerifyAudit(ctx context.Context, by Principal, known ...AuditMark) (AuditCheck, error) {
	v := auditVerifier{known: map[int64][]AuditMark{}}
	for _, mark := range known {
		v.known[mark.Number] = append(v.known[mark.Number], mark)
	}
	delete(v.known, 0) // there was no record then
	for record, err := range s.AuditRecords(ctx, by, AuditFilter{}) {
		if err != nil {
			return AuditCheck{}, err
		}
		v.see(record)
	}
	v.end()
	return v.AuditCheck, nil
}

// auditVerifier sees the records from the newest to the oldest.
type auditVerifier struct {
	AuditCheck
	begun bool
	last  AuditRecord           // that it has seen
	known map[int64][]AuditMark // those that it has not seen
}

func (v *auditVerifier) see(r AuditRecord) {
	mark := AuditMark{r.Number, r.Hash}
	if !v.begun {
		v.Newest, v.begun = mark, true
	} else if r.Number+1 != v.last.Number {
		v.breaks(v.last.Number, fmt.Sprintf("the record before it is %d: what was between them is gone", r.Number))
	} else if !bytes.Equal(v.last.Previous, r.Hash) {
		v.breaks(v.last.Number, "does not follow from the record before it")
	}
	if !r.intact() {
		v.breaks(r.Number, "is not what was written")
	}
	for _, known := range v.known[r.Number] {
		if !bytes.Equal(known.Hash, r.Hash) {
			v.breaks(r.Number, "is not the one that is known")
		}
	}
	delete(v.known, r.Number)
	v.Oldest, v.last = mark, r
}

func (v *auditVerifier) end() {
	if v.Oldest.Number == 1 && len(v.last.Previous) > 0 {
		v.breaks(1, "is the first, and follows another")
	}
	for number := range v.known {
		v.breaks(number, "is known, and not there")
	}
}

// breaks notes a record that does not fit, unless it came after one that was noted.
func (v *auditVerifier) breaks(number int64, reason string) {
	if v.Fault == nil || number <= v.Fault.Number {
		v.Fault = &AuditFault{number, reason}
	}
}
