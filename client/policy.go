package client

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/wire"
)

// Resolve decides an action on a bank and returns the parameters and the reasons. An unknown or
// inactive user or service account is a denial, not an error. A question about the caller (Me)
// needs no action. Errors: CodeInvalid, CodeForbidden.
func (c *Policies) Resolve(ctx context.Context, q svc.Question) (svc.Resolution, error) {
	route := "GET /debug/resolve"
	if q.Me {
		route = "GET /me/resolve" // refuses the keys that name a subject
	}
	return c.resolve(ctx, at(route).where(
		"bank", q.Bank, "action", q.Action, "sa_id", q.ServiceAccountID, "user_id", q.UserID,
		"sender", q.Sender, "channel", q.Channel, "topic", q.Topic,
		"scoping_policy_id", q.ScopingPolicyID,
	))
}

// Decide answers up to limits.Questions questions in one request, in their order, without the
// reasons. A question names one of a user, a service account and a sender, or is about the caller
// (Me). It has no ScopingPolicyID. Errors: CodeInvalid, with pointers such as /1/bank (the second
// question), CodeForbidden.
func (c *Policies) Decide(ctx context.Context, questions ...svc.Question) ([]svc.Answer, error) {
	body := wire.Decide{Queries: make([]wire.DecideQuery, len(questions))}
	for i, q := range questions {
		var err error
		if body.Queries[i], err = decideQuery(fmt.Sprint("/", i), q); err != nil {
			return nil, err
		}
	}
	answers, err := call(ctx, c.conn, at("POST /decide").with(body), answersOf)
	if err == nil && len(answers) != len(questions) {
		err = &svc.Error{
			Code: svc.CodeInternal, Message: "the server has not answered each question",
		}
	}
	if err != nil {
		return nil, svc.MapFields(err, func(e *svc.Error) string {
			return strings.TrimPrefix(e.Field, "/queries")
		})
	}
	return answers, nil
}

// decideQuery returns a question as the server takes it. A question without a subject gets an empty
// one, which the server refuses. It would take none for a question about the caller.
func decideQuery(at string, q svc.Question) (wire.DecideQuery, error) {
	out := wire.DecideQuery{
		Bank: q.Bank, Action: cmp.Or(q.Action, action.Recall), Channel: q.Channel,
		Topic: q.Topic, SAID: orAbsent(q.ServiceAccountID), UserID: orAbsent(q.UserID),
		Sender: orAbsent(q.Sender),
	}
	named := out.SAID != nil || out.UserID != nil || out.Sender != nil
	switch {
	case q.ScopingPolicyID != "":
		return out, svc.Invalid(at+"/scoping_policy_id", "must be absent: only Resolve takes it")
	case q.Me && named:
		return out, svc.Invalid(at+"/user_id", "must be absent: the question is about the caller")
	case !q.Me && !named:
		out.UserID = new("")
	}
	return out, nil
}

func answersOf(in wire.Decisions) []svc.Answer {
	out := make([]svc.Answer, len(in.Decisions))
	for i, d := range in.Decisions {
		out[i] = svc.Answer{
			Outcome: svc.Outcome(d.Decision), Parameters: d.Access.Parameters,
			EffectiveStrategy: d.EffectiveStrategy, ResolvedUserID: d.Access.ResolvedUserID,
		}
	}
	return out
}

// Simulate answers a query as Resolve would after a bundle was applied. It writes nothing. Errors:
// CodeInvalid (the query, which must name who asks, or the bundle), CodeForbidden.
func (c *Policies) Simulate(
	ctx context.Context, overlay svc.Bundle, q svc.Question,
) (svc.Resolution, error) {
	bundle, err := overlay.JSON()
	if err != nil {
		return svc.Resolution{}, err
	}
	body := wire.Simulation{Bundle: bundle, Query: wire.Query{
		Bank: q.Bank, Action: q.Action, ServiceAccountID: q.ServiceAccountID, UserID: q.UserID,
		Sender: q.Sender, Channel: q.Channel, Topic: q.Topic, ScopingPolicyID: q.ScopingPolicyID,
	}}
	resolution, err := c.resolve(ctx, at("POST /debug/simulate").unless("user_id", q.Me).with(body))
	return resolution, outOfBody(err)
}

// outOfBody maps the fields of errors from the body of a simulation to the caller's arguments:
// pointers into the bundle, and names of the query's parameters.
func outOfBody(err error) error {
	return svc.MapFields(err, func(e *svc.Error) string {
		if name, is := strings.CutPrefix(e.Field, "/query/"); is {
			return name
		}
		return strings.TrimPrefix(e.Field, "/bundle")
	})
}

// WhoCan returns the principals that may do an action on a bank. The action "" means
// [action.Recall]. Errors: CodeInvalid, CodeForbidden.
func (c *Policies) WhoCan(ctx context.Context, action, bank string) (svc.WhoCanAnswer, error) {
	return call(ctx, c.conn, at("GET /debug/who-can").where("action", action, "bank", bank), reach)
}

func reach(in wire.Reach) svc.WhoCanAnswer {
	override := func(o wire.PublicOverrideReach) svc.PublicOverrideReach {
		return svc.PublicOverrideReach(o)
	}
	return svc.WhoCanAnswer{
		Users: in.Users, ServiceAccounts: in.ServiceAccounts, Revision: in.Revision,
		Public: svc.PublicReach{
			Default:   in.Public.Default,
			Overrides: wire.Each(in.Public.Overrides, override),
		},
		Statements: wire.Each(in.Statements, func(s wire.Cited) svc.StatementRef {
			return svc.StatementRef(s)
		}),
	}
}

// WhatCanI returns all that the caller may do, as its key narrows it, like the WhatCan of [svc.Me].
// The caller needs no action for that.
func (c *Policies) WhatCanI(ctx context.Context) ([]svc.Capability, error) {
	return call(ctx, c.conn, at("GET /me/what-can"), func(in wire.Capabilities) []svc.Capability {
		return wire.Each(in.Capabilities, func(one wire.Capability) svc.Capability {
			return svc.Capability{
				Action: one.Action, Bank: one.Bank, Outcome: svc.Outcome(one.Decision),
				Parameters: one.Parameters.Parameters,
			}
		})
	})
}

func (c *Policies) resolve(ctx context.Context, r request) (svc.Resolution, error) {
	return call(ctx, c.conn, r, func(in wire.Resolution) svc.Resolution {
		a := in.Access
		out := svc.Resolution{
			TenantID: in.TenantID, PrincipalType: svc.Kind(in.PrincipalType),
			ResolvedUserID: a.ResolvedUserID, Outcome: svc.Outcome(in.Decision), Reason: in.Reason,
			EffectiveStrategy: in.EffectiveStrategy, Revision: in.Revision,
			Parameters: a.Parameters, Trace: wire.Each(in.Trace, traceEntry),
		}
		if string(in.BankPolicy) != "null" {
			out.BankPolicy = in.BankPolicy
		}
		return out
	})
}

func traceEntry(e wire.TraceEntry) svc.TraceEntry {
	return svc.TraceEntry{
		PolicyID: e.PolicyID, Via: e.Via, Statement: e.Statement, Effect: svc.Effect(e.Effect),
		Matched: e.Matched, ActionPattern: e.ActionPattern, BankPattern: e.BankPattern,
		Code: svc.TraceCode(e.Code), Reason: e.Reason, Sets: e.Sets.Parameters, Lost: e.Lost,
	}
}
