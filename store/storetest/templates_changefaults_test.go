//go:build planted

package storetest

import (
	"cmp"
	"context"
	"errors"

	"github.com/extsvc/svc"
)

var changeTemplateFaults = map[string]func(*store){
	"a change is written although it failed": func(s *store) {
		s.changeTemplate = func(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
			var failed error
			err := s.FullStore.ChangeTemplate(ctx, key, func(t *svc.Template) (bool, error) {
				var write bool
				write, failed = change(t)
				return write, nil
			})
			return cmp.Or(failed, err)
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
}
