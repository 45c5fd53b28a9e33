package httpapi

import (
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
		return h.addServiceAccount(r, in)
	})
}

func (h *Handler) createMyServiceAccount(w http.ResponseWriter, r *request) error {
	return createRow(h, w, r, wireServiceAccount, func(
		in wire.CreateMyServiceAccount,
	) (svc.ServiceAccount, error) {
		return h.addServiceAccount(r, wire.CreateServiceAccount{
			ID: in.ID, DisplayName: in.DisplayName, ScopingPolicyID: in.ScopingPolicyID,
		})
	})
}

func (h *Handler) addServiceAccount(
	r *request, in wire.CreateServiceAccount,
) (svc.ServiceAccount, error) {
	name, err := filled("/display_name", in.DisplayName)
	if err != nil {
		return svc.ServiceAccount{}, err
	}
	scope, err := filled("/scoping_policy_id", in.ScopingPolicyID)
	if err != nil {
		return svc.ServiceAccount{}, err
	}
	return h.accounts(r).Create(r.Context(), r.by, svc.ServiceAccount{
		ID: in.ID, DisplayName: name, OwnerUserID: in.OwnerUserID, ScopingPolicyID: scope,
	})
}

func (h *Handler) serviceAccount(w http.ResponseWriter, r *request) error {
	account, err := h.accounts(r).Read(r.Context(), r.by, r.params["sa_id"])
	return sendIfChanged(w, r, account, err, wireServiceAccount)
}

func (h *Handler) patchServiceAccount(w http.ResponseWriter, r *request) error {
	return putRow(h, w, r, wireServiceAccount, func(
		in wire.PatchServiceAccount, match []string,
	) (svc.ServiceAccount, error) {
		patch := svc.ServiceAccountPatch{ScopingPolicyID: textPatch(in.ScopingPolicyID)}
		err := required("/display_name", in.DisplayName, &patch.DisplayName)
		if err == nil {
			patch.Inactive, err = inactive(in.IsActive)
		}
		if err != nil {
			return svc.ServiceAccount{}, err
		}
		return h.accounts(r).Patch(r.Context(), r.by, r.params["sa_id"], patch, match...)
	})
}

func (h *Handler) renameMyServiceAccount(w http.ResponseWriter, r *request) error {
	return putRow(h, w, r, wireServiceAccount, func(
		in wire.Rename, match []string,
	) (svc.ServiceAccount, error) {
		var patch svc.ServiceAccountPatch
		if err := required("/display_name", in.DisplayName, &patch.DisplayName); err != nil {
			return svc.ServiceAccount{}, err
		}
		return h.accounts(r).Patch(r.Context(), r.by, r.params["sa_id"], patch, match...)
	})
}

func (h *Handler) deleteServiceAccount(w http.ResponseWriter, r *request) error {
	return deleteRow(w, r, func(match []string) error {
		return h.accounts(r).Delete(r.Context(), r.by, r.params["sa_id"], match...)
	})
}

func wireServiceAccount(a svc.ServiceAccount) encoded {
	return encoded{wire.ServiceAccount{
		ID: a.ID, OwnerUserID: a.OwnerUserID, DisplayName: a.DisplayName,
		IsActive: !a.Inactive, ScopingPolicyID: orNull(a.ScopingPolicyID),
	}}
}
