package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// sourcesTime is how long all sources may take together. The rest is for sending what they say.
const sourcesTime = answerTime - 15*time.Second

func (h *Handler) checkUpdates(w http.ResponseWriter, r *request) error {
	if _, err := decode[struct{}](h, w, r); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), sourcesTime)
	defer cancel()
	report, err := h.templates(r).CheckUpdates(ctx, r.by, nil)
	return sendResult(w, report, err, wireReport)
}

func wireReport(report svc.UpdateReport) wire.UpdateReport {
	return wire.UpdateReport{
		Checked: int64(report.Checked),
		Templates: wire.Each(report.Templates, func(t svc.TemplateUpdate) wire.TemplateUpdate {
			return wire.TemplateUpdate{
				TemplateID: t.ID, HasUpdate: t.HasUpdate(), CurrentRevision: t.CurrentRevision,
				LatestRevision: t.LatestRevision, SourceName: t.Source.Name,
				SourceScope: string(t.Source.Scope), Problem: orNull(t.Problem),
			}
		}),
		Sources: wire.Each(report.Sources, func(s svc.SourceReport) wire.SourceReport {
			return wire.SourceReport{
				SourceName: s.Source.Name, SourceScope: string(s.Source.Scope),
				Checked: int64(s.Checked), Problem: orNull(s.Problem),
			}
		}),
	}
}

func (h *Handler) rebindSource(w http.ResponseWriter, r *request) error {
	if _, err := decode[struct{}](h, w, r); err != nil {
		return err
	}
	ids, err := h.sources(r).Rebind(r.Context(), r.by, r.params["name"])
	return sendResult(w, ids, err, func(ids []string) wire.Rebound {
		return wire.Rebound{TemplateIDs: listed(ids)}
	})
}

func (h *Handler) searchSources(w http.ResponseWriter, r *request) error {
	ctx, cancel := context.WithTimeout(r.Context(), sourcesTime)
	defer cancel()
	listings, err := h.sources(r).Search(ctx, r.by, r.query.catalogFilter())
	return sendResult(w, listings, err, func(listings []svc.SourceListing) wire.SourceListings {
		return wire.SourceListings{Sources: wire.Each(listings, wireListing)}
	})
}

func wireListing(l svc.SourceListing) wire.SourceListing {
	return wire.SourceListing{
		SourceName: l.Source.Name, SourceTemplates: wireOffered(l.SourceTemplates),
		Problem: orNull(l.Problem),
	}
}

func (q query) catalogFilter() svc.CatalogFilter {
	return svc.CatalogFilter{Category: q.text("category"), Tag: q.text("tag"), Text: q.text("q")}
}

func (h *Handler) templateHistory(w http.ResponseWriter, r *request) error {
	versions := h.templates(r).History(r.Context(), r.by, r.params["template_id"])
	return sendList(w, `{"versions":[`, "]}", versions, wireVersion, nil)
}

func (h *Handler) rollbackTemplate(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.RollbackTemplate](h, w, r)
	if err != nil {
		return err
	}
	match, err := r.ifMatch()
	if err != nil {
		return err
	}
	id := r.params["template_id"]
	template, err := h.templates(r).Rollback(r.Context(), r.by, id, in.Version, match...)
	return sendTemplate(w, template, err)
}

func (h *Handler) diffTemplate(w http.ResponseWriter, r *request) error {
	diff, err := h.templates(r).Diff(r.Context(), r.by, r.params["template_id"])
	return sendResult(w, diff, err, func(diff svc.TemplateDiff) wire.TemplateDiff {
		change := func(c svc.ContentChange) wire.ContentChange {
			return wire.ContentChange{
				Path: c.Path, Conflict: c.Conflict(), Base: c.Base, Ours: c.Ours, Theirs: c.Theirs,
			}
		}
		return wire.TemplateDiff{
			CurrentRevision: diff.CurrentRevision, LatestRevision: diff.LatestRevision,
			RenamedTo: diff.RenamedTo, Changes: wire.Each(diff.Changes, change),
		}
	})
}

func wireVersion(v svc.TemplateVersion) wire.TemplateVersion {
	return wire.TemplateVersion{
		Version: v.Number, Content: wire.Content(v.Content),
		SourceRevision: orNull(v.SourceRevision), UpdatedAt: v.UpdatedAt,
	}
}
