package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/extsvc/svc"
)

// asInstalled returns a fault in each installation that is returned.
func asInstalled(fault func(i *svc.Installation)) func(*store) {
	return func(s *store) {
		s.installations = func(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
			chunk, err := s.FullStore.Installations(ctx, page)
			for i := range chunk {
				fault(&chunk[i])
			}
			return chunk, err
		}
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

func asAsked(*svc.InstallationPage) {}

func asAnswered(chunk []svc.Installation) []svc.Installation { return chunk }

var installationFaults = map[string]func(*store){
	"installations lose the URL":              asInstalled(func(i *svc.Installation) { i.Origin.URL = "" }),
	"installations lose the revision":         asInstalled(func(i *svc.Installation) { i.Origin.Revision = "" }),
	"installations lose the id in the source": asInstalled(func(i *svc.Installation) { i.Origin.ID = i.ID }),
	"all sources of installations are the server's": asInstalled(func(i *svc.Installation) {
		i.Origin.Source = sourceKey(i.Origin.Source.Name)
	}),
	"installations bring the base": func(s *store) {
		s.installations = func(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
			chunk, err := s.FullStore.Installations(ctx, page)
			for i := range chunk {
				t, _ := s.FullStore.Template(ctx, svc.TemplateKey{Scope: page.Scope, Owner: page.Owner, ID: chunk[i].ID})
				chunk[i].Origin = *t.Origin
			}
			return chunk, err
		}
	},
	"templates without a URL are no installations": func(s *store) {
		s.installations = func(ctx context.Context, page svc.InstallationPage) (list []svc.Installation, err error) {
			limit := page.Limit
			page.Limit = 1_000_000
			chunk, err := s.FullStore.Installations(ctx, page)
			list = slices.DeleteFunc(chunk, func(i svc.Installation) bool { return i.Origin.URL == "" })
			return list[:min(limit, len(list))], err
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
	"a chunk of installations is not full": installationsOf(func(page *svc.InstallationPage) {
		page.Limit = max(1, page.Limit-1)
	}, asAnswered),
	"a chunk of installations is more than full": installationsOf(func(page *svc.InstallationPage) { page.Limit++ }, asAnswered),
	"installations come at most 50 at once": installationsOf(func(page *svc.InstallationPage) {
		page.Limit = min(page.Limit, 50)
	}, asAnswered),
	"installations come newest first": installationsOf(asAsked, func(chunk []svc.Installation) []svc.Installation {
		slices.Reverse(chunk)
		return chunk
	}),
	"a chunk of installations begins with the last of the one before": func(s *store) {
		s.installations = func(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
			t, err := s.FullStore.Template(ctx, svc.TemplateKey{Scope: page.Scope, Owner: page.Owner, ID: page.After})
			if err != nil || t.Origin == nil || page.Limit < 2 {
				return s.FullStore.Installations(ctx, page)
			}
			page.Limit--
			chunk, err := s.FullStore.Installations(ctx, page)
			return append([]svc.Installation{installationOf(t)}, chunk...), err
		}
	},
	"an installation list goes on only from an existing one": func(s *store) {
		s.installations = func(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
			_, err := s.FullStore.Template(ctx, svc.TemplateKey{Scope: page.Scope, Owner: page.Owner, ID: page.After})
			if errors.Is(err, svc.ErrNotFound) {
				page.After = ""
			}
			return s.FullStore.Installations(ctx, page)
		}
	},
	"a chunk of installations of large templates ends early": func(s *store) {
		s.installations = func(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
			chunk, err := s.FullStore.Installations(ctx, page)
			for i := range chunk {
				t, _ := s.FullStore.Template(ctx, svc.TemplateKey{Scope: page.Scope, Owner: page.Owner, ID: chunk[i].ID})
				if len(t.Manifest) > 100_000 {
					return chunk[:i+1], err
				}
			}
			return chunk, err
		}
	},
	"owners of installations are compared without regard to case": installationsOf(func(page *svc.InstallationPage) {
		page.Owner = strings.ToLower(page.Owner)
	}, asAnswered),
	"the server's installations are in every list": installationsOf(func(page *svc.InstallationPage) {
		if page.Owner == "" {
			page.Scope = svc.ScopeServer
		}
	}, asAnswered),
	"installations are read once and then cached": func(s *store) { s.installations = shared(s.FullStore.Installations) },
	"a change of a template keeps the old URL": raises(func(before svc.Template, after *svc.Template) {
		if before.Origin != nil && after.Origin != nil {
			after.Origin.URL = before.Origin.URL
		}
	}),
	"a change of a template adds no origin": raises(func(before svc.Template, after *svc.Template) {
		if before.Origin == nil {
			after.Origin = nil
		}
	}),
	"a change of a template never removes its origin": raises(func(before svc.Template, after *svc.Template) {
		if after.Origin == nil {
			after.Origin = before.Origin
		}
	}),
	"deleted templates are installations": func(s *store) {
		var deleted sync.Map
		s.deleteTemplate = func(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
			if t, err := s.FullStore.Template(ctx, key); err == nil && t.Origin != nil {
				deleted.Store(key, installationOf(t))
			}
			return s.FullStore.DeleteTemplate(ctx, key, check)
		}
		s.installations = func(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
			chunk, err := s.FullStore.Installations(ctx, page)
			deleted.Range(func(key, i any) bool {
				if key.(svc.TemplateKey).ID > page.After && len(chunk) < page.Limit {
					chunk = append(chunk, i.(svc.Installation))
				}
				return true
			})
			return chunk, err
		}
	},
	"URLs are cut": func(s *store) {
		s.createTemplate = func(ctx context.Context, t svc.Template) error {
			if t.Origin != nil {
				origin := *t.Origin
				origin.URL = origin.URL[:min(len(origin.URL), 1024)]
				t.Origin = &origin
			}
			return s.FullStore.CreateTemplate(ctx, t)
		}
	},
	"an index row holds 2,704 bytes": func(s *store) {
		s.createTemplate = func(ctx context.Context, t svc.Template) error {
			if o := t.Origin; o != nil && len(t.Owner+t.ID+o.Source.Owner+o.Source.Name+o.ID+o.Revision+o.URL) > 2600 {
				return errors.New("index row too long")
			}
			return s.FullStore.CreateTemplate(ctx, t)
		}
	},
}
