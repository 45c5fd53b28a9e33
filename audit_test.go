package svc_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/store/memstore"
)

func keeping(c *svc.Config) { c.Events.Keep = true }

func (h *host) kept(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, r := range collect(t, h.Audit.Records(t.Context(), svc.Host, svc.AuditQuery{})) {
		all = append(all, string(r.Action)+" "+string(r.Target.Kind)+"/"+r.Target.ID+" by "+r.Actor.ID)
	}
	slices.Reverse(all)
	return all
}

func (h *host) wantSound(t *testing.T, known ...svc.AuditPosition) svc.AuditCheck {
	t.Helper()
	check, err := h.Audit.Verify(t.Context(), svc.Host, known...)
	if err != nil || check.Fault != nil {
		t.Fatalf("%+v, %v", check.Fault, err)
	}
	return check
}

func everyMutation(t *testing.T, h *host) {
	t.Helper()
	ctx, no := t.Context(), func(_ any, err error) { t.Helper(); is.New(t).NoErr(err) }
	h.market.put(acme, "chat", content("Chat", "1"))
	no(h.Sources.Register(ctx, admin, svc.NewSource{URL: acme}))
	no(h.Templates.Install(ctx, admin, svc.Install{TemplateID: "chat", SourceName: "acme"}))
	no(h.Templates.Patch(ctx, admin, "chat", svc.TemplatePatch{Name: ptr("Mine")}))
	no(h.Templates.Patch(ctx, admin, "chat", svc.TemplatePatch{Name: ptr("Mine")})) // which is so already
	no(h.Templates.Rollback(ctx, admin, "chat", 1))
	h.market.put(acme, "chat", content("Chat", "2"))
	no(h.Templates.Update(ctx, admin, "chat", svc.UpdateRequest{}))
	no(nil, h.Sources.Remove(ctx, admin, "acme"))
	no(h.Sources.Register(ctx, admin, svc.NewSource{URL: acme + "/new", Alias: ptr("acme")}))
	no(h.Sources.Rebind(ctx, admin, "acme"))
	no(nil, h.Templates.Delete(ctx, admin, "chat"))
	no(h.Templates.Create(ctx, admin, svc.NewTemplate{ID: "own", Content: content("Own", "1")}))
	key := issue(t, h, alice)
	no(h.Keys.Patch(ctx, svc.Host, alice.Identity(), key.ID, svc.APIKeyPatch{Disabled: ptr(true)}))
	no(h.Keys.Rotate(ctx, alice, svc.Me, key.ID, svc.Rotation{Overlap: time.Hour}))
	no(nil, h.Keys.Revoke(ctx, alice, svc.Me, key.ID))
	issue(t, h, alice)
	no(h.Keys.RevokeAll(ctx, alice, svc.Me))
	takeOver(t, h, alice, foreign)
	no(h.Keys.RevokeLeaked(ctx, svc.Host, []string{string(issue(t, h, alice).Key)}))
	h.apply(t, `{"users":[{"id":"alice"},{"id":"bob"}],"groups":[{"id":"team"}]}`)
	h.apply(t, `{"users":[{"id":"alice"}]}`) // which is so already
}

// TestEveryEventIsKept: what the host is told of, in this order, is what is kept.
func TestEveryEventIsKept(t *testing.T) {
	is, h := is.New(t), newHost(t, keeping, importing)
	everyMutation(t, h)
	told := h.events
	records := collect(t, h.Audit.Records(t.Context(), svc.Host, svc.AuditQuery{}))
	slices.Reverse(records)
	seen := map[event.Action]bool{}
	is.Equal(len(records), len(told))
	for i, r := range records {
		is.Equal(r.Event, told[i])
		is.Equal(r.Number, int64(i+1))
		again := r
		rehash(&again)
		is.Equal(again.Hash, r.Hash)
		seen[r.Action] = true
	}
	is.Equal(len(seen), 15) // every action but the two that are no mutations
	newest := h.wantSound(t).Newest
	is.Equal(newest, svc.AuditPosition{Number: int64(len(told)), Hash: records[len(records)-1].Hash})

	without := newHost(t, importing, func(c *svc.Config) { c.Store = memstore.New() })
	everyMutation(t, without)
	is.Equal(len(without.events), len(told)) // keeping makes no other events
}

