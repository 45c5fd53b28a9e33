package svc_test

import (
	"context"
	_ "embed"
	"errors"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/store/memstore"
)

// movesStore counts how rows of access are read, and can spoil it.
type movesStore struct {
	svc.Store
	whole, moves, named atomic.Int64
	reset               atomic.Bool           // the store has forgotten what changed
	loses               func(svc.Bundle) bool // parts that have changed, and get lost
	fails               atomic.Pointer[error] // after some parts
	during              func()                // called once, between a read and its answer
}

func (s *movesStore) reads() int64 { return s.whole.Load() + s.moves.Load() }

func (s *movesStore) ReadAccess(ctx context.Context, read svc.AccessRead, yield func(svc.Bundle) error) (changes svc.StoreChanges, err error) {
	switch {
	case read.Named != nil:
		s.named.Add(1)
	case read.Since == 0 && read.Bare:
		s.whole.Add(1)
	case read.Since == 0: // for a revision, or to prune
	default:
		s.moves.Add(1)
	}
	changes, err = s.Store.ReadAccess(ctx, read, func(part svc.Bundle) error {
		if s.loses != nil && read.Since > 0 && s.loses(part) {
			return nil
		}
		return yield(part)
	})
	changes.Reset = changes.Reset || s.reset.Load() && read.Since > 0
	if fails := s.fails.Load(); fails != nil {
		return changes, *fails
	}
	if during := s.during; during != nil {
		s.during = nil
		during()
	}
	return changes, err
}

func answersOf(t *testing.T, h *host) map[string]any {
	all := map[string]any{}
	for _, action := range askedActions {
		for _, bank := range askedBanks {
			r := must(h.Policies.WhoCan(t.Context(), svc.Host, action, bank))
			r.Revision = ""
			all[action+" on "+bank] = r
		}
	}
	for _, p := range principals() {
		list := must(h.Policies.WhatCan(t.Context(), svc.Host, p.Identity()))
		all[string(p.Kind)+" "+p.ID] = list
	}
	return all
}

func over(t *testing.T, store svc.Store) *host {
	h := newHost(t, func(c *svc.Config) { c.Store, c.Events.OnEvent = store, nil })
	h.store = store
	return h
}

func withChief(b svc.Bundle) svc.Bundle {
	const id = "chief"
	b.Users = slices.DeleteFunc(b.Users, func(u svc.User) bool { return u.ID == id })
	b.Policies = slices.DeleteFunc(b.Policies, func(p svc.Policy) bool { return p.ID == id })
	b.Attachments = slices.DeleteFunc(slices.Clone(b.Attachments), func(a svc.Attachment) bool { return a.PolicyID == id })
	b.Users = append(b.Users, svc.User{ID: id, Channels: []svc.Channel{}})
	b.Policies = append(b.Policies, svc.Policy{ID: id, Document: document(
		`{"effect":"allow","actions":["iam:*","template:*","bank:*"],"banks":["*"]}`)})
	b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: id, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: id}})
	return b
}

// writeAsOther writes rows, and takes members out of a group, as another process would.
func (w *worlds) writeAsOther(t *testing.T, store svc.Store, b svc.Bundle) {
	write := b.Write()
	group, user := w.one([]string{"g0", "g1", "g2"}), w.one([]string{"u0", "u1", "u2", "u3", "u4"})
	write.Join = slices.DeleteFunc(write.Join, func(m svc.Membership) bool { return m.Group == group && m.User == user })
	write.Leave = []svc.Membership{{Group: group, User: user}}
	left := svc.Target{Kind: event.TargetMember, ID: group}
	if w.IntN(2) == 0 {
		left.Holder = svc.Identity{Kind: svc.KindUser, ID: user}
	}
	for _, m := range write.Join {
		write.Targets = append(write.Targets, svc.Target{Kind: event.TargetMember, ID: m.Group, Holder: svc.Identity{Kind: svc.KindUser, ID: m.User}})
	}
	if write.Targets = append(write.Targets, left); w.IntN(20) == 0 {
		write.Targets = []svc.Target{{Kind: event.TargetAccess}}
	}
	is.New(t).NoErr(store.ChangeAccess(t.Context(), svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) { return write, nil }))
}

