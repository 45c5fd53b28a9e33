package linearizability_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/longtest"
)

// Rounds in which one Service deletes a row while others give something to it, or use it. Afterwards
// nothing refers to what is gone, and a row that is made anew has nothing.
func TestNothingIsInherited(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(*testing.T) []svc.Store) {
		town := settle(t, open(t), sound)
		for range rounds(t) {
			if wrong := town.inherit(); wrong != nil {
				t.Fatal(wrong)
			}
		}
		town.whole()
	})
}

// What alice's calls began before her deletion does not come to another alice.
func TestNothingIsInheritedAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(*testing.T) []svc.Store) {
		town := settle(t, open(t), sound)
		for range rounds(t) {
			if wrong := town.replace(); wrong != nil {
				t.Fatal(wrong)
			}
		}
		town.whole()
	})
}

// Both find stores with a fault in what keeps writes apart.
func TestInheritanceIsFound(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	for name, fault := range townFaults {
		for _, store := range []string{"SQLite", "PostgreSQL"} {
			if fault.locks && store == "SQLite" {
				continue // a transaction is the lock
			}
			t.Run(name+", "+store, func(t *testing.T) {
				town := settle(t, stores[store](t), fault.plant)
				for n := range 4 * soon { // found by round 20 on average
					if wrong := town.inherit(); wrong != nil {
						t.Logf("found by round %d: %q", n, wrong)
						return
					}
				}
				t.Fatalf("not found: %s", town.tally())
			})
		}
	}
}

// whole fails the test unless the chain of audit records is whole.
func (w *town) whole() {
	w.t.Helper()
	if check := must(w.services[0].Audit.Verify(w.t.Context(), svc.Host)); check.Fault != nil {
		w.t.Errorf("record %d %s", check.Fault.Number, check.Fault.Reason)
	}
	w.t.Log(w.tally())
}

func rounds(t *testing.T) int { return min((histories(t)+3)/4, 250) }

// inherit runs a round with each deletion and makes the rows anew.
func (w *town) inherit() (wrong []string) {
	deletion := "the user"
	if w.random.IntN(2) == 0 {
		deletion = pick(w.random, slices.Sorted(maps.Keys(calls["deletions"]))...)
	}
	wrong = w.round([]string{"own", "administrative"}, deletion, nil)
	missing := inhabitants()
	rows := w.rows()
	missing.Users = rowsNotIn(missing.Users, rows.Users, func(u svc.User) string { return u.ID })
	missing.Groups = rowsNotIn(missing.Groups, rows.Groups, func(g svc.Group) string { return g.ID })
	for _, service := range w.services { // caches that alice has no row
		must(service.Decide(w.t.Context(), svc.Principal{Kind: svc.KindUser, ID: aliceID}, action.Recall, bankID, svc.Context{}))
	}
	for _, user := range missing.Users {
		if _, err := w.services[0].Users.Create(w.t.Context(), root, user); err != nil {
			wrong = append(wrong, "make anew: "+err.Error())
		}
		wrong = append(wrong, w.belongings(user.ID)...)
	}
	for _, group := range missing.Groups {
		group.Members = nil
		if _, err := w.services[0].Groups.Create(w.t.Context(), root, group); err != nil {
			wrong = append(wrong, "make anew: "+err.Error())
		}
		wrong = append(wrong, w.belongings(group.ID)...)
	}
	return wrong
}

// replace runs a round in which alice is deleted and made anew at once, with the same rights, and her
// account comes to bob.
func (w *town) replace() (wrong []string) {
	replaced := false
	wrong = w.round([]string{"own"}, "the user", func(g guest) error {
		replaced = true
		b := inhabitants()
		b.Groups = nil
		b.ServiceAccounts[0].OwnerUserID = bob.ID
		return g.Access.Apply(g.ctx, svc.Host, b)
	})
	if !replaced {
		return append(wrong, "alice was not deleted")
	}
	left := slices.DeleteFunc(w.belongings(aliceID), func(what string) bool { return what == "attachment" })
	wrong = append(wrong, left...)
	wrong = append(wrong, w.belongings(accountID)...)
	w.apply(svc.Bundle{ServiceAccounts: inhabitants().ServiceAccounts})
	return wrong
}

