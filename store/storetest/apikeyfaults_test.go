package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

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
	"ids of keys are not case-sensitive": func(s *store) {
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			if strings.EqualFold(query.KeyID, "abcDEF") {
				query.KeyID = "abcDEF"
			}
			return s.FullStore.Access(ctx, query)
		}
	},
	"a revoked key is not found": snapshotFault(func(_ svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if snapshot.Key != nil && !snapshot.Key.RevokedAt.IsZero() {
			snapshot.Key = nil
		}
		return nil
	}),
	"a chunk of keys is not full": func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			page.Limit = max(1, page.Limit-1)
			return s.FullStore.APIKeys(ctx, page)
		}
	},
	"keys are listed oldest first": func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			chunk, err := s.FullStore.APIKeys(ctx, page)
			slices.Reverse(chunk)
			return chunk, err
		}
	},
	"keys with the same time are lost between chunks": func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			page.AfterID = ""
			return s.FullStore.APIKeys(ctx, page)
		}
	},
	"keys are listed without their hash": func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			chunk, err := s.FullStore.APIKeys(ctx, page)
			for i := range chunk {
				chunk[i].Hash = nil
			}
			return chunk, err
		}
	},
	"keys are listed without their rate": func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			chunk, err := s.FullStore.APIKeys(ctx, page)
			for i := range chunk {
				chunk[i].Rate = svc.Rate{}
			}
			return chunk, err
		}
	},
	"the rate of a key is rounded": snapshotFault(func(_ svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if snapshot.Key != nil {
			snapshot.Key.Rate.PerSecond = float64(float32(snapshot.Key.Rate.PerSecond))
		}
		return nil
	}),
	"the numbers of a new key's rate are mixed up": func(s *store) {
		s.createAPIKey = func(ctx context.Context, key svc.APIKey) error {
			key.Rate = mixed(key.Rate)
			return s.FullStore.CreateAPIKey(ctx, key)
		}
	},
	"a service account has the keys of the user with its id": func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			page.Holder.Kind = svc.KindUser
			return s.FullStore.APIKeys(ctx, page)
		}
	},
	"KeepValue keeps the last value": func(s *store) {
		s.keepValue = func(ctx context.Context, name string, value []byte) ([]byte, error) {
			_, err := s.FullStore.KeepValue(ctx, name, value)
			return bytes.Clone(value), err
		}
	},
}
