package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

var apiKeyFaults = map[string]func(*store){
	"a key overwrites another": func(s *store) {
		var mu sync.Mutex
		over := map[string]svc.APIKey{}
		s.createAPIKey = func(ctx context.Context, key svc.APIKey) error {
			err := s.Store.CreateAPIKey(ctx, key)
			if errors.Is(err, svc.ErrExists) {
				mu.Lock()
				defer mu.Unlock()
				over[key.ID] = key
				return nil
			}
			return err
		}
		s.credential = func(ctx context.Context, id string) (svc.Credential, error) {
			credential, err := s.Store.Credential(ctx, id)
			if key, there := over[id]; there {
				credential.APIKey = key
			}
			return credential, err
		}
	},
	"the ids of keys are equal in upper and lower case": func(s *store) {
		s.credential = func(ctx context.Context, id string) (svc.Credential, error) {
			credential, err := s.Store.Credential(ctx, id)
			if errors.Is(err, svc.ErrNotFound) && strings.EqualFold(id, "abcDEF") {
				return s.Store.Credential(ctx, "abcDEF")
			}
			return credential, err
		}
	},
	"a revoked key is not found": func(s *store) {
		s.credential = func(ctx context.Context, id string) (svc.Credential, error) {
			credential, err := s.Store.Credential(ctx, id)
			if !credential.RevokedAt.IsZero() {
				return svc.Credential{}, svc.ErrNotFound
			}
			return credential, err
		}
	},
	"a user's row is anybody's": func(s *store) {
		s.credential = func(ctx context.Context, id string) (svc.Credential, error) {
			credential, err := s.Store.Credential(ctx, id)
			if user, userErr := s.Store.User(ctx, credential.Holder.ID); userErr == nil {
				credential.User = &user
			}
			return credential, err
		}
	},
	"an inactive holder has no row": func(s *store) {
		s.credential = func(ctx context.Context, id string) (svc.Credential, error) {
			credential, err := s.Store.Credential(ctx, id)
			if credential.User != nil && credential.User.Inactive {
				credential.User = nil
			}
			if credential.ServiceAccount != nil && credential.ServiceAccount.Inactive {
				credential.ServiceAccount = nil
			}
			return credential, err
		}
	},
	"keys are listed oldest first": func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			chunk, err := s.Store.APIKeys(ctx, page)
			slices.Reverse(chunk)
			return chunk, err
		}
	},
	"keys of one time are lost between chunks": func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			page.AfterID = ""
			return s.Store.APIKeys(ctx, page)
		}
	},
	"revoked keys are listed": func(s *store) {
		s.revokeAPIKey = func(ctx context.Context, holder svc.Identity, id string, at time.Time) error {
			credential, err := s.Store.Credential(ctx, id)
			if err != nil || credential.Holder != holder {
				return cmp.Or(err, svc.ErrNotFound)
			}
			return nil
		}
	},
	"keys are listed without their hash": func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			chunk, err := s.Store.APIKeys(ctx, page)
			for i := range chunk {
				chunk[i].Hash = nil
			}
			return chunk, err
		}
	},
	"keys of a service account are those of the user with its id": func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			page.Holder.Kind = svc.KindUser
			return s.Store.APIKeys(ctx, page)
		}
	},
	"anybody revokes a key": func(s *store) {
		s.revokeAPIKey = func(ctx context.Context, holder svc.Identity, id string, at time.Time) error {
			if credential, err := s.Store.Credential(ctx, id); err == nil {
				holder = credential.Holder
			}
			return s.Store.RevokeAPIKey(ctx, holder, id, at)
		}
	},
	"the last value is kept": func(s *store) {
		s.keepValue = func(ctx context.Context, name string, value []byte) ([]byte, error) {
			_, err := s.Store.KeepValue(ctx, name, value)
			return bytes.Clone(value), err
		}
	},
}
