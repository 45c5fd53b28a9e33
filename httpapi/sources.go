package httpapi

import (
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

func (h *Handler) listSources(w http.ResponseWriter, r *request) error {
	return sendList(w, "[", "]", h.service.Sources(r.Context(), r.by), wireSource)
}

func (h *Handler) registerSource(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.RegisterSource](h, w, r)
	if err != nil {
		return err
	}
	source, err := h.service.RegisterSource(r.Context(), r.by, svc.RegisterSource{
		URL: in.URL, Alias: in.Alias, AuthToken: (*svc.Secret)(in.AuthToken), Description: in.Description,
	})
	if err != nil {
		return err
	}
	return send(w, http.StatusCreated, wireSource(source))
}

func (h *Handler) removeSource(w http.ResponseWriter, r *request) error {
	if err := h.service.RemoveSource(r.Context(), r.by, r.params["name"]); err != nil {
		return err
	}
	return sendNothing(w)
}

func wireSource(s svc.Source) wire.Source {
	return wire.Source{
		Name: s.Name, URL: s.URL, Scope: string(s.Scope), Owner: orNull(s.Owner), HasAuth: s.HasAuth(),
		Description: s.Description, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
}
