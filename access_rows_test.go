package svc_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/limits"
	"github.com/extsvc/svc/store/memstore"
)

const allowsAll = `{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:*"],"banks":["*"]}]}`

// told returns what the store tells of the changes since a generation, in short form.
func (h *host) told(t *testing.T, since int64) (targets, renamed string) {
	changes := must(h.store.Changes(t.Context(), since))
	short := func(list []svc.Target) string {
		var texts []string
		for _, t := range list {
			texts = append(texts, strings.TrimSpace(sprintf("%s/%s %s", t.Kind, t.ID, t.Holder.ID)))
		}
		slices.Sort(texts)
		return strings.Join(texts, ", ")
	}
	return short(changes.Targets), short(changes.Renamed)
}

// A large change is one target, so that the feed stays short.
func TestFeedOfLargeChanges(t *testing.T) {
	is, h := is.New(t), newHost(t)
	many := svc.Bundle{Groups: []svc.Group{{ID: "team", Members: []string{}}}}
	for i := range 999 {
		many.Users = append(many.Users, svc.User{ID: sprintf("u%d", i)})
	}
	told := func(b svc.Bundle) (targets, renamed string) {
		before := h.generation(t)
		is.NoErr(h.Access.Apply(t.Context(), svc.Host, b))
		return h.told(t, before)
	}
	targets, _ := told(many)
	is.Equal(strings.Count(targets, ",")+1, 1000)
	for i := range 101 {
		many.Groups[0].Members = append(many.Groups[0].Members, many.Users[i].ID)
	}
	targets, _ = told(svc.Bundle{Groups: many.Groups})
	is.Equal(targets, "member/team")
	many.Groups[0].Members = many.Groups[0].Members[:1]
	targets, _ = told(svc.Bundle{Groups: many.Groups})
	is.Equal(strings.Count(targets, ",")+1, 100)
	for i := range many.Users {
		many.Users[i].DisplayName = "other"
	}
	many.Groups[0].Members = many.Groups[0].Members[:3]
	targets, renamed := told(many)
	is.Equal(targets+renamed, "access/")
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

func (s *movesStore) settle(t *testing.T, h *host) {
	h.whoCan(t)
	synctest.Wait()
	h.whoCan(t)
	s.whole.Store(0)
	s.moves.Store(0)
}

func (h *host) whoCan(t *testing.T) svc.WhoCanAnswer {
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
		must(h.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: "a", Content: svc.Content{Name: "n", Manifest: manifest(`{"version":"1"}`)}}))
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
		is.Equal(svc.ErrorCode(errorOf(h.Policies.WhoCan(t.Context(), svc.Host, "", "notes"))), svc.CodeUnavailable) // never what was before
	})
}

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
		store.during = func() { h.apply(t, `{"groups":[{"id":"team","members":[]}]}`) }
		is.Equal(must(h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{}, svc.Question{Bank: "notes", UserID: "alice"})).Outcome, svc.ImplicitDeny)
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

// What a caller does with an answer, or with what a write has returned, does not show in the next answer.
func TestAnswersAreTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		h, _ := newRowsHost(t)
		h.apply(t, `{"users":[{"id":"root"},{"id":"bob"}],"attachments":[{"policy_id":"iam:admin","principal_type":"user","principal_id":"root"},
			{"policy_id":"bank:admin","principal_type":"user","principal_id":"root"}]}`)
		must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
		h.install(t, "x", "x", content("X", "1"))
		ask := func() []any {
			report, _, err := h.Templates.LastCheck(t.Context(), admin)
			is.NoErr(err)
			return []any{
				report, h.whoCan(t), must(h.Policies.WhatCan(t.Context(), svc.Host, alice.Identity())),
				must(h.Policies.WhatCan(t.Context(), svc.Host, bob.Identity())), must(h.Policies.Read(t.Context(), admin, svc.PolicyIAMAdmin)),
				must(h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{}, svc.Question{Bank: "notes", Sender: "telegram:1"})),
				collect(t, h.Policies.List(t.Context(), admin, svc.RowQuery{})),
			}
		}
		same := func(got ...any) {
			t.Helper()
			want := string(encoded(ask()))
			scribble(reflect.ValueOf(got))
			is.Equal(string(encoded(ask())), want)
		}
		same(h.checkUpdates(t))
		same(ask()[1:]...)
		root := user("root", "*")
		made := must(h.Policies.Create(t.Context(), root, svc.Policy{ID: "p", Document: document(statement("deny", 1, 1))}))
		is.NoErr(h.Policies.Attach(t.Context(), root, attached("p", svc.GrantedToUser, "bob")))
		patched := must(h.Policies.Patch(t.Context(), root, "p", svc.PolicyPatch{Document: []byte(allowsAll)}))
		bank := must(h.Banks.SetPolicy(t.Context(), root, svc.BankPolicy{BankID: "notes", Document: []byte(bankDoc)}))
		same(made, patched, bank)
	})
}

// scribble overwrites whatever a value may share with others.
func scribble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface:
		scribble(v.Elem())
	case reflect.Pointer:
		if !v.IsNil() {
			v.Elem().SetZero()
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanInterface() {
				scribble(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			scribble(v.Index(i))
			v.Index(i).SetZero()
		}
	}
}

