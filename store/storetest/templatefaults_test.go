package storetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	"templates of all owners are confused": func(s *store) {
		s.createTemplate = func(ctx context.Context, t svc.Template) error {
			t.Owner = ""
			return s.FullStore.CreateTemplate(ctx, t)
		}
		s.template = func(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
			key.Owner = ""
			return s.FullStore.Template(ctx, key)
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
	"whether a template is edited is lost": func(s *store) {
		s.createTemplate = func(ctx context.Context, t svc.Template) error {
			if t.Origin != nil {
				t.Origin = new(*t.Origin)
				t.Origin.Edited = false
			}
			return s.FullStore.CreateTemplate(ctx, t)
		}
	},
	"an empty category is read as nil": func(s *store) {
		s.createTemplate = func(ctx context.Context, t svc.Template) error {
			if t.Category != nil && *t.Category == "" {
				t.Category = nil
			}
			return s.FullStore.CreateTemplate(ctx, t)
		}
	},
	"tags are a sorted set": func(s *store) {
		s.createTemplate = func(ctx context.Context, t svc.Template) error {
			t.Tags = slices.Compact(slices.Sorted(slices.Values(t.Tags)))
			return s.FullStore.CreateTemplate(ctx, t)
		}
	},
	"manifests are stored as parsed": func(s *store) {
		s.createTemplate = func(ctx context.Context, t svc.Template) error {
			var parsed any
			if err := json.Unmarshal(t.Manifest, &parsed); err == nil {
				t.Manifest, _ = json.Marshal(parsed)
			}
			return s.FullStore.CreateTemplate(ctx, t)
		}
	},
	"templates are listed by id": func(s *store) {
		s.templates = func(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
			list := allTemplates(ctx, s.FullStore, page)
			slices.SortFunc(list, func(a, b svc.Template) int { return cmp.Compare(a.ID, b.ID) })
			list = slices.DeleteFunc(list, func(t svc.Template) bool { return page.AfterID != "" && t.ID <= page.AfterID })
			return list[:min(len(list), page.Limit)], ctx.Err()
		}
	},
	"names are sorted without regard to case": func(s *store) {
		s.templates = func(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
			chunk, err := s.FullStore.Templates(ctx, page)
			slices.SortStableFunc(chunk, func(a, b svc.Template) int { return cmp.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) })
			return chunk, err
		}
	},
	"a chunk starts after the name and loses rows with the same name": func(s *store) {
		s.templates = func(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
			if page.AfterName != "" {
				page.AfterID = "\U0010ffff"
			}
			return s.FullStore.Templates(ctx, page)
		}
	},
	"a chunk starts at a number of rows": func(s *store) {
		var offset atomic.Int64
		s.templates = func(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
			if page.AfterID == "" {
				offset.Store(0)
			}
			list := allTemplates(ctx, s.FullStore, page)
			list = list[min(int(offset.Load()), len(list)):]
			chunk := list[:min(len(list), page.Limit)]
			offset.Add(int64(len(chunk)))
			return chunk, ctx.Err()
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
	"nothing is skipped": func(s *store) {
		s.templates = func(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
			page.Skip = 0
			return s.FullStore.Templates(ctx, page)
		}
	},
	"lists include the base": func(s *store) {
		s.templates = func(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
			chunk, err := s.FullStore.Templates(ctx, page)
			for i := range chunk {
				chunk[i], _ = s.FullStore.Template(ctx, chunk[i].TemplateKey)
			}
			return chunk, err
		}
	},
	"tags are matched as parts of one text": func(s *store) {
		s.templates = filtered(s, func(t svc.Template, f svc.TemplateQuery) bool {
			return strings.Contains(strings.Join(t.Tags, ","), f.Tag) && (f.Category == "" || t.Category != nil && *t.Category == f.Category)
		})
	},
	"categories are patterns": func(s *store) {
		s.templates = filtered(s, func(t svc.Template, f svc.TemplateQuery) bool {
			if f.Category != "" && f.Category != "_" && f.Category != "%" && (t.Category == nil || *t.Category != f.Category) {
				return false
			}
			return f.Tag == "" || slices.Contains(t.Tags, f.Tag)
		})
	},
	"one filter is enough": func(s *store) {
		s.templates = filtered(s, func(t svc.Template, f svc.TemplateQuery) bool {
			return f == svc.TemplateQuery{} || f.Tag != "" && slices.Contains(t.Tags, f.Tag) || f.Category != "" && t.Category != nil && *t.Category == f.Category
		})
	},
	"an empty tag filter excludes a template with one tag": func(s *store) {
		s.templates = filtered(s, func(t svc.Template, f svc.TemplateQuery) bool {
			if f.Tag == "" && slices.ContainsFunc(t.Tags, func(tag string) bool { return tag != "" }) && f.Category == "" && !slices.Contains(t.Tags, "") && len(t.Tags) == 1 {
				return false
			}
			return (f.Tag == "" || slices.Contains(t.Tags, f.Tag)) && (f.Category == "" || t.Category != nil && *t.Category == f.Category)
		})
	},
	"filtered lists show the rows of other owners": func(s *store) {
		s.templates = func(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
			if page.Tag != "" && page.Owner == "alice" && page.AfterID == "" {
				page.Owner = "bob"
			}
			return s.FullStore.Templates(ctx, page)
		}
	},
	"tags stay when their template is deleted": func(s *store) {
		var mu sync.Mutex
		ever := map[svc.TemplateKey][]string{}
		s.createTemplate = func(ctx context.Context, t svc.Template) error {
			err := s.FullStore.CreateTemplate(ctx, t)
			mu.Lock()
			defer mu.Unlock()
			ever[t.TemplateKey] = append(ever[t.TemplateKey], t.Tags...)
			return err
		}
		s.templates = filtered(s, func(t svc.Template, f svc.TemplateQuery) bool {
			mu.Lock()
			defer mu.Unlock()
			return f.Tag == "" || slices.Contains(ever[t.TemplateKey], f.Tag)
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
	"deleting a template does not call check": func(s *store) {
		s.deleteTemplate = func(ctx context.Context, key svc.TemplateKey, _ func(svc.Template) error) error {
			return s.FullStore.DeleteTemplate(ctx, key, nil)
		}
	},
	"a template is deleted after check refuses": func(s *store) {
		s.deleteTemplate = func(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
			var refused error
			err := s.FullStore.DeleteTemplate(ctx, key, func(t svc.Template) error {
				if check != nil {
					refused = check(t)
				}
				return nil
			})
			return cmp.Or(err, refused)
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
	"a template is read before it is deleted": func(s *store) {
		s.deleteTemplate = func(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
			if check != nil {
				t, err := s.FullStore.Template(ctx, key)
				if err != nil {
					return err
				}
				time.Sleep(time.Millisecond)
				if err := check(t); err != nil {
					return err
				}
			}
			return s.FullStore.DeleteTemplate(ctx, key, nil)
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
