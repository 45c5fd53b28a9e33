package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

func TestAuditRecords(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t, func(u *setup) { u.service.Events.Keep = true }), t.Context()
	for i := range 1005 { // more than a page
		s.create(fmt.Sprint("a<", i, ">"))
	}
	s.tick()
	for range 3 {
		must(s.Keys.Issue(ctx, svc.Host, alice, svc.NewAPIKey{}))
		s.tick()
	}
	must(s.Keys.RevokeAll(ctx, svc.Principal{Kind: svc.KindUser, ID: "alice"}, svc.Me))
	is.NoErr(s.store.AppendAudit(ctx, func(last svc.AuditRecord) []svc.AuditRecord {
		next := last
		next.Number, next.Previous, next.Hash = last.Number+1, last.Hash, bytes.Repeat([]byte{1}, 32)
		next.Actor, next.Action = svc.Host.As("ops").Identity(), svc.EventAccessWritten
		next.Is = json.RawMessage(`{"b":9007199254740993,"id":"a<b>"}`)
		after := next
		after.Number, after.Previous = next.Number+1, next.Hash
		after.Was, after.Is, after.Action = next.Is, nil, svc.EventAccessRemoved
		return []svc.AuditRecord{next, after}
	}))
	whole := must(all(s.Audit.Records(ctx, svc.Host, svc.AuditQuery{})))
	key := whole[3] // a revocation
	for _, filter := range []svc.AuditQuery{
		{}, {ActorKind: svc.KindHost}, {ActorID: "ops"}, {ActorID: "alice"}, {TargetKind: svc.TargetPolicy}, {TargetID: key.Target.ID}, {TargetID: "a<7>"},
		{Since: key.Time}, {Since: key.Time.Add(time.Nanosecond)}, {Until: key.Time.In(time.FixedZone("elsewhere", 3600))}, {Before: 3}, {ActorID: "nobody"}, {Limit: 2}, {Limit: 2000}, {Before: 4, Limit: 1},
	} {
		got, err := all(s.client.Audit.Records(ctx, filter))
		is.NoErr(err)
		is.Equal(got, must(all(s.Audit.Records(ctx, svc.Host, filter))))
	}
	is.Equal(whole[len(whole)-1].Previous, []byte(nil))

	for range s.client.Audit.Records(ctx, svc.AuditQuery{}) {
		break // and nobody waits for the rest
	}
	canceled, cancel := context.WithCancel(ctx)
	n, err := 0, error(nil)
	for _, err = range s.client.Audit.Records(canceled, svc.AuditQuery{}) {
		if n++; n == 1000 {
			cancel()
		}
	}
	cancel()
	is.True(n < len(whole) && svc.ErrorCode(err) == svc.CodeUnavailable)
}

func TestAuditRecordsRefused(t *testing.T) {
	is := is.New(t)
	silent := newSite(t)
	_, err := all(silent.client.Audit.Records(t.Context(), svc.AuditQuery{}))
	is.Equal(refused(err), refusal{Code: svc.CodeNotFound, Message: "this server records no events"})
	_, err = all(silent.client.Audit.Records(t.Context(), svc.AuditQuery{ActorKind: "x"}))
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
	_, err = all(silent.client.As("session-of-bob").Audit.Records(t.Context(), svc.AuditQuery{}))
	is.Equal(svc.ErrorCode(err), svc.CodeForbidden)
	is.Equal(slices.Compact(silent.requests()), []string{"GET /admin/events"})
}
