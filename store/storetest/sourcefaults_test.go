package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/extsvc/svc"
)

var sourceFaults = map[string]func(*store){
	"a chunk of sources is not full": func(s *store) {
		s.sources = func(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
			page.Limit = max(1, page.Limit-1)
			return s.FullStore.Sources(ctx, page)
		}
	},
	"a source overwrites another": func(s *store) {
		s.createSource = func(ctx context.Context, source svc.Source) error {
			if err := s.FullStore.DeleteSource(ctx, source.SourceKey); err != nil && !errors.Is(err, svc.ErrNotFound) {
				return err
			}
			return s.FullStore.CreateSource(ctx, source)
		}
	},
	"a source without a description has an empty one": func(s *store) {
		s.source = func(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
			source, err := s.FullStore.Source(ctx, key)
			if source.Description == nil {
				source.Description = new("")
			}
			return source, err
		}
	},
	"sources lose their signing keys": func(s *store) {
		s.createSource = func(ctx context.Context, source svc.Source) error {
			source.SigningKey = nil
			return s.FullStore.CreateSource(ctx, source)
		}
	},
	"the serial of a source begins at 0": func(s *store) {
		s.createSource = func(ctx context.Context, source svc.Source) error {
			source.Serial = 0
			return s.FullStore.CreateSource(ctx, source)
		}
	},
	"listed sources have no signing keys": func(s *store) {
		s.sources = func(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
			chunk, err := s.FullStore.Sources(ctx, page)
			for i := range chunk {
				chunk[i].SigningKey = nil
			}
			return chunk, err
		}
	},
	"listed sources have no serials": func(s *store) {
		s.sources = func(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
			chunk, err := s.FullStore.Sources(ctx, page)
			for i := range chunk {
				chunk[i].Serial = 0
			}
			return chunk, err
		}
	},
	"a recreated source keeps the old serial": func(s *store) {
		var deleted sync.Map
		s.deleteSource = func(ctx context.Context, key svc.SourceKey) error {
			if source, err := s.FullStore.Source(ctx, key); err == nil {
				deleted.Store(key, source.Serial)
			}
			return s.FullStore.DeleteSource(ctx, key)
		}
		s.createSource = func(ctx context.Context, source svc.Source) error {
			if serial, there := deleted.Load(source.SourceKey); there {
				source.Serial = serial.(int64)
			}
			return s.FullStore.CreateSource(ctx, source)
		}
	},
	"sources of all owners are confused": func(s *store) {
		s.createSource = func(ctx context.Context, source svc.Source) error {
			source.Owner = ""
			return s.FullStore.CreateSource(ctx, source)
		}
		s.source = func(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
			key.Owner = ""
			return s.FullStore.Source(ctx, key)
		}
	},
	"names of sources are not case-sensitive": func(s *store) {
		s.createSource = func(ctx context.Context, source svc.Source) error {
			source.Name = strings.ToLower(source.Name)
			return s.FullStore.CreateSource(ctx, source)
		}
		s.source = func(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
			key.Name = strings.ToLower(key.Name)
			return s.FullStore.Source(ctx, key)
		}
	},
	"sources are listed by their URL": func(s *store) {
		s.sources = func(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
			chunk, err := s.FullStore.Sources(ctx, page)
			slices.Reverse(chunk)
			return chunk, err
		}
	},
	"a chunk begins with the last row of the one before": func(s *store) {
		s.sources = func(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
			chunk, err := s.FullStore.Sources(ctx, page)
			if page.After != "" && err == nil {
				last, _ := s.FullStore.Source(ctx, svc.SourceKey{Scope: page.Scope, Owner: page.Owner, Name: page.After})
				chunk = append([]svc.Source{last}, chunk...)
			}
			return chunk, err
		}
	},
	"sources of other owners are listed, tokens are not": func(s *store) {
		s.sources = func(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
			chunk, err := s.FullStore.Sources(ctx, page)
			for i := range chunk {
				chunk[i].SealedToken = nil
			}
			if page.Owner == "alice" && page.After == "" {
				others, _ := s.FullStore.Sources(ctx, svc.SourcePage{Scope: page.Scope, Owner: "bob", Limit: page.Limit})
				chunk = append(chunk, others...)
			}
			return chunk, err
		}
	},
	"every source is each of one scope": func(s *store) {
		s.sources = func(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
			if page.Every && page.Scope == "" {
				page.Scope = svc.ScopeServer
			}
			return s.FullStore.Sources(ctx, page)
		}
	},
	"deleting an unknown source is no error": func(s *store) {
		s.deleteSource = func(ctx context.Context, key svc.SourceKey) error {
			if err := s.FullStore.DeleteSource(ctx, key); err != nil && !errors.Is(err, svc.ErrNotFound) {
				return err
			}
			return nil
		}
	},
	"deleting a source deletes others with the name": func(s *store) {
		s.deleteSource = func(ctx context.Context, key svc.SourceKey) error {
			_ = s.FullStore.DeleteSource(ctx, personalSource("alice", key.Name))
			return s.FullStore.DeleteSource(ctx, key)
		}
	},
	"deleting a source deletes what was installed from it": func(s *store) {
		s.deleteSource = func(ctx context.Context, key svc.SourceKey) error {
			templates, _ := s.FullStore.Templates(ctx, svc.TemplatePage{Scope: svc.ScopeServer, TemplateQuery: svc.TemplateQuery{Limit: 100}})
			for _, t := range templates {
				if t.Origin != nil && t.Origin.Source == key {
					_ = s.FullStore.DeleteTemplate(ctx, t.TemplateKey, nil)
				}
			}
			return s.FullStore.DeleteSource(ctx, key)
		}
	},
	"a deleted source is only hidden": func(s *store) {
		var deleted sync.Map
		s.deleteSource = func(ctx context.Context, key svc.SourceKey) error {
			source, err := s.FullStore.Source(ctx, key)
			if err == nil {
				deleted.Store(key, source)
			}
			return s.FullStore.DeleteSource(ctx, key)
		}
		s.createSource = func(ctx context.Context, source svc.Source) error {
			if old, there := deleted.Load(source.SourceKey); there {
				source.SealedToken = old.(svc.Source).SealedToken
			}
			return s.FullStore.CreateSource(ctx, source)
		}
	},
}
