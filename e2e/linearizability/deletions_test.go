package linearizability_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/longtest"
)

// The rows that rounds delete and make anew. alice owns the account and is a member of the group.
// The policy is used by nothing at first.
const (
	aliceID, accountID, groupID, policyID = "alice", "alice-account", "team", "narrow"
	bankID                                = "notes"
)

var (
	bob     = svc.Identity{Kind: svc.KindUser, ID: "bob"}
	account = svc.Identity{Kind: svc.KindServiceAccount, ID: accountID}
	robot   = svc.Identity{Kind: svc.KindServiceAccount, ID: "bob-account"}
	// root is an ordinary administrator, with a session of the host.
	root = svc.Principal{Kind: svc.KindUser, ID: "root"}
)

func toUser(policy, id string) svc.Attachment {
	return svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: id}}
}

func toGroup(policy, id string) svc.Attachment {
	return svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: id}}
}

// administrators gives root every right of an administrator.
func administrators() svc.Bundle {
	return svc.Bundle{
		Users:       []svc.User{{ID: root.ID}},
		Attachments: []svc.Attachment{toUser(svc.PolicyIAMAdmin, root.ID), toUser(svc.PolicyTemplateAdmin, root.ID)},
	}
}

// inhabitants are the rows at the start of a round.
func inhabitants() svc.Bundle {
	b := svc.Bundle{
		Users:           []svc.User{{ID: aliceID}, {ID: bob.ID}},
		Groups:          []svc.Group{{ID: groupID, Members: []string{aliceID}}},
		Policies:        []svc.Policy{policyOf(policyID, bankID), policyOf("reading", bankID)},
		ServiceAccounts: []svc.ServiceAccount{{ID: accountID, OwnerUserID: aliceID}, {ID: robot.ID, OwnerUserID: bob.ID}},
	}
	for _, policy := range []string{svc.PolicyTemplateUser, svc.PolicyIAMSelfService} {
		b.Attachments = append(b.Attachments, toUser(policy, aliceID))
	}
	return b
}

// town is a database with the rows of rounds, and the Services over it.
type town struct {
	t        *testing.T
	store    svc.FullStore // without a planted fault
	services []*svc.Service
	exact    bool
	random   *rand.Rand
	rootKey  svc.Principal // root, with an issued key
	number   int           // of the round
	answers  map[string]int
}

// settle returns a town over stores, where every user has a row.
func settle(t *testing.T, stores []svc.Store, plant func(svc.FullStore) svc.Store) *town {
	t.Helper()
	town := &town{
		t: t, store: stores[0].(svc.FullStore), exact: isExact(t, stores),
		random: rand.New(rand.NewPCG(firstSeed(t), 1)), answers: map[string]int{},
	}
	var planted []svc.Store
	for _, store := range stores {
		planted = append(planted, plant(store.(svc.FullStore)))
	}
	town.services = serveWith(t, func(c *svc.Config) {
		c.Events.Keep = true
		c.Keys.Imports = []svc.KeyImport{{Prefix: "old_"}}
		c.Users.AreRows = true
	}, planted...)
	town.apply(administrators())
	town.rootKey, _ = town.login(svc.Identity{Kind: svc.KindUser, ID: root.ID})
	return town
}

func sound(store svc.FullStore) svc.Store { return store }

func (w *town) apply(b svc.Bundle) {
	must(0, w.services[0].Access.Apply(w.t.Context(), svc.Host, b))
}

// login issues a key and returns its bearer, and the key.
func (w *town) login(who svc.Identity) (svc.Principal, svc.IssuedKey) {
	key := must(w.services[0].Keys.Issue(w.t.Context(), svc.Host, who, svc.NewAPIKey{}))
	return must(w.services[0].Authenticate(w.t.Context(), string(key.Key))), key
}

// guest is what a call of a round may use.
type guest struct {
	*svc.Service
	ctx    context.Context
	admin  svc.Principal // root, with or without a key
	self   svc.Principal // alice, with the issued key
	bot    svc.Principal // the account, with its issued key
	key    svc.IssuedKey // of self
	serial string        // an id that no other call uses
	issued func(svc.IssuedKey)
}

// do makes a call of calls, and notes the key that it issues.
func (g guest) do(call string) error {
	hash := sha256.Sum256([]byte(g.serial))
	by := callers{"host": svc.Host, "admin": g.admin, "self": g.self, "bot": g.bot}
	value, err := obey(g.ctx, g.Service, call, by, "$serial", g.serial, "$key", g.key.ID,
		"$hash", base64.StdEncoding.EncodeToString(hash[:]), "$administrators", text(administrators()))
	if key, is := value.(svc.IssuedKey); is && err == nil {
		g.issued(key)
	}
	return err
}

// reset ends what the last round has left, and makes the inhabitants.
func (w *town) reset() {
	w.t.Helper()
	ctx, service := w.t.Context(), w.services[0]
	for _, holder := range []svc.Identity{bob, robot} {
		if _, err := service.Keys.RevokeAll(ctx, svc.Host, holder); err != nil && svc.ErrorCode(err) != svc.CodeNotFound {
			w.t.Fatal(err)
		}
	}
	b := administrators()
	rows := inhabitants()
	rows.Users, rows.Attachments = append(rows.Users, b.Users...), append(rows.Attachments, b.Attachments...)
	must(0, service.Access.Write(ctx, svc.Host, rows, svc.BundleWrite{Prune: true}))
}

