package svc_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/limits"
)

//go:embed testdata/tested.json
var tested string

func parsed(t *testing.T, text string) svc.Bundle {
	b := must(svc.ParseBundle([]byte(text)))
	return b
}

// A store is asked for each row once, however often a bundle names it.
func TestNamesOfABundle(t *testing.T) {
	is := is.New(t)
	var names svc.AccessNames
	h := newHost(t, func(c *svc.Config) {
		c.Store = hook(c.Store, hooks{names: func(n svc.AccessNames) { names = n }})
	})
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, svc.Bundle{
		Users: []svc.User{{ID: "u2"}, {ID: "u1"}}, Groups: []svc.Group{{ID: "g", Members: []string{"u2", "u1"}}, {ID: "h"}},
		ServiceAccounts: []svc.ServiceAccount{{ID: "s", OwnerUserID: "u1"}},
		Attachments: []svc.Attachment{
			attached(svc.PolicyIAMAdmin, "user", "u2"), attached(svc.PolicyTemplateAdmin, "user", "u2"),
			attached(svc.PolicyIAMAdmin, "group", "h"), attached(svc.PolicyTemplateAdmin, "group", "h"),
		},
	}))
	is.Equal(names.Users, []string{"u1", "u2"})
	is.Equal(names.Groups, []string{"h"})
	is.Equal(names.Policies, []string{svc.PolicyIAMAdmin, svc.PolicyTemplateAdmin})
}

// A bundle is refused before its rows take memory: those who send one may have no right at all.
func TestParseBundleWithin(t *testing.T) {
	measured(t)
	is := is.New(t)
	for list, row := range map[string]string{"users": `{}`, "groups": `{"id":"g","members":["a","b"]}`, "attachments": `{}`} {
		rows := strings.TrimSuffix(strings.Repeat(row+",", (1<<18)/(len(row)+1)), ",")
		data := []byte(`{"` + list + `":[` + rows + `]}`)
		var err error
		cost := allocated(func() { _, err = svc.ParseBundleWithin(data, 2_500) })
		is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
		is.True(cost < 1<<20)
		must(svc.ParseBundle(data))
	}
	must(svc.ParseBundleWithin([]byte(`{"users":[{"channels":[{},{}]},{}]}`), 4))
	wantCode(t, errorOf(svc.ParseBundleWithin([]byte(`{"users":[{"channels":[{},{}]},{}]}`), 3)), svc.CodeInvalid, "/users/1")
	must(svc.ParseBundleWithin([]byte(`{"policies":[{"document":{"a":[1,2,3,4]}}]}`), 1)) // a document is not looked into
}

func example(t *testing.T, name string) string {
	t.Helper()
	return exampleOf(t, "docs/howto/explain-access.md", name)
}

func exampleOf(t *testing.T, file, name string) string {
	t.Helper()
	page := must(os.ReadFile(file))
	_, block, found := strings.Cut(string(page), "<!-- example: "+name+" -->\n```")
	_, block, _ = strings.Cut(block, "\n")
	block, _, ended := strings.Cut(block, "```")
	if !found || !ended {
		t.Fatalf("no example %q", name)
	}
	return block
}

func exampleBundle(t *testing.T, name string) svc.Bundle {
	t.Helper()
	return must(svc.ParseBundle([]byte(example(t, name))))
}

func TestExamplesOfTheDocumentation(t *testing.T) {
	is, bundle := is.New(t), exampleBundle(t, "bundle")
	h := newHost(t)
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, bundle))

	var b strings.Builder
	for _, f := range svc.Lint(bundle, []string{"bank:delete"}) {
		fmt.Fprintf(&b, "%s %s: %s\n", f.Pointer, f.Code, f.Message)
	}
	is.Equal(b.String(), example(t, "lint"))

	b.Reset()
	list := must(h.Policies.WhatCan(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}))
	for _, c := range list {
		fmt.Fprintf(&b, "%s %s on %s %s\n", c.Outcome, c.Action, c.Bank, set(c.Parameters))
	}
	is.Equal(b.String(), example(t, "what-can"))

	b.Reset()
	d := must(h.Access.Preview(t.Context(), svc.Host, exampleBundle(t, "overlay"), svc.BundleWrite{}))
	for _, p := range d.Principals {
		for _, who := range p.Principals {
			fmt.Fprintf(&b, "%s %s\n", who.Kind, who.ID)
		}
		for _, e := range p.Differences {
			fmt.Fprintf(&b, "  %s %s on %s %s → %s\n", e.Change, e.Action, e.Bank, set(e.Before), set(e.After))
		}
	}
	is.Equal(b.String(), example(t, "diff"))
	is.Equal(d.Public, nil)
	is.Equal(d.Strategies, nil)
}

func TestExamplesOfTheDocumentationOverHTTP(t *testing.T) {
	is, h := is.New(t), newHost(t, adminSignsIn)
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, exampleBundle(t, "bundle")))
	ask := asking(t, h)
	is.Equal(ask("GET", "/ext/svc/debug/who-can?action=bank:recall&bank=notes", ""), object(example(t, "who-can")))

	answer := ask("POST", "/ext/svc/debug/simulate", example(t, "simulation"))
	for key, value := range object(example(t, "simulated")) {
		is.Equal(answer[key], value)
	}
}

func asking(t *testing.T, h *host) func(method, target, body string) map[string]any {
	api := httpapi.New(h.Service, httpapi.Options{})
	return func(method, target, body string) map[string]any {
		t.Helper()
		r := httptest.NewRequest(method, target, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer session")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if api.ServeHTTP(w, r); w.Code != 200 {
			t.Fatalf("%s %s: %d %s", method, target, w.Code, w.Body)
		}
		return object(w.Body.String())
	}
}

func object(text string) (v map[string]any) {
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		panic(err)
	}
	return v
}

// set is parameters as they are written: those that are set.
func set(p svc.Parameters) string {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(encoded(p), &all); err != nil {
		panic(err)
	}
	for key, value := range all {
		if string(value) == "null" {
			delete(all, key)
		}
	}
	return string(encoded(all))
}

func TestTestsHaveALimit(t *testing.T) {
	h, many := newHost(t), svc.Bundle{}
	for i := range limits.AccessTests {
		many.Tests = append(many.Tests, svc.AccessTest{UserID: "ann", Bank: fmt.Sprint(i)})
	}
	h.apply(t, tested)
	wantCode(t, h.Access.Write(t.Context(), svc.Host, many, svc.BundleWrite{}), svc.CodeInvalid, "/tests")
	is.New(t).NoErr(h.Access.Write(t.Context(), svc.Host, many, svc.BundleWrite{Prune: true}))
	wantCode(t, h.Access.Apply(t.Context(), svc.Host, parsed(t, tested)), svc.CodeInvalid, "/tests")
	is.New(t).NoErr(h.Access.Apply(t.Context(), svc.Host, many))

	all := parsed(t, tested)
	diff := must(svc.Diff(all, svc.Bundle{Users: []svc.User{{ID: "ann"}}, Tests: all.Tests[:1]}))
	is.New(t).Equal(diff.Turned[0].UserID, "ann")
}
