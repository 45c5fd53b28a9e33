package httpapi

import (
	"encoding/base64"
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// sources returns the noun of a route about sources: the caller's own under /me.
func (h *Handler) sources(r *request) *svc.Sources {
	if r.own() {
		return h.service.MySources
	}
	return h.service.Sources
}

func (h *Handler) listSources(w http.ResponseWriter, r *request) error {
	sources := h.sources(r).List(r.Context(), r.by)
	return sendList(w, "[", "]", sources, func(s svc.Source) encoded {
		return encoded{sourceView(s, r.full)}
	}, nil)
}

func (h *Handler) registerSource(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.RegisterSource](h, w, r)
	if err != nil {
		return err
	}
	key, err := signingKey(in.SigningKey)
	if err != nil {
		return err
	}
	source, err := h.sources(r).Register(r.Context(), r.by, svc.NewSource{
		URL: in.URL, Alias: in.Alias, AuthToken: (*svc.Secret)(in.AuthToken),
		Description: in.Description, SigningKey: key,
	})
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusCreated, sourceView(source, r.full))
}

// signingKey decodes a key from base64. The Service checks that it is a key.
func signingKey(text *string) ([]byte, error) {
	if text == nil {
		return nil, nil
	}
	key, err := base64.StdEncoding.DecodeString(*text)
	if err != nil || len(key) == 0 {
		return nil, svc.Invalid("/signing_key", "must be an Ed25519 public key, 32 bytes in base64")
	}
	return key, nil
}

func (h *Handler) patchSource(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.PatchSource](h, w, r)
	if err != nil {
		return err
	}
	patch := svc.SourcePatch{Description: textPatch(in.Description)}
	if token := textPatch(in.AuthToken); token != nil {
		patch.AuthToken = &svc.SecretPatch{Value: (*svc.Secret)(token.Value)}
	}
	source, err := h.sources(r).Patch(r.Context(), r.by, r.params["name"], patch)
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusOK, sourceView(source, r.full))
}

func (h *Handler) removeSource(w http.ResponseWriter, r *request) error {
	return sendNothing(w, h.sources(r).Remove(r.Context(), r.by, r.params["name"]))
}

// sourceView returns the wire form of a source in the requested view.
func sourceView(s svc.Source, full bool) any {
	short := wire.Source{
		Name: s.Name, URL: s.URL, Scope: string(s.Scope), Owner: orNull(s.Owner),
		HasAuth: s.HasAuth(), Description: s.Description,
		CreatedAt: wire.Time{Time: s.CreatedAt}, UpdatedAt: wire.Time{Time: s.UpdatedAt},
	}
	if !full {
		return short
	}
	long := wire.FullSource{Source: short}
	if s.SigningKey != nil {
		long.SigningKey = new(base64.StdEncoding.EncodeToString(s.SigningKey))
		long.Serial = &s.Serial
	}
	return long
}

func (h *Handler) sourceTemplates(w http.ResponseWriter, r *request) error {
	filter := r.query.catalogFilter()
	offered, err := h.sources(r).Browse(r.Context(), r.by, r.params["name"], filter)
	return sendResult(w, offered, err, wireOffered)
}

func wireOffered(offered svc.SourceTemplates) wire.SourceTemplates {
	answer := wire.SourceTemplates{
		Templates: wire.Each(offered.Templates, wireSourceTemplate), Stale: offered.Stale,
		Bad: wire.Each(offered.Bad, func(p svc.CatalogProblem) wire.BadEntry {
			return wire.BadEntry{Index: p.Index, ID: orNull(p.ID), Reason: p.Reason}
		}),
	}
	if !offered.FetchedAt.IsZero() {
		answer.FetchedAt = &wire.Time{Time: offered.FetchedAt}
	}
	return answer
}

func wireSourceTemplate(t svc.SourceTemplate) wire.SourceTemplate {
	return wire.SourceTemplate{
		ID: t.ID, Name: t.Content.Name, Description: t.Content.Description,
		Category: t.Content.Category, Integrations: listed(t.Content.Integrations),
		Tags: listed(t.Content.Tags), InstalledAs: listed(t.InstalledAs), Behind: t.Behind,
	}
}
