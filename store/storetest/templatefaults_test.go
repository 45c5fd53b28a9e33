//go:build planted

package storetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

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
	"the base is lost": func(s *store) {
		s.template = func(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
			t, err := s.FullStore.Template(ctx, key)
			return listed(t), err
		}
	},
	"the limit is ignored": func(s *store) {
		s.templates = func(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
			page.Limit++
			return s.FullStore.Templates(ctx, page)
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
	"deleting an unknown template is no error": func(s *store) {
		s.deleteTemplate = func(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
			if err := s.FullStore.DeleteTemplate(ctx, key, check); err != nil && !errors.Is(err, svc.ErrNotFound) {
				return err
			}
			return nil
		}
	},
	"check receives a template without its base": func(s *store) {
		s.deleteTemplate = func(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
			return s.FullStore.DeleteTemplate(ctx, key, func(t svc.Template) error {
				if t.Origin != nil {
					t.Origin.Base = svc.Content{}
				}
				if check == nil {
					return nil
				}
				return check(t)
			})
		}
	},
	"deleting a template deletes others with the id": func(s *store) {
		s.deleteTemplate = func(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
			_ = s.FullStore.DeleteTemplate(ctx, personalTemplate("alice", key.ID), nil)
			return s.FullStore.DeleteTemplate(ctx, key, check)
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
