package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

// others are holders other than alice, some with a similar identity.
var others = []svc.Identity{asUser("bob"), asAccount("alice"), asUser("Alice")}

var changeAPIKeyRules = []rule{
	{"ChangeAPIKey passes the whole key to change", func(c *checker) {
		key := newKey("k", alice, at(0))
		key.ExpiresAt, key.Disabled, key.LastUsedAt = at(5), true, at(6)
		key.Rate = svc.Rate{PerSecond: limits.Rate, Burst: 1}
		key.SuccessorID = "next"
		c.ok(c.CreateAPIKey(c.ctx, key))
		c.ok(c.ChangeAPIKey(c.ctx, alice, "k", func(handed *svc.APIKey) (bool, error) {
			c.same("key", *handed, key)
			return false, nil
		}))
		c.same("after no change", c.key("k"), key)
	}},
	{"ChangeAPIKey writes description, expiry, disabled, rate, successor, hash, " +
		"pepper, seal and revocation time, of only that key", func(c *checker) {
		for _, id := range []string{"a", "b", "c"} {
			c.ok(c.CreateAPIKey(c.ctx, newKey(id, alice, at(0))))
		}
		want := newKey("b", alice, at(0))
		for _, change := range []func(*svc.APIKey){
			func(k *svc.APIKey) { k.Description = new("") },
			func(k *svc.APIKey) { k.Description = nil },
			func(k *svc.APIKey) { k.Description = new("new") },
			func(k *svc.APIKey) { k.ExpiresAt = at(123_456_789) },
			func(k *svc.APIKey) { k.Disabled = true },
			func(k *svc.APIKey) { k.ExpiresAt = time.Time{} },
			func(k *svc.APIKey) { k.Disabled = false },
			func(k *svc.APIKey) { k.Rate = svc.Rate{PerSecond: 0.1, Burst: 20} },
			func(k *svc.APIKey) { k.Rate.Burst = 21 },
			func(k *svc.APIKey) { k.Rate = svc.Rate{} },
			func(k *svc.APIKey) { k.SuccessorID = "c" },
			func(k *svc.APIKey) { k.SuccessorID = "" },
			func(k *svc.APIKey) { k.Hash, k.Pepper = []byte("\xff\x00new"), "2" },
			func(k *svc.APIKey) { k.Seal = []byte("\x00\xffnew") },
			func(k *svc.APIKey) { k.Seal = nil }, func(k *svc.APIKey) { k.RevokedAt = at(9) },
		} {
			c.ok(c.ChangeAPIKey(c.ctx, alice, "b", edit(change)))
			change(&want)
			c.same("changed key", c.key("b"), want)
		}
		c.same("list", c.keys(alice, 10), []svc.APIKey{
			newKey("c", alice, at(0)), newKey("a", alice, at(0)),
		})
	}},
	{"ChangeAPIKey writes no other field of the key", func(c *checker) {
		key := newKey("k", alice, at(0))
		c.ok(c.CreateAPIKey(c.ctx, key))
		c.ok(c.ChangeAPIKey(c.ctx, alice, "k", edit(func(k *svc.APIKey) {
			*k = svc.APIKey{
				ID: "other", Holder: others[0], Prefix: "x", CreatedAt: at(7), LastUsedAt: at(8),
				ScopingPolicyID: "x",
				Hash:            key.Hash, Pepper: key.Pepper, Disabled: true,
			}
		})))
		key.Description, key.Disabled, key.Seal = nil, true, nil
		c.same("key", c.key("k"), key)
		other := c.access(svc.AccessQuery{KeyID: "other"}).Key
		c.same("key of the other id", other, (*svc.APIKey)(nil))
	}},
	{"ChangeAPIKey returns the error of change unwrapped, " +
		"and writes nothing on error or panic", func(c *checker) {
		key := newKey("k", alice, at(0))
		c.ok(c.CreateAPIKey(c.ctx, key))
		spoiled := func(k *svc.APIKey) {
			k.Description, k.Disabled, k.RevokedAt, k.Hash, k.Seal = nil, true, at(1), nil, nil
		}
		for _, want := range []error{errRefused, svc.ErrNotFound} {
			if err := c.ChangeAPIKey(c.ctx, alice, "k", func(k *svc.APIKey) (bool, error) {
				spoiled(k)
				return true, want
			}); err != want {
				c.fail("ChangeAPIKey returned %v, want exactly %v", err, want)
			}
		}
		c.ok(c.ChangeAPIKey(c.ctx, alice, "k", func(k *svc.APIKey) (bool, error) {
			spoiled(k)
			return false, nil
		}))
		c.panics(func() {
			_ = c.ChangeAPIKey(c.ctx, alice, "k", func(k *svc.APIKey) (bool, error) {
				spoiled(k)
				panic(errRefused)
			})
		})
		c.same("list", c.keys(alice, 10), []svc.APIKey{key})
	}},
	{"ChangeAPIKey answers ErrNotFound without calling change " +
		"when the key is unknown, revoked or of another holder", func(c *checker) {
		for _, id := range []string{"k", "revoked"} {
			c.ok(c.CreateAPIKey(c.ctx, newKey(id, alice, at(0))))
		}
		c.ok(c.revoke("revoked", at(1)))
		refused := func(holder svc.Identity, id string) {
			c.is("ChangeAPIKey", c.ChangeAPIKey(c.ctx, holder, id, func(*svc.APIKey) (bool, error) {
				c.fail("change was called for %s of %s", id, show(holder))
				return false, nil
			}), svc.ErrNotFound)
		}
		refused(alice, "K")
		refused(alice, "revoked")
		for _, other := range others {
			refused(other, "k")
		}
		c.same("key", c.key("k"), newKey("k", alice, at(0)))
		c.same("time of the revocation", c.key("revoked").RevokedAt, at(1))
	}},
	{"a transaction of ChangeAPIKey and CreateAPIKey writes both keys", func(c *checker) {
		next := newKey("next", alice, at(1))
		next.ExpiresAt, next.Disabled = at(60), true
		c.ok(c.CreateAPIKey(c.ctx, newKey("old", alice, at(0))))
		c.ok(rotate(c.ctx, c, "old", next))
		c.same("revoked", c.key("old").RevokedAt, at(77))
		c.same("list", c.keys(alice, 10), []svc.APIKey{next})
	}},
	{"a transaction of ChangeAPIKey and CreateAPIKey answers ErrExists when the new id is taken, " +
		"and leaves both keys unchanged", func(c *checker) {
		old, taken := newKey("old", alice, at(0)), newKey("taken", others[0], at(0))
		c.ok(c.CreateAPIKey(c.ctx, old))
		c.ok(c.CreateAPIKey(c.ctx, taken))
		for _, id := range []string{"taken", "old"} {
			c.is("Atomically", rotate(c.ctx, c, "old", newKey(id, alice, at(1))), svc.ErrExists)
		}
		c.same("old key", c.key("old"), old)
		c.same("the other", c.key("taken"), taken)
	}},
	{"concurrent changes of one key are serialized: none is lost, " +
		"and of several rotations that revoke it one wins", func(c *checker) {
		c.ok(c.CreateAPIKey(c.ctx, newKey("k", alice, at(0))))
		c.together(1, func(i, _ int) {
			c.ok(c.ChangeAPIKey(c.ctx, alice, "k", edit(func(k *svc.APIKey) {
				k.Description = new(*k.Description + string(rune('a'+i)))
			})))
		})
		c.same("length", len(*c.key("k").Description), len("for k")+racers)
		c.oneWins(race(func(i int) error {
			return rotate(c.ctx, c, "k", newKey(string(rune('a'+i)), alice, at(1)))
		}), svc.ErrNotFound)
		c.same("number of keys", len(c.keys(alice, 100)), 1)
	}},
	{"RevokeAPIKeys records the time on the holder's keys and deletes their hashes and seals, " +
		"in one mutation, and returns the ids of the keys that it revoked", func(c *checker) {
		revoked := newKey("revoked", alice, at(0))
		revoked.RevokedAt = at(1)
		c.ok(c.CreateAPIKey(c.ctx, revoked))
		var want []string
		for i := range 300 {
			key := newKey(odd[i%len(odd)]+string(rune(0x4e00+i)), alice, at(int64(i)))
			key.Disabled, want = i%2 == 0, append(want, key.ID)
			c.ok(c.CreateAPIKey(c.ctx, key))
		}
		for _, other := range others {
			c.ok(c.CreateAPIKey(c.ctx, newKey(string(other.Kind)+other.ID, other, at(0))))
		}
		before := c.generation()
		ids := must(c.RevokeAPIKeys(c.ctx, alice, at(5), 1000))
		slices.Sort(ids)
		slices.Sort(want)
		c.same("ids", ids, want)
		changes := c.changes(before)
		c.same("generation", changes.Generation, before+1)
		c.same("number of targets", len(changes.Targets), len(want))
		c.same("keys", len(c.keys(alice, 100)), 0)
		c.same("time", c.key(want[7]).RevokedAt, at(5))
		c.same("hash", c.key(want[7]).Hash, []byte(nil))
		c.same("seal", c.key(want[7]).Seal, []byte(nil))
		c.same("time of the one before", c.key("revoked").RevokedAt, at(1))
		for _, other := range others {
			c.same("keys of another", len(c.keys(other, 10)), 1)
		}
		c.same("ids of none", len(must(c.RevokeAPIKeys(c.ctx, alice, at(6), 1000))), 0)
		c.same("generation after none", c.generation(), before+1)
	}},
	{"RevokeAPIKeys revokes the newest keys first, " +
		"exactly limit of them unless fewer are left", func(c *checker) {
		for i := range 8 {
			c.ok(c.CreateAPIKey(c.ctx, newKey(odd[i], alice, at(int64(i/3)))))
		}
		want := keyIDs(c.keys(alice, 10))
		for _, size := range []int{3, 3, 2, 0} {
			ids := must(c.RevokeAPIKeys(c.ctx, alice, at(5), 3))
			slices.Sort(ids)
			slices.Sort(want[:size])
			c.same("ids", ids, want[:size])
			want = want[size:]
			c.same("keys left", keyIDs(c.keys(alice, 10)), want)
		}
	}},
	{"Access counts a holder's keys that are not revoked, " +
		"up to most, whatever else it reads", func(c *checker) {
		for i, id := range []string{"a", "b", "c", "d"} {
			key := newKey(id, alice, at(0))
			key.Disabled, key.ExpiresAt = i == 1, at(int64(i))
			c.ok(c.CreateAPIKey(c.ctx, key))
		}
		c.ok(c.revoke("c", at(1)))
		for _, other := range others {
			c.ok(c.CreateAPIKey(c.ctx, newKey(string(other.Kind)+other.ID, other, at(0))))
		}
		for _, query := range []svc.AccessQuery{
			{}, {KeyID: "c"}, {Identity: alice}, {Identity: asAccount("bot")},
			{Identity: alice, ScopingPolicyID: "p"},
			{Identity: asAccount("bot"), ScopingPolicyID: "p"},
		} {
			c.same("keys that nobody asked for", c.access(query).Keys, 0)
			for most, want := range map[int]int{0: 0, 1: 1, 2: 2, 3: 3, 4: 3, 1000: 3} {
				query.KeysOf, query.Most, query.Bare = alice, most, most%2 == 0
				c.same(fmt.Sprintf("keys by %+v", query), c.access(query).Keys, want)
			}
			query.Most = 1000
			for micro, want := range map[int64]int{-1: 3, 0: 2, 1: 1, 2: 1, 3: 0} {
				query.ValidAt = at(micro)
				c.same(fmt.Sprintf("valid keys by %+v", query), c.access(query).Keys, want)
			}
			query.ValidAt, query.KeysOf = time.Time{}, asUser("nobody")
			c.same("keys of nobody", c.access(query).Keys, 0)
		}
	}},
	{"of several concurrent transactions that lock a holder and add a key, " +
		"each counts the keys added before it", func(c *checker) {
		const most = 3
		won := 0
		for _, err := range race(func(i int) error {
			return c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
				if err := tx.Lock(ctx, svc.Locks{Holder: alice}); err != nil {
					return err
				}
				now, err := tx.Access(ctx, svc.AccessQuery{KeysOf: alice, Most: most})
				if err != nil || now.Keys == most {
					return cmp.Or(err, errRefused)
				}
				time.Sleep(time.Millisecond)
				return tx.CreateAPIKey(ctx, newKey(string(rune('a'+i)), alice, at(0)))
			})
		}) {
			if err == nil {
				won++
			} else {
				c.is("Atomically", err, errRefused)
			}
		}
		c.same("keys that were added", won, most)
		c.same("keys", len(c.keys(alice, 10)), most)
	}},
	{"ChangeAPIKey, or to rely on the key, in a transaction blocks other changes and revocations " +
		"of the key until the end, even if it wrote nothing", func(c *checker) {
		for i, hold := range []func(ctx context.Context, tx svc.Store, id string) error{
			func(ctx context.Context, tx svc.Store, id string) error {
				return tx.ChangeAPIKey(ctx, alice, id, leave)
			},
			func(ctx context.Context, tx svc.Store, id string) error {
				return tx.Lock(ctx, svc.Locks{RelyOnKey: id})
			},
		} {
			for j, others := range []func(id string) error{
				func(id string) error { return c.ChangeAPIKey(c.ctx, alice, id, disable) },
				func(string) error { return second(c.RevokeAPIKeys(c.ctx, alice, at(1), 10)) },
			} {
				id := fmt.Sprint(i, j)
				c.ok(c.CreateAPIKey(c.ctx, newKey(id, alice, at(0))))
				c.holds(func(ctx context.Context, tx svc.Store) error {
					return cmp.Or(hold(ctx, tx, id),
						second(tx.Access(ctx, svc.AccessQuery{KeyID: id})))
				}, func() error { return others(id) })
			}
		}
	}},
	{"UseAPIKeys keeps the latest use of each key, " +
		"in any order, and is not a mutation", func(c *checker) {
		want := map[string]time.Time{}
		var uses []svc.LastUse
		for i := range 100 {
			key := newKey(odd[i%len(odd)]+string(rune(0x4e00+i)), alice, at(0))
			c.ok(c.CreateAPIKey(c.ctx, key))
			want[key.ID] = at(int64(i % 3))
			uses = append(uses, svc.LastUse{ID: key.ID, At: want[key.ID]})
		}
		before := c.generation()
		c.ok(c.UseAPIKeys(c.ctx, uses))
		earlier := slices.Clone(uses)
		for i := range earlier {
			earlier[i].At = at(-5)
		}
		c.ok(c.UseAPIKeys(c.ctx, earlier))
		c.ok(c.UseAPIKeys(c.ctx, nil))
		later := []svc.LastUse{
			{ID: uses[50].ID, At: at(9)}, {ID: uses[50].ID, At: at(8)}, {ID: "unknown", At: at(1)},
		}
		want[uses[50].ID] = at(9)
		c.ok(c.UseAPIKeys(c.ctx, later))
		for id, at := range want {
			c.same("last use of "+id, c.key(id).LastUsedAt, at)
		}
		c.same("generation", c.generation(), before)
		c.same("unknown key", c.access(svc.AccessQuery{KeyID: "unknown"}).Key, (*svc.APIKey)(nil))
	}},
}

