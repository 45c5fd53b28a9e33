//go:build planted

package storetest

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

var apiKeyFaults = map[string]func(*store){
	"a key overwrites another": func(s *store) {
		var mu sync.Mutex
		over := map[string]svc.APIKey{}
		s.does["CreateAPIKey"] = func(ctx context.Context, key svc.APIKey) error {
			err := s.FullStore.CreateAPIKey(ctx, key)
			if errors.Is(err, svc.ErrExists) {
				mu.Lock()
				defer mu.Unlock()
				over[key.ID] = key
				return nil
			}
			return err
		}
		s.does["Access"] = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			snapshot, err := s.FullStore.Access(ctx, query)
			if key, there := over[query.KeyID]; there {
				snapshot.Key = &key
			}
			return snapshot, err
		}
	},
	"a service account has the keys of the user with its id": func(s *store) {
		s.does["APIKeys"] = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			page.Holder.Kind = svc.KindUser
			return s.FullStore.APIKeys(ctx, page)
		}
	},
	"any holder can change a key": func(s *store) {
		s.does["ChangeAPIKey"] = func(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
			if key, err := readKey(ctx, s, id); err == nil {
				holder = key.Holder
			}
			return s.FullStore.ChangeAPIKey(ctx, holder, id, change)
		}
	},
	"changes of a key overwrite each other": func(s *store) {
		s.does["ChangeAPIKey"] = func(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
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
	"revoking all keys leaves their hashes": func(s *store) {
		var mu sync.Mutex
		was := map[string]svc.APIKey{}
		s.does["RevokeAPIKeys"] = func(ctx context.Context, holder svc.Identity, at time.Time, limit int) ([]string, error) {
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
		s.does["Access"] = remembering(s, &mu, was)
	},
}

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
