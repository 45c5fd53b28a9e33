//go:build planted

package storetest

import (
	"cmp"
	"context"
	"errors"

	"github.com/extsvc/svc"
)

var changeSourceFaults = map[string]func(*store){
	"change receives a source without its signing key": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			return s.FullStore.ChangeSource(ctx, key, func(source *svc.Source) (bool, error) {
				source.SigningKey = nil
				return change(source)
			})
		}
	},
	"change receives a source without its token": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			return s.FullStore.ChangeSource(ctx, key, func(source *svc.Source) (bool, error) {
				source.SealedToken = nil
				return change(source)
			})
		}
	},
	"a refused change of a source is written": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			var refused error
			err := s.FullStore.ChangeSource(ctx, key, func(source *svc.Source) (write bool, _ error) {
				write, refused = change(source)
				return write, nil
			})
			return cmp.Or(refused, err)
		}
	},
	"change is called for a source that does not exist": func(s *store) {
		s.changeSource = func(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
			err := s.FullStore.ChangeSource(ctx, key, change)
			if errors.Is(err, svc.ErrNotFound) {
				_, _ = change(&svc.Source{})
			}
			return err
		}
	},
}
