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
	bank, name := r.bank()
	return putRow(h, w, r, wirePolicyOfBank, func(
		in wire.PutPolicyOfBank, match []string,
	) (svc.BankPolicy, error) {
		policy := svc.BankPolicy{BankID: bank, Document: in.Document}
		set, err := h.service.Banks.SetPolicy(r.Context(), r.by, policy, match...)
		return set, moved(err, "/bank_id", name)
	})
}

func (h *Handler) removePolicyOfBank(w http.ResponseWriter, r *request) error {
	return deleteRow(w, r, func(match []string) error {
		bank, name := r.bank()
		err := h.service.Banks.RemovePolicy(r.Context(), r.by, bank, match...)
		return moved(err, "bank_id", name)
	})
}

func wirePolicyOfBank(p svc.BankPolicy) wire.PolicyOfBank {
	return wire.PolicyOfBank{BankID: p.BankID, Document: p.Document}
}
