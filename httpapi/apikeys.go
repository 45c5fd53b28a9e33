package httpapi

import (
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// holder is the user that the path names.
func (r *request) holder() svc.Identity {
	return svc.Identity{Kind: svc.KindUser, ID: r.params["user_id"]}
}

func (h *Handler) listUserKeys(w http.ResponseWriter, r *request) error {
	return sendList(w, "[", "]", h.service.APIKeys(r.Context(), r.by, r.holder()), wireAPIKey)
}

func (h *Handler) issueUserKey(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.CreateAPIKey](h, w, r)
	if err != nil {
		return err
	}
	issued, err := h.service.IssueAPIKey(r.Context(), r.by, r.holder(), in.Description)
	return sendIssued(w, issued, err)
}

func (h *Handler) revokeUserKey(w http.ResponseWriter, r *request) error {
	if err := h.service.RevokeAPIKey(r.Context(), r.by, r.holder(), r.params["key_id"]); err != nil {
		return err
	}
	return sendNothing(w)
}

func (h *Handler) listMyKeys(w http.ResponseWriter, r *request) error {
	return sendList(w, "[", "]", h.service.MyAPIKeys(r.Context(), r.by), wireAPIKey)
}

func (h *Handler) issueMyKey(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.CreateAPIKey](h, w, r)
	if err != nil {
		return err
	}
	issued, err := h.service.IssueMyAPIKey(r.Context(), r.by, in.Description)
	return sendIssued(w, issued, err)
}

func (h *Handler) revokeMyKey(w http.ResponseWriter, r *request) error {
	if err := h.service.RevokeMyAPIKey(r.Context(), r.by, r.params["key_id"]); err != nil {
		return err
	}
	return sendNothing(w)
}

func wireAPIKey(k svc.APIKey) wire.APIKey {
	return wire.APIKey{ID: k.ID, APIKeyPrefix: k.Prefix, Description: k.Description}
}

func sendIssued(w http.ResponseWriter, issued svc.IssuedKey, err error) error {
	if err != nil {
		return err
	}
	return send(w, http.StatusCreated, wire.CreatedAPIKey{
		ID: issued.ID, APIKey: string(issued.Key), Description: issued.Description,
	})
}
