package httpapi

import (
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

func (h *Handler) sourceTemplates(w http.ResponseWriter, r *request) error {
	filter, err := r.catalogFilter()
	if err != nil {
		return err
	}
	offered, err := h.service.Sources.Browse(r.Context(), r.by, r.params["name"], filter)
	if err != nil {
		return err
	}
	return send(w, http.StatusOK, wireOffered(offered))
}

func wireOffered(offered svc.SourceTemplates) wire.SourceTemplates {
	answer := wire.SourceTemplates{Stale: offered.Stale, FetchedAt: timeOrNull(offered.FetchedAt)}
	for _, t := range offered.Templates {
		answer.Templates = append(answer.Templates, wire.SourceTemplate{
			ID: t.ID, Name: t.Content.Name, Description: t.Content.Description,
			Category: t.Content.Category, Integrations: t.Content.Integrations,
			Tags: t.Content.Tags, InstalledAs: t.InstalledAs, Behind: t.Behind,
		})
	}
	for _, p := range offered.Bad {
		answer.Bad = append(answer.Bad, wire.BadEntry{
			Index: p.Index, ID: orNull(p.ID), Reason: p.Reason,
		})
	}
	return answer
}
