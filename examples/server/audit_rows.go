package main

import (
	"context"
	"flag"
	"iter"
	"slices"
	"time"

	"github.com/extsvc/svc"
)

// auditRow is a record as audit prints it.
type auditRow struct {
	Number int64     `json:"number"`
	Time   time.Time `json:"time"`
	Action string    `json:"action"`
	Actor  auditWho  `json:"actor"`
	Target auditWho  `json:"target"`
}

type auditWho struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

func ofRecord(r svc.AuditRecord) auditRow {
	return auditRow{
		r.Number, r.Time, string(r.Action),
		auditWho{string(r.Actor.Kind), r.Actor.ID}, auditWho{string(r.Target.Kind), r.Target.ID},
	}
}

// followPause is the time between two looks of audit -follow.
const followPause = time.Second

var auditCommand = rows{
	name: "audit", about: "print the newest records, the oldest of them first",
	reads: true, setup: printAudit,
}

func printAudit(flags *flag.FlagSet, c *call) rowsAction {
	limit := flags.Int("limit", 50, "how `MANY` records")
	follow := flags.Bool("follow", false, "go on with those that follow, until interrupted")
	return func(ctx context.Context, t target) error {
		query := svc.AuditQuery{Limit: *limit}
		for seen := int64(0); ; {
			news, err := t.recordsAfter(ctx, seen, query)
			if err != nil && (seen == 0 || svc.ErrorCode(err) != svc.CodeUnavailable || ctx.Err() != nil) {
				return err // else the database or the server may be back soon
			}
			for _, record := range slices.Backward(news) {
				seen, query.Limit = record.Number, 0
				if err := c.printRecord(ofRecord(record)); err != nil {
					return err
				}
			}
			if !*follow {
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(followPause):
			}
		}
	}
}

// recordsAfter returns the records with a greater number than seen, the newest first.
func (t target) recordsAfter(
	ctx context.Context, seen int64, query svc.AuditQuery,
) (news []svc.AuditRecord, err error) {
	for record, err := range t.records(ctx, query) {
		if err != nil {
			return nil, err
		}
		if record.Number <= seen {
			break
		}
		news = append(news, record)
	}
	return news, nil
}

func (t target) records(
	ctx context.Context, query svc.AuditQuery,
) iter.Seq2[svc.AuditRecord, error] {
	if t.local != nil {
		return t.local.Audit.Records(ctx, t.by, query)
	}
	return t.far.Audit.Records(ctx, query)
}

func (c *call) printRecord(r auditRow) error {
	if c.asJSON {
		return showOne(c, r)
	}
	return printLine(c.stdout, "%d  %s  %s  %s %s  by %s %s",
		r.Number, r.Time.UTC().Format(time.RFC3339), r.Action,
		r.Target.Kind, r.Target.ID, r.Actor.Kind, r.Actor.ID)
}
