package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

// readKey reads a key of a good store.
func readKey(ctx context.Context, s *store, id string) (svc.APIKey, error) {
	snapshot, err := s.FullStore.Access(ctx, svc.AccessQuery{KeyID: id})
	if err == nil && snapshot.Key == nil {
		err = svc.ErrNotFound
	}
	if err != nil {
		return svc.APIKey{}, err
	}
	return *snapshot.Key, nil
}

// changeKey returns a fault in a change of a key. The fault gets the key before and after change.
func changeKey(fault func(before svc.APIKey, after *svc.APIKey)) func(*store) {
	return func(s *store) {
		s.changeAPIKey = func(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
			return s.FullStore.ChangeAPIKey(ctx, holder, id, func(key *svc.APIKey) (bool, error) {
				before := *key
				write, err := change(key)
				fault(before, key)
				return write, err
			})
		}
	}
}

var changeAPIKeyFaults = map[string]func(*store){
	"a change of a key loses its expiry":   changeKey(func(_ svc.APIKey, after *svc.APIKey) { after.ExpiresAt = time.Time{} }),
	"a change of a key never disables it":  changeKey(func(_ svc.APIKey, after *svc.APIKey) { after.Disabled = false }),
	"a change of a key keeps the old text": changeKey(func(before svc.APIKey, after *svc.APIKey) { after.Description = before.Description }),
	"a change of a key keeps its rate":     changeKey(func(before svc.APIKey, after *svc.APIKey) { after.Rate = before.Rate }),
	"a change of a key loses its rate":     changeKey(func(_ svc.APIKey, after *svc.APIKey) { after.Rate = svc.Rate{} }),
	"a change of a key mixes up its rate":  changeKey(func(_ svc.APIKey, after *svc.APIKey) { after.Rate = mixed(after.Rate) }),
	"change receives half a key": func(s *store) {
		s.changeAPIKey = func(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
			return s.FullStore.ChangeAPIKey(ctx, holder, id, func(key *svc.APIKey) (bool, error) {
				key.LastUsedAt = time.Time{}
				return change(key)
			})
		}
	},
	"a change of a key writes its last use": func(s *store) {
		s.changeAPIKey = func(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
			var used time.Time
			err := s.FullStore.ChangeAPIKey(ctx, holder, id, func(key *svc.APIKey) (bool, error) {
				write, err := change(key)
				used = key.LastUsedAt
				return write, err
			})
			if err == nil && !used.IsZero() {
				err = s.FullStore.UseAPIKeys(ctx, []svc.KeyUse{{ID: id, At: used}})
			}
			return err
		}
	},
	"a refused change of a key is written": func(s *store) {
		s.changeAPIKey = func(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
			var refused error
			err := s.FullStore.ChangeAPIKey(ctx, holder, id, func(key *svc.APIKey) (write bool, _ error) {
				write, refused = change(key)
				return write, nil
			})
			return cmp.Or(refused, err)
		}
	},
	"any holder can change a key": func(s *store) {
		s.changeAPIKey = func(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
			if key, err := readKey(ctx, s, id); err == nil {
				holder = key.Holder
			}
			return s.FullStore.ChangeAPIKey(ctx, holder, id, change)
		}
	},
	"changes of a key overwrite each other": func(s *store) {
		s.changeAPIKey = func(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
			read, err := readKey(ctx, s, id)
			if err != nil || read.Holder != holder || !read.RevokedAt.IsZero() {
				return cmp.Or(err, svc.ErrNotFound)
			}
			if write, err := change(&read); err != nil || !write {
				return err
			}
			time.Sleep(time.Millisecond)
			return s.FullStore.ChangeAPIKey(ctx, holder, id, func(key *svc.APIKey) (bool, error) {
				*key = read
				return true, nil
			})
		}
	},
	"a change of a key shares the store's memory": func(s *store) {
		var mu sync.Mutex
		var last *svc.APIKey
		s.changeAPIKey = func(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
			return s.FullStore.ChangeAPIKey(ctx, holder, id, func(key *svc.APIKey) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				last = key
				return change(key)
			})
		}
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			snapshot, err := s.FullStore.Access(ctx, query)
			mu.Lock()
			defer mu.Unlock()
			if snapshot.Key != nil && last != nil && last.ID == query.KeyID {
				snapshot.Key.Hash = last.Hash
			}
			return snapshot, err
		}
	},
	"the error of a change of a key is wrapped": func(s *store) {
		s.changeAPIKey = func(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
			if err := s.FullStore.ChangeAPIKey(ctx, holder, id, change); err != nil {
				return fmt.Errorf("change: %w", err)
			}
			return nil
		}
	},
	"change is called for a key that does not exist": func(s *store) {
		s.changeAPIKey = func(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
			err := s.FullStore.ChangeAPIKey(ctx, holder, id, change)
			if errors.Is(err, svc.ErrNotFound) {
				_, _ = change(&svc.APIKey{})
			}
			return err
		}
	},
	"all keys are revoked one by one": func(s *store) {
		s.revokeAPIKeys = func(ctx context.Context, holder svc.Identity, at time.Time, limit int) (ids []string, err error) {
			for range limit {
				one, err := s.FullStore.RevokeAPIKeys(ctx, holder, at, 1)
				if err != nil || len(one) == 0 {
					return ids, err
				}
				ids = append(ids, one...)
			}
			return ids, nil
		}
	},
	"the keys of all holders with one id are revoked": func(s *store) {
		s.revokeAPIKeys = func(ctx context.Context, holder svc.Identity, at time.Time, limit int) ([]string, error) {
			ids, err := s.FullStore.RevokeAPIKeys(ctx, holder, at, limit)
			if err != nil {
				return nil, err
			}
			_, err = s.FullStore.RevokeAPIKeys(ctx, svc.Identity{Kind: svc.KindServiceAccount, ID: holder.ID}, at, limit)
			return ids, err
		}
	},
	"all keys are revoked at once, whatever the limit": func(s *store) {
		s.revokeAPIKeys = func(ctx context.Context, holder svc.Identity, at time.Time, _ int) ([]string, error) {
			return s.FullStore.RevokeAPIKeys(ctx, holder, at, 1000)
		}
	},
	"fewer keys are revoked than there are": func(s *store) {
		s.revokeAPIKeys = func(ctx context.Context, holder svc.Identity, at time.Time, limit int) ([]string, error) {
			return s.FullStore.RevokeAPIKeys(ctx, holder, at, max(1, limit-1))
		}
	},
	"revoked keys are counted": lockFault(func(ctx context.Context, s *store, holder svc.Identity, most int) (int, error) {
		live, err := s.FullStore.LockAPIKeys(ctx, holder, most)
		snapshot, failed := s.FullStore.Access(ctx, svc.AccessQuery{KeyID: "c"})
		if snapshot.Key != nil && snapshot.Key.Holder == holder {
			live = min(live+1, most)
		}
		return live, cmp.Or(err, failed)
	}),
	"keys are counted above the limit": lockFault(func(ctx context.Context, s *store, holder svc.Identity, _ int) (int, error) {
		return s.FullStore.LockAPIKeys(ctx, holder, 1000)
	}),
	"the keys of all holders with one id are counted": lockFault(func(ctx context.Context, s *store, holder svc.Identity, most int) (int, error) {
		live, err := s.FullStore.LockAPIKeys(ctx, holder, most)
		account, failed := s.FullStore.LockAPIKeys(ctx, svc.Identity{Kind: svc.KindServiceAccount, ID: holder.ID}, most)
		return min(live+account, most), cmp.Or(err, failed)
	}),
	"counting keys is a mutation": lockFault(func(ctx context.Context, s *store, holder svc.Identity, most int) (int, error) {
		_, err := s.FullStore.KeepValue(ctx, "locked", nil)
		live, failed := s.FullStore.LockAPIKeys(ctx, holder, most)
		return live, cmp.Or(err, failed)
	}),
	"a transaction counts only the keys from before it": joins(func(good svc.Store, atomically atomically) atomically {
		return func(ctx context.Context, fn func(ctx context.Context, tx svc.Store) error) error {
			live, err := good.LockAPIKeys(ctx, alice, 1000)
			if err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond) // gives the other transactions time to count
			return atomically(ctx, func(ctx context.Context, tx svc.Store) error {
				return fn(ctx, broken(lockFault(func(_ context.Context, _ *store, _ svc.Identity, most int) (int, error) {
					return min(live, most), nil
				}))(tx))
			})
		}
	}),
	"the last write of a use is kept": func(s *store) {
		var mu sync.Mutex
		last := map[string]time.Time{}
		s.useAPIKeys = func(ctx context.Context, uses []svc.KeyUse) error {
			mu.Lock()
			defer mu.Unlock()
			for _, use := range uses {
				last[use.ID] = use.At
			}
			return s.FullStore.UseAPIKeys(ctx, uses)
		}
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			snapshot, err := s.FullStore.Access(ctx, query)
			mu.Lock()
			defer mu.Unlock()
			if at, used := last[query.KeyID]; used && snapshot.Key != nil {
				snapshot.Key.LastUsedAt = at
			}
			return snapshot, err
		}
	},
	"a use is a mutation": func(s *store) {
		s.useAPIKeys = func(ctx context.Context, uses []svc.KeyUse) error {
			for _, use := range uses {
				if key, err := readKey(ctx, s, use.ID); err == nil && key.RevokedAt.IsZero() {
					_ = s.FullStore.ChangeAPIKey(ctx, key.Holder, use.ID, func(*svc.APIKey) (bool, error) { return true, nil })
				}
			}
			return s.FullStore.UseAPIKeys(ctx, uses)
		}
	},
	"revoking all keys leaves their hashes": func(s *store) {
		var mu sync.Mutex
		was := map[string]svc.APIKey{}
		s.revokeAPIKeys = func(ctx context.Context, holder svc.Identity, at time.Time, limit int) ([]string, error) {
			keys, err := s.FullStore.APIKeys(ctx, svc.APIKeyPage{Holder: holder, KeyQuery: svc.KeyQuery{Limit: 1000}})
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, key := range keys {
				was[key.ID] = svc.APIKey{Hash: key.Hash}
			}
			return s.FullStore.RevokeAPIKeys(ctx, holder, at, limit)
		}
		s.access = remembering(s, &mu, was)
	},
	"a revocation leaves the hash":         revocation(func(before svc.APIKey, after *svc.APIKey) { after.Hash = before.Hash }),
	"a revocation leaves the seal":         revocation(func(before svc.APIKey, after *svc.APIKey) { after.Seal = before.Seal }),
	"a revocation is not written":          revocation(func(before svc.APIKey, after *svc.APIKey) { *after = before }),
	"a change of a key keeps the old hash": changeKey(func(before svc.APIKey, after *svc.APIKey) { after.Hash = before.Hash }),
	"a change of a key keeps the old seal": changeKey(func(before svc.APIKey, after *svc.APIKey) { after.Seal = before.Seal }),
	"a change of a key keeps its pepper":   changeKey(func(before svc.APIKey, after *svc.APIKey) { after.Pepper = before.Pepper }),
}

