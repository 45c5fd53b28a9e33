package httpapi

import (
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

func (h *Handler) checkUpdates(w http.ResponseWriter, r *request) error {
	if _, err := decode[struct{}](h, w, r); err != nil {
		return err
	}
	report, err := h.service.Templates.CheckUpdates(r.Context(), r.by, nil)
	if err != nil {
		return err
	}
	answer := wire.UpdateReport{
		Checked: int64(report.Checked), Templates: []wire.TemplateUpdate{},
		Sources: []wire.SourceReport{},
	}
	for _, t := range report.Templates {
		answer.Templates = append(answer.Templates, wire.TemplateUpdate{
			TemplateID: t.ID, HasUpdate: t.HasUpdate(), CurrentRevision: t.CurrentRevision,
			LatestRevision: t.LatestRevision, SourceName: t.Source.Name,
			SourceScope: string(t.Source.Scope), Problem: orNull(t.Problem),
		})
	}
	for _, s := range report.Sources {
		answer.Sources = append(answer.Sources, wire.SourceReport{
			SourceName: s.Source.Name, SourceScope: string(s.Source.Scope),
			Checked: int64(s.Checked), Problem: orNull(s.Problem),
		})
	}
	return sendJSON(w, http.StatusOK, answer)
}

func (h *Handler) rebindSource(w http.ResponseWriter, r *request) error {
	if _, err := decode[struct{}](h, w, r); err != nil {
		return err
	}
	ids, err := h.service.Sources.Rebind(r.Context(), r.by, r.params["name"])
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusOK, wire.Rebound{TemplateIDs: listed(ids)})
}

func (h *Handler) searchSources(w http.ResponseWriter, r *request) error {
	listings, err := h.service.Sources.Search(r.Context(), r.by, r.query.catalogFilter())
	if err != nil {
		return err
	}
	answer := wire.SourceListings{Sources: []wire.SourceListing{}}
	for _, l := range listings {
		answer.Sources = append(answer.Sources, wire.SourceListing{
			SourceName: l.Source.Name, SourceTemplates: wireOffered(l.SourceTemplates),
			Problem: orNull(l.Problem),
		})
	}
	return sendJSON(w, http.StatusOK, answer)
}

func (q query) catalogFilter() svc.CatalogFilter {
	return svc.CatalogFilter{Category: q.text("category"), Tag: q.text("tag"), Text: q.text("q")}
}

func (h *Handler) templateHistory(w http.ResponseWriter, r *request) error {
	versions := h.service.Templates.History(r.Context(), r.by, r.params["template_id"])
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
	template, err := h.service.Templates.Rollback(r.Context(), r.by, id, in.Version, match...)
	return sendTemplate(w, template, err)
}

func (h *Handler) diffTemplate(w http.ResponseWriter, r *request) error {
	diff, err := h.service.Templates.Diff(r.Context(), r.by, r.params["template_id"])
	if err != nil {
		return err
	}
	answer := wire.TemplateDiff{
		CurrentRevision: diff.CurrentRevision, LatestRevision: diff.LatestRevision,
		Changes: []wire.ContentChange{},
	}
	for _, c := range diff.Changes {
		answer.Changes = append(answer.Changes, wire.ContentChange{
			Path: c.Path, Conflict: c.Conflict(), Base: c.Base, Ours: c.Ours, Theirs: c.Theirs,
		})
	}
	return sendJSON(w, http.StatusOK, answer)
}

func wireVersion(v svc.TemplateVersion) wire.TemplateVersion {
	return wire.TemplateVersion{
		Version: v.Number, Name: v.Name, Description: v.Description, Category: v.Category,
		Integrations: v.Integrations, Tags: v.Tags, SourceRevision: orNull(v.SourceRevision),
		UpdatedAt: v.UpdatedAt, Manifest: v.Manifest,
	}
}
