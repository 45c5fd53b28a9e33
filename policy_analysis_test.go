package svc_test

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/policy/policytest"
	"github.com/extsvc/svc/store/memstore"
)

// WhoCan names those whom Decide allows it, and no others.
func TestWhoCanIsWhoIsAllowed(t *testing.T) {
	seen := map[bool]int{}
	forEachWorld(t, 5, 125, func(t *testing.T, w *worlds) {
		h := w.host(t, w.bundle())
		h.write(t, w.spoiled())
		for _, action := range askedActions {
			for _, bank := range askedBanks {
				got := must(h.Policies.WhoCan(t.Context(), svc.Host, action, bank))
				users, accounts := []string{}, []string{}
				for _, p := range principals() {
					allowed := h.decide(t, p, action, bank, svc.Context{}).Allowed()
					seen[allowed]++
					switch {
					case allowed && p.Kind == svc.KindUser:
						users = append(users, p.ID)
					case allowed:
						accounts = append(accounts, p.ID)
					}
				}
				if !slices.Equal(got.Users, users) || !slices.Equal(got.ServiceAccounts, accounts) {
					t.Errorf("%s on %s: %v %v, allowed are %v %v", action, bank, got.Users, got.ServiceAccounts, users, accounts)
				}
				for _, in := range askedPlaces {
					allowed := h.decide(t, svc.Unmapped, action, bank, in).Allowed()
					if public(got.Public, in) != allowed {
						t.Errorf("%s on %s in %+v: public %+v, allowed %v", action, bank, in, got.Public, allowed)
					}
				}
			}
		}
	})
	if seen[true] < 1000 || seen[false] < 1000 {
		t.Error("the worlds are not varied", seen)
	}
}

// public reads a PublicReach as its comment says.
func public(p svc.PublicReach, in svc.Context) bool {
	for _, part := range []struct{ scope, value string }{{"topic", in.Topic}, {"channel", in.Channel}, {"provider", in.Provider}} {
		for _, o := range p.Overrides {
			if string(o.Scope) == part.scope && o.Value == part.value {
				return o.Allowed
			}
		}
	}
	return p.Default
}

func ofCapability(c svc.Capability) (action, bank string) { return c.Action, c.Bank }

// read is what a list of capabilities says of a request; false: those that are closest disagree.
func read(list []svc.Capability, action, bank string) (said svc.Capability, agreed bool) {
	said.Outcome = svc.ImplicitDeny
	for i, c := range policytest.Closest(list, ofCapability, action, bank) {
		c.Action, c.Bank = "", ""
		if i > 0 && !reflect.DeepEqual(c, said) {
			return c, false
		}
		said = c
	}
	return said, true
}

// WhatCan says of every request what Decide says of it.
func TestWhatCanIsWhatIsDecided(t *testing.T) {
	seen := map[svc.Outcome]int{}
	forEachWorld(t, 5, 125, func(t *testing.T, w *worlds) {
		h := w.host(t, w.bundle())
		h.write(t, w.spoiled())
		for _, p := range principals() {
			list := must(h.Policies.WhatCan(t.Context(), svc.Host, p.Identity()))
			needed := make([]bool, len(list)) // no element can be left out
			for _, action := range askedActions {
				for _, bank := range askedBanks {
					d := h.decide(t, p, action, bank, svc.Context{})
					said, agreed := read(list, action, bank)
					seen[said.Outcome]++
					if !agreed || said.Outcome != d.Outcome() || !reflect.DeepEqual(said.Parameters, d.Parameters()) {
						t.Errorf("%s: %s on %s is %+v (agreed: %v), decided %s %+v, by %+v", p.ID, action, bank, said, agreed, d.Outcome(), d.Parameters(), list)
					}
					for i := range list {
						if list[i].Action == action && list[i].Bank == bank {
							without, agreed := read(slices.Delete(slices.Clone(list), i, i+1), action, bank)
							needed[i] = !agreed || !reflect.DeepEqual(without, said)
						}
					}
				}
			}
			if slices.Contains(needed, false) {
				t.Errorf("%s: not all of it is needed: %v, %+v", p.ID, needed, list)
			}
		}
	})
	if min(seen[svc.Allow], seen[svc.ExplicitDeny], seen[svc.ImplicitDeny]) < longtest.Times(150, 1000) {
		t.Error("the worlds are not varied", seen)
	}
}

