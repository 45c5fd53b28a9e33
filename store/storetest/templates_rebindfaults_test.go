//go:build planted

package storetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

// returned returns a fault in the keys that RebindTemplates returns.
func returned(fault func(keys []svc.TemplateKey) []svc.TemplateKey) func(*store) {
	return rebound(func(_ context.Context, _ *store, keys []svc.TemplateKey) []svc.TemplateKey { return fault(keys) })
}

// rebound returns a fault in what happens after templates are re-bound.
func rebound(fault func(ctx context.Context, s *store, keys []svc.TemplateKey) []svc.TemplateKey) func(*store) {
	return func(s *store) {
		s.rebindTemplates = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			keys, err := s.FullStore.RebindTemplates(ctx, source, url)
			if err != nil {
				return nil, err
			}
			return fault(ctx, s, keys), nil
		}
	}
}

// differently changes how re-bound templates, and no others, are read.
func differently(show func(t *svc.Template)) func(*store) {
	return func(s *store) {
		var mu sync.Mutex
		seen := map[svc.TemplateKey]bool{}
		s.rebindTemplates = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			keys, err := s.FullStore.RebindTemplates(ctx, source, url)
			mu.Lock()
			defer mu.Unlock()
			for _, key := range keys {
				seen[key] = true
			}
			return keys, err
		}
		s.template = func(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
			t, err := s.FullStore.Template(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if seen[key] {
				show(&t)
			}
			return t, err
		}
	}
}

// skipping does not re-bind the templates for which skip returns true.
func skipping(skip func(key svc.TemplateKey, old, url string) bool) func(*store) {
	return func(s *store) {
		var mu sync.Mutex
		urls := map[svc.TemplateKey]string{} // of all installed templates
		hidden := map[svc.TemplateKey]bool{}
		s.createTemplate = func(ctx context.Context, t svc.Template) error {
			mu.Lock()
			defer mu.Unlock()
			if t.Origin != nil {
				urls[t.TemplateKey] = t.Origin.URL
			}
			return s.FullStore.CreateTemplate(ctx, t)
		}
		s.rebindTemplates = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			mu.Lock()
			defer mu.Unlock()
			keys, err := s.FullStore.RebindTemplates(ctx, source, url)
			for _, key := range keys {
				hidden[key] = skip(key, urls[key], url)
			}
			return slices.DeleteFunc(keys, func(key svc.TemplateKey) bool { return hidden[key] }), err
		}
		s.template = func(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
			t, err := s.FullStore.Template(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if t.Origin != nil && hidden[key] {
				t.Origin.URL = urls[key]
			}
			return t, err
		}
	}
}

var rebindFaults = map[string]func(*store){
	"the keys of re-bound templates are not returned": returned(func([]svc.TemplateKey) []svc.TemplateKey { return nil }),
	"templates with a URL never lose it":              skipping(func(_ svc.TemplateKey, _, url string) bool { return url == "" }),
	"RebindTemplates of a source without templates is an error": func(s *store) {
		s.rebindTemplates = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			keys, err := s.FullStore.RebindTemplates(ctx, source, url)
			if err == nil && len(keys) == 0 {
				err = svc.ErrNotFound
			}
			return keys, err
		}
	},
	"re-binding returns keys, but writes nothing": differently(func(t *svc.Template) { t.Origin.URL = installed("t").Origin.URL }),
	"re-binding leaves a version": rebound(func(ctx context.Context, s *store, keys []svc.TemplateKey) []svc.TemplateKey {
		for _, key := range keys {
			for _, n := range []int64{1, -1} {
				_ = s.FullStore.ChangeTemplate(ctx, key, func(t *svc.Template) (bool, error) {
					t.Version += n
					return true, nil
				})
			}
		}
		return keys
	}),
	"re-binding overwrites concurrent changes": func(s *store) {
		changed := make(chan struct{})
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			err := s.FullStore.ChangeTemplate(ctx, key, change)
			select {
			case changed <- struct{}{}:
			default:
			}
			return err
		}
		s.rebindTemplates = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			read, err := s.FullStore.Template(ctx, own("t"))
			if err != nil || read.Origin == nil || len(url) != len("https://1.example") {
				return s.FullStore.RebindTemplates(ctx, source, url) // no change runs at the same time
			}
			for range racers { // at least one of racers changes began after this
				select {
				case <-changed:
				case <-time.After(time.Second):
				}
			}
			_ = s.FullStore.ChangeTemplate(ctx, read.TemplateKey, func(t *svc.Template) (bool, error) {
				*t = read
				return true, nil
			})
			return s.FullStore.RebindTemplates(ctx, source, url)
		}
	},
}