// round runs calls of sections and the deletion of a row at once, and returns what is wrong afterwards. anew,
// unless nil, makes the row anew at once, while the calls still run.
func (w *town) round(sections []string, deletion string, anew func(g guest) error) (wrong []string) {
	w.number++
	w.reset()
	g := guest{ctx: w.t.Context()}
	g.self, g.key = w.login(alice)
	g.bot, _ = w.login(account)
	var mu sync.Mutex
	var keys []svc.IssuedKey
	g.issued = func(key svc.IssuedKey) {
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, key)
	}
	var group sync.WaitGroup
	start := func(name string, call func(guest) error) {
		g := g
		g.Service, g.admin = w.services[w.random.IntN(len(w.services))], root
		if w.random.IntN(2) == 0 {
			g.admin = w.rootKey
		}
		g.serial = fmt.Sprint("n-", w.number, "-", w.random.Uint32())
		wait := time.Duration(w.random.Int64N(int64(8 * time.Millisecond)))
		group.Go(func() {
			time.Sleep(wait)
			err := call(g)
			mu.Lock()
			defer mu.Unlock()
			w.answers[name+" "+cmp.Or(string(svc.ErrorCode(err)), "ok")]++
			if !refusal(err) {
				wrong = append(wrong, fmt.Sprintf("%s: %v", name, err))
			}
		})
	}
	for _, section := range sections {
		for _, name := range slices.Sorted(maps.Keys(calls[section])) {
			if w.random.IntN(3) > 0 {
				start(name, func(g guest) error { return g.do(calls[section][name]) })
			}
		}
	}
	start("delete "+deletion, func(g guest) error {
		err := g.do(calls["deletions"][deletion])
		if err == nil && anew != nil {
			err = anew(g)
		}
		return err
	})
	group.Wait()
	return slices.Concat(wrong, w.dangling(), w.accepted(keys))
}

// Two administrators, each through a Service of its own, take the rights of an administrator from each other, or each from itself:
// one of them always remains.
func TestAnAdministratorRemains(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(*testing.T) []svc.Store) {
		town := settle(t, open(t), sound)
		for range (rounds(t) + 3) / 4 {
			for _, how := range slices.Sorted(maps.Keys(calls["resignations"])) {
				for _, other := range []bool{true, false} {
					if wrong := town.resign(how, other); wrong != nil {
						t.Fatal(wrong)
					}
				}
			}
		}
		town.whole()
	})
}

// That finds an administrator who judges without the lock.
func TestLostAdministratorsAreFound(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	plant := inTransactions(func(tx svc.FullStore) svc.FullStore { return accessUnlocked{tx} })
	town := settle(t, stores["PostgreSQL"](t), plant)
	for n := range soon {
		for _, how := range slices.Sorted(maps.Keys(calls["resignations"])) {
			if wrong := town.resign(how, false); wrong != nil {
				t.Logf("found by round %d: %q", n, wrong)
				return
			}
		}
	}
	t.Fatalf("not found: %s", town.tally())
}

// leaders are two administrators, ann and ben, or the policies of both and the rows of one.
func leaders(of ...string) (b svc.Bundle) {
	b.Policies = []svc.Policy{{ID: "denies", Document: statements(statement("deny", "*", "iam:users:write"))}}
	for _, id := range []string{"ann", "ben"} {
		administers := statements(statement("allow", "*", "iam:*", "bank:*"))
		b.Policies = append(b.Policies, svc.Policy{ID: "administers-" + id, Document: administers})
	}
	for _, id := range of {
		b.Users = append(b.Users, svc.User{ID: id})
		b.Groups = append(b.Groups, svc.Group{ID: id, Members: []string{id}})
		b.Attachments = append(b.Attachments, toGroup("administers-"+id, id))
	}
	return b
}

// resign lets two administrators act at once, on the other or on itself, and returns what is wrong.
func (w *town) resign(how string, other bool) (wrong []string) {
	ctx := w.t.Context()
	of := []string{"ann", "ben"}
	must(0, w.services[0].Access.Write(ctx, svc.Host, leaders(of...), svc.BundleWrite{Prune: true}))
	results := make(chan error, len(of))
	for i, id := range of {
		user, rest := id, of[1-i]
		if other {
			user, rest = rest, user
		}
		go func() {
			by, service := callers{"by": {Kind: svc.KindUser, ID: id}}, w.services[i%len(w.services)]
			_, err := obey(ctx, service, calls["resignations"][how], by,
				"$user", user, "$others", text(leaders(rest)), "$recalls", string(policyOf("", bankID).Document))
			results <- err
		}()
	}
	for range of {
		err := <-results
		w.answers[how+" "+string(svc.ErrorCode(err))]++
		switch svc.ErrorCode(err) {
		case "", svc.CodeForbidden, svc.CodeLastAdministrator, svc.CodeNotFound, svc.CodeInvalid:
		default:
			wrong = append(wrong, fmt.Sprintf("%s: %v", how, err))
		}
	}
	if !w.administered(ctx, of) {
		wrong = append(wrong, how+": no administrator remains")
	}
	return wrong
}

// administered reports whether one of these users administers, by the rows of the store.
func (w *town) administered(ctx context.Context, users []string) bool {
	uncached := w.services[0].WithTx(w.store)
	return slices.ContainsFunc(users, func(id string) bool {
		by := svc.Principal{Kind: svc.KindUser, ID: id}
		may := func(action string) bool { return must(uncached.Decide(ctx, by, action, "*", svc.Context{})).Allowed() }
		return may(action.UsersWrite) && may("iam:another")
	})
}