func newRowsHost(t *testing.T) (*host, *movesStore) {
	t.Helper()
	store := &movesStore{Store: memstore.New()}
	h := newHost(t, func(c *svc.Config) { c.Store = store })
	h.store = store
	h.apply(t, world)
	store.settle(t, h)
	return h, store
}

// settle waits, in a bubble of synctest, until a service has heard of all that was written, and has read it.
func (s *movesStore) settle(t *testing.T, h *host) {
	t.Helper()
	h.whoCan(t)
	synctest.Wait()
	h.whoCan(t)
	s.whole.Store(0)
	s.moves.Store(0)
}

func (h *host) whoCan(t *testing.T) svc.WhoCanAnswer {
	t.Helper()
	return must(h.Policies.WhoCan(t.Context(), svc.Host, "", "notes"))
}

// All rows are read once for each change of access, whoever made it, and for no other change.
func TestAllRowsAreReadOncePerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		h, store := newRowsHost(t)
		before := h.whoCan(t)
		is.Equal(before.Users, []string{"alice"})
		must(h.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{}))
		_, err := h.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: "a", Content: svc.Content{Name: "n", Manifest: manifest(`{"version":"1"}`)}})
		is.NoErr(err)
		synctest.Wait()
		is.Equal(string(encoded(h.whoCan(t))), string(encoded(before)))
		is.Equal(store.reads(), int64(0))

		h.apply(t, `{"groups":[{"id":"team","members":["alice","idle"]}],"users":[{"id":"idle","is_active":true}]}`)
		is.Equal(h.whoCan(t).Users, []string{"alice", "idle"}) // at once
		is.True(store.reads() > 0)

		other := newHost(t, func(c *svc.Config) { c.Store = store.Store })
		other.apply(t, `{"groups":[{"id":"team","members":[]}]}`)
		eventually(t, func() bool { return len(h.whoCan(t).Users) == 0 })

		store.settle(t, h)
		list := must(h.Policies.WhatCan(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}))
		is.Equal(list, []svc.Capability{}) // never nil
		is.Equal(store.reads(), int64(0))

		store.fails.Store(&svc.ErrUnavailable)
		h.apply(t, `{"groups":[{"id":"team","members":["alice"]}]}`)
		_, err = h.Policies.WhoCan(t.Context(), svc.Host, "", "notes")
		is.Equal(svc.ErrorCode(err), svc.CodeUnavailable) // never what was before
	})
}

// What was read before a change is not kept after it.
func TestRowsReadBeforeAChangeAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		h, store := newRowsHost(t)
		for range 100 { // for what is kept may be dropped a second time
			h.apply(t, `{"groups":[{"id":"team","members":[]}]}`)
			store.during = func() { h.apply(t, `{"groups":[{"id":"team","members":["alice"]}]}`) }
			is.Equal(h.whoCan(t).Users, []string{})
			is.Equal(h.whoCan(t).Users, []string{"alice"})
		}
	})
}

// A service in a transaction of the host sees what the transaction has written.
func TestWhoCanInATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		h, store := newRowsHost(t)
		tx := h.WithTx(store)
		h.apply(t, `{"groups":[{"id":"team","members":[]}]}`)
		is.Equal(must(tx.Policies.WhoCan(t.Context(), svc.Host, "", "notes")).Users, []string{})
		is.Equal(store.reads(), int64(1))
	})
}

func TestAnalysisHandsOutItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		h, _ := newRowsHost(t)
		first := h.whoCan(t)
		text := string(encoded(first))
		first.Users[0], first.ServiceAccounts[0], first.Statements[0].PolicyID, first.Public.Overrides[0].Value = "x", "x", "x", "x"
		is.Equal(string(encoded(h.whoCan(t))), text)

		alice := svc.Identity{Kind: svc.KindUser, ID: "alice"}
		list := must(h.Policies.WhatCan(t.Context(), svc.Host, alice))
		text = string(encoded(list))
		*list[0].Parameters.RecallBudget = "x"
		is.Equal(string(encoded(must(h.Policies.WhatCan(t.Context(), svc.Host, alice)))), text)
	})
}

