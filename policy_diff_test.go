package svc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/policy/policytest"
)

// change is how an answer changes, seen from both sides.
type change struct {
	Change        svc.ChangeKind
	Before, After svc.Parameters
}

func changeOf(before, after svc.Decision) change {
	c := change{svc.Unchanged, before.Parameters(), after.Parameters()}
	switch {
	case !before.Allowed() && after.Allowed():
		c.Change = svc.NewlyAllowed
	case before.Allowed() && !after.Allowed():
		c.Change = svc.NewlyDenied
	case !reflect.DeepEqual(c.Before, c.After):
		c.Change = svc.OtherParameters
	default:
		return change{Change: svc.Unchanged}
	}
	return c
}

// told is what a list of differences says of a request; false: those that are closest disagree.
func told(list []svc.Difference, action, bank string) (c change, agreed bool) {
	c.Change = svc.Unchanged
	for i, d := range policytest.Closest(list, func(d svc.Difference) (string, string) { return d.Action, d.Bank }, action, bank) {
		said := change{d.Change, d.Before, d.After}
		if i > 0 && !reflect.DeepEqual(said, c) {
			return c, false
		}
		c = said
	}
	return c, true
}

func TestDiffIsWhatChanges(t *testing.T) {
	seen := map[svc.ChangeKind]int{}
	forEachWorld(t, 5, 125, func(t *testing.T, w *worlds) {
		before := w.bundle()
		after := w.variant(before)
		if w.IntN(5) == 0 {
			after = w.bundle()
		}
		d := must(svc.Diff(before, after))
		checkDiff(t, d, w.host(t, before), w.host(t, after), seen)
		same, err := svc.Diff(after, after)
		if err != nil || !reflect.DeepEqual(same, svc.AccessDiff{}) {
			t.Errorf("a bundle differs from itself: %+v, %v", same, err)
		}
	})
	for _, c := range []svc.ChangeKind{svc.NewlyAllowed, svc.NewlyDenied, svc.OtherParameters, svc.Unchanged} {
		if seen[c] < 200 {
			t.Error("the worlds are not varied", seen)
		}
	}
}

func TestPreviewApplyIsWhatApplyChanges(t *testing.T) {
	seen := map[svc.ChangeKind]int{}
	forEachWorld(t, 3, 50, func(t *testing.T, w *worlds) {
		base := w.bundle()
		overlay, spoiled := w.variant(base), w.spoiled()
		before, after := w.host(t, base), w.host(t, base)
		before.write(t, spoiled)
		after.write(t, spoiled)
		d := must(before.Access.Preview(t.Context(), svc.Host, overlay, svc.BundleWrite{}))
		is.New(t).NoErr(after.Access.Apply(t.Context(), svc.Host, overlay))
		checkDiff(t, d, before, after, seen)
	})
}

func checkDiff(t *testing.T, d svc.AccessDiff, before, after *host, seen map[svc.ChangeKind]int) {
	t.Helper()
	for _, p := range principals() {
		var list []svc.Difference
		groups := 0
		for _, g := range d.Principals {
			if slices.Contains(g.Principals, p.Identity()) {
				list = g.Differences
				groups++
			}
		}
		if groups > 1 || groups == 1 && len(list) == 0 {
			t.Errorf("%s is in %d groups, with %d differences", p.ID, groups, len(list))
		}
		for _, action := range askedActions {
			for _, bank := range askedBanks {
				b, a := before.decide(t, p, action, bank, svc.Context{}), after.decide(t, p, action, bank, svc.Context{})
				want := changeOf(b, a)
				got, agreed := told(list, action, bank)
				seen[got.Change]++
				if !agreed || !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %s on %s: told %+v (agreed: %v), changes %+v, by %+v", p.ID, action, bank, got, agreed, want, list)
				}
				if a.Allowed() && want.Change == svc.Unchanged && action == "bank:recall" {
					for _, in := range askedPlaces {
						checkStrategy(t, d.Strategies, bank, in, before.decide(t, p, action, bank, in), after.decide(t, p, action, bank, in))
					}
				}
			}
		}
		for _, e := range list {
			if got, _ := told(list, e.Action, e.Bank); got.Change != e.Change {
				t.Errorf("%+v is not its own witness", e)
			}
		}
	}
	checkPublic(t, d.Public, before, after)
}

// checkStrategy checks what is told of a bank's strategy, by somebody who is allowed before and after.
func checkStrategy(t *testing.T, list []svc.StrategyDiff, bank string, in svc.Context, before, after svc.Decision) {
	t.Helper()
	text := func(d svc.Decision) *string {
		if s, ok := d.Strategy(); ok {
			return &s
		}
		return nil
	}
	b, a := text(before), text(after)
	own := before.Parameters().RetainStrategy != nil
	isTold := false
	for _, s := range list {
		if s.Bank != bank {
			continue
		}
		isTold = isTold || matches(s.Context, in) && reflect.DeepEqual(s.Before, b) && reflect.DeepEqual(s.After, a)
		if s.Context == in && !own && !(reflect.DeepEqual(s.Before, b) && reflect.DeepEqual(s.After, a)) {
			t.Errorf("%+v on %s in %+v: %s, %s", s, bank, in, or(b), or(a))
		}
	}
	if !reflect.DeepEqual(a, b) && !isTold {
		t.Errorf("the strategy of %s in %+v changes from %q to %q, and is not told: %+v", bank, in, or(b), or(a), list)
	}
}

