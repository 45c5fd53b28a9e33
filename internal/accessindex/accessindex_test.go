package accessindex_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/accessindex"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

type rows struct {
	users       map[string]bool // inactive
	members     map[[2]string]bool
	accounts    map[string]accessindex.Account
	policies    map[string]string
	attachments map[attachment]int64
	banks       map[string]string
}

type attachment struct {
	policy string
	to     accessindex.Principal
}

func newRows() *rows {
	return &rows{map[string]bool{}, map[[2]string]bool{}, map[string]accessindex.Account{}, map[string]string{}, map[attachment]int64{}, map[string]string{}}
}

// index builds an index from scratch; maps give the rows in another order each time.
func (w *rows) index() *accessindex.Index {
	r := accessindex.NewIndexed(policy.Memory)
	for a, priority := range w.attachments {
		r.Attach(a.policy, a.to, priority)
	}
	for m := range w.members {
		r.Join(m[0], m[1])
	}
	for id, a := range w.accounts {
		r.SetAccount(id, a.Owner, a.Scoping, a.Inactive)
	}
	for id, inactive := range w.users {
		r.SetUser(id, inactive)
	}
	for id, document := range w.policies {
		r.SetPolicy(id, []byte(document))
	}
	for id, document := range w.banks {
		r.SetBank(id, []byte(document))
	}
	return r
}

// rowsOf returns the rows of a world that a store could hold.
func rowsOf(w *policytest.World) *rows {
	all := newRows()
	for _, u := range w.Users {
		all.users[u.ID] = u.Inactive
	}
	for _, g := range w.Groups {
		for _, m := range g.Members {
			all.members[[2]string{g.ID, m}] = true
		}
	}
	for _, a := range w.Accounts {
		all.accounts[a.ID] = accessindex.Account{Owner: a.Owner, Scoping: a.Scoping, Inactive: a.Inactive}
	}
	for _, p := range w.Policies {
		all.policies[p.ID] = string(p.Document)
	}
	for _, a := range w.Attachments {
		to := accessindex.Principal{ID: a.User + a.Group, Group: a.User == ""}
		all.attachments[attachment{a.Policy, to}] = a.Priority
	}
	for _, b := range w.BankPolicies {
		all.banks[b.ID] = string(b.Document)
	}
	return all
}

func TestWhoCanIsTheReference(t *testing.T) {
	seen := map[bool]int{}
	for seed := range uint64(longtest.Times(30, 150)) {
		w := policytest.NewWorld(seed)
		r := rowsOf(w).index()
		for range 10 {
			q, matching := w.Request(), map[string]bool{}
			got := r.WhoCan(q.Action, q.Bank)
			lists := map[policy.Kind][]string{policy.User: got.Users, policy.ServiceAccount: got.ServiceAccounts}
			for _, p := range w.Principals {
				if p.Odd || lists[p.Kind] == nil {
					continue
				}
				want := policytest.Evaluate(p.Subject, q)
				allowed := want.Outcome == policy.Allow
				if seen[allowed]++; slices.Contains(lists[p.Kind], p.ID) != allowed {
					t.Fatalf("world %d: %s %q on %q by %s: allowed is %v", seed, p.Kind, q.Action, q.Bank, p.ID, allowed)
				}
				for _, e := range want.Trace {
					if e.Via == "bank" && e.Code == policy.CodeDocumentInvalid {
						clear(matching) // it comes last: nobody may do anything
					} else if e.Matched && e.Via != "bank" && p.Subject.Closed == "" {
						matching[fmt.Sprint(accessindex.StatementRef{Policy: e.PolicyID, Statement: e.Statement, Effect: e.Effect})] = true
					}
				}
			}
			expect.Equal(t, fmt.Sprint("statements of world ", seed), fmt.Sprint(got.Statements), fmt.Sprint(slices.Sorted(maps.Keys(matching))))
		}
	}
	expect.Holds(t, min(seen[true], seen[false]) >= longtest.Times(200, 1000), "the worlds are varied: ", seen)
}

