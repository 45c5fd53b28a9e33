package storetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

var apiKeyListFaults = map[string]func(*store){
	"keys of all holders are those of none": func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			if page.Holder == (svc.Identity{}) {
				return nil, nil
			}
			return s.FullStore.APIKeys(ctx, page)
		}
	},
	"a list of keys ignores the policy":    keyPageFault(func(page *svc.APIKeyPage) { page.ScopingPolicyID = "" }),
	"a list of keys folds the policy":      keyPageFault(func(page *svc.APIKeyPage) { page.ScopingPolicyID = strings.ToUpper(page.ScopingPolicyID) }),
	"a list of keys ignores ExpireBefore":  keyPageFault(func(page *svc.APIKeyPage) { page.ExpireBefore = time.Time{} }),
	"a list of keys ignores UnusedSince":   keyPageFault(func(page *svc.APIKeyPage) { page.UnusedSince = time.Time{} }),
	"a list by expiry has one time more":   keyPageFault(func(page *svc.APIKeyPage) { page.ExpireBefore = later(page.ExpireBefore) }),
	"a list by last use has one time more": keyPageFault(func(page *svc.APIKeyPage) { page.UnusedSince = later(page.UnusedSince) }),
	"a list by time ignores ids":           keyPageFault(func(page *svc.APIKeyPage) { page.AfterID = "" }),
	"a list by last use lacks unused keys": func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			list, err := s.FullStore.APIKeys(ctx, page)
			return slices.DeleteFunc(list, func(k svc.APIKey) bool {
				return !page.UnusedSince.IsZero() && k.LastUsedAt.IsZero()
			}), err
		}
	},
	"a list by expiry keeps the place of a key": func(s *store) {
		expiry := map[string]time.Time{}
		s.createAPIKey = func(ctx context.Context, key svc.APIKey) error {
			expiry[key.ID] = key.ExpiresAt
			return s.FullStore.CreateAPIKey(ctx, key)
		}
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			list, err := s.FullStore.APIKeys(ctx, page)
			return slices.DeleteFunc(list, func(k svc.APIKey) bool {
				return !page.ExpireBefore.IsZero() && !k.ExpiresAt.Equal(expiry[k.ID])
			}), err
		}
	},
}

func later(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(time.Microsecond)
}

// keyPageFault returns a fault in the pages of keys that are read.
func keyPageFault(fault func(*svc.APIKeyPage)) func(*store) {
	return func(s *store) {
		s.apiKeys = func(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
			fault(&page)
			return s.FullStore.APIKeys(ctx, page)
		}
	}
}