// Rows that were moved by many changes answer as rows that are read at once. A preview is the difference between the whole states.
func TestMovedRowsAreTheRows(t *testing.T) {
	var moves, whole, differ, spared int64
	moved := func(t *testing.T, w *worlds) {
		store := &movesStore{Store: memstore.New()}
		h := over(t, store)
		is.New(t).NoErr(h.Access.Apply(t.Context(), svc.Host, withChief(w.bundle())))
		answersOf(t, h) // begins to follow the store
		for range 20 {
			before := allAccess(t, store.Store)
			bundle := withChief(w.variant(svc.Bundle(before.Bundle)))
			if w.IntN(3) == 0 {
				w.writeAsOther(t, store.Store, bundle)
				synctest.Wait() // until the Service has followed
			} else {
				how := svc.BundleWrite{Prune: w.IntN(3) == 0}
				preview := must(h.Access.Preview(t.Context(), svc.Host, bundle, how))
				by := []svc.Principal{svc.Host, user("chief")}[w.IntN(2)]
				is.New(t).NoErr(h.Access.Write(t.Context(), by, bundle, how))
				want, err := svc.Diff(before.Bundle, allAccess(t, store.Store).Bundle)
				want.Revision = before.Bundle.Revision()
				if err != nil || !reflect.DeepEqual(preview, want) {
					t.Fatalf("%v\npreview    %s\ndifference %s", err, encoded(preview), encoded(want))
				}
				if len(want.Principals) > 0 {
					differ++
				}
			}
			fresh, reads := over(t, store.Store), store.reads()
			got, want := answersOf(t, h), answersOf(t, fresh)
			if store.reads() == reads {
				spared++
			}
			if !reflect.DeepEqual(got, want) {
				for what := range want {
					expect.Holds(t, reflect.DeepEqual(got[what], want[what]), what, ": ", string(encoded(got[what])), string(encoded(want[what])))
				}
				return
			}
			_ = fresh.Close()
		}
		moves, whole = moves+store.moves.Load(), whole+store.whole.Load()
	}
	forEachWorld(t, 2, 25, func(t *testing.T, w *worlds) { synctest.Test(t, func(t *testing.T) { moved(t, w) }) })
	if whole*4 > moves || differ < 10 || spared < 10 {
		t.Errorf("rows are read %d times and moved %d times, %d times neither; %d previews say something",
			whole, moves, spared, differ)
	}
}

// A store that loses a part of what has changed is noticed by the comparison above.
func TestLostMoveIsNoticed(t *testing.T) {
	noticed := 0
	forEachWorld(t, 2, 50, func(t *testing.T, w *worlds) {
		base := w.bundle()
		store := &movesStore{Store: memstore.New(), loses: func(part svc.Bundle) bool { return part.Groups != nil }}
		h := over(t, store)
		is.New(t).NoErr(h.Access.Apply(t.Context(), svc.Host, base))
		answersOf(t, h)
		base.Groups[0].Members = slices.Clone(base.Groups[1].Members)
		is.New(t).NoErr(h.Access.Apply(t.Context(), svc.Host, svc.Bundle{Groups: base.Groups}))
		if !reflect.DeepEqual(answersOf(t, h), answersOf(t, over(t, store.Store))) {
			noticed++
		}
	})
	expect.Holds(t, noticed > 0, "a lost member is noticed")
}

// After a change only what changed is read, unless the store has forgotten it or the rows are not kept.
func TestRowsMove(t *testing.T) {
	change := []string{`{"groups":[{"id":"team","members":[]}]}`, `{"groups":[{"id":"team","members":["alice"]}]}`}
	for _, c := range []struct {
		what  string
		most  int
		reset bool
		reads [2]int64 // how often all rows are read for ten changes with two questions each: from, to
	}{
		{what: "by default"},
		{what: "forgotten", reset: true, reads: [2]int64{10, 20}}, // the feed may tell of a change once more
		{what: "not kept", most: -1, reads: [2]int64{20, 20}},
		{what: "too large", most: 100, reads: [2]int64{20, 20}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				is, store := is.New(t), &movesStore{Store: memstore.New()}
				store.reset.Store(c.reset)
				h := newHost(t, func(cfg *svc.Config) { cfg.Store, cfg.Memory.Access = store, c.most })
				h.apply(t, world)
				h.whoCan(t)
				synctest.Wait()
				h.whoCan(t)
				store.whole.Store(0)
				for i := range 10 {
					h.apply(t, change[i%2])
					want := []string{"alice"}[:i%2]
					is.Equal(h.whoCan(t).Users, want)
					is.Equal(h.whoCan(t).Users, want)
				}
				reads := store.whole.Load()
				is.True(c.reads[0] <= reads && reads <= c.reads[1])
			})
		})
	}
}

