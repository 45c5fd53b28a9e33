//go:build planted

package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

var generalFaults = map[string]func(*store){
	"the generation grows with reads": func(s *store) {
		reads := int64(0)
		var mu sync.Mutex
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			snapshot, err := s.FullStore.Access(ctx, query)
			mu.Lock()
			defer mu.Unlock()
			reads++
			snapshot.Generation += reads
			return snapshot, err
		}
	},
	"concurrent writers get an error": func(s *store) {
		var busy sync.Mutex
		s.createTemplate = func(ctx context.Context, t svc.Template) error {
			if !busy.TryLock() {
				return errors.New("database is locked")
			}
			defer busy.Unlock()
			time.Sleep(time.Millisecond)
			return s.FullStore.CreateTemplate(ctx, t)
		}
	},
}
