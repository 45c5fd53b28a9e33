package client

import (
	"context"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// CheckUpdates compares all templates of the server with their sources. It asks each source once.
// The interface does not show the owners of sources; they are "". Errors: CodeForbidden.
func (c *Templates) CheckUpdates(ctx context.Context) (svc.UpdateReport, error) {
	r := at("POST /admin/templates/check-updates")
	return call(ctx, c.conn, r, func(in wire.UpdateReport) svc.UpdateReport {
		report := svc.UpdateReport{
			Checked: int(in.Checked), Templates: []svc.TemplateUpdate{},
			Sources: []svc.SourceReport{},
		}
		for _, t := range in.Templates {
			report.Templates = append(report.Templates, svc.TemplateUpdate{
				ID: t.TemplateID, Source: sourceKey(t.SourceScope, t.SourceName),
				CurrentRevision: t.CurrentRevision, LatestRevision: t.LatestRevision,
				Problem: orEmpty(t.Problem),
			})
		}
		for _, s := range in.Sources {
			report.Sources = append(report.Sources, svc.SourceReport{
				Source:  sourceKey(s.SourceScope, s.SourceName),
				Checked: int(s.Checked), Problem: orEmpty(s.Problem),
			})
		}
		return report
	})
}

func sourceKey(scope, name string) svc.SourceKey {
	return svc.SourceKey{Scope: svc.Scope(scope), Name: name}
}