// matches reports whether a context is one of those that a witness may stand for.
func matches(witness, in svc.Context) bool {
	part := func(w, s string) bool { return w == "" || w == s }
	return part(witness.Provider, in.Provider) && part(witness.Channel, in.Channel) && part(witness.Topic, in.Topic)
}

func checkPublic(t *testing.T, list []svc.PublicDiff, before, after *host) {
	t.Helper()
	for _, bank := range []string{"a", "a::b", "z", "none"} {
		for _, in := range askedPlaces {
			for _, action := range askedActions {
				want := changeOf(before.decide(t, svc.Unmapped, action, bank, in), after.decide(t, svc.Unmapped, action, bank, in))
				isTold := want.Change == svc.Unchanged
				for _, p := range list {
					got, agreed := told(p.Differences, action, bank)
					right := agreed && p.Bank == bank && reflect.DeepEqual(got, want)
					isTold = isTold || right && matches(p.Context, in)
					if p.Bank == bank && p.Context == in && !right {
						t.Errorf("public %s on %s in %+v: told %+v, changes %+v", action, bank, in, got, want)
					}
				}
				if !isTold {
					t.Errorf("public %s on %s in %+v changes, and is not told: %+v, by %+v", action, bank, in, want, list)
				}
			}
		}
	}
}

// What decides between two policies makes a difference, and makes two principals different: the priorities of attachments.
func TestDiffOfPriorities(t *testing.T) {
	is := is.New(t)
	world := func(p, q int64) svc.Bundle {
		model := func(name string) json.RawMessage {
			return encoded(drawnDocument{"2026-03-24", []map[string]any{{"effect": "allow", "actions": []string{"bank:*"}, "banks": []string{"*"}, "llm_model": name}}})
		}
		attach := func(policy, user string, priority int64) svc.Attachment {
			return svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: user}, Priority: priority}
		}
		return svc.Bundle{
			Users:       []svc.User{{ID: "a"}, {ID: "b"}},
			Policies:    []svc.Policy{{ID: "p", Document: model("m")}, {ID: "q", Document: model("n")}},
			Attachments: []svc.Attachment{attach("p", "a", p), attach("q", "a", q), attach("p", "b", 0), attach("q", "b", 1)},
		}
	}
	changes := func(before, after svc.Bundle) (all []string) {
		d := must(svc.Diff(before, after))
		for _, g := range d.Principals {
			for _, e := range g.Differences {
				all = append(all, fmt.Sprintf("%v %s: %s → %s", g.Principals, e.Change, or(e.Before.LLMModel), or(e.After.LLMModel)))
			}
		}
		return all
	}
	is.Equal(changes(world(1, 0), world(0, 1)), []string{"[{user a}] other_parameters: m → n"})
	is.Equal(changes(world(0, 0), world(1, 0)), []string{"[{user a}] other_parameters: n → m"})
	is.Equal(changes(world(0, 1), svc.Bundle{}), []string{"[{user a} {user b}] newly_denied: n → "})
	is.Equal(changes(world(1, 0), svc.Bundle{}), []string{"[{user a}] newly_denied: m → ", "[{user b}] newly_denied: n → "})
}

func TestDiffRefuses(t *testing.T) {
	good := svc.Bundle{Users: []svc.User{{ID: "a"}}}
	_, err := svc.Diff(svc.Bundle{Users: []svc.User{{ID: "a/b"}}}, good)
	wantCode(t, err, svc.CodeInvalid, "/before/users/0/id")
	_, err = svc.Diff(good, svc.Bundle{Groups: []svc.Group{{ID: "g", Members: []string{"a"}}}})
	wantCode(t, err, svc.CodeInvalid, "/after/groups/0/members/0")
	h := newHost(t)
	_, err = h.Access.Preview(t.Context(), svc.Host, svc.Bundle{Policies: []svc.Policy{{ID: "p", Document: []byte(`{}`)}}}, svc.BundleWrite{})
	wantCode(t, err, svc.CodeInvalid, "/policies/0/document/version")
	wantCode(t, errorOf(h.Access.Preview(t.Context(), svc.Principal{Kind: svc.KindUser, ID: "a"}, good, svc.BundleWrite{})), svc.CodeForbidden, "")
}