// change draws a change and makes it to the rows. The result makes it to an index.
func (w *rows) change(from *policytest.World, r *rand.Rand) func(*accessindex.Index) {
	other := rowsOf(from)
	user, group := pick(r, from.Users).ID, pick(r, from.Groups).ID
	account, of := pick(r, from.Accounts).ID, pick(r, from.Policies).ID
	switch drop := r.IntN(3) == 0; r.IntN(8) {
	case 0:
		if drop {
			return w.dropUser(user)
		}
		w.users[user] = other.users[user]
		return func(to *accessindex.Index) { to.SetUser(user, other.users[user]) }
	case 1, 2:
		if drop {
			delete(w.members, [2]string{group, user})
			return func(to *accessindex.Index) { to.Leave(group, user) }
		}
		w.members[[2]string{group, user}] = true
		return func(to *accessindex.Index) { to.Join(group, user) }
	case 3:
		a := other.accounts[account]
		if drop {
			delete(w.accounts, account)
			return func(to *accessindex.Index) { to.DeleteAccount(account) }
		}
		w.accounts[account] = a
		return func(to *accessindex.Index) { to.SetAccount(account, a.Owner, a.Scoping, a.Inactive) }
	case 4:
		if drop {
			delete(w.policies, of)
			return func(to *accessindex.Index) { to.DeletePolicy(of) }
		}
		document := other.policies[of]
		w.policies[of] = document
		return func(to *accessindex.Index) { to.SetPolicy(of, []byte(document)) }
	case 5, 6:
		a := attachment{of, accessindex.Principal{ID: user}}
		if r.IntN(2) == 0 {
			a.to = accessindex.Principal{ID: group, Group: true}
		}
		if drop {
			delete(w.attachments, a)
			return func(to *accessindex.Index) { to.Detach(a.policy, a.to) }
		}
		w.attachments[a] = r.Int64N(3)
		return func(to *accessindex.Index) { to.Attach(a.policy, a.to, w.attachments[a]) }
	}
	switch r.IntN(3) {
	case 0:
		return w.dropGroup(group, r.IntN(2) == 0)
	case 1:
		document := `{"version":"2026-03-24"}`
		if r.IntN(3) == 0 {
			document = `{}`
		}
		w.banks["b"] = document
		return func(to *accessindex.Index) { to.SetBank("b", []byte(document)) }
	}
	delete(w.banks, "b")
	return func(to *accessindex.Index) { to.DeleteBank("b") }
}

func (w *rows) dropUser(id string) func(*accessindex.Index) {
	if _, has := w.users[id]; has {
		delete(w.users, id)
		maps.DeleteFunc(w.members, func(m [2]string, _ bool) bool { return m[1] == id })
		maps.DeleteFunc(w.attachments, func(a attachment, _ int64) bool { return a.to == accessindex.Principal{ID: id} })
	}
	return func(to *accessindex.Index) { to.DeleteUser(id) }
}

