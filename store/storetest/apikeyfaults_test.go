//go:build planted

package storetest

import (
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
		s.createAPIKey = func(ctx context.Context, key svc.APIKey) error {
			err := s.FullStore.CreateAPIKey(ctx, key)
			if errors.Is(err, svc.ErrExists) {
				mu.Lock()
				defer mu.Unlock()
				over[key.ID] = key
				return nil
			}
			return err
		}
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			snapshot, err := s.FullStore.Access(ctx, query)
			if key, there := over[query.KeyID]; there {
				snapshot.Key = &key
			}
			return snapshot, err
		}
	},
	"a revoked key is not found": snapshotFault(func(_ svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if snapshot.Key != nil && !snapshot.Key.RevokedAt.IsZero() {
			snapshot.Key = nil
		}
		return nil
	}),
	"expired keys count among the valid ones": func(s *store) {
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			query.ValidAt = time.Time{}
			return s.FullStore.Access(ctx, query)
		}
	},
	"keys with the same time are lost between chunks": func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			page.AfterID = ""
			return s.FullStore.APIKeys(ctx, page)
		}
	},
	"a service account has the keys of the user with its id": func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			page.Holder.Kind = svc.KindUser
			return s.FullStore.APIKeys(ctx, page)
		}
	},
}
