package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/wire"
	"github.com/extsvc/svc/limits"
)

// resolve answers a question about anybody, or below /me about the caller.
func (h *Handler) resolve(w http.ResponseWriter, r *request) error {
	q := r.query
	resolution, err := h.service.Policies.Resolve(r.Context(), r.by, svc.Question{
		Me: r.own(), Bank: q.text("bank"), Action: q.text("action"),
		ServiceAccountID: q.text("sa_id"), UserID: q.text("user_id"), Sender: q.text("sender"),
		Channel: q.text("channel"), Topic: q.text("topic"),
		ScopingPolicyID: q.text("scoping_policy_id"),
	})
	return sendResult(w, resolution, err, wireResolution)
}

func wireResolution(r svc.Resolution) wire.Resolution {
	return wire.Resolution{
		TenantID: r.TenantID, PrincipalType: string(r.PrincipalType),
		Access: wire.Access{
			Allowed: r.Outcome == svc.Allow, ResolvedUserID: r.ResolvedUserID,
			Parameters: r.Parameters,
		},
		BankPolicy: r.BankPolicy, Decision: string(r.Outcome), Reason: r.Reason,
		EffectiveStrategy: r.EffectiveStrategy, Revision: r.Revision,
		Trace: wire.Each(r.Trace, func(e svc.TraceEntry) wire.TraceEntry {
			return wire.TraceEntry{
				PolicyID: e.PolicyID, Via: e.Via, Statement: e.Statement, Matched: e.Matched,
				Effect: string(e.Effect), Code: string(e.Code), Reason: e.Reason,
				ActionPattern: e.ActionPattern, BankPattern: e.BankPattern,
				Sets: wire.Sets{Parameters: e.Sets}, Lost: e.Lost,
			}
		}),
	}
}

func (h *Handler) decide(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.Decide](h, w, r)
	if err != nil {
		return err
	}
	questions, err := questionsOf(in.Queries)
	if err != nil {
		return err
	}
	answers, err := h.service.Policies.Decide(r.Context(), r.by, questions...)
	if err != nil {
		return svc.MapFields(err, ofQuery)
	}
	out := wire.Decisions{Decisions: wire.Each(answers, wireDecision)}
	return sendJSON(w, http.StatusOK, out)
}

// questionsOf returns what queries ask. It refuses what no Question can express; the Service checks
// the rest.
func questionsOf(queries []wire.DecideQuery) ([]svc.Question, error) {
	if queries == nil {
		return nil, svc.Invalid("/queries", "is required")
	}
	questions := make([]svc.Question, len(queries))
	var wrong []error
	for i := 0; i < len(queries) && len(wrong) < limits.Errors; i++ {
		at, q := "/queries/"+strconv.Itoa(i), &queries[i]
		for _, field := range [][2]string{{"/bank", q.Bank}, {"/action", q.Action}} {
			if field[1] == "" {
				wrong = append(wrong, svc.Invalid(at+field[0], "is required"))
			}
		}
		var problem error
		if questions[i], problem = questionOf(at, q); problem != nil {
			wrong = append(wrong, problem)
		}
	}
	if len(wrong) >= limits.Errors {
		wrong = append(wrong[:limits.Errors], svc.Invalid("", "there may be more errors"))
	}
	return questions, errors.Join(wrong...)
}

// questionOf returns what a query at a pointer asks.
func questionOf(at string, in *wire.DecideQuery) (q svc.Question, err error) {
	q = svc.Question{
		Me: true, Bank: in.Bank, Action: in.Action, Channel: in.Channel, Topic: in.Topic,
	}
	for _, subject := range [...]struct {
		field    string
		from, to *string
	}{
		{"/user_id", in.UserID, &q.UserID}, {"/sa_id", in.SAID, &q.ServiceAccountID},
		{"/sender", in.Sender, &q.Sender},
	} {
		switch {
		case subject.from == nil:
			continue
		case !q.Me:
			err = svc.Invalid(at, "must name at most one of user_id, sa_id and sender")
		case *subject.from == "" && subject.to != &q.UserID: // the Service asks for a user_id
			err = svc.Invalid(at+subject.field, "must not be empty")
		}
		*subject.to, q.Me = *subject.from, false
	}
	return q, err
}

// ofQuery maps the field of an invalid question to its place in the body.
func ofQuery(e *svc.Error) string {
	if e.Code == svc.CodeInvalid {
		return "/queries" + e.Field
	}
	return e.Field
}

func wireDecision(a svc.Answer) wire.Decision {
	return wire.Decision{
		Allowed: a.Allowed(), Decision: string(a.Outcome), EffectiveStrategy: a.EffectiveStrategy,
		Access: wire.Access{
			Allowed: a.Allowed(), ResolvedUserID: a.ResolvedUserID, Parameters: a.Parameters,
		},
	}
}

func (h *Handler) whoCan(w http.ResponseWriter, r *request) error {
	allowed, bank := r.query.text("action"), r.query.text("bank")
	reach, err := h.service.Policies.WhoCan(r.Context(), r.by, allowed, bank)
	return sendResult(w, reach, err, func(reach svc.WhoCanAnswer) wire.Reach {
		override := func(o svc.PublicOverrideReach) wire.PublicOverrideReach {
			return wire.PublicOverrideReach(o)
		}
		return wire.Reach{
			Action: cmp.Or(allowed, action.Recall), Bank: bank,
			Users: reach.Users, ServiceAccounts: reach.ServiceAccounts,
			Public: wire.PublicReach{
				Default:   reach.Public.Default,
				Overrides: wire.Each(reach.Public.Overrides, override),
			},
			Statements: wire.Each(reach.Statements, func(s svc.StatementRef) wire.Cited {
				return wire.Cited(s)
			}),
			Revision: reach.Revision,
		}
	})
}

func (h *Handler) whatCanI(w http.ResponseWriter, r *request) error {
	list, err := h.service.Policies.WhatCan(r.Context(), r.by, svc.Me)
	return sendResult(w, list, err, func(list []svc.Capability) wire.Capabilities {
		return wire.Capabilities{
			Capabilities: wire.Each(list, func(c svc.Capability) wire.Capability {
				return wire.Capability{
					Action: c.Action, Bank: c.Bank, Decision: string(c.Outcome),
					Parameters: wire.Sets{Parameters: c.Parameters},
				}
			}),
		}
	})
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
		return within(err)
	}
	q := svc.Question{
		Bank: in.Query.Bank, Action: in.Query.Action, ServiceAccountID: in.Query.ServiceAccountID,
		UserID: in.Query.UserID, Sender: in.Query.Sender, Channel: in.Query.Channel,
		Topic: in.Query.Topic, ScopingPolicyID: in.Query.ScopingPolicyID,
	}
	resolution, err := h.service.Policies.Simulate(r.Context(), r.by, bundle, q)
	return sendResult(w, resolution, within(err), wireResolution)
}

// within maps the fields of errors to places in the body of a simulation: pointers into the bundle,
// and names of the query's parameters.
func within(err error) error {
	return svc.MapFields(err, func(e *svc.Error) string {
		switch {
		case e.Code != svc.CodeInvalid:
			return e.Field
		case e.Field == "" || strings.HasPrefix(e.Field, "/"):
			return "/bundle" + e.Field
		}
		return "/query/" + e.Field
	})
}