// A policy that another process removes narrows an account like one that has never been there.
func TestRemovedPolicyIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, store := is.New(t), memstore.New()
		h, bot := over(t, store), svc.Identity{Kind: svc.KindServiceAccount, ID: "bot"}
		h.apply(t, world)
		h.apply(t, `{"service_accounts":[{"id":"bot","owner_user_id":"alice","scoping_policy_id":"narrow"}],
			"policies":[{"id":"narrow","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:*"],"banks":["*"]}]}}]}`)
		before := must(h.Policies.WhatCan(t.Context(), svc.Host, bot))
		write := svc.AccessWrite{Remove: svc.AccessNames{Policies: []string{"narrow"}}, Targets: []svc.Target{{Kind: event.TargetPolicy, ID: "narrow"}}}
		is.NoErr(store.ChangeAccess(t.Context(), svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) { return write, nil }))
		synctest.Wait() // until the Service has followed
		got := must(h.Policies.WhatCan(t.Context(), svc.Host, bot))
		expect.Equal(t, before, got, must(over(t, store).Policies.WhatCan(t.Context(), svc.Host, bot)))
		expect.Holds(t, !reflect.DeepEqual(before, got), before, " is what it was")
	})
}

// A failed read leaves what is kept as it was.
func TestFailedMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, down := is.New(t), errors.New("down")
		store := &movesStore{Store: memstore.New()}
		h := over(t, store)
		h.apply(t, world)
		h.whoCan(t)
		synctest.Wait()
		h.whoCan(t)
		store.whole.Store(0)
		h.apply(t, `{"groups":[{"id":"team","members":[]}]}`)
		store.fails.Store(&down)
		_, err := h.Policies.WhoCan(t.Context(), svc.Host, "", "notes")
		is.True(errors.Is(err, down))
		store.fails.Store(nil)
		is.Equal(h.whoCan(t).Users, []string{})
		is.Equal(store.whole.Load(), int64(0))
	})
}

// For the race detector: every answer is of one state, whatever is asked while access changes.
func TestQuestionsWhileAccessChanges(t *testing.T) {
	h := hostOf(t, world)
	h.apply(t, `{"users":[{"id":"idle","is_active":true}]}`)
	states := []string{`{"groups":[{"id":"team","members":["alice"]}]}`, `{"groups":[{"id":"team","members":["idle"]}]}`}
	overlay := must(svc.ParseBundle([]byte(`{"groups":[{"id":"team","members":["alice","idle"]}]}`)))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 30 {
				d, err := h.Access.Preview(t.Context(), svc.Host, overlay, svc.BundleWrite{})
				expect.Holds(t, err == nil && len(d.Principals) > 0 && len(d.Principals[0].Principals) > 0, "preview: ", d, err)
			}
		})
		wg.Go(func() {
			for range 30 {
				r, err := h.Policies.Simulate(t.Context(), svc.Host, overlay, svc.Question{UserID: "idle", Bank: "notes"})
				expect.Holds(t, err == nil && r.Outcome == svc.Allow, "simulate: ", r, err)
				expect.Equal(t, "what can", errorOf(h.Policies.WhatCan(t.Context(), svc.Host, alice.Identity())), nil)
			}
		})
		wg.Go(func() {
			for range 100 {
				r, err := h.Policies.WhoCan(t.Context(), svc.Host, "", "notes")
				expect.Holds(t, err == nil && len(r.Users) == 1, "who can: ", r.Users, err)
			}
		})
	}
	for i := range 60 {
		h.apply(t, states[i%2])
		is.New(t).Equal(h.whoCan(t).Users, []string{"alice", "idle"}[i%2:][:1]) // at once
	}
	wg.Wait()
}

