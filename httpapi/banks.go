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
	return sendResult(w, made, err, func(made svc.CreatedBank) wire.CreatedBank {
		return wire.CreatedBank{
			BankID: in.BankID, Template: in.Template,
			BankCreated: made.Created, ImportResult: made.ImportResult,
		}
	})
}

// bank returns the bank of a request, and the name of the parameter that has it. Some proxies do
// not pass a slash on that is escaped in a path: for them, the bank may be in the query.
func (r *request) bank() (id, name string) {
	if id, inPath := r.params["bank_id"]; inPath {
		return id, "bank_id"
	}
	return r.query.text("bank"), "bank"
}

func (h *Handler) policyOfBank(w http.ResponseWriter, r *request) error {
	bank, name := r.bank()
	policy, err := h.service.Banks.Policy(r.Context(), r.by, bank)
	return sendIfChanged(w, r, policy, moved(err, "bank_id", name), wirePolicyOfBank)
}

func (h *Handler) setPolicyOfBank(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.PutPolicyOfBank](h, w, r)
	if err != nil {
		return err
	}
	match, err := r.ifMatch()
	if err != nil {
		return err
	}
	bank, name := r.bank()
	policy := svc.BankPolicy{BankID: bank, Document: in.Document}
	policy, err = h.service.Banks.SetPolicy(r.Context(), r.by, policy, match...)
	return sendRow(w, http.StatusOK, policy, moved(err, "/bank_id", name), wirePolicyOfBank)
}

func (h *Handler) removePolicyOfBank(w http.ResponseWriter, r *request) error {
	bank, name := r.bank()
	err := deleteRow(w, r, bank, h.service.Banks.RemovePolicy)
	return moved(err, "bank_id", name)
}

func wirePolicyOfBank(p svc.BankPolicy) wire.PolicyOfBank {
	return wire.PolicyOfBank{BankID: p.BankID, Document: p.Document}
}
