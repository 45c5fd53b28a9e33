package storetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
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

// alsoRebound also re-binds templates from another source, without returning their keys.
func alsoRebound(others func(source svc.SourceKey) svc.SourceKey) func(*store) {
	return func(s *store) {
		s.rebindTemplates = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			if other := others(source); other != source {
				_, _ = s.FullStore.RebindTemplates(ctx, other, url)
			}
			return s.FullStore.RebindTemplates(ctx, source, url)
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
	"re-bound templates come newest first": returned(func(keys []svc.TemplateKey) []svc.TemplateKey {
		slices.Reverse(keys)
		return keys
	}),
	"re-bound templates come by id, then owner": returned(func(keys []svc.TemplateKey) []svc.TemplateKey {
		slices.SortStableFunc(keys, func(a, b svc.TemplateKey) int { return strings.Compare(a.ID, b.ID) })
		return keys
	}),
	"re-bound templates come by owner, then scope": returned(func(keys []svc.TemplateKey) []svc.TemplateKey {
		slices.SortStableFunc(keys, func(a, b svc.TemplateKey) int { return strings.Compare(a.Owner, b.Owner) })
		return keys
	}),
	"the keys of re-bound templates are not returned": returned(func([]svc.TemplateKey) []svc.TemplateKey { return nil }),
	"only the server's templates are re-bound":        skipping(func(key svc.TemplateKey, _, _ string) bool { return key.Scope != svc.ScopeServer }),
	"only the templates of a source's owner are re-bound": skipping(func(key svc.TemplateKey, _, _ string) bool {
		return key.Owner != acme.Owner && key.Owner != ""
	}),
	"templates without a URL are not re-bound": skipping(func(_ svc.TemplateKey, old, _ string) bool { return old == "" }),
	"templates with a URL never lose it":       skipping(func(_ svc.TemplateKey, _, url string) bool { return url == "" }),
	"URLs are compared without regard to case": skipping(func(_ svc.TemplateKey, old, url string) bool {
		return strings.EqualFold(old, url)
	}),
	"URLs are compared without space around them": skipping(func(_ svc.TemplateKey, old, url string) bool { return strings.TrimSpace(old) == url }),
	"URLs are compared without a final slash": skipping(func(_ svc.TemplateKey, old, url string) bool {
		return strings.TrimSuffix(old, "/") == url
	}),
	"URLs are compared in composed form": skipping(func(_ svc.TemplateKey, old, url string) bool {
		return strings.ReplaceAll(old, "e\u0301", "\u00e9") == url
	}),
	"URLs are compared as patterns": skipping(func(_ svc.TemplateKey, old, url string) bool {
		prefix, found := strings.CutSuffix(old, "%")
		return found && strings.HasPrefix(url, prefix)
	}),
	"ten templates are re-bound at most": func(s *store) {
		s.rebindTemplates = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			keys, err := s.FullStore.RebindTemplates(ctx, source, url)
			return keys[:min(10, len(keys))], err
		}
	},
	"templates that have the URL already are returned": func(s *store) {
		var mu sync.Mutex
		told := map[svc.SourceKey]map[svc.TemplateKey]bool{}
		s.rebindTemplates = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			keys, err := s.FullStore.RebindTemplates(ctx, source, url)
			mu.Lock()
			defer mu.Unlock()
			if told[source] == nil {
				told[source] = map[svc.TemplateKey]bool{}
			}
			for _, key := range keys {
				told[source][key] = true
			}
			return sortedKeys(slices.Collect(maps.Keys(told[source]))), err
		}
	},
	"templates of other owners' sources are re-bound": alsoRebound(func(source svc.SourceKey) svc.SourceKey {
		return personalSource("bob", source.Name)
	}),
	"templates of the server's source are re-bound": alsoRebound(func(source svc.SourceKey) svc.SourceKey { return sourceKey(source.Name) }),
	"names of re-bound sources are compared without regard to case": alsoRebound(func(source svc.SourceKey) svc.SourceKey {
		return personalSource(source.Owner, strings.ToUpper(source.Name))
	}),
	"names of re-bound sources are patterns": alsoRebound(func(source svc.SourceKey) svc.SourceKey {
		return personalSource(source.Owner, "a%")
	}),
	"templates made by hand are bound": func(s *store) {
		s.rebindTemplates = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			_ = s.FullStore.ChangeTemplate(ctx, templateKey("made by hand"), func(t *svc.Template) (bool, error) {
				t.Origin = &svc.Origin{Source: source, URL: url}
				return true, nil
			})
			return s.FullStore.RebindTemplates(ctx, source, url)
		}
	},
	"RebindTemplates of a source without templates is an error": func(s *store) {
		s.rebindTemplates = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			keys, err := s.FullStore.RebindTemplates(ctx, source, url)
			if err == nil && len(keys) == 0 {
				err = svc.ErrNotFound
			}
			return keys, err
		}
	},
	"re-binding changes the time of update":       differently(func(t *svc.Template) { t.UpdatedAt = at(77) }),
	"re-binding changes the time of installation": differently(func(t *svc.Template) { t.InstalledAt = at(77) }),
	"re-binding raises the version":               differently(func(t *svc.Template) { t.Version++ }),
	"re-binding loses the base":                   differently(func(t *svc.Template) { *t = listed(*t) }),
	"re-binding loses the revision":               differently(func(t *svc.Template) { t.Origin.Revision = "" }),
	"re-binding removes repeated tags":            differently(func(t *svc.Template) { t.Tags = slices.Compact(t.Tags) }),
	"re-binding returns keys, but writes nothing": differently(func(t *svc.Template) { t.Origin.URL = installed("t").Origin.URL }),
	"lists show the first URL": func(s *store) {
		s.templates = func(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
			chunk, err := s.FullStore.Templates(ctx, page)
			for i := range chunk {
				if chunk[i].Origin != nil {
					chunk[i].Origin.URL = installed("t").Origin.URL
				}
			}
			return chunk, err
		}
	},
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
	"re-binding nothing is a mutation": rebound(func(ctx context.Context, s *store, keys []svc.TemplateKey) []svc.TemplateKey {
		if len(keys) == 0 {
			_, _ = s.FullStore.KeepValue(ctx, time.Now().String(), nil)
		}
		return keys
	}),
	"re-binding is a mutation for each template": rebound(func(ctx context.Context, s *store, keys []svc.TemplateKey) []svc.TemplateKey {
		for _, key := range keys {
			_ = s.FullStore.ChangeTemplate(ctx, key, func(*svc.Template) (bool, error) { return true, nil })
		}
		return keys
	}),
	"changes hold 64 templates at most": told(func(_ int64, changes *svc.StoreChanges) {
		if len(changes.Targets) > 64 && changes.Targets[64].Kind == svc.TargetTemplate {
			changes.Targets = changes.Targets[:64]
		}
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
			read, err := s.FullStore.Template(ctx, templateKey("t"))
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
	"concurrent re-binding is an error": func(s *store) {
		var busy sync.Mutex
		s.rebindTemplates = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			if !busy.TryLock() {
				return nil, errors.New("database is locked")
			}
			defer busy.Unlock()
			time.Sleep(time.Millisecond)
			return s.FullStore.RebindTemplates(ctx, source, url)
		}
	},
	"templates are re-bound one by one": func(s *store) {
		s.rebindTemplates = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			keys, err := s.FullStore.RebindTemplates(ctx, source, url)
			for _, key := range keys {
				time.Sleep(time.Millisecond)
				_ = s.FullStore.ChangeTemplate(ctx, key, func(t *svc.Template) (bool, error) {
					t.Origin.URL = url
					return true, nil
				})
			}
			return keys, err
		}
	},
}