// A write of access reads the changes since the last one that the process knows, however many keys were issued since.
func TestWritesReadFewChanges(t *testing.T) {
	is, most := is.New(t), int64(-1)
	h := newHost(t, func(c *svc.Config) {
		c.Store = around(c.Store, func(call intercept.Call) error {
			err := call.Do()
			if call.Method == "ReadAccess" && call.Args[0].(svc.AccessRead).Since > 0 {
				most = max(most, call.Result.(*svc.StoreChanges).Generation-call.Args[0].(svc.AccessRead).Since)
			}
			return err
		})
	})
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, svc.Bundle{
		Users: []svc.User{{ID: "ada"}}, Attachments: []svc.Attachment{attached(svc.PolicyIAMAdmin, svc.GrantedToUser, "ada")},
	}))
	ada := user("ada")
	rename := func(name string) { must(h.Users.Patch(t.Context(), ada, "ada", svc.UserPatch{DisplayName: &name})) }
	rename("Ada")
	for range 20 {
		must(h.Keys.Issue(t.Context(), svc.Host, ada.Identity(), svc.NewAPIKey{}))
	}
	expect.Soon(t, "waited too long", func() bool { // the process learns of them in the background
		most = -1
		rename("Ada" + strconv.Itoa(int(h.now().UnixNano())))
		return most >= 0 && most < 5
	})
}

// Of calls that compare access or list rights, one works for each processor. The others wait, until their context ends. A
// caller with many calls delays another one by one call.
func TestAnalysesAtATime(t *testing.T) { synctest.Test(t, analysesAtATime) }

func analysesAtATime(t *testing.T) {
	type first struct{}
	h := newHost(t, func(c *svc.Config) {
		c.Store = outside(c.Store, func(ctx context.Context, call intercept.Call) error {
			if do, has := ctx.Value(first{}).(func()); has && call.Method == "ReadAccess" { // with a turn
				do()
			}
			return call.Do()
		})
	})
	h.apply(t, `{"users": [{"id": "alice"}]}`)
	bundle, q := svc.Bundle{Groups: []svc.Group{{ID: "new"}}}, svc.Question{UserID: "alice", Bank: "notes"}
	kinds := map[string]func(context.Context, svc.Principal) error{
		"preview": func(ctx context.Context, by svc.Principal) error {
			return errorOf(h.Access.Preview(ctx, by, bundle, svc.BundleWrite{}))
		},
		"simulate": func(ctx context.Context, by svc.Principal) error {
			return errorOf(h.Policies.Simulate(ctx, by, bundle, q))
		},
		"what can": func(ctx context.Context, by svc.Principal) error {
			return errorOf(h.Policies.WhatCan(ctx, by, alice.Identity()))
		},
		"dry run": func(ctx context.Context, by svc.Principal) error {
			return h.Access.Write(ctx, by, bundle, svc.BundleWrite{DryRun: true})
		},
	}
	var all sync.WaitGroup
	preview := func(by svc.Principal, do func()) {
		ctx := context.WithValue(t.Context(), first{}, sync.OnceFunc(do))
		all.Go(func() {
			expect.Equal(t, by.ID, errorOf(h.Access.Preview(ctx, by, bundle, svc.BundleWrite{})), nil)
		})
		synctest.Wait()
	}
	holds := make(chan struct{})
	hold := func() {
		for range runtime.GOMAXPROCS(0) {
			preview(svc.Host, func() { <-holds })
		}
	}
	hold()
	for kind, ask := range kinds {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		wantCode(t, ask(ctx, user("mallory")), svc.CodeForbidden, "") // without a turn
		wantCode(t, ask(ctx, svc.Host), svc.CodeUnavailable, "")
		cancel()
		all.Go(func() { expect.Equal(t, kind, ask(t.Context(), svc.Host), nil) })
	}
	close(holds)
	all.Wait()

	holds = make(chan struct{})
	hold()
	var order []string
	for _, id := range []string{"ann", "ann", "ann", "bob"} {
		preview(user(id, "iam:*"), func() { order = append(order, id) })
	}
	holds <- struct{}{}
	synctest.Wait()
	close(holds)
	all.Wait()
	expect.Equal(t, "order", order, []string{"ann", "bob", "ann", "ann"})
}

//go:embed testdata/drops.json
var dropsWorld string

const (
	allowRecall = `{"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["bank:recall"], "banks": ["*"]}]}`
	allowMore   = `{"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["bank:*"], "banks": ["*"]}]}`
)