func (w *rows) dropGroup(id string, whole bool) func(*accessindex.Index) {
	maps.DeleteFunc(w.members, func(m [2]string, _ bool) bool { return m[0] == id })
	if !whole {
		return func(to *accessindex.Index) { to.Empty(id) }
	}
	maps.DeleteFunc(w.attachments, func(a attachment, _ int64) bool { return a.to == accessindex.Principal{ID: id, Group: true} })
	return func(to *accessindex.Index) { to.DeleteGroup(id) }
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

func facts(r *accessindex.Index, w *policytest.World) map[string]any {
	all := map[string]any{"size": r.Size(), "shut": fmt.Sprint(r.Shut()), "remembered": r.Remembered()}
	for range 10 {
		q := w.Request()
		all[q.Action+" on "+q.Bank] = r.WhoCan(q.Action, q.Bank)
	}
	for _, party := range r.Parties() {
		for _, m := range party {
			grants := r.Grants(m.ID)
			slices.SortFunc(grants, func(a, b policy.Grant) int {
				return slices.Compare([]string{a.PolicyID, a.Group}, []string{b.PolicyID, b.Group})
			})
			all["grants of "+m.ID] = grants
			all["first of "+m.ID] = party[0]
		}
	}
	for _, u := range w.Users {
		inactive, found := r.User(u.ID)
		all["user "+u.ID] = []bool{inactive, found}
	}
	for _, a := range w.Accounts {
		account, found := r.Account(a.ID)
		all["account "+a.ID] = []any{account, found}
	}
	return all
}

// again returns the world of a seed with another stream of random requests, the same at each call.
func again(seed uint64) *policytest.World {
	w := policytest.NewWorld(seed % 20)
	w.Rand = rand.New(rand.NewPCG(seed, 2))
	return w
}

// An index that is moved says what one says that is made from scratch, and one that misses a change does not.
func TestMovedIsMadeAnew(t *testing.T) {
	missed, differs := 0, 0
	for seed := range uint64(longtest.Times(4, 20)) {
		r := rand.New(rand.NewPCG(seed, 3))
		all := rowsOf(policytest.NewWorld(seed))
		moved, lagging := all.index(), all.index()
		for n := range uint64(60) {
			step := seed*100 + n
			do := all.change(again(step), r)
			do(moved)
			want := facts(all.index(), again(step))
			if got := facts(moved, again(step)); !reflect.DeepEqual(got, want) {
				for what := range maps.Keys(want) {
					expect.Equal(t, what, got[what], want[what])
				}
				t.Fatalf("seed %d, change %d", seed, n)
			}
			if n%20 == 19 {
				missed++
				if !reflect.DeepEqual(facts(lagging, again(step)), want) {
					differs++
				}
				lagging = all.index()
			}
			if n%20 != 10 { // a planted fault: it misses the tenth
				do(lagging)
			}
		}
	}
	expect.Holds(t, differs*4 >= missed, "indexes that miss a change, and those that are noticed: ", missed, differs)
}

// An excerpt says of the named rows what the whole says.
func TestExcerpt(t *testing.T) {
	for seed := range uint64(200) {
		w := policytest.NewWorld(seed)
		whole := rowsOf(w).index()
		user, account := pick(w.Rand, w.Users).ID, pick(w.Rand, w.Accounts).ID
		part := whole.Excerpt(accessindex.Rows{Users: []string{user}, Accounts: []string{account, "none"}, Banks: []string{"b", "none"}})
		owned, _ := whole.Account(account)
		mine, _ := part.Account(account)
		if mine != owned || !reflect.DeepEqual(part.Shut(), whole.Shut()) {
			t.Fatalf("seed %d: %v %v", seed, mine, owned)
		}
		parties := [][]policy.Member{{{Kind: policy.User, ID: user}}, {{Kind: policy.ServiceAccount, ID: account}}}
		if reaching := whole.Reaching(parties); reaching != len(whole.Grants(user))+len(whole.Grants(owned.Owner)) {
			t.Fatalf("seed %d: %d grants", seed, reaching)
		}
		for _, id := range []string{user, owned.Owner, "nobody"} {
			was, known := whole.User(id)
			is, found := part.User(id)
			if known == (id == "nobody") || found != known || was != is || is && !known || !reflect.DeepEqual(part.Grants(id), whole.Grants(id)) {
				t.Fatalf("seed %d: %s has %v, not %v", seed, id, part.Grants(id), whole.Grants(id))
			}
		}
	}
}

// Those who are not touched by a change have the same rights after it.
func TestTouched(t *testing.T) {
	spared := 0
	for seed := range uint64(300) {
		w := policytest.NewWorld(seed)
		all := rowsOf(w)
		user, group, of := pick(w.Rand, w.Users).ID, pick(w.Rand, w.Groups).ID, pick(w.Rand, w.Policies).ID
		before := all.index()
		var by accessindex.Rows
		switch w.IntN(3) {
		case 0:
			by.Users = []string{user}
			all.users[user] = !all.users[user]
		case 1:
			by.Groups = []string{group, pick(w.Rand, w.Groups).ID}
			all.attachments[attachment{of, accessindex.Principal{ID: group, Group: true}}] = 7
		case 2:
			by.Policies = []string{of}
			all.policies[of] = string(policytest.Document(w.Statement()))
		}
		touched, after := map[policy.Member]bool{}, all.index()
		parties := before.Touched(by)
		for _, m := range slices.Concat(parties...) {
			if touched[m] {
				t.Fatalf("seed %d: %v twice", seed, m)
			}
			touched[m] = true
		}
		for range 20 {
			q := w.Request()
			was, is := before.WhoCan(q.Action, q.Bank), after.WhoCan(q.Action, q.Bank)
			for _, party := range parties {
				for _, m := range party[1:] { // users
					for _, may := range [][]string{was.Users, is.Users} {
						if slices.Contains(may, m.ID) != slices.Contains(may, party[0].ID) {
							t.Fatalf("seed %d: %v does not stand for %v", seed, party[0], m)
						}
					}
				}
			}
			for _, u := range w.Users {
				changed := slices.Contains(was.Users, u.ID) != slices.Contains(is.Users, u.ID)
				if !touched[policy.Member{Kind: policy.User, ID: u.ID}] {
					if spared++; changed {
						t.Fatalf("seed %d: %s changes", seed, u.ID)
					}
				}
			}
			for _, a := range w.Accounts {
				changed := slices.Contains(was.ServiceAccounts, a.ID) != slices.Contains(is.ServiceAccounts, a.ID)
				if changed && !touched[policy.Member{Kind: policy.ServiceAccount, ID: a.ID}] {
					t.Fatalf("seed %d: service account %s changes", seed, a.ID)
				}
			}
		}
	}
	expect.Holds(t, spared >= 1000, "many are spared: ", spared)
}

// Without attachments, too, members of different groups that are named may differ after the change.
func TestTouchedGroups(t *testing.T) {
	all := newRows()
	for id, group := range map[string]string{"a": "g", "b": "h", "c": "h"} {
		all.users[id] = false
		all.members[[2]string{group, id}] = true
	}
	is.New(t).Equal(len(all.index().Touched(accessindex.Rows{Groups: []string{"g", "h"}})), 2)
}

// Many users, added and removed in any order, are listed in the order of their ids.
func TestListsAreSorted(t *testing.T) {
	r, random := accessindex.NewIndexed(policy.Memory), rand.New(rand.NewPCG(1, 2))
	r.SetPolicy("p", policytest.Document(policytest.Statement{Effect: "allow", Actions: []string{"a"}, Banks: []string{"*"}}))
	r.Attach("p", accessindex.Principal{ID: "all", Group: true}, 0)
	r.Attach("p", accessindex.Principal{ID: "few", Group: true}, 0)
	r.DeleteGroup("all")
	r.Attach("p", accessindex.Principal{ID: "all", Group: true}, 0)
	want := map[string]bool{}
	add := func(i int) {
		id := fmt.Sprintf("user-%05d", i)
		r.SetUser(id, false)
		r.Join("all", id)
		want[id] = true
	}
	for i := range 5000 {
		add(2 * i)
	}
	for i := 9999; i > 6000; i -= 2 {
		add(i)
	}
	for range 10_000 {
		if i := random.IntN(10_000); random.IntN(2) == 0 {
			add(i)
		} else {
			id := fmt.Sprintf("user-%05d", i)
			r.DeleteUser(id)
			delete(want, id)
		}
	}
	expect.Equal(t, "users", r.WhoCan("a", "b").Users, slices.Sorted(maps.Keys(want)))
	r.Empty("all")
	few := slices.Sorted(maps.Keys(want))[100:110]
	for _, id := range slices.Backward(few) {
		r.Join("few", id)
	}
	expect.Equal(t, "users", r.WhoCan("a", "b").Users, few)
}

// Many members leave a group at once. A quadratic Leave takes a minute for as many.
func TestManyLeave(t *testing.T) {
	r := accessindex.New(policy.Memory)
	r.SetPolicy("p", []byte("{}"))
	r.Attach("p", accessindex.Principal{Group: true, ID: "g"}, 0)
	ids := make([]string, longtest.Times(20_000, 1_000_000))
	for i := range ids {
		ids[i] = fmt.Sprint(i)
		r.SetUser(ids[i], false)
		r.Join("g", ids[i])
	}
	slices.Reverse(ids)
	for range 2 { // the second time nobody leaves
		r.Leave("g", ids[1:]...)
		r.Leave("none", ids...)
		expect.Equal(t, "who has left, and who stayed", [2]int{len(r.Grants(ids[1])), len(r.Grants(ids[0]))}, [2]int{0, 1})
	}
	r.SetAccount("a", "owner", "p", false)
	r.Detach("p", accessindex.Principal{Group: true, ID: "g"})
	r.Join("g", "guest")
	r.Leave("g", ids[0], "guest")
	r.DeletePolicy("p")
	r.DeleteAccount("a")
	r.SetPolicy("p", []byte("{}"))
	r.DeletePolicy("p")
	r.Join("g", ids[0])
	r.DeleteUser(ids[0])
	is.New(t).Equal(r.Remembered(), []int{len(ids) - 1, 0, 0, 0, 0, 0, 0}) // only users with rows
}

// TestExcerptOfBanks: an excerpt copies the policies of banks, and parses none again.
func TestExcerptOfBanks(t *testing.T) {
	const banks = 1000
	whole, of := accessindex.New(policy.Memory), accessindex.Rows{}
	for i := range banks {
		id := fmt.Sprint("bank-", i)
		of.Banks = append(of.Banks, id)
		whole.SetBank(id, []byte(`{"version":"2026-03-24","public_access":{"default":{"actions":["bank:recall"]}}}`))
	}
	whole.SetBank("shut", []byte(`{}`))
	n := testing.AllocsPerRun(3, func() { whole.Excerpt(of) })
	expect.Holds(t, n <= banks, "allocations for banks: ", n, banks)
	if part := whole.Excerpt(of); !slices.Equal(part.Shut(), []string{"shut"}) || len(part.Banks()) != banks {
		t.Errorf("%v of %d banks are shut", part.Shut(), len(part.Banks()))
	}
}

func TestRowsOfEachKindAreAdded(t *testing.T) {
	is, rows := is.New(t), accessindex.Rows{Users: []string{"u1"}, Banks: []string{"b1"}}
	rows.Add(accessindex.Rows{
		Users: []string{"u2"}, Groups: []string{"g"}, Accounts: []string{"a"}, Policies: []string{"p"}, Banks: []string{"b2"},
	})
	is.Equal(rows, accessindex.Rows{
		Users: []string{"u1", "u2"}, Groups: []string{"g"}, Accounts: []string{"a"}, Policies: []string{"p"}, Banks: []string{"b1", "b2"},
	})
}