// refusal reports whether a call of a round may answer that.
func refusal(err error) bool {
	switch svc.ErrorCode(err) {
	case "", svc.CodeForbidden, svc.CodeNotFound, svc.CodeExists, svc.CodeInUse, svc.CodeUnauthenticated:
		return true
	case svc.CodeInvalid: // a body that names what is gone
		return true
	}
	return false
}

func (w *town) tally() (text string) {
	for _, answer := range slices.Sorted(maps.Keys(w.answers)) {
		text += fmt.Sprintf("%s %d, ", answer, w.answers[answer])
	}
	return text
}

// rows reads all rows of access.
func (w *town) rows() (rows svc.Bundle) {
	must(w.store.ReadAccess(w.t.Context(), svc.AccessRead{}, func(part svc.Bundle) error {
		rows.Users = append(rows.Users, part.Users...)
		rows.Groups = append(rows.Groups, part.Groups...)
		rows.ServiceAccounts = append(rows.ServiceAccounts, part.ServiceAccounts...)
		rows.Policies = append(rows.Policies, part.Policies...)
		rows.Attachments = append(rows.Attachments, part.Attachments...)
		return nil
	}))
	return rows
}

// keys reads all keys that are not revoked.
func (w *town) keys() []svc.APIKey {
	return must(w.store.APIKeys(w.t.Context(), svc.APIKeyPage{KeyQuery: svc.KeyQuery{Limit: 1 << 20}}))
}

// personal returns the sources and templates of a user.
func (w *town) personal(owner string) (what []string) {
	for _, source := range must(w.store.Sources(w.t.Context(), svc.SourcePage{Scope: svc.ScopePersonal, Owner: owner, Limit: 1000})) {
		what = append(what, "source "+source.Name)
	}
	page := svc.TemplatePage{Scope: svc.ScopePersonal, Owner: owner, TemplateQuery: svc.TemplateQuery{Limit: 1000}}
	for _, template := range must(w.store.Templates(w.t.Context(), page)) {
		what = append(what, "template "+template.ID)
	}
	return what
}

// dangling returns what refers to a row that is gone.
func (w *town) dangling() (wrong []string) {
	w.t.Helper()
	rows := w.rows()
	there := map[string]bool{"": true, svc.PolicyTemplateUser: true}
	for _, u := range rows.Users {
		there["user "+u.ID] = true
	}
	for _, g := range rows.Groups {
		there["group "+g.ID] = true
	}
	for _, a := range rows.ServiceAccounts {
		there["service_account "+a.ID] = true
	}
	for _, p := range rows.Policies {
		there["policy "+p.ID] = true
	}
	need := func(what, kind, id string) {
		if id != "" && !there[kind+" "+id] {
			wrong = append(wrong, fmt.Sprintf("%s: there is no %s %q", what, kind, id))
		}
	}
	for _, g := range rows.Groups {
		for _, member := range g.Members {
			need("member of "+g.ID, "user", member)
		}
	}
	for _, a := range rows.ServiceAccounts {
		need("account "+a.ID, "user", a.OwnerUserID)
		need("account "+a.ID, "policy", a.ScopingPolicyID)
	}
	for _, a := range rows.Attachments {
		need("attachment of "+a.PolicyID, "policy", a.PolicyID)
		need("attachment of "+a.PolicyID, a.Principal.Type, a.Principal.ID)
	}
	for _, k := range w.keys() {
		need("key "+k.ID, string(k.Holder.Kind), k.Holder.ID)
		need("key "+k.ID, "policy", k.ScopingPolicyID)
	}
	if !there["user "+aliceID] {
		wrong = append(wrong, w.personal(aliceID)...)
	}
	return wrong
}

// belongings returns everything that a user, group or service account has but its row.
func (w *town) belongings(id string) (all []string) {
	w.t.Helper()
	rows := w.rows()
	for _, u := range rows.Users {
		if u.ID == id && len(u.Channels) > 0 {
			all = append(all, fmt.Sprint("channels ", u.Channels))
		}
	}
	for _, g := range rows.Groups {
		if slices.Contains(g.Members, id) || g.ID == id && len(g.Members) > 0 {
			all = append(all, "membership")
		}
	}
	for _, a := range rows.ServiceAccounts {
		if a.OwnerUserID == id {
			all = append(all, "account "+a.ID)
		}
	}
	for _, a := range rows.Attachments {
		if a.Principal.ID == id {
			all = append(all, "attachment")
		}
	}
	for _, k := range w.keys() {
		if k.Holder.ID == id {
			all = append(all, "key of "+id)
		}
	}
	return append(all, w.personal(id)...)
}