// holds expects that others waits for the end of a transaction that has called hold. The
// transaction stays open for a moment, so that a store that does not wait is caught.
func (c *checker) holds(hold func(ctx context.Context, tx svc.Store) error, others func() error) {
	var started, ended atomic.Bool
	waited := make(chan error, 1)
	c.ok(c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
		if err := hold(ctx, tx); err != nil || started.Swap(true) {
			return err
		}
		go func() {
			err := others()
			if err == nil && !ended.Load() {
				err = errors.New("it did not wait for the end of the transaction")
			}
			waited <- err
		}()
		time.Sleep(20 * time.Millisecond)
		ended.Store(true)
		return nil
	}))
	if !started.Load() {
		c.fail("Atomically has not called its function")
	}
	c.ok(<-waited)
}

// disable is a change function that disables a key.
var disable = edit(func(key *svc.APIKey) { key.Disabled = true })

// revokeAt returns a change function that revokes a key.
func revokeAt(at time.Time) func(*svc.APIKey) (bool, error) {
	return edit(func(key *svc.APIKey) { key.RevokedAt, key.Hash, key.Seal = at, nil, nil })
}

// revoke revokes a key of alice.
func (c *checker) revoke(id string, at time.Time) error {
	return c.ChangeAPIKey(c.ctx, alice, id, revokeAt(at))
}

// rotate revokes a key of alice and adds another, in one transaction.
func rotate(ctx context.Context, s svc.Store, id string, next svc.APIKey) error {
	return s.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		if err := tx.ChangeAPIKey(ctx, alice, id, revokeAt(at(77))); err != nil {
			return err
		}
		return tx.CreateAPIKey(ctx, next)
	})
}
