//go:build planted

package storetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

var templateFaults = map[string]func(*store){
	"a template overwrites another": func(s *store) {
		s.createTemplate = func(ctx context.Context, t svc.Template) error {
			if err := s.FullStore.DeleteTemplate(ctx, t.TemplateKey, nil); err != nil && !errors.Is(err, svc.ErrNotFound) {
				return err
			}
			return s.FullStore.CreateTemplate(ctx, t)
		}
	},
	"ids are trimmed": func(s *store) {
		s.createTemplate = func(ctx context.Context, t svc.Template) error {
			t.ID = strings.TrimSpace(t.ID)
			return s.FullStore.CreateTemplate(ctx, t)
		}
		s.template = func(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
			key.ID = strings.TrimSpace(key.ID)
			return s.FullStore.Template(ctx, key)
		}
	},
	"a list of large rows ends early": func(s *store) {
		s.templates = func(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
			chunk, err := s.FullStore.Templates(ctx, page)
			if page.AfterID != "" && len(chunk) > 0 && len(chunk[0].Manifest) > 50<<10 {
				return nil, err
			}
			return chunk[:min(len(chunk), 3)], err
		}
	},
	"an empty tag filter excludes a template with one tag": func(s *store) {
		s.templates = filtered(s, func(t svc.Template, f svc.TemplateQuery) bool {
			if f.Tag == "" && slices.ContainsFunc(t.Tags, func(tag string) bool { return tag != "" }) && f.Category == "" && !slices.Contains(t.Tags, "") && len(t.Tags) == 1 {
				return false
			}
			return (f.Tag == "" || slices.Contains(t.Tags, f.Tag)) && (f.Category == "" || t.Category != nil && *t.Category == f.Category)
		})
	},
	"deleting a template deletes others with the id": func(s *store) {
		s.deleteTemplate = func(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
			_ = s.FullStore.DeleteTemplate(ctx, personalTemplate("alice", key.ID), nil)
			return s.FullStore.DeleteTemplate(ctx, key, check)
		}
	},
	"change is called for a template that does not exist": func(s *store) {
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			err := s.FullStore.ChangeTemplate(ctx, key, change)
			if errors.Is(err, svc.ErrNotFound) {
				_, _ = change(&svc.Template{})
			}
			return err
		}
	},
	"before includes its own version": func(s *store) {
		s.templateVersions = func(ctx context.Context, key svc.TemplateKey, before int64, limit int) ([]svc.TemplateVersion, error) {
			return s.FullStore.TemplateVersions(ctx, key, max(before, before+1), limit)
		}
	},
	"templates made by hand are installations": func(s *store) {
		s.installations = func(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
			chunk, err := s.FullStore.Installations(ctx, page)
			templates := allTemplates(ctx, s.FullStore, svc.TemplatePage{Scope: page.Scope, Owner: page.Owner})
			for _, t := range templates {
				if t.Origin == nil && t.ID > page.After && len(chunk) < page.Limit {
					chunk = append(chunk, svc.Installation{ID: t.ID})
				}
			}
			return chunk, err
		}
	},
	"the server's installations are in every list": installationsOf(func(page *svc.InstallationPage) {
		if page.Owner == "" {
			page.Scope = svc.ScopeServer
		}
	}, asAnswered),
	"templates with a URL never lose it": skipping(func(_ svc.TemplateKey, _, url string) bool { return url == "" }),
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

// allTemplates reads page's list from its start to its end.
func allTemplates(ctx context.Context, good svc.Store, page svc.TemplatePage) []svc.Template {
	page.AfterName, page.AfterID, page.Limit = "", "", 1_000_000
	list, _ := good.Templates(ctx, page)
	return list
}

// filtered lists the templates for which matches returns true.
func filtered(s *store, matches func(svc.Template, svc.TemplateQuery) bool) func(context.Context, svc.TemplatePage) ([]svc.Template, error) {
	return func(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
		filter := svc.TemplateQuery{Category: page.Category, Tag: page.Tag}
		page.Category, page.Tag = "", ""
		list := slices.DeleteFunc(allTemplates(ctx, s.FullStore, page), func(t svc.Template) bool {
			return !matches(t, filter) || cmp.Or(cmp.Compare(t.Name, page.AfterName), cmp.Compare(t.ID, page.AfterID)) <= 0
		})
		return list[:min(len(list), page.Limit)], ctx.Err()
	}
}

// installationsOf returns a fault in the page that is asked for and in the answer.
func installationsOf(ask func(page *svc.InstallationPage), answer func(chunk []svc.Installation) []svc.Installation) func(*store) {
	return func(s *store) {
		s.installations = func(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
			ask(&page)
			chunk, err := s.FullStore.Installations(ctx, page)
			if err != nil {
				return nil, err
			}
			return answer(chunk), nil
		}
	}
}

func asAnswered(chunk []svc.Installation) []svc.Installation { return chunk }

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
