package svc_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/policy/policytest"
	"github.com/extsvc/svc/limits"
	"github.com/extsvc/svc/parameter"
	"github.com/extsvc/svc/store/memstore"
)

//go:embed testdata/world.json
var world string

func or(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Decide answers each question as Resolve does, before and after the cache has it, and after a change.
func TestDecideIsResolve(t *testing.T) {
	forEachWorld(t, 8, 300, func(t *testing.T, w *worlds) {
		h := w.host(t, w.bundle())
		for range 2 {
			questions := make([]svc.Question, 20)
			for i := range questions {
				questions[i] = w.query()
			}
			for range 2 {
				answers := must(h.Policies.Decide(t.Context(), svc.Host, questions...))
				for i, q := range questions {
					r := must(h.Policies.Resolve(t.Context(), svc.Host, q))
					want := svc.Answer{Outcome: r.Outcome, Parameters: r.Parameters, EffectiveStrategy: r.EffectiveStrategy, ResolvedUserID: r.ResolvedUserID}
					expect.Holds(t, string(encoded(answers[i])) == string(encoded(want)) && answers[i].Allowed() == (r.Outcome == svc.Allow), q, ": ", string(encoded(answers[i])), ", and Resolve says ", string(encoded(want)))
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
	forEachWorld(t, 5, 150, func(t *testing.T, w *worlds) {
		h := w.host(t, w.bundle())
		h.write(t, w.spoiled())
		for _, p := range principals() {
			if w.IntN(2) == 0 {
				p.Actions = []string{"iam:*"}
			}
			for range 8 {
				q := svc.Question{Me: true, Bank: w.one(append(slices.Clone(askedBanks), "*")), Action: w.one(askedActions)}
				want := h.decide(t, p, q.Action, q.Bank, svc.Context{})
				answers := must(h.Policies.Decide(t.Context(), p, q))
				r := must(h.Policies.Resolve(t.Context(), p, q))
				expect.Holds(t, answers[0].Outcome == want.Outcome() && r.Outcome == want.Outcome(), p, q, answers[0].Outcome, r.Outcome, want.Outcome())
			}
			p.Actions = nil
			mine := must(h.Policies.WhatCan(t.Context(), p, svc.Me))
			his, err := h.Policies.WhatCan(t.Context(), svc.Host, p.Identity())
			expect.Holds(t, err == nil && string(encoded(mine)) == string(encoded(his)), p, ": ", string(encoded(mine)), ", and the host is told ", string(encoded(his)), err)
			for _, action := range askedActions {
				bank, said := w.one(askedBanks), svc.Capability{Outcome: svc.ImplicitDeny}
				for _, c := range policytest.Closest(mine, func(c svc.Capability) (string, string) { return c.Action, c.Bank }, action, bank) {
					said = c
				}
				if d := h.decide(t, p, action, bank, svc.Context{}); said.Outcome != d.Outcome() || !reflect.DeepEqual(said.Parameters, d.Parameters()) {
					t.Errorf("%+v: %s on %s is %+v, and decided %s", p, action, bank, said, d.Outcome())
				}
			}
		}
	})
}

// documentOf draws a document with values of any parameters of the table.
func documentOf(d *rand.Rand, table []parameter.Definition) svc.Document {
	words := []string{"a", "ä<&>", "\u2028\"\\", "b\n"}
	document := svc.Document{Statements: make([]svc.Statement, d.IntN(4))}
	for i := range document.Statements {
		st := svc.Statement{Effect: svc.EffectAllow, Actions: []string{"flag:*", "a"}, Banks: []string{"${group}::*", "b::${user}"}}
		if d.IntN(4) == 0 {
			st.Effect = svc.EffectDeny
		}
		for _, p := range table {
			if st.Effect == svc.EffectDeny || d.IntN(2) == 0 {
				continue
			}
			if st.Set == nil {
				st.Set = map[string]any{}
			}
			switch p.Type {
			case parameter.Integer:
				st.Set[p.Name] = d.Int64()
			case parameter.Text:
				st.Set[p.Name] = words[d.IntN(len(words))]
			case parameter.Level:
				st.Set[p.Name] = p.Levels[d.IntN(len(p.Levels))]
			case parameter.TextList:
				st.Set[p.Name] = words[:d.IntN(len(words))]
			case parameter.ObjectList:
				st.Set[p.Name] = []json.RawMessage{json.RawMessage(`{"b":[1.0,1e3],"a":"<>"}`)}
			}
		}
		document.Statements[i] = st
	}
	return document
}

// A Service keeps a typed document as it is, whatever its table, and gives it back.
func TestDocumentsKeepAll(t *testing.T) {
	is := is.New(t)
	for seed := range uint64(50) {
		d := rand.New(rand.NewPCG(seed, 3))
		table := []parameter.Definition{}
		for i := range d.IntN(8) {
			p := parameter.Definition{Name: fmt.Sprint("p_", i), Type: parameter.Type(1 + i%5), Merge: parameter.Closest, Narrow: parameter.Replace}
			if p.Type == parameter.Level {
				p.Levels = []string{"low", "high"}
			}
			table = append(table, p)
		}
		service := must(svc.New(svc.Config{Store: memstore.New(), Parameters: table}))
		document := documentOf(d, table)
		kept := must(service.Policies.Create(t.Context(), svc.Host, svc.Policy{ID: "p", Document: document.JSON()}))
		is.Equal(string(kept.Document), string(document.JSON()))
		is.Equal(must(svc.ParseDocument(kept.Document)), document)
		is.NoErr(service.Close())
	}
}

// What has no JSON, or stands under a wrong name, gives no right: a Service refuses the document.
func TestDocumentsThatAreRefused(t *testing.T) {
	is, service := is.New(t), must(svc.New(svc.Config{Store: memstore.New(), Parameters: flags}))
	defer service.Close()
	allow := svc.Statement{Effect: svc.EffectAllow, Actions: []string{"a"}, Banks: []string{"b"}}
	with := func(change func(*svc.Statement)) svc.Document {
		st := allow
		change(&st)
		return svc.Document{Statements: []svc.Statement{allow, st}}
	}
	set := func(name string, v any) svc.Document {
		return with(func(st *svc.Statement) { st.Set = map[string]any{name: v} })
	}
	for _, tc := range []struct {
		document  svc.Document
		at, field string // of ParseDocument, and of Create
	}{
		{set("row_limit", 5), "", ""},
		{set("row_limit", uint8(5)), "", ""},
		{set("row_limit", 5.0), "", ""},
		{set("row_limit", nil), "", ""},
		{set("row_limit", "5"), "", "row_limit"},
		{set("rows", 5), "", "rows"},
		{set("row_limit", func() {}), "row_limit", "row_limit"},
		{set("environments", []string{"\xff"}), "environments", "environments"},
		{set("banks", []string{"*"}), "banks", "banks"},
		{set("row limit", 1), "row limit", "row limit"},
		{with(func(st *svc.Statement) { st.Banks = []string{"\xff"} }), "banks", "banks"},
		{with(func(st *svc.Statement) { st.Banks = nil }), "banks", "banks"},
		{with(func(st *svc.Statement) { st.Effect = "" }), "effect", "effect"},
		{with(func(st *svc.Statement) { st.Effect, st.Set = svc.EffectDeny, map[string]any{"row_limit": 1} }), "row_limit", "row_limit"},
	} {
		check := func(err error, name, at string) {
			t.Helper()
			if want := at + "/statements/1/" + name; name == "" && err != nil || name != "" && (svc.ErrorCode(err) != svc.CodeInvalid || svc.Errors(err)[0].Field != want) {
				t.Errorf("%+v: %v, want %q", tc.document, err, want)
			}
		}
		_, err := svc.ParseDocument(tc.document.JSON())
		check(err, tc.at, "")
		_, err = service.Policies.Create(t.Context(), svc.Host, svc.Policy{ID: "p", Document: tc.document.JSON()})
		check(err, tc.field, "/document")
		if err == nil {
			is.NoErr(service.Policies.Delete(t.Context(), svc.Host, "p"))
		}
	}
	is.Equal(svc.ErrorCode(errorOf(svc.ParseDocument(nil))), svc.CodeInvalid)
	_, err := service.Policies.Create(t.Context(), svc.Host, svc.Policy{ID: "p", Document: set("\xff", 1).JSON()})
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
}

func TestDecideHasALimit(t *testing.T) {
	h, most := newHost(t), slices.Repeat([]svc.Question{{UserID: "a", Bank: "b"}}, limits.Questions)
	must(h.Policies.Decide(t.Context(), svc.Host, most...))
	wantCode(t, errorOf(h.Policies.Decide(t.Context(), svc.Host, append(most, most[0])...)), svc.CodeInvalid, "")
}