// A list of several chunks is the same at each loop over its sequence.
func TestListsCanBeReadAgain(t *testing.T) {
	h := newHost(t, keeping, func(c *svc.Config) { c.Memory.Templates = -1 })
	ctx, by := t.Context(), admin
	var all svc.Bundle
	for i := range 150 {
		id := fmt.Sprint("n", i)
		all.Users = append(all.Users, svc.User{ID: id})
		all.Groups = append(all.Groups, svc.Group{ID: id})
		all.Policies = append(all.Policies, svc.Policy{ID: id, Document: json.RawMessage(allowsAll)})
		all.Attachments = append(all.Attachments, svc.Attachment{
			PolicyID: id, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: id},
		})
		all.BankPolicies = append(all.BankPolicies, svc.BankPolicy{BankID: id, Document: json.RawMessage(bankDoc)})
		all.ServiceAccounts = append(all.ServiceAccounts, svc.ServiceAccount{ID: id, OwnerUserID: id})
		all.Users[0].Channels = append(all.Users[0].Channels, svc.Channel{Provider: "chat", SenderID: id})
		create(t, h, id, svc.Content{})
		must(h.Sources.Register(ctx, by, svc.NewSource{URL: "https://example.org/" + id}))
		issue(t, h, alice)
	}
	must(0, h.Access.Apply(ctx, svc.Host, all))
	again(t, h.Users.List(ctx, by, svc.UserQuery{}))
	again(t, h.Users.Channels(ctx, by, "n0", svc.RowQuery{Skip: 1}))
	again(t, h.Groups.List(ctx, by, svc.GroupQuery{}))
	again(t, h.Policies.List(ctx, by, svc.RowQuery{}))
	again(t, h.Policies.Attachments(ctx, by, svc.AttachmentQuery{}))
	again(t, h.ServiceAccounts.List(ctx, by, svc.ServiceAccountQuery{}))
	again(t, h.Banks.List(ctx, by, svc.RowQuery{Limit: 140}))
	again(t, h.Keys.List(ctx, by, svc.AllHolders, svc.KeyQuery{}))
	again(t, h.Templates.List(ctx, by, svc.TemplateQuery{Skip: 1}))
	again(t, h.Sources.List(ctx, by))
	again(t, h.Audit.Records(ctx, by, svc.AuditQuery{}))
}

func again[T any](t *testing.T, list iter.Seq2[T, error]) {
	t.Helper()
	first := collect(t, list)
	expect.Holds(t, len(first) >= 140 && reflect.DeepEqual(collect(t, list), first), fmt.Sprintf("a list of %T: ", *new(T)), len(first))
}

type bankMaker struct{}

var bankResults = map[string]string{"none": " ", "nothing": "null", "list": "[1]", "text": `"x"`, "broken": "{", "two": "{}{}", "no UTF-8": "{\"a\": \"\xff\"}", "twice": `{"a": 1, "a": 1}`, "deep": strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65)}

func (bankMaker) MakeBank(_ context.Context, _ svc.Principal, bank svc.NewBank) (svc.CreatedBank, error) {
	return svc.CreatedBank{Created: true, ImportResult: json.RawMessage(cmp.Or(bankResults[bank.Name], fmt.Sprintf("{%q: %s}", bank.Name, bank.Manifest)))}, nil
}

// Lists of access have all rows, whatever the chunks: those of documents are small.
func TestLongListsOfAccess(t *testing.T) {
	is, b, least, most := is.New(t), svc.Bundle{}, math.MaxInt, 0 // documents in a chunk
	h := newHost(t, func(c *svc.Config) {
		c.Store = around(c.Store, func(call intercept.Call) error {
			if read, is := call.Args[0].(svc.AccessRead); is && read.Page != nil && read.Page.Kind == event.TargetPolicy {
				least, most = min(least, read.Page.Limit), max(most, read.Page.Limit)
			}
			return call.Do()
		})
	})
	for i := range 1500 {
		id := fmt.Sprint("x", i)
		b.Users = append(b.Users, svc.User{ID: id})
		b.Policies = append(b.Policies, svc.Policy{ID: id, Document: []byte(allowsAll)})
	}
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, b))
	is.Equal(len(collect(t, h.Users.List(t.Context(), svc.Host, svc.UserQuery{}))), 1500)
	is.Equal(len(collect(t, h.Users.List(t.Context(), svc.Host, svc.UserQuery{RowQuery: svc.RowQuery{Skip: 1100, Limit: 300}}))), 300)
	is.Equal(len(collect(t, h.Policies.List(t.Context(), svc.Host, svc.RowQuery{}))), 1508)
	is.Equal(least, most)
}

func TestServiceAccountsHaveALimit(t *testing.T) {
	bundle := svc.Bundle{Users: []svc.User{{ID: "bob"}}}
	for i := range limits.ServiceAccounts {
		bundle.ServiceAccounts = append(bundle.ServiceAccounts, svc.ServiceAccount{ID: fmt.Sprint("of-bob-", i), OwnerUserID: "bob"})
	}
	h, mine := newHost(t), user("bob", "iam:*")
	h.write(t, bundle)
	wantCode(t, errorOf(h.MyServiceAccounts.Create(t.Context(), mine, svc.ServiceAccount{ID: "x"})), svc.CodeLimit, "")
	is.New(t).NoErr(h.MyServiceAccounts.Delete(t.Context(), mine, "of-bob-0"))
	must(h.MyServiceAccounts.Create(t.Context(), mine, svc.ServiceAccount{ID: "x"}))
}
