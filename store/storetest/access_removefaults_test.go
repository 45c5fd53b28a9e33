//go:build planted

package storetest

import (
	"context"

	"github.com/extsvc/svc"
)

var removeAccessFaults = map[string]func(*store){
	"removed channels stay": changeFault(func(w *svc.AccessWrite) { w.Remove.Channels = nil }),
	"a removed user leaves its memberships": func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
			var again []svc.Membership
			err := s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
				write, err := change(current)
				if len(write.Users) > 0 && write.Remove.Users == nil && len(write.Groups) > 0 {
					again = append(again, svc.Membership{Group: "i", User: "b"})
				}
				return write, err
			})
			if err != nil || again == nil {
				return err
			}
			return s.FullStore.ChangeAccess(ctx, named, func(svc.Bundle) (svc.AccessWrite, error) {
				return svc.AccessWrite{Join: again}, nil
			})
		}
	},
	"Gone receives the templates of others": changeFault(func(w *svc.AccessWrite) {
		if report := w.Gone; report != nil {
			w.Gone = func(gone []svc.Target) {
				if gone == nil {
					gone = []svc.Target{templateKey("0").Target()}
				}
				report(gone)
			}
		}
	}),
	"Gone is called for each kind": changeFault(func(w *svc.AccessWrite) {
		if report := w.Gone; report != nil {
			w.Gone = func(gone []svc.Target) { report(gone); report(nil) }
		}
	}),
	"versions of templates stay": func(s *store) {
		s.templateVersions = func(context.Context, svc.TemplateKey, int64, int) ([]svc.TemplateVersion, error) {
			return []svc.TemplateVersion{{Number: 1}}, nil
		}
	},
	"a transaction removes at its end": func(s *store) {
		s.atomically = func(ctx context.Context, fn func(context.Context, svc.Store) error) error {
			return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
				var late []svc.AccessNames
				err := fn(ctx, broken(changeFault(func(w *svc.AccessWrite) {
					late = append(late, w.Remove)
					w.Remove = svc.AccessNames{}
				}))(tx))
				for _, named := range late {
					_ = removeIn(ctx, tx, named)
				}
				return err
			})
		}
	},
}
