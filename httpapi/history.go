package httpapi

import (
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

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
	}
	for _, c := range diff.Changes {
		answer.Changes = append(answer.Changes, wire.ContentChange{
			Path: c.Path, Conflict: c.Conflict(), Base: c.Base, Ours: c.Ours, Theirs: c.Theirs,
		})
	}
	return send(w, http.StatusOK, answer)
}

func wireVersion(v svc.TemplateVersion) wire.TemplateVersion {
	return wire.TemplateVersion{
		Version: v.Number, Name: v.Name, Description: v.Description, Category: v.Category,
		Integrations: v.Integrations, Tags: v.Tags, SourceRevision: orNull(v.SourceRevision),
		UpdatedAt: v.UpdatedAt, Manifest: v.Manifest,
	}
}
