package httpapi

import (
	"cmp"
	"iter"
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

var accountForm = byID(wireServiceAccount, func(a svc.ServiceAccount) string { return a.ID })

// accounts returns the service accounts that the route is about: those of the caller, or of all.
func (h *Handler) accounts(r *request) *svc.ServiceAccounts {
	if r.own() {
		return h.service.MyServiceAccounts
	}
	return h.service.ServiceAccounts
}

func (h *Handler) listServiceAccounts(w http.ResponseWriter, r *request) error {
	return sendRows(w, r, accountForm, func(q svc.RowQuery) iter.Seq2[svc.ServiceAccount, error] {
		query := svc.ServiceAccountQuery{RowQuery: q, Owner: r.query.text("owner_user_id")}
		return h.accounts(r).List(r.Context(), r.by, query)
	})
}

func (h *Handler) createServiceAccount(w http.ResponseWriter, r *request) error {
	return createRow(h, w, r, wireServiceAccount, func(
		in wire.CreateServiceAccount,
	) (svc.ServiceAccount, error) {
		if in.OwnerUserID == "" {
			return svc.ServiceAccount{}, svc.Invalid("/owner_user_id", "is required")
		}
		return newServiceAccount(in)
	}, h.accounts(r).Create)
}

func (h *Handler) createMyServiceAccount(w http.ResponseWriter, r *request) error {
	return createRow(h, w, r, wireServiceAccount, func(
		in wire.CreateMyServiceAccount,
	) (svc.ServiceAccount, error) {
		return newServiceAccount(wire.CreateServiceAccount{
			ID: in.ID, DisplayName: in.DisplayName, ScopingPolicyID: in.ScopingPolicyID,
		})
	}, h.accounts(r).Create)
}

func newServiceAccount(in wire.CreateServiceAccount) (svc.ServiceAccount, error) {
	name, noName := filled("/display_name", in.DisplayName)
	scope, noScope := filled("/scoping_policy_id", in.ScopingPolicyID)
	return svc.ServiceAccount{
		ID: in.ID, DisplayName: name, OwnerUserID: in.OwnerUserID, ScopingPolicyID: scope,
	}, cmp.Or(noName, noScope)
}

func (h *Handler) serviceAccount(w http.ResponseWriter, r *request) error {
	account, err := h.accounts(r).Read(r.Context(), r.by, r.params["sa_id"])
	return sendIfChanged(w, r, account, err, wireServiceAccount)
}

func (h *Handler) patchServiceAccount(w http.ResponseWriter, r *request) error {
	return patchRow(h, w, r, r.params["sa_id"], wireServiceAccount, func(
		in wire.PatchServiceAccount,
	) (patch svc.ServiceAccountPatch, err error) {
		patch.ScopingPolicyID = textPatch(in.ScopingPolicyID)
		err = cmp.Or(required("/display_name", in.DisplayName, &patch.DisplayName),
			required("/is_active", wire.Not(in.IsActive), &patch.Inactive))
		return patch, err
	}, h.accounts(r).Patch)
}

func (h *Handler) renameMyServiceAccount(w http.ResponseWriter, r *request) error {
	return patchRow(h, w, r, r.params["sa_id"], wireServiceAccount, func(
		in wire.Rename,
	) (patch svc.ServiceAccountPatch, err error) {
		err = required("/display_name", in.DisplayName, &patch.DisplayName)
		return patch, err
	}, h.accounts(r).Patch)
}

func (h *Handler) deleteServiceAccount(w http.ResponseWriter, r *request) error {
	return deleteRow(w, r, r.params["sa_id"], h.accounts(r).Delete)
}

func wireServiceAccount(a svc.ServiceAccount) encoded {
	return encoded{wire.ServiceAccount{
		ID: a.ID, OwnerUserID: a.OwnerUserID, DisplayName: a.DisplayName,
		IsActive: !a.Inactive, ScopingPolicyID: orNull(a.ScopingPolicyID),
	}}
}