func TestNothingHappensThatCannotBeKept(t *testing.T) {
	for want, cause := range map[svc.Code]error{svc.CodeInternal: errors.New("disk full"), svc.CodeUnavailable: svc.ErrUnavailable} {
		is, h := is.New(t), newHost(t, keeping)
		key := issue(t, h, alice)
		create(t, h, "a", svc.Content{})
		before, changes := h.kept(t), must(h.store.Changes(t.Context(), 0))
		h.actions()
		full := newHost(t, keeping, func(c *svc.Config) { c.Store = ahead(h.store, "QueueAudit", func(any) error { return cause }) })
		for _, err := range []error{
			errorOf(full.Templates.Create(t.Context(), admin, svc.NewTemplate{ID: "b", Content: content("B", "1")})),
			errorOf(full.Templates.Patch(t.Context(), admin, "a", svc.TemplatePatch{Name: ptr("x")})),
			full.Templates.Delete(t.Context(), admin, "a"),
			full.Keys.Revoke(t.Context(), alice, svc.Me, key.ID),
			errorOf(full.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{})),
			full.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "bob"}}}),
		} {
			wantCode(t, err, want, "")
			is.True(errors.Is(err, cause))
		}
		is.Equal(full.actions(), nil)
		is.Equal(h.kept(t), before)
		is.Equal(must(h.store.Changes(t.Context(), 0)), changes)
		must(h.Authenticate(t.Context(), string(key.Key)))
	}
}

func TestKeptByManyAtOnce(t *testing.T) {
	is, h := is.New(t), newHost(t, keeping)
	var done sync.WaitGroup
	for i := range 8 {
		other := newHost(t, keeping, func(c *svc.Config) { c.Store = h.store })
		done.Go(func() {
			for n := range 10 {
				template := svc.NewTemplate{ID: fmt.Sprint(i, "-", n), Content: content("A", "1")}
				expect.Equal(t, template.ID, errorOf(other.Templates.Create(t.Context(), admin, template)), nil)
			}
		})
	}
	done.Wait()
	is.Equal(h.wantSound(t).Newest.Number, int64(80))
	is.Equal(len(h.kept(t)), 80)
}

// tampered returns a store whose records, newest first, somebody has changed.
func tampered(records []svc.AuditRecord) svc.Store {
	return around(memstore.New(), func(call intercept.Call) error {
		if call.Method != "AuditRecords" {
			return call.Do()
		}
		page := call.Args[0].(svc.AuditQuery)
		rest := slices.DeleteFunc(slices.Clone(records), func(r svc.AuditRecord) bool { return page.Before != 0 && r.Number >= page.Before })
		*call.Result.(*[]svc.AuditRecord) = rest[:min(len(rest), page.Limit)]
		return nil
	})
}

// A name within another text names nobody, and a name of the host is replaced as actor alone.
func TestForgetTakesNoOther(t *testing.T) {
	h := newHost(t, keeping)
	must(h.Users.Create(t.Context(), svc.Host.As("ops"), svc.User{ID: "carol", DisplayName: `x "ops`}))
	for who, texts := range map[svc.Kind]int64{svc.KindUser: 0, svc.KindHost: 1} {
		is.New(t).Equal(must(h.Audit.Forget(t.Context(), svc.Host, svc.Identity{Kind: who, ID: "ops"}, "p")), texts)
	}
}

