package svc_test

import (
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// Decide answers each question as Resolve does, before and after the cache has it, and after a change.
func TestDecideIsResolve(t *testing.T) {
	forEachWorld(t, 60, func(t *testing.T, w *worlds) {
		h := w.host(t, w.bundle())
		for range 2 {
			questions := make([]svc.Question, 20)
			for i := range questions {
				questions[i] = w.query()
			}
			for range 2 {
				answers, err := h.Policies.Decide(t.Context(), svc.Host, questions...)
				if err != nil {
					t.Fatal(err)
				}
				for i, q := range questions {
					r, err := h.Policies.Resolve(t.Context(), svc.Host, q)
					if err != nil {
						t.Fatal(err)
					}
					want := svc.Answer{Outcome: r.Outcome, Parameters: r.Parameters, EffectiveStrategy: r.EffectiveStrategy, ResolvedUserID: r.ResolvedUserID}
					if string(encoded(answers[i])) != string(encoded(want)) || answers[i].Allowed() != (r.Outcome == svc.Allow) {
						t.Errorf("%+v: %s, and Resolve says %s", q, encoded(answers[i]), encoded(want))
					}
				}
			}
			if err := h.Access.Apply(t.Context(), svc.Host, w.bundle()); err != nil && svc.ErrorCode(err) != svc.CodeExists {
				t.Fatal(err)
			}
		}
	})
}

// A caller asks about itself without any action, narrowed as it is, with what the host vouches for.
func TestQuestionsAboutTheCaller(t *testing.T) {
	forEachWorld(t, 30, func(t *testing.T, w *worlds) {
		h := w.host(t, w.bundle())
		for _, p := range principals() {
			if p.Kind != svc.KindUser && p.Kind != svc.KindServiceAccount {
				continue
			}
			if w.IntN(2) == 0 {
				p.Actions = []string{"iam:*"}
			}
			for range 8 {
				q := svc.Question{Me: true, Bank: w.one(append(slices.Clone(askedBanks), "*")), Action: w.one(askedActions)}
				want := h.decide(t, p, q.Action, q.Bank, svc.Context{})
				answers, err := h.Policies.Decide(t.Context(), p, q)
				if err != nil {
					t.Fatal(err)
				}
				r, err := h.Policies.Resolve(t.Context(), p, q)
				if err != nil {
					t.Fatal(err)
				}
				if answers[0].Outcome != want.Outcome() || r.Outcome != want.Outcome() {
					t.Errorf("%+v, %+v: Decide says %s, Resolve %s, the Service %s", p, q, answers[0].Outcome, r.Outcome, want.Outcome())
				}
			}
			p.Actions = nil
			mine, err := h.Policies.WhatCan(t.Context(), p, svc.Me)
			if err != nil {
				t.Fatal(err)
			}
			if p.ScopingPolicyID != "" {
				continue
			}
			his, err := h.Policies.WhatCan(t.Context(), svc.Host, p.Identity())
			if err != nil || string(encoded(mine)) != string(encoded(his)) {
				t.Errorf("%+v: %s, and the host is told %s (%v)", p, encoded(mine), encoded(his), err)
			}
		}
	})
}

func TestDecideRefuses(t *testing.T) {
	h := newHost(t)
	ask := func(by svc.Principal, questions ...svc.Question) error {
		_, err := h.Policies.Decide(t.Context(), by, questions...)
		return err
	}
	mine := svc.Question{Me: true, Bank: "b"}
	wantCode(t, ask(svc.Host, mine, svc.Question{UserID: "a"}), svc.CodeInvalid, "/1/bank")
	wantCode(t, ask(svc.Host, svc.Question{Bank: "b"}), svc.CodeInvalid, "/0/user_id")
	wantCode(t, ask(svc.Host, svc.Question{Me: true, UserID: "a", Bank: "b"}), svc.CodeInvalid, "/0/user_id")
	wantCode(t, ask(svc.Host, make([]svc.Question, svc.MaxQuestions+1)...), svc.CodeInvalid, "")
	plain := svc.Principal{Kind: svc.KindUser, ID: "plain"}
	wantCode(t, ask(plain, mine, svc.Question{UserID: "plain", Bank: "b"}), svc.CodeForbidden, "")
	_, err := h.Policies.Resolve(t.Context(), svc.Host, mine)
	wantCode(t, err, svc.CodeForbidden, "")
	_, err = h.Policies.WhatCan(t.Context(), svc.Host, svc.Me)
	wantCode(t, err, svc.CodeForbidden, "")
}

func TestDecideNothing(t *testing.T) {
	is := is.New(t)
	answers, err := newHost(t).Policies.Decide(t.Context(), svc.Principal{Kind: svc.KindUser, ID: "plain"})
	is.NoErr(err)
	is.Equal(len(answers), 0)
}
