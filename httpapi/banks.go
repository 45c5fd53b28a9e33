package httpapi

import (
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

func (h *Handler) createBank(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.CreateBank](h, w, r)
	if err != nil {
		return err
	}
	bank := svc.NewBank{ID: in.BankID, Template: in.Template}
	if bank.Name, err = filled("/name", in.Name); err != nil {
		return err
	}
	made, err := h.service.Banks.Create(r.Context(), r.by, bank)
	return sendResult(w, made, err, func(made svc.MadeBank) wire.CreatedBank {
		return wire.CreatedBank{
			BankID: in.BankID, Template: in.Template,
			BankCreated: made.Created, ImportResult: made.ImportResult,
		}
	})
}

func (h *Handler) policyOfBank(w http.ResponseWriter, r *request) error {
	policy, err := h.service.Banks.Policy(r.Context(), r.by, r.params["bank_id"])
	return sendIfChanged(w, r, policy, err, wirePolicyOfBank)
}

func (h *Handler) setPolicyOfBank(w http.ResponseWriter, r *request) error {
	return putRow(h, w, r, wirePolicyOfBank, func(
		in wire.PutPolicyOfBank, match []string,
	) (svc.BankPolicy, error) {
		policy := svc.BankPolicy{BankID: r.params["bank_id"], Document: in.Document}
		set, err := h.service.Banks.SetPolicy(r.Context(), r.by, policy, match...)
		return set, moved(err, "/bank_id", "bank_id")
	})
}

func (h *Handler) removePolicyOfBank(w http.ResponseWriter, r *request) error {
	return deleteRow(w, r, func(match []string) error {
		return h.service.Banks.RemovePolicy(r.Context(), r.by, r.params["bank_id"], match...)
	})
}

func wirePolicyOfBank(p svc.BankPolicy) wire.PolicyOfBank { return wire.PolicyOfBank(p) }
