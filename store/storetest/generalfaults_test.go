package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

var generalFaults = map[string]func(*store){
	"the context is ignored": func(s *store) {
		s.sources = func(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
			return s.FullStore.Sources(context.Background(), page)
		}
	},
	"an ended context is answered with an error of the driver": func(s *store) {
		s.template = func(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
			if ctx.Err() != nil {
				return svc.Template{}, errors.New("interrupted")
			}
			return s.FullStore.Template(ctx, key)
		}
	},
	"times are local": func(s *store) {
		zone := time.FixedZone("CET", 3600)
		s.template = func(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
			template, err := s.FullStore.Template(ctx, key)
			template.UpdatedAt = template.UpdatedAt.In(zone)
			return template, err
		}
	},
	"times are cut to the second": func(s *store) {
		s.createAPIKey = func(ctx context.Context, key svc.APIKey) error {
			key.CreatedAt = key.CreatedAt.Truncate(time.Second)
			return s.FullStore.CreateAPIKey(ctx, key)
		}
	},
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
	"the generation does not grow": func(s *store) {
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			snapshot, err := s.FullStore.Access(ctx, query)
			snapshot.Generation = 1
			return snapshot, err
		}
	},
	"memory is shared with callers": func(s *store) {
		var kept sync.Map
		s.createTemplate = func(ctx context.Context, t svc.Template) error {
			kept.Store(t.TemplateKey, t)
			return s.FullStore.CreateTemplate(ctx, t)
		}
		s.template = func(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
			if t, there := kept.Load(key); there {
				return t.(svc.Template), nil
			}
			return s.FullStore.Template(ctx, key)
		}
	},
	"memory is shared with readers": func(s *store) {
		s.template = shared(s.FullStore.Template)
		s.source = shared(s.FullStore.Source)
	},
	"memory is shared with change": func(s *store) {
		var mu sync.Mutex
		var last *svc.Template
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			return s.FullStore.ChangeTemplate(ctx, key, func(t *svc.Template) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				if key.ID == "t" {
					last = t
				}
				return change(t)
			})
		}
		s.template = func(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
			mu.Lock()
			shared := last
			mu.Unlock()
			if shared != nil && shared.TemplateKey == key {
				return *shared, ctx.Err()
			}
			return s.FullStore.Template(ctx, key)
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

// shared returns its first answer to every caller.
func shared[K comparable, R any](read func(context.Context, K) (R, error)) func(context.Context, K) (R, error) {
	var mu sync.Mutex
	kept := map[K]R{}
	return func(ctx context.Context, key K) (R, error) {
		mu.Lock()
		defer mu.Unlock()
		if row, there := kept[key]; there {
			return row, ctx.Err()
		}
		row, err := read(ctx, key)
		if err == nil {
			kept[key] = row
		}
		return row, err
	}
}
