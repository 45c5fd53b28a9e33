//go:build planted

package storetest

import (
	"context"
	"time"

	"github.com/extsvc/svc"
)

var apiKeyListFaults = map[string]func(*store){
	"a list by last use has one time more": keyPageFault(func(page *svc.APIKeyPage) { page.UnusedSince = later(page.UnusedSince) }),
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
