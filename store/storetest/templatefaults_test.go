//go:build planted

package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/extsvc/svc"
)

var templateFaults = map[string]func(*store){
	"a template overwrites another": func(s *store) {
		s.does["CreateTemplate"] = func(ctx context.Context, t svc.Template) error {
			if err := s.FullStore.DeleteTemplate(ctx, t.TemplateKey, nil); err != nil && !errors.Is(err, svc.ErrNotFound) {
				return err
			}
			return s.FullStore.CreateTemplate(ctx, t)
		}
	},
	"deleting a template deletes others with the id": func(s *store) {
		s.does["DeleteTemplate"] = func(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
			_ = s.FullStore.DeleteTemplate(ctx, personalTemplate("alice", key.ID), nil)
			return s.FullStore.DeleteTemplate(ctx, key, check)
		}
	},
	"change is called for a template that does not exist": func(s *store) {
		s.does["ChangeTemplate"] = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			err := s.FullStore.ChangeTemplate(ctx, key, change)
			if errors.Is(err, svc.ErrNotFound) {
				_, _ = change(&svc.Template{})
			}
			return err
		}
	},
	"RebindTemplates of a source without templates is an error": func(s *store) {
		s.does["RebindTemplates"] = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
			keys, err := s.FullStore.RebindTemplates(ctx, source, url)
			if err == nil && len(keys) == 0 {
				err = svc.ErrNotFound
			}
			return keys, err
		}
	},
	"re-binding overwrites concurrent changes": func(s *store) {
		changed := make(chan struct{})
		s.does["ChangeTemplate"] = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			err := s.FullStore.ChangeTemplate(ctx, key, change)
			select {
			case changed <- struct{}{}:
			default:
			}
			return err
		}
		s.does["RebindTemplates"] = func(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
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
