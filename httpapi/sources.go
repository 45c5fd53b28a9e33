package httpapi

import (
	"encoding/base64"
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

func (h *Handler) listSources(w http.ResponseWriter, r *request) error {
	full, err := r.query.full()
	if err != nil {
		return err
	}
	sources := h.service.Sources.List(r.Context(), r.by)
	if full {
		return sendList(w, "[", "]", sources, wireFullSource, nil)
	}
	return sendList(w, "[", "]", sources, wireSource, nil)
}

func (h *Handler) registerSource(w http.ResponseWriter, r *request) error {
	full, err := r.query.full()
	if err != nil {
		return err
	}
	in, err := decode[wire.RegisterSource](h, w, r)
	if err != nil {
		return err
	}
	key, err := signingKey(in.SigningKey)
	if err != nil {
		return err
	}
	source, err := h.service.Sources.Register(r.Context(), r.by, svc.NewSource{
		URL: in.URL, Alias: in.Alias, AuthToken: (*svc.Secret)(in.AuthToken),
		Description: in.Description, SigningKey: key,
	})
	if err != nil {
		return err
	}
	if full {
		return send(w, http.StatusCreated, wireFullSource(source))
	}
	return send(w, http.StatusCreated, wireSource(source))
}

// signingKey decodes a key from base64. The Service checks that it is a key.
func signingKey(text *string) ([]byte, error) {
	if text == nil {
		return nil, nil
	}
	key, err := base64.StdEncoding.DecodeString(*text)
	if err != nil || len(key) == 0 {
		return nil, invalid("/signing_key", "must be an Ed25519 public key, 32 bytes in base64")
	}
	return key, nil
}

func (h *Handler) removeSource(w http.ResponseWriter, r *request) error {
	if err := h.service.Sources.Remove(r.Context(), r.by, r.params["name"]); err != nil {
		return err
	}
	return sendNothing(w)
}

func wireSource(s svc.Source) wire.Source {
	return wire.Source{
		Name: s.Name, URL: s.URL, Scope: string(s.Scope), Owner: orNull(s.Owner),
		HasAuth: s.HasAuth(), Description: s.Description,
		CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
}

func wireFullSource(s svc.Source) wire.FullSource {
	full := wire.FullSource{Source: wireSource(s)}
	if s.SigningKey != nil {
		full.SigningKey = new(base64.StdEncoding.EncodeToString(s.SigningKey))
		full.Serial = &s.Serial
	}
	return full
}

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