func TestAnalysisRefuses(t *testing.T) {
	h := newHost(t)
	plain := svc.Principal{Kind: svc.KindUser, ID: "plain"}
	user := plain.Identity()
	for _, c := range []struct {
		field, action, bank string
	}{{"bank", "", ""}, {"bank", "", "a\u202eb"}, {"action", "\x00", "b"}} {
		wantCode(t, errorOf(h.Policies.WhoCan(t.Context(), plain, c.action, c.bank)), svc.CodeInvalid, c.field)
	}
	wantCode(t, errorOf(h.Policies.WhoCan(t.Context(), plain, "", "b")), svc.CodeForbidden, "")
	wantCode(t, errorOf(h.Policies.WhatCan(t.Context(), plain, user)), svc.CodeForbidden, "")
	for field, who := range map[string]svc.Identity{
		"user_id": {Kind: svc.KindUser, ID: ""}, "sa_id": {Kind: svc.KindServiceAccount, ID: "a/b"},
	} {
		wantCode(t, errorOf(h.Policies.WhatCan(t.Context(), svc.Host, who)), svc.CodeInvalid, field)
	}
	for _, who := range []svc.Identity{svc.Host.Identity(), svc.Unmapped.Identity(), {}} {
		wantCode(t, errorOf(h.Policies.WhatCan(t.Context(), svc.Host, who)), svc.CodeInvalid, "user_id")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	wantCode(t, errorOf(h.Policies.WhoCan(ended, svc.Host, "", "b")), svc.CodeUnavailable, "")
}

// overlay draws a bundle to put over another, one in three of which cannot be applied.
func (w *worlds) overlay(base svc.Bundle) svc.Bundle {
	overlay := w.variant(base)
	overlay.Users = slices.Clip(overlay.Users[:w.IntN(len(overlay.Users))])
	overlay.Attachments = slices.Clip(overlay.Attachments[:w.IntN(len(overlay.Attachments))])
	switch w.IntN(12) {
	case 0:
		overlay.Groups = append(overlay.Groups, svc.Group{ID: "new", Members: []string{"nobody"}})
	case 1:
		overlay.ServiceAccounts = append(overlay.ServiceAccounts, svc.ServiceAccount{ID: "new", OwnerUserID: "u0", ScopingPolicyID: "none"})
	case 2:
		overlay.Users = append(overlay.Users, svc.User{ID: "new", Channels: []svc.Channel{{Provider: "slack", SenderID: "4"}}})
	case 3:
		overlay.Policies = append(overlay.Policies, svc.Policy{ID: "new", Document: []byte(`{"version":"1"}`)})
	case 4:
		overlay.Users = append(overlay.Users, svc.User{ID: "new", Channels: []svc.Channel{{Provider: "web", SenderID: "1"}}})
		overlay.Attachments = append(overlay.Attachments, svc.Attachment{PolicyID: "p0", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "new"}})
	}
	return overlay
}

func (w *worlds) query() svc.Question {
	q := svc.Question{Bank: w.one(askedBanks), Action: w.one(askedActions), Channel: w.one([]string{"", "c"}), Topic: w.one([]string{"", "t"})}
	switch w.IntN(4) {
	case 0:
		q.UserID = w.one([]string{"u0", "u1", "u2", "u3", "u4", "nobody", "new"})
	case 1:
		q.ServiceAccountID = w.one([]string{"s0", "s1", "s2", "nobody", "new"})
	default:
		q.Sender = w.one([]string{"slack:0", "slack:1", "slack:2", "slack:9", "web:1"})
	}
	return q
}