// What is written makes the Service read those again whose rights it may change, and nobody else:
// in the process that writes, and in another.
func TestWriteDropsWhomItReaches(t *testing.T) {
	alice, bob, carol, bot := user("alice"), user("bob"), user("carol"), account("bot")
	narrowed := svc.Principal{Kind: svc.KindUser, ID: "alice", ScopingPolicyID: "narrow"}
	who := map[string]svc.Principal{"alice": alice, "narrowed": narrowed, "bob": bob, "carol": carol, "bot": bot}
	for _, c := range []struct{ what, bundle, read string }{
		{"nothing", `{"users": [{"id": "alice"}]}`, ""},
		{"a display name", `{"users": [{"id": "alice", "display_name": "A", "email": "a@b.example"}]}`, ""},
		{"names of other rows", `{"groups": [{"id": "staff", "display_name": "S"}], "policies": [{"id": "p", "display_name": "P", "document": ` + allowRecall + `}],
			"service_accounts": [{"id": "bot", "display_name": "B", "owner_user_id": "alice", "scoping_policy_id": "scope"}]}`, ""},
		{"new rows", `{"users": [{"id": "dave", "channels": [{"provider": "p", "sender_id": "1"}]}], "groups": [{"id": "new", "members": ["dave"]}], "policies": [{"id": "new", "document": ` + allowMore + `}],
			"attachments": [{"policy_id": "new", "principal_type": "group", "principal_id": "new"}]}`, ""},
		{"a user", `{"users": [{"id": "alice", "is_active": false}]}`, "alice bot narrowed"},
		{"a user of no account", `{"users": [{"id": "carol", "is_active": false}]}`, "carol"},
		{"a channel", `{"users": [{"id": "carol", "channels": [{"provider": "p", "sender_id": "2"}]}]}`, ""},
		{"who joins", `{"groups": [{"id": "staff", "members": ["alice", "bob", "carol"]}]}`, "bob"},
		{"who leaves", `{"groups": [{"id": "staff", "members": ["alice"]}]}`, "carol"},
		{"a policy", `{"policies": [{"id": "p", "document": ` + allowMore + `}]}`, "alice bot carol narrowed"},
		{"a policy of one", `{"policies": [{"id": "q", "document": ` + allowMore + `}]}`, "bob"},
		{"a scoping policy", `{"policies": [{"id": "scope", "document": ` + allowMore + `}]}`, "bot"},
		{"a narrowing policy", `{"policies": [{"id": "narrow", "document": ` + allowMore + `}]}`, "narrowed"},
		{"a policy of nobody", `{"policies": [{"id": "unused", "document": ` + allowMore + `}]}`, ""},
		{"an account", `{"service_accounts": [{"id": "bot", "scoping_policy_id": null}]}`, "bot"},
		{"an attachment to a user", `{"attachments": [{"policy_id": "unused", "principal_type": "user", "principal_id": "alice"}]}`, "alice bot narrowed"},
		{"a group's first attachment", `{"attachments": [{"policy_id": "unused", "principal_type": "group", "principal_id": "bare"}]}`, "bob"},
		{"a bank", `{"bank_policies": [{"bank_id": "other", "document": {"version": "2026-03-24"}}]}`, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			read := readAgain(t, who, c.bundle)
			if read != [2]string{c.read, c.read} {
				// Two banks in one set of the cache are dropped together. With other services, and so
				// another hash, they are not.
				read = readAgain(t, who, c.bundle)
			}
			is.New(t).Equal(read, [2]string{c.read, c.read})
		})
	}
}

func readAgain(t *testing.T, who map[string]svc.Principal, bundle string) (names [2]string) {
	h, store := watched(t)
	h.apply(t, dropsWorld)
	there := watch(h.store)
	other := newHost(t, func(c *svc.Config) { c.Store = there })
	for _, p := range who {
		h.warm(t, store, p, "notes")
		other.warm(t, there, p, "notes")
	}
	h.apply(t, bundle)
	h.apply(t, `{"bank_policies": [{"bank_id": "marker", "document": {"version": "2026-03-24", "public_access": {"default": {"actions": ["bank:recall"]}}}}]}`)
	eventually(t, func() bool { // the other process has followed so far
		return must(other.Decide(t.Context(), svc.Unmapped, "bank:recall", "marker", svc.Context{})).Allowed()
	})
	for i, at := range []struct {
		*watchedStore
		*host
	}{{store, h}, {there, other}} {
		var read []string
		for _, name := range slices.Sorted(maps.Keys(who)) {
			before := at.reads.Load()
			must(at.Decide(t.Context(), who[name], "bank:recall", "notes", svc.Context{}))
			if at.reads.Load() > before {
				read = append(read, name)
			}
		}
		names[i] = strings.Join(read, " ")
	}
	return names
}
