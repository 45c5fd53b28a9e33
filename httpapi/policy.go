package httpapi

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

func (h *Handler) resolve(w http.ResponseWriter, r *request) error {
	q := r.query
	resolution, err := h.service.Policies.Resolve(r.Context(), r.by, svc.Question{
		Bank: q.text("bank"), Action: q.text("action"), ServiceAccountID: q.text("sa_id"),
		UserID: q.text("user_id"), Sender: q.text("sender"), Channel: q.text("channel"),
		Topic: q.text("topic"), ScopingPolicyID: q.text("scoping_policy_id"),
	})
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusOK, wireResolution(resolution))
}

func wireResolution(r svc.Resolution) wire.Resolution {
	answer := wire.Resolution{
		TenantID: r.TenantID, PrincipalType: string(r.PrincipalType),
		Access: wire.Access{
			Allowed: r.Outcome == svc.Allow, ResolvedUserID: r.ResolvedUserID,
			Parameters: wire.Parameters(r.Parameters),
		},
		BankPolicy: r.BankPolicy, Decision: string(r.Outcome), Reason: r.Reason,
		EffectiveStrategy: r.EffectiveStrategy, Revision: r.Revision,
		Trace: make([]wire.TraceEntry, len(r.Trace)),
	}
	for i, e := range r.Trace {
		answer.Trace[i] = wire.TraceEntry{
			PolicyID: e.PolicyID, Via: e.Via, Statement: e.Statement, Effect: string(e.Effect),
			Matched: e.Matched, ActionPattern: e.ActionPattern, BankPattern: e.BankPattern,
			Code: string(e.Code), Reason: e.Reason, Sets: wire.SetParameters(e.Sets), Lost: e.Lost,
		}
	}
	return answer
}

func (h *Handler) whoCan(w http.ResponseWriter, r *request) error {
	action, bank := r.query.text("action"), r.query.text("bank")
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

// MaxBundleRows is the most rows of a bundle in a request. It counts the rows of all lists; each
// channel and each member also counts as a row. It also limits the elements of all arrays in any
// body, without the arrays in manifests and documents.
const MaxBundleRows = 10_000

func (h *Handler) simulate(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.Simulation](h, w, r)
	if err != nil {
		return err
	}
	if in.Bundle == nil {
		return svc.Invalid("/bundle", "is required")
	}
	bundle, err := svc.ParseBundleWithin(in.Bundle, MaxBundleRows)
	if err != nil {
		return within("/bundle", "/query/", err)
	}
	q := in.Query
	resolution, err := h.service.Policies.Simulate(r.Context(), r.by, bundle, svc.Question{
		Bank: q.Bank, Action: q.Action, ServiceAccountID: q.SAID, UserID: q.UserID,
		Sender: q.Sender, Channel: q.Channel, Topic: q.Topic, ScopingPolicyID: q.ScopingPolicyID,
	})
	if err != nil {
		return within("/bundle", "/query/", err)
	}
	return sendJSON(w, http.StatusOK, wireResolution(resolution))
}

// within maps the fields of invalid parts to places in a body: it puts one prefix before pointers
// and the other before names of parameters.
func within(pointers, parameters string, err error) error {
	return svc.Relocate(err, func(e *svc.Error) string {
		switch {
		case e.Code != svc.CodeInvalid:
			return e.Field
		case e.Field == "" || strings.HasPrefix(e.Field, "/"):
			return pointers + e.Field
		}
		return parameters + e.Field
	})
}
