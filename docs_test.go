package svc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/matryer/is"
)

// example returns an example of docs/policies.md.
func example(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile("docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
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
	b, err := svc.ParseBundle([]byte(example(t, name)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestExamplesOfTheDocumentation(t *testing.T) {
	is := is.New(t)
	bundle := exampleBundle(t, "bundle")
	h := newHost(t)
	is.NoErr(h.Apply(t.Context(), svc.Host, bundle))

	var b strings.Builder
	for _, f := range svc.Lint(bundle, []string{"bank:delete"}) {
		fmt.Fprintf(&b, "%s %s: %s\n", f.Pointer, f.Code, f.Message)
	}
	is.Equal(b.String(), example(t, "lint"))

	b.Reset()
	list, err := h.WhatCan(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"})
	is.NoErr(err)
	for _, c := range list {
		fmt.Fprintf(&b, "%s %s on %s %s\n", c.Outcome, c.Action, c.Bank, set(c.Parameters))
	}
	is.Equal(b.String(), example(t, "what-can"))

	b.Reset()
	d, err := h.PreviewApply(t.Context(), svc.Host, exampleBundle(t, "overlay"))
	is.NoErr(err)
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
	is := is.New(t)
	h := newHost(t, func(c *svc.Config) {
		c.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) { return admin, nil })
	})
	is.NoErr(h.Apply(t.Context(), svc.Host, exampleBundle(t, "bundle")))
	api := httpapi.New(h.Service, httpapi.Options{})
	ask := func(method, target, body string) map[string]any {
		r := httptest.NewRequest(method, target, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer session")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		is.Equal(w.Code, 200)
		return object(w.Body.String())
	}
	is.Equal(ask("GET", "/ext/svc/debug/who-can?action=bank:recall&bank=notes", ""), object(example(t, "who-can")))

	answer := ask("POST", "/ext/svc/debug/simulate", example(t, "simulation"))
	for key, value := range object(example(t, "simulated")) {
		is.Equal(answer[key], value)
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
