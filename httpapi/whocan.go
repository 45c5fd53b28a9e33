package httpapi

import (
	"cmp"
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

func (h *Handler) whoCan(w http.ResponseWriter, r *request) error {
	var action, bank string
	if err := r.query.texts(map[string]*string{"action": &action, "bank": &bank}); err != nil {
		return err
	}
	reach, err := h.service.Policies.WhoCan(r.Context(), r.by, action, bank)
	if err != nil {
		return err
	}
	answer := wire.Reach{
		Action: cmp.Or(action, svc.ActionRecall), Bank: bank,
		Users: reach.Users, ServiceAccounts: reach.ServiceAccounts,
		Public: wire.PublicReach{
			Default:   reach.Public.Default,
			Overrides: make([]wire.PublicOverrideReach, len(reach.Public.Overrides)),
		},
		Statements: make([]wire.Cited, len(reach.Statements)), Revision: reach.Revision,
	}
	for i, o := range reach.Public.Overrides {
		answer.Public.Overrides[i] = wire.PublicOverrideReach{
			Scope: o.Scope, Value: o.Value, Allowed: o.Allowed,
		}
	}
	for i, s := range reach.Statements {
		answer.Statements[i] = wire.Cited{
			PolicyID: s.PolicyID, Statement: s.Statement, Effect: string(s.Effect),
		}
	}
	return sendJSON(w, http.StatusOK, answer)
}