// Simulate answers as Resolve does once the bundle is applied to a copy, refuses what Apply refuses, and writes nothing.
func TestSimulateIsApplyAndResolve(t *testing.T) {
	seen := map[string]int{}
	forEachWorld(t, 15, 300, func(t *testing.T, w *worlds) {
		base, spoiled := w.bundle(), w.spoiled()
		overlay := w.overlay(base)
		h, applied := w.host(t, base), w.host(t, base)
		h.write(t, spoiled)
		applied.write(t, spoiled)
		before := whole(t, h)
		refused := applied.Access.Apply(t.Context(), svc.Host, overlay)
		for range 20 {
			q := w.query()
			got, err := h.Policies.Simulate(t.Context(), svc.Host, overlay, q)
			if refused != nil {
				if err == nil || err.Error() != refused.Error() || svc.ErrorCode(err) != svc.ErrorCode(refused) {
					t.Errorf("simulated: %v, applied: %v", err, refused)
				}
				seen[string(svc.ErrorCode(err))]++
				continue
			}
			want, resolveErr := applied.Policies.Resolve(t.Context(), svc.Host, q)
			if err != nil || resolveErr != nil {
				t.Fatal(err, resolveErr)
			}
			revision := before.revision
			if want.Revision != before.revision {
				revision += "+simulated"
			}
			if got.Revision != revision {
				t.Errorf("revision %q, was %q, is %q", got.Revision, before.revision, want.Revision)
			}
			got.Revision = want.Revision
			if a, b := string(encoded(got)), string(encoded(want)); a != b {
				t.Errorf("%+v:\nsimulated %s\nresolved  %s", q, a, b)
			}
			seen[string(got.Outcome)]++
		}
		if after := whole(t, h); after != before {
			t.Errorf("something was written:\n%v\n%v", before, after)
		}
	})
	for _, kind := range []string{"allow", "explicit_deny", "implicit_deny", "invalid_request", "already_exists"} {
		if seen[kind] < longtest.Times(3, 20) {
			t.Error("the worlds are not varied", seen)
		}
	}
}

type stored struct{ revision, rows string }

// whole is all that a host's store holds.
func whole(t *testing.T, h *host) stored {
	t.Helper()
	rows := allAccess(t, h.store)
	return stored{sprintf("%d", rows.Generation), string(encoded(rows))}
}

func TestSimulateWithoutChange(t *testing.T) {
	h := newHost(t)
	h.apply(t, world)
	same := must(svc.ParseBundle([]byte(world)))
	for _, overlay := range []svc.Bundle{{}, same} {
		for _, q := range []svc.Question{{Bank: "notes", UserID: "alice"}, {Bank: "notes", Sender: "telegram:1"}, {Bank: "notes", ServiceAccountID: "ci"}} {
			simulated := must(h.Policies.Simulate(t.Context(), svc.Host, overlay, q))
			is.New(t).Equal(simulated, must(h.Policies.Resolve(t.Context(), svc.Host, q))) // the revision, too
		}
	}
}

func TestSimulateRefuses(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	q := svc.Question{Bank: "b", UserID: "a"}
	_, err := h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{}, svc.Question{Bank: "b"})
	wantCode(t, err, svc.CodeInvalid, "user_id")
	wantCode(t, errorOf(h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{}}}, q)), svc.CodeInvalid, "/users/0/id")
	_, err = h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{}}}, svc.Question{})
	is.True(strings.Contains(err.Error(), "/users/0/id") && strings.Contains(err.Error(), "bank: is required")) // everything at once
	wantCode(t, errorOf(h.Policies.Simulate(t.Context(), svc.Principal{Kind: svc.KindUser, ID: "a"}, svc.Bundle{}, q)), svc.CodeForbidden, "")
	_, err = h.Policies.Simulate(t.Context(), svc.Principal{Kind: svc.KindUser, ID: "a"}, svc.Bundle{}, svc.Question{})
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid) // what is wrong with a request comes first
}

// A resolution is the caller's own: what it does to one does not show in the next.
func TestSimulateHandsOutItsOwn(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	h.apply(t, world)
	q := svc.Question{Bank: "notes", Sender: "telegram:1"}
	first := must(h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{}, q))
	text := string(encoded(first))
	for i := range first.BankPolicy {
		first.BankPolicy[i] = ' '
	}
	*first.ResolvedUserID = "other"
	second := must(h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{}, q))
	is.Equal(string(encoded(second)), text)
	is.True(json.Valid(second.BankPolicy))
}
