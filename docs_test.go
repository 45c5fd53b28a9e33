package svc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// example returns an example of docs/policies.md.
func example(t *testing.T, name string) string {
	t.Helper()
	return exampleOf(t, "docs/policies.md", name)
}

func exampleOf(t *testing.T, file, name string) string {
	t.Helper()
	page, err := os.ReadFile(file)
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
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, bundle))

	var b strings.Builder
	for _, f := range svc.Lint(bundle, []string{"bank:delete"}) {
		fmt.Fprintf(&b, "%s %s: %s\n", f.Pointer, f.Code, f.Message)
	}
	is.Equal(b.String(), example(t, "lint"))

	b.Reset()
	list, err := h.Policies.WhatCan(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"})
	is.NoErr(err)
	for _, c := range list {
		fmt.Fprintf(&b, "%s %s on %s %s\n", c.Outcome, c.Action, c.Bank, set(c.Parameters))
	}
	is.Equal(b.String(), example(t, "what-can"))

	b.Reset()
	d, err := h.Access.Preview(t.Context(), svc.Host, exampleBundle(t, "overlay"), svc.BundleWrite{})
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
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, exampleBundle(t, "bundle")))
	ask := asking(t, h)
	is.Equal(ask("GET", "/ext/svc/debug/who-can?action=bank:recall&bank=notes", ""), object(example(t, "who-can")))

	answer := ask("POST", "/ext/svc/debug/simulate", example(t, "simulation"))
	for key, value := range object(example(t, "simulated")) {
		is.Equal(answer[key], value)
	}
}

// asking sends requests to a host's interface.
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

// curls are the method, target and body of each curl in a shell's lines.
var curls = regexp.MustCompile(`(?s)curl -sS -H "Authorization: Bearer \$KEY"(?: -H 'Content-Type: application/json' -X (\w+))?[ \\\n]+'?http://127.0.0.1:8080([^'\n]+)'?(?:[ \\\n]+-d '([^']*)')?\n`)

// The lines of docs/templates.md that settle a conflict do.
func TestSettlingInTheDocumentation(t *testing.T) {
	is := is.New(t)
	with := func(model string, tags ...string) svc.Content {
		return svc.Content{Name: "Notes", Integrations: []string{}, Tags: tags, Manifest: manifest(`{"version":"1","model":"` + model + `"}`)}
	}
	h := newHost(t, func(c *svc.Config) {
		c.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) { return admin, nil })
	})
	_, err := h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme})
	is.NoErr(err)
	h.install(t, "notes", "notes", with("small", "a"))
	_, err = h.Templates.Patch(t.Context(), admin, "notes", svc.TemplatePatch{Manifest: with("mine").Manifest})
	is.NoErr(err)
	h.market.put(acme, "notes", with("large", "a", "b"))

	lines := curls.FindAllStringSubmatch(exampleOf(t, "docs/templates.md", "settle"), -1)
	is.Equal(len(lines), 2)
	ask := asking(t, h)
	is.Equal(ask("GET", lines[0][2], ""), object(exampleOf(t, "docs/templates.md", "template-diff")))
	answer := ask(lines[1][1], lines[1][2], lines[1][3])
	is.Equal(answer["updated"], true)
	settled, err := h.Templates.Read(t.Context(), admin, "notes")
	is.NoErr(err)
	is.Equal(revision(t, settled.Content), revision(t, with("mine", "a", "b")))
	is.Equal(ask("GET", strings.Replace(lines[0][2], "diff", "check-update", 1), "")["has_update"], false)
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
