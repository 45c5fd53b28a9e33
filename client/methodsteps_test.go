package client_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/calltest"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/testscript"
)

const catalogue = `{"templates": [
  {"id": "notes", "name": "Notes <&>", "description": "", "category": "work", "integrations": ["mcp"], "tags": ["a", "a"],
   "manifest": {"version": "1", "steps": [1.50, 9007199254740993], "html": "<b>&\u2028", "none": null}},
  {"id": "mail", "name": "Mail", "manifest": {"version": "1"}},
  {"id": "bad", "name": "", "manifest": {"version": "1"}},
  {"name": "worse", "manifest": {"version": "1"}}]}`

var question = svc.Question{Bank: "support", UserID: "alice"}

// steps reads a section of testdata/steps.txt, with values of names.
func steps(t *testing.T, title string, values ...string) (all []step) {
	t.Helper()
	lines := map[string][]string{}
	for _, section := range testscript.Sections(t, "testdata/steps.txt") {
		lines[section.Title] = section.Lines
	}
	for _, line := range lines["names"] {
		name, value, _ := strings.Cut(line, " ")
		values = append(values, "$"+name, value)
	}
	named := strings.NewReplacer(values...)
	for _, line := range lines[title] {
		all = append(all, stepOf(t, named.Replace(line)))
	}
	return all
}

// stepOf reads a line of steps.
func stepOf(t *testing.T, line string) step {
	t.Helper()
	first, rest, _ := strings.Cut(line, " ")
	s := step{call: first}
	if strings.HasPrefix(first, "session-of-") {
		s.by = first
		s.call, rest, _ = strings.Cut(rest, " ")
	}
	if noun, method, is := strings.Cut(s.call, "."); is && rest != "" {
		s.args = arguments(t, noun, method, strings.Split(rest, " | "))
	} else if rest != "" {
		s.args = with(rest)
	}
	return s
}

// arguments are those of a method of a noun of the client.
func arguments(t *testing.T, noun, method string, texts []string) (args []any) {
	t.Helper()
	field, _ := reflect.TypeFor[client.Client]().FieldByName(noun)
	of, there := field.Type.MethodByName(method)
	if !there {
		t.Fatalf("%s has no method %s", noun, method)
	}
	for i, text := range texts {
		switch text {
		case "current":
			args = append(args, current{})
		case "newest":
			args = append(args, newest{})
		default: // after the receiver and the context
			args = append(args, must(calltest.Arguments(of.Type, i+2, []string{text}))[0].Interface())
		}
	}
	return args
}

// half are the steps of the server's templates and sources, and of the caller's own with the prefix "My".
func half(t *testing.T, my string, scope svc.Scope) []step {
	none := svc.TemplatePatch{Integrations: new([]string), Tags: new([]string)} // which no JSON says
	all := append(steps(t, "half", "$scope", string(scope)), step{"", "Templates.Patch", with("a", none)}, step{"", "Templates.Patch", with("a", none, `"x"`)})
	for i := range all {
		if noun, _, _ := strings.Cut(all[i].call, "."); noun == "Templates" || noun == "Sources" {
			all[i].call = my + all[i].call
		}
	}
	return all
}

// keys are the steps of the keys of one holder, which the caller names in its own way.
func keys(t *testing.T, by string, holder svc.Identity) []step {
	return steps(t, "keys", "$by ", by, "$holder", string(must(json.Marshal(holder))))
}

// Each method says what the Service says, and leaves the same rows. Each has a step, and a route of its own.
func TestMethodsAreThoseOfTheService(t *testing.T) {
	t.Parallel()
	routes, methods := map[string]string{}, map[string]bool{}
	for name, steps := range map[string][]step{
		"the server's half": half(t, "", svc.ScopeServer), "one's own half": half(t, "My", svc.ScopePersonal),
		"rows": steps(t, "rows"), "questions": steps(t, "questions"),
		"keys": keys(t, "", alice), "my own keys": keys(t, "session-of-alice ", svc.Me),
		"keys of a service account": keys(t, "", svc.Identity{Kind: svc.KindServiceAccount, ID: "robot"}), "keys of one of mine": keys(t, "session-of-owner ", svc.MyAccount("robot")),
	} {
		t.Run(name, func(t *testing.T) {
			maker := func(u *setup) { u.service.Templates.Banks = banks{} }
			w := newTwins(newSite(t, maker), newSite(t, maker))
			w.both(func(s *site) { s.offer(catalogue) })
			for i, s := range steps {
				w.both((*site).tick)
				switch s.call {
				case "offer":
					w.both(func(to *site) { to.offer(s.args[0].(string)) })
					continue
				case "fail":
					var err error
					if s.args != nil {
						err = errors.New(s.args[0].(string))
					}
					w.both(func(to *site) { to.market.fail(err) })
					continue
				}
				w.here.requests()
				have, want := w.do(t, s)
				expect.Holds(t, have == want, i, s, firstDifference(have, want))
				asked := slices.Compact(w.here.requests())
				if len(asked) > 1 || len(asked) == 1 && cmp.Or(routes[asked[0]], s.call) != s.call && s.call != "Access.Write" && s.call != "Access.Preview" {
					t.Errorf("%s asks for %q, as %s does", s.call, asked, routes[asked[0]])
				}
				if len(asked) > 0 {
					routes[asked[0]], methods[s.call] = s.call, true
				}
			}
		})
	}
	for _, route := range httpapi.Routes() {
		expect.Holds(t, routes[route.Method+" "+route.Path] != "", route.Method, route.Path)
	}
	for noun := range reflect.TypeFor[client.Client]().Fields() {
		for method := range noun.Type.Methods() {
			expect.Holds(t, !noun.IsExported() || methods[noun.Name+"."+method.Name], noun.Name, method.Name)
		}
	}
}

// What the interface refuses before the Service could, it refuses in words of its own.
func TestRefusalsOfTheInterface(t *testing.T) {
	s := newSite(t)
	w := newTwins(s, s)
	for line := range strings.Lines(string(must(os.ReadFile("testdata/refusals.txt")))) {
		field, call, _ := strings.Cut(strings.TrimSpace(line), " ")
		if field == "#" {
			continue
		}
		have, _ := w.do(t, stepOf(t, call))
		for _, part := range []string{`"Code": "invalid_request"`, `"Field": "` + field + `"`} {
			expect.Holds(t, strings.Contains(have, part) && strings.Count(have, `"Field"`) == 1, call, part, have)
		}
	}
}

func firstDifference(have, want string) string {
	h, w := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range min(len(h), len(w)) {
		if h[i] != w[i] {
			return "have " + h[i] + "\nwant " + w[i]
		}
	}
	return "have " + have + "\nwant " + want
}

func (w twins) both(do func(*site)) { do(w.here); do(w.there) }