func TestVerifyFindsTampering(t *testing.T) {
	const n = 300 // more than two chunks
	h := newHost(t, keeping)
	for i := range n {
		create(t, h, fmt.Sprint(i), svc.Content{})
	}
	first := h.wantSound(t).Newest
	all := collect(t, h.Audit.Records(t.Context(), svc.Host, svc.AuditQuery{}))
	at := func(number int64) svc.AuditPosition {
		return svc.AuditPosition{Number: number, Hash: all[n-number].Hash}
	}
	for name, c := range map[string]struct {
		tamper func(r []svc.AuditRecord) []svc.AuditRecord // r[0] is number 300
		broken int64                                       // -1: none
		known  []svc.AuditPosition
	}{
		"nothing":     {func(r []svc.AuditRecord) []svc.AuditRecord { return r }, -1, []svc.AuditPosition{first, at(7), {}}},
		"the action":  {func(r []svc.AuditRecord) []svc.AuditRecord { r[100].Action = "x"; return r }, 200, nil},
		"the time":    {func(r []svc.AuditRecord) []svc.AuditRecord { r[0].Time = r[0].Time.Add(time.Microsecond); return r }, 300, nil},
		"the actor":   {func(r []svc.AuditRecord) []svc.AuditRecord { r[n-1].Actor.ID = "eve"; return r }, 1, nil},
		"its kind":    {func(r []svc.AuditRecord) []svc.AuditRecord { r[5].Actor.Kind = svc.KindHost; return r }, 295, nil},
		"its key":     {func(r []svc.AuditRecord) []svc.AuditRecord { r[5].ActorKey = "other"; return r }, 295, nil},
		"the target":  {func(r []svc.AuditRecord) []svc.AuditRecord { r[5].Target.ID = "x"; return r }, 295, nil},
		"its scope":   {func(r []svc.AuditRecord) []svc.AuditRecord { r[5].Target.Scope = ""; return r }, 295, nil},
		"its owner":   {func(r []svc.AuditRecord) []svc.AuditRecord { r[5].Target.Owner = "x"; return r }, 295, nil},
		"its holder":  {func(r []svc.AuditRecord) []svc.AuditRecord { r[5].Target.Holder.ID = "x"; return r }, 295, nil},
		"the id":      {func(r []svc.AuditRecord) []svc.AuditRecord { r[5].ID[15]++; return r }, 295, nil},
		"the hash":    {func(r []svc.AuditRecord) []svc.AuditRecord { r[5].Hash = bytes.Repeat([]byte{1}, 32); return r }, 295, nil},
		"the link":    {func(r []svc.AuditRecord) []svc.AuditRecord { r[5].Previous = nil; return r }, 295, nil},
		"a salt":      {func(r []svc.AuditRecord) []svc.AuditRecord { r[5].Salts.Target = strings.Repeat("0", 32); return r }, 295, nil},
		"no salt":     {func(r []svc.AuditRecord) []svc.AuditRecord { r[5].Salts.Target = ""; return r }, 295, nil},
		"a digest":    {func(r []svc.AuditRecord) []svc.AuditRecord { r[5].Salts.Target = strings.Repeat("0", 64); return r }, 295, nil},
		"two":         {func(r []svc.AuditRecord) []svc.AuditRecord { r[5].Action, r[200].Action = "x", "x"; return r }, 100, nil},
		"one is gone": {func(r []svc.AuditRecord) []svc.AuditRecord { return slices.Delete(r, 99, 100) }, 202, nil},
		"some are":    {func(r []svc.AuditRecord) []svc.AuditRecord { return slices.Delete(r, 99, 110) }, 202, nil},
		"renumbered":  {func(r []svc.AuditRecord) []svc.AuditRecord { r = slices.Delete(r, 99, 100); renumber(r); return r }, 201, nil},
		"one is put in": {func(r []svc.AuditRecord) []svc.AuditRecord {
			r = slices.Insert(r, 99, r[99])
			renumber(r)
			return r
		}, 202, nil},
		"two swap":            {func(r []svc.AuditRecord) []svc.AuditRecord { r[7].Event, r[8].Event = r[8].Event, r[7].Event; return r }, 292, nil},
		"one is written anew": {func(r []svc.AuditRecord) []svc.AuditRecord { r[100].Action = "x"; rehash(&r[100]); return r }, 201, nil},
		"one is gone, and the next knows it": {func(r []svc.AuditRecord) []svc.AuditRecord {
			r = slices.Delete(r, 99, 100)
			r[98].Previous = r[99].Hash
			rehash(&r[98])
			return r
		}, 202, nil},
		"the first follows another": {func(r []svc.AuditRecord) []svc.AuditRecord { r[n-1].Previous = r[0].Hash; rehash(&r[n-1]); return r }, 1, nil},
		"before the first":          {func(r []svc.AuditRecord) []svc.AuditRecord { return append(r, svc.AuditRecord{Number: 0}) }, 0, nil},
		"the old are gone":          {func(r []svc.AuditRecord) []svc.AuditRecord { return r[:100] }, -1, []svc.AuditPosition{first, at(201)}},
		"the known is":              {func(r []svc.AuditRecord) []svc.AuditRecord { return r[:100] }, 200, []svc.AuditPosition{at(200)}},
		"the end is gone":           {func(r []svc.AuditRecord) []svc.AuditRecord { return r[1:] }, -1, nil},
		"and was known":             {func(r []svc.AuditRecord) []svc.AuditRecord { return r[1:] }, 300, []svc.AuditPosition{first}},
		"all are gone":              {func(r []svc.AuditRecord) []svc.AuditRecord { return nil }, 300, []svc.AuditPosition{first}},
		"another is known":          {func(r []svc.AuditRecord) []svc.AuditRecord { return r }, 300, []svc.AuditPosition{{Number: 300, Hash: all[1].Hash}}},
	} {
		service := newHost(t, keeping, func(config *svc.Config) { config.Store = tampered(c.tamper(slices.Clone(all))) })
		check, err := service.Audit.Verify(t.Context(), svc.Host, c.known...)
		fault := svc.AuditFault{Number: -1}
		if check.Fault != nil {
			fault = *check.Fault
		}
		expect.Holds(t, err == nil && fault.Number == c.broken && (fault.Reason == "") == (check.Fault == nil), name, ": ", fault, err)
	}
}

