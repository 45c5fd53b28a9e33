//go:build planted

package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

var sourceFaults = map[string]func(*store){
	"a source overwrites another": func(s *store) {
		s.createSource = func(ctx context.Context, source svc.Source) error {
			if err := s.FullStore.DeleteSource(ctx, source.SourceKey); err != nil && !errors.Is(err, svc.ErrNotFound) {
				return err
			}
			return s.FullStore.CreateSource(ctx, source)
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
	"deleting an unknown source is no error": func(s *store) {
		s.deleteSource = func(ctx context.Context, key svc.SourceKey) error {
			if err := s.FullStore.DeleteSource(ctx, key); err != nil && !errors.Is(err, svc.ErrNotFound) {
				return err
			}
			return nil
		}
	},
}