// The answers of one call have a budget of bytes, whatever makes them large. One question is always answered.
func TestAnswersHaveABudget(t *testing.T) {
	long := strings.Repeat("x", 900<<10)
	for name, b := range map[string]svc.Bundle{
		"tag groups": held([]string{granting(`"recall_tag_groups":[{"a":"` + long + `"}]`)}),
		"roles":      held([]string{granting(`"retain_roles":["` + long + `"]`)}),
		"a model":    held([]string{granting(`"llm_model":"` + long + `"`)}),
		"a strategy": both(held([]string{granting(`"retain_tags":[]`)}), svc.Bundle{}),
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			h := newHost(t)
			if name == "a strategy" {
				b.BankPolicies = []svc.BankPolicy{{BankID: "b", Document: []byte(`{"version":"2026-03-24","default_strategy":"` + long + `"}`)}}
			}
			h.write(t, b)
			questions := make([]svc.Question, 5)
			for i := range questions {
				questions[i] = svc.Question{Bank: "b", UserID: "u"}
			}
			for n, code := range map[int]svc.Code{1: "", 4: "", 5: svc.CodeTooComplex} {
				_, err := h.Policies.Decide(t.Context(), svc.Host, questions[:n]...)
				is.Equal(svc.ErrorCode(err), code)
			}
		})
	}
}

// A trace has a budget of bytes, and so has a list of capabilities.
func TestExplanationsHaveABudget(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	long := strings.Repeat("x", 900<<10)
	b := held([]string{granting(`"llm_model":"` + long + `"`)})
	for i := range 20 {
		b.Groups = append(b.Groups, svc.Group{ID: "g" + strconv.Itoa(i), Members: []string{"u"}})
		b.Attachments = append(b.Attachments, attached("p", svc.GrantedToGroup, "g"+strconv.Itoa(i)))
	}
	h.write(t, b)
	_, err := h.Policies.Resolve(t.Context(), svc.Host, svc.Question{Bank: "b", UserID: "u"})
	wantCode(t, err, svc.CodeTooComplex, "")
	wantCode(t, errorOf(h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{}, svc.Question{Bank: "b", UserID: "u"})), svc.CodeTooComplex, "")

	banks := strings.Join(times(400, func(i int) string { return `"` + strconv.Itoa(i) + `"` }), ",")
	h = newHost(t)
	h.write(t, held([]string{`{"effect":"deny","actions":["` + long + `"],"banks":[` + banks + `]}`}))
	_, err = h.Policies.WhatCan(t.Context(), user("u"), svc.Me) // 400 times the action
	wantCode(t, err, svc.CodeTooComplex, "")
	h = newHost(t)
	h.write(t, held([]string{statement("deny", 500, 500)}))
	cost := allocated(func() { _, err = h.Policies.WhatCan(t.Context(), user("u"), svc.Me) })
	wantCode(t, err, svc.CodeTooComplex, "")
	is.True(cost < 8<<20 || longtest.Raced) // it stops early
}

// A difference lists some changes, and counts the others. The widest come first.
func TestDifferencesHaveAnEnd(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	for n, omitted := range map[int]int{31: 0, 40: 600, 500: 249_000} {
		var d svc.AccessDiff
		var err error
		cost := allocated(func() {
			d, err = h.Access.Preview(t.Context(), svc.Host, held([]string{statement("allow", n, n)}), svc.BundleWrite{})
		})
		is.NoErr(err)
		is.True(cost < 16<<20 || longtest.Raced) // most requests share what decides them
		is.Equal(d.Omitted, omitted)
		is.Equal(len(d.Principals[0].Differences), n*n-omitted)
		is.Equal(must(svc.Diff(svc.Bundle{}, held([]string{statement("allow", n, n)}))).Omitted, omitted)
	}
}

// Diff, which cannot be stopped, has a budget.
func TestDiffHasABudget(t *testing.T) {
	var b svc.Bundle
	cost := allocated(func() {
		b = held(times(12_000, func(i int) string { return `{"effect":"deny","actions":["a` + strconv.Itoa(i) + `"],"banks":["b"]}` }))
		wantCode(t, errorOf(svc.Diff(svc.Bundle{}, b)), svc.CodeTooComplex, "")
	})
	is.New(t).True(cost < 128<<20 || longtest.Raced)
	_, err := svc.Diff(b, b)
	is.New(t).NoErr(err) // nothing is compared
}

// example returns an example of docs/howto/explain-access.md.
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

// The lines of docs/howto/update-templates.md that settle a conflict do.
func TestSettlingInTheDocumentation(t *testing.T) {
	is := is.New(t)
	with := func(model string, tags ...string) svc.Content {
		return svc.Content{Name: "Notes", Integrations: []string{}, Tags: tags, Manifest: manifest(`{"version":"1","model":"` + model + `"}`)}
	}
	h := newHost(t, func(c *svc.Config) {
		c.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) { return admin, nil })
	})
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.install(t, "notes", "notes", with("small", "a"))
	must(h.Templates.Patch(t.Context(), admin, "notes", svc.TemplatePatch{Manifest: with("mine").Manifest}))
	h.market.put(acme, "notes", with("large", "a", "b"))

	lines := curls.FindAllStringSubmatch(exampleOf(t, "docs/howto/update-templates.md", "settle"), -1)
	is.Equal(len(lines), 2)
	ask := asking(t, h)
	is.Equal(ask("GET", lines[0][2], ""), object(exampleOf(t, "docs/howto/update-templates.md", "template-diff")))
	answer := ask(lines[1][1], lines[1][2], lines[1][3])
	is.Equal(answer["updated"], true)
	settled := must(h.Templates.Read(t.Context(), admin, "notes"))
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
