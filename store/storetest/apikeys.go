package storetest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

var apiKeyRules = []rule{
	{"Access returns the key that CreateAPIKey received", func(c *checker) {
		bare := svc.APIKey{
			ID: "bare", Holder: asAccount("bot"), Prefix: "p",
			Hash: []byte{0}, CreatedAt: at(999_999),
		}
		empty := newKey("empty", alice, at(1))
		empty.Description = new("")
		revoked := newKey("revoked", alice, at(2))
		revoked.RevokedAt = at(3)
		whole := newKey("whole", alice, at(0))
		whole.ExpiresAt, whole.Disabled, whole.LastUsedAt = at(999_999), true, at(60_000_001)
		whole.ScopingPolicyID = "narrow"
		whole.SuccessorID = "full"
		whole.Rate = svc.Rate{PerSecond: 1.0 / 3, Burst: limits.Burst}
		for _, key := range []svc.APIKey{
			newKey("full", alice, at(0)), bare, empty, revoked, whole,
		} {
			c.ok(c.CreateAPIKey(c.ctx, key))
			c.same("key", c.key(key.ID), key)
		}
	}},
	{"CreateAPIKey answers ErrExists when any holder has a key with the id, " +
		"and leaves that key unchanged", func(c *checker) {
		key := newKey("k", alice, at(0))
		c.ok(c.CreateAPIKey(c.ctx, key))
		other := newKey("k", asUser("bob"), at(1))
		other.Hash = []byte("other")
		c.is("CreateAPIKey", c.CreateAPIKey(c.ctx, other), svc.ErrExists)
		c.same("key", c.key("k"), key)
		c.ok(c.revoke("k", at(2)))
		c.is("CreateAPIKey with a revoked key's id", c.CreateAPIKey(c.ctx, other), svc.ErrExists)
	}},
	{"Access returns no key for an unknown id; ids are case-sensitive", func(c *checker) {
		c.ok(c.CreateAPIKey(c.ctx, newKey("abcDEF", alice, at(0))))
		for _, id := range []string{"abcdef", "ABCDEF", "abcDE", "abcDEF ", "abcDEF0", ""} {
			c.same("key of "+id, c.access(svc.AccessQuery{KeyID: id}).Key, (*svc.APIKey)(nil))
		}
	}},
	{"APIKeys lists each key once, newest first, " +
		"equal times by id descending, for every chunk size", func(c *checker) {
		var want []string
		for second := range 3 {
			for _, id := range scrambled(odd) {
				key := newKey(fmt.Sprint(second)+id, alice, at(int64(second)))
				c.ok(c.CreateAPIKey(c.ctx, key))
				want = append(want, key.ID)
			}
		}
		slices.Sort(want)
		slices.Reverse(want)
		for _, limit := range []int{1, 7, len(odd), 1000} {
			c.same("ids", keyIDs(c.keys(alice, limit)), want)
		}
	}},
	{"APIKeys returns whole keys", func(c *checker) {
		full, bare := newKey("b", alice, at(1)), svc.APIKey{
			ID: "a", Holder: alice, Prefix: "p", Hash: []byte("h"), CreatedAt: at(0),
		}
		full.ExpiresAt, full.Disabled, full.LastUsedAt = at(5), true, at(6)
		full.ScopingPolicyID = "narrow"
		full.SuccessorID = "a"
		full.Rate = svc.Rate{PerSecond: limits.LeastRate, Burst: 3}
		c.ok(c.CreateAPIKey(c.ctx, full))
		c.ok(c.CreateAPIKey(c.ctx, bare))
		c.same("list", c.keys(alice, 10), []svc.APIKey{full, bare})
	}},
	{"APIKeys lists only the holder's keys: " +
		"a user and a service account with the same id are two holders", func(c *checker) {
		holders := []svc.Identity{alice, asAccount("alice"), asUser("Alice"), asUser("alice ")}
		for i, holder := range holders {
			c.ok(c.CreateAPIKey(c.ctx, newKey(fmt.Sprint(i), holder, at(0))))
		}
		for i, holder := range holders {
			c.same("keys of "+show(holder), keyIDs(c.keys(holder, 10)), []string{fmt.Sprint(i)})
		}
	}},
	{"a revoked key is not in the list; Access still returns it, " +
		"with the time and without hash and seal", func(c *checker) {
		for _, id := range []string{"a", "b", "c"} {
			c.ok(c.CreateAPIKey(c.ctx, newKey(id, alice, at(0))))
		}
		c.ok(c.revoke("b", at(5)))
		want := newKey("b", alice, at(0))
		want.RevokedAt, want.Hash, want.Seal = at(5), nil, nil
		c.same("key", c.key("b"), want)
		c.same("list", keyIDs(c.keys(alice, 1)), []string{"c", "a"})
	}},
	{"of several concurrent calls that create or revoke one key, one wins", func(c *checker) {
		c.oneWins(race(func(i int) error {
			return c.CreateAPIKey(c.ctx, newKey("k", alice, at(int64(i))))
		}), svc.ErrExists)
		errs := race(func(i int) error { return c.revoke("k", at(int64(100+i))) })
		c.oneWins(errs, svc.ErrNotFound)
		c.same("time of the winner", c.key("k").RevokedAt, at(int64(100+slices.Index(errs, nil))))
	}},
	{"KeepValue keeps the first value of each name forever", func(c *checker) {
		for i, name := range odd {
			for _, value := range []string{"\x00first\xff", "second"} {
				kept := must(c.KeepValue(c.ctx, name, fmt.Appendf(nil, "%s %d", value, i)))
				c.same("value of "+name, kept, fmt.Appendf(nil, "\x00first\xff %d", i))
			}
		}
	}},
	{"of several concurrent KeepValue calls " +
		"for one name, all get the same value", func(c *checker) {
		values := make([][]byte, racers)
		c.together(1, func(i, _ int) {
			values[i] = must(c.KeepValue(c.ctx, "name", fmt.Appendf(nil, "value %d", i)))
		})
		for _, value := range values {
			if !bytes.Equal(value, values[0]) || len(value) == 0 {
				c.fail("got both %q and %q", values[0], value)
			}
		}
	}},
}

// key reads a key that must exist.
func (c *checker) key(id string) svc.APIKey {
	key := c.access(svc.AccessQuery{KeyID: id}).Key
	if key == nil {
		c.fail("no key %q", id)
	}
	return *key
}

// keys reads all keys of a holder, in chunks of limit.
func (c *checker) keys(holder svc.Identity, limit int) []svc.APIKey {
	return wholePages(c, limit, func(last svc.APIKey) ([]svc.APIKey, error) {
		return c.APIKeys(c.ctx, svc.APIKeyPage{Holder: holder, KeyQuery: svc.KeyQuery{
			AfterTime: last.CreatedAt, AfterID: last.ID, Limit: limit,
		}})
	})
}

func keyIDs(keys []svc.APIKey) []string {
	return column(keys, func(k svc.APIKey) string { return k.ID })
}