// rehash gives a record the hash that it should have, as somebody does who has read docs/explanation/audit-chain.md.
func rehash(r *svc.AuditRecord) {
	orNull := func(text string) any {
		if text == "" {
			return nil
		}
		return text
	}
	covered := func(text, salt string) any {
		sum := sha256.Sum256([]byte(salt + text))
		switch {
		case text == "":
			return nil
		case salt == "":
			return json.RawMessage(text)
		case len(salt) == 64:
			return []string{salt}
		}
		return []string{hex.EncodeToString(sum[:])}
	}
	id := func(text, salt string) any {
		if salt == "" {
			return orNull(text)
		}
		return covered(text, salt)
	}
	who := func(i svc.Identity, salt string) any {
		if i == (svc.Identity{}) {
			return nil
		}
		return map[string]any{"kind": i.Kind, "id": id(i.ID, salt)}
	}
	t, salts := r.Target, r.Salts
	form := must(jcs.Canonical(must(json.Marshal(map[string]any{
		"number": r.Number, "id": r.ID.String(), "time": r.Time.Format("2006-01-02T15:04:05.000000Z"), "actor": who(r.Actor, salts.Actor), "action": r.Action,
		"target": map[string]any{"kind": t.Kind, "id": id(t.ID, salts.Target), "scope": orNull(string(t.Scope)), "owner": id(t.Owner, salts.Owner), "holder": who(t.Holder, salts.Holder)},
		"was":    covered(string(r.Was), salts.Was), "is": covered(string(r.Is), salts.Is), "previous": orNull(hex.EncodeToString(r.Previous)),
	}))))
	sum := sha256.Sum256(form)
	r.Hash = sum[:]
}

func renumber(r []svc.AuditRecord) {
	for i := range r {
		r[i].Number = int64(len(r) - i)
	}
}