// mixed returns a rate whose two numbers are in each other's place.
func mixed(r svc.Rate) svc.Rate {
	return svc.Rate{PerSecond: float64(r.Burst), Burst: int(r.PerSecond)}
}

// lockFault returns a fault in LockAPIKeys.
func lockFault(count func(ctx context.Context, s *store, holder svc.Identity, most int) (int, error)) func(*store) {
	return func(s *store) {
		s.lockAPIKeys = func(ctx context.Context, holder svc.Identity, most int) (int, error) {
			return count(ctx, s, holder, most)
		}
	}
}

// revocation returns a fault in a change that revokes a key.
func revocation(fault func(before svc.APIKey, after *svc.APIKey)) func(*store) {
	return changeKey(func(before svc.APIKey, after *svc.APIKey) {
		if !after.RevokedAt.IsZero() {
			fault(before, after)
		}
	})
}

// remembering reads keys with their former hashes and seals.
func remembering(s *store, mu *sync.Mutex, was map[string]svc.APIKey) func(context.Context, svc.AccessQuery) (svc.AccessSnapshot, error) {
	return func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
		snapshot, err := s.FullStore.Access(ctx, query)
		mu.Lock()
		defer mu.Unlock()
		if key, there := was[query.KeyID]; there && snapshot.Key != nil {
			if key.Hash != nil {
				snapshot.Key.Hash = key.Hash
			}
			if key.Seal != nil {
				snapshot.Key.Seal = key.Seal
			}
		}
		return snapshot, err
	}
}
