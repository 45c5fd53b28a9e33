package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/extsvc/svc"
)

var apiKeyListRules = []rule{
	{"APIKeys lists newest first the keys of one holder or of all, and those that a policy" +
		" narrows, for every chunk size", func(c *checker) {
		keys := c.variedKeys()
		slices.SortFunc(keys, func(a, b svc.APIKey) int {
			return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
		})
		c.listsKeys(svc.KeyQuery{}, keys, func(k svc.APIKey) time.Time { return k.CreatedAt })
	}},
	{"APIKeys with ExpireBefore lists the keys that expire before it by expiry and id, " +
		"for every chunk size", func(c *checker) {
		expiry := func(k svc.APIKey) time.Time { return k.ExpiresAt }
		c.listsKeys(svc.KeyQuery{ExpireBefore: at(102)},
			earliest(c.variedKeys(), expiry, at(102)), expiry)
	}},
	{"APIKeys with UnusedSince lists the keys whose last use, or else creation, " +
		"is before it, by that time and id, for every chunk size", func(c *checker) {
		c.listsKeys(svc.KeyQuery{UnusedSince: at(8)},
			earliest(c.variedKeys(), svc.APIKey.LastUse, at(8)), svc.APIKey.LastUse)
	}},
	{"APIKeys lists a key at its new place " +
		"after a change of its expiry and after a use", func(c *checker) {
		for i, id := range []string{"a", "b", "c"} {
			key := newKey(id, alice, at(int64(i)))
			key.ExpiresAt = at(int64(100 + i))
			c.ok(c.CreateAPIKey(c.ctx, key))
		}
		c.ok(c.ChangeAPIKey(c.ctx, alice, "a", edit(func(k *svc.APIKey) { k.ExpiresAt = at(102) })))
		c.ok(c.ChangeAPIKey(c.ctx, alice, "b", edit(func(k *svc.APIKey) {
			k.ExpiresAt = time.Time{}
		})))
		c.ok(c.UseAPIKeys(c.ctx, []svc.LastUse{{ID: "a", At: at(5)}}))
		ids := func(query svc.KeyQuery) []string {
			query.Limit = 10
			return keyIDs(must(c.APIKeys(c.ctx, svc.APIKeyPage{KeyQuery: query})))
		}
		c.same("by expiry", ids(svc.KeyQuery{ExpireBefore: at(200)}), []string{"a", "c"})
		c.same("by last use", ids(svc.KeyQuery{UnusedSince: at(10)}), []string{"b", "c", "a"})
		c.same("not used since", ids(svc.KeyQuery{UnusedSince: at(5)}), []string{"b", "c"})
	}},
}

// variedKeys creates keys of several holders, with equal and different times, and revoked ones. It
// returns those that are not revoked.
func (c *checker) variedKeys() (keys []svc.APIKey) {
	holders := append([]svc.Identity{alice}, others...)
	for i, id := range scrambled(odd) {
		key := newKey(id, holders[i%len(holders)], at(int64(i%5)))
		if i%3 > 0 {
			key.ExpiresAt = at(int64(100 + i%4))
		}
		if i%7 > 2 {
			key.LastUsedAt = at(int64(6 + i%4))
		}
		if i%2 > 0 {
			key.ScopingPolicyID = []string{"narrow", "Narrow"}[i/2%2]
		}
		if i%11 == 0 {
			key.RevokedAt = at(9)
		} else {
			keys = append(keys, key)
		}
		c.ok(c.CreateAPIKey(c.ctx, key))
	}
	return keys
}

// earliest returns the keys with a time before until, sorted by it and by id.
func earliest(
	keys []svc.APIKey, of func(svc.APIKey) time.Time, until time.Time,
) []svc.APIKey {
	keys = slices.DeleteFunc(keys, func(k svc.APIKey) bool {
		return of(k).IsZero() || !of(k).Before(until)
	})
	slices.SortFunc(keys, func(a, b svc.APIKey) int {
		return cmp.Or(of(a).Compare(of(b)), cmp.Compare(a.ID, b.ID))
	})
	return keys
}

// listsKeys expects lists that have the wanted keys, in their order, as far as filters allow. of
// returns the time after which the next chunk starts.
func (c *checker) listsKeys(
	query svc.KeyQuery, want []svc.APIKey, of func(svc.APIKey) time.Time,
) {
	for _, page := range []svc.APIKeyPage{
		{}, {Holder: alice}, {Holder: asAccount("alice")}, {ScopingPolicyID: "narrow"},
		{Holder: alice, ScopingPolicyID: "narrow"}, {ScopingPolicyID: "none"},
	} {
		wanted := slices.DeleteFunc(slices.Clone(want), func(k svc.APIKey) bool {
			return page.Holder != svc.Identity{} && k.Holder != page.Holder ||
				page.ScopingPolicyID != "" && k.ScopingPolicyID != page.ScopingPolicyID
		})
		for _, limit := range []int{1, 7, 1000} {
			page.KeyQuery, page.Limit, page.Bare = query, limit, limit == 7
			wanted := slices.Clone(wanted)
			for i := range wanted {
				if k := &wanted[i]; page.Bare {
					k.Hash, k.Pepper, k.Seal = nil, "", nil
				}
			}
			list := wholePages(c, limit, func(last svc.APIKey) ([]svc.APIKey, error) {
				if last.ID != "" {
					page.AfterTime, page.AfterID = of(last), last.ID
				}
				return c.APIKeys(c.ctx, page)
			})
			c.same("keys of "+show(page), list, wanted)
		}
	}
}
