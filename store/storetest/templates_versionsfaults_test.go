//go:build planted

package storetest

import (
	"context"

	"github.com/extsvc/svc"
)

var versionFaults = map[string]func(*store){
	"before includes its own version": func(s *store) {
		s.templateVersions = func(ctx context.Context, key svc.TemplateKey, before int64, limit int) ([]svc.TemplateVersion, error) {
			return s.FullStore.TemplateVersions(ctx, key, max(before, before+1), limit)
		}
	},
}
