package httpapi

import (
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/internal/wire"
)

func (h *Handler) resolve(w http.ResponseWriter, r *request) error {
	var q svc.Query
	if err := r.query.texts(map[string]*string{
		"bank": &q.Bank, "action": &q.Action, "sa_id": &q.ServiceAccountID, "user_id": &q.UserID,
		"sender": &q.Sender, "channel": &q.Channel, "topic": &q.Topic,
		"scoping_policy_id": &q.ScopingPolicyID,
	}); err != nil {
		return err
	}
	resolution, err := h.service.Policies.Resolve(r.Context(), r.by, q)
	if err != nil {
		return err
	}
	answer, err := wireResolution(resolution)
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusOK, answer)
}

func wireResolution(r svc.Resolution) (wire.Resolution, error) {
	answer := wire.Resolution{
		TenantID: r.TenantID, PrincipalType: string(r.PrincipalType), Access: wireAccess(r),
		BankPolicy: r.BankPolicy, Decision: string(r.Outcome), Reason: r.Reason,
		EffectiveStrategy: r.EffectiveStrategy, Revision: r.Revision,
		Trace: make([]wire.TraceEntry, len(r.Trace)),
	}
	for i, e := range r.Trace {
		sets, err := strictjson.Marshal(wire.SetParameters(e.Sets)) // no HTML escapes in tag groups
		if err != nil {
			return wire.Resolution{}, err
		}
		answer.Trace[i] = wire.TraceEntry{
			PolicyID: e.PolicyID, Via: e.Via, Statement: e.Statement, Effect: string(e.Effect),
			Matched: e.Matched, ActionPattern: e.ActionPattern, BankPattern: e.BankPattern,
			Code: string(e.Code), Reason: e.Reason, Sets: sets, Lost: e.Lost,
		}
	}
	return answer, nil
}

func wireAccess(r svc.Resolution) wire.Access {
	p := r.Parameters
	return wire.Access{
		Allowed: r.Outcome == svc.Allow, ResolvedUserID: r.ResolvedUserID,
		RecallBudget: p.RecallBudget, RecallMaxTokens: p.RecallMaxTokens,
		RecallTagGroups: p.RecallTagGroups, RetainRoles: p.RetainRoles, RetainTags: p.RetainTags,
		RetainEveryNTurns: p.RetainEveryNTurns, RetainStrategy: p.RetainStrategy,
		LLMModel: p.LLMModel, LLMProvider: p.LLMProvider, ExcludeProviders: p.ExcludeProviders,
	}
}