// accepted returns the keys that a Service accepts although the store has none of them. A Service
// that sees the commits of others a moment later may accept them as long.
func (w *town) accepted(keys []svc.IssuedKey) (wrong []string) {
	w.t.Helper()
	live := map[string]bool{}
	for _, k := range w.keys() {
		live[k.ID] = true
	}
	for _, key := range keys {
		for i, service := range w.services {
			var err error
			for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				_, err = service.Authenticate(w.t.Context(), string(key.Key))
				if live[key.ID] || err != nil || w.exact || time.Now().After(end) {
					break
				}
			}
			if !live[key.ID] && svc.ErrorCode(err) != svc.CodeUnauthenticated {
				wrong = append(wrong, fmt.Sprintf("service %d accepts a key of %v that is revoked: %v", i, key.Holder, err))
			}
		}
	}
	return wrong
}

func rowsNotIn[R any](rows, other []R, id func(R) string) []R {
	return slices.DeleteFunc(rows, func(row R) bool {
		return slices.ContainsFunc(other, func(o R) bool { return id(o) == id(row) })
	})
}

// townFault is a fault of a store. locks: it takes away a lock that a store with one writer at a time does not need.
type townFault struct {
	locks bool
	plant func(svc.FullStore) svc.Store
}

var townFaults = map[string]townFault{
	"no lock on the keys of a holder": {true, inTransactions(func(tx svc.FullStore) svc.FullStore { return keysUnlocked{tx} })},
	"no lock on access":               {true, inTransactions(func(tx svc.FullStore) svc.FullStore { return accessUnlocked{tx} })},
	"a row that is still seen":        {false, inTransactions(func(tx svc.FullStore) svc.FullStore { return sentimental{tx} })},
	"a deletion that revokes no keys": {false, inTransactions(func(tx svc.FullStore) svc.FullStore { return lenient{tx} })},
}

func inTransactions(plant func(tx svc.FullStore) svc.FullStore) func(svc.FullStore) svc.Store {
	return func(store svc.FullStore) svc.Store { return planted{store, plant} }
}

type planted struct {
	svc.FullStore
	plant func(tx svc.FullStore) svc.FullStore
}

func (s planted) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	linger() // another may commit
	return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		return fn(ctx, s.plant(tx.(svc.FullStore)))
	})
}

// linger waits for 1 to 64 ms: a deletion takes as long on one machine or another.
func linger() { time.Sleep(time.Millisecond << rand.N(7)) }

// keysUnlocked takes no lock, and a moment to create a key.
type keysUnlocked struct{ svc.FullStore }

func (s keysUnlocked) CreateAPIKey(ctx context.Context, key svc.APIKey) error {
	linger()
	return s.FullStore.CreateAPIKey(ctx, key)
}

func (s keysUnlocked) Lock(context.Context, svc.Locks) error { return nil }

// accessUnlocked reads and judges without the lock. Its writes take it.
type accessUnlocked struct{ svc.FullStore }

func (s accessUnlocked) Lock(context.Context, svc.Locks) error { return nil }

func (s accessUnlocked) ChangeAccess(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
	if write, err := change(svc.Bundle{}); err != nil || write.Empty() {
		return err
	}
	return s.FullStore.ChangeAccess(ctx, named, change)
}

// sentimental sees a user that is gone.
type sentimental struct{ svc.FullStore }

func (s sentimental) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	snapshot, err := s.FullStore.Access(ctx, query)
	if query.Identity.Kind == svc.KindUser && snapshot.User == nil {
		snapshot.User = &svc.User{ID: query.Identity.ID}
	}
	return snapshot, err
}

// lenient revokes nothing.
type lenient struct{ svc.FullStore }

func (s lenient) RevokeAPIKeys(context.Context, svc.Identity, time.Time, int) ([]string, error) {
	return nil, nil
}
