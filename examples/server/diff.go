package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

// difference is a line of the command diff.
type difference struct {
	Kind   string `json:"kind"` // "user", "service_account", "public", "strategy" or "test"
	ID     string `json:"id,omitempty"`
	Change string `json:"change,omitempty"` // "" for a strategy
	Action string `json:"action,omitempty"`
	Bank   string `json:"bank"`
	// For "public" and "strategy".
	Provider string `json:"provider,omitempty"`
	Channel  string `json:"channel,omitempty"`
	Topic    string `json:"topic,omitempty"`
	// For "test": a question whose answer is no longer the expected one.
	Test json.RawMessage `json:"test,omitempty"`
	// Before and After are the parameters that are set, or the strategy; nil: none.
	Before any `json:"before"`
	After  any `json:"after"`
}

// differences returns the lines of a diff, in its order.
func differences(diff svc.AccessDiff) (all []difference) {
	for _, p := range diff.Principals {
		for _, who := range p.Principals {
			one := difference{Kind: string(who.Kind), ID: who.ID}
			all = append(all, one.each(p.Differences)...)
		}
	}
	for _, p := range diff.Public {
		all = append(all, at("public", p.Bank, p.Context).each(p.Differences)...)
	}
	for _, s := range diff.Strategies {
		one := at("strategy", s.Bank, s.Context)
		if s.Before != nil {
			one.Before = *s.Before
		}
		if s.After != nil {
			one.After = *s.After
		}
		all = append(all, one)
	}
	for _, t := range diff.Turned {
		all = append(all, difference{
			Kind: "test", Action: t.Action, Bank: t.Bank, Before: t.Allowed, After: !t.Allowed,
			Test: json.RawMessage(said(t)),
		})
	}
	return all
}

func at(kind, bank string, context svc.Context) difference {
	return difference{
		Kind: kind, Bank: bank,
		Provider: context.Provider, Channel: context.Channel, Topic: context.Topic,
	}
}

// each returns d for each change of a list.
func (d difference) each(list []svc.Difference) (all []difference) {
	for _, change := range list {
		d.Change, d.Action, d.Bank = string(change.Change), change.Action, change.Bank
		d.Before, d.After = parameters(change.Before), parameters(change.After)
		all = append(all, d)
	}
	return all
}

// parameters returns the parameters that are set; nil: none.
func parameters(p svc.Parameters) any {
	all := map[string]json.RawMessage{}
	for name, value := range p.All() {
		if value != nil {
			all[name], _ = json.Marshal(value) // its JSON comes from a store
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// printDiff prints differences in words, or as JSON, one on each line. The last line counts those
// that a long diff leaves out. The error is 2 when rights differ, and 1 when only the answers to kept
// questions are unexpected.
func printDiff(stdout io.Writer, diff svc.AccessDiff, asJSON bool) error {
	out, list := bufio.NewWriter(stdout), differences(diff)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for _, d := range list {
		if !asJSON {
			fmt.Fprintln(out, plain(d.String()))
		} else if err := lines.Encode(d); err != nil {
			return err
		}
	}
	switch {
	case diff.Omitted > 0 && asJSON:
		fmt.Fprintf(out, `{"omitted":%d}`+"\n", diff.Omitted)
	case diff.Omitted > 0:
		fmt.Fprintf(out, "%d more differences are not listed.\n", diff.Omitted)
	case len(list) == 0 && !asJSON:
		fmt.Fprintln(out, "Nothing changes in what anybody may do.")
	}
	err := out.Flush()
	switch {
	case err != nil:
	case len(list) > len(diff.Turned) || diff.Omitted > 0:
		err = silent(2)
	case len(list) > 0:
		err = silent(1)
	}
	return err
}

// String says a difference in words.
func (d difference) String() string {
	if d.Kind == "test" {
		return fmt.Sprintf("the answer to %s is another one", d.Test)
	}
	where := d.Bank + d.context()
	if d.Kind == "strategy" {
		return fmt.Sprintf("bank %s has %s instead of %s",
			where, strategy(d.After), strategy(d.Before))
	}
	who := "anybody"
	if d.Kind != "public" {
		who = strings.ReplaceAll(d.Kind, "_", " ") + " " + d.ID
	}
	switch svc.ChangeKind(d.Change) {
	case svc.NewlyAllowed:
		return fmt.Sprintf("%s gains %s on %s%s", who, d.Action, where, with(d.After))
	case svc.NewlyDenied:
		return fmt.Sprintf("%s loses %s on %s", who, d.Action, where)
	case svc.OtherParameters:
		return fmt.Sprintf("%s keeps %s on %s,%s instead of%s",
			who, d.Action, where, orNone(with(d.After)), orNone(with(d.Before)))
	}
	return fmt.Sprintf("%s has %s on %s as before, unlike the wider patterns", who, d.Action, where)
}

// context returns where a request comes from, in parentheses; "": nothing is said.
func (d difference) context() string {
	var parts []string
	for _, part := range [][2]string{
		{"provider", d.Provider}, {"channel", d.Channel}, {"topic", d.Topic},
	} {
		if part[1] != "" {
			parts = append(parts, part[0]+" "+part[1])
		}
	}
	if parts == nil {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func strategy(name any) string {
	if name == nil {
		return "no strategy"
	}
	return fmt.Sprintf("the strategy %s", name)
}

// with lists parameters; "": there are none.
func with(parameters any) string {
	set, _ := parameters.(map[string]json.RawMessage)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(set)) {
		parts = append(parts, name+" "+string(set[name]))
	}
	if parts == nil {
		return ""
	}
	return " with " + strings.Join(parts, ", ")
}

func orNone(with string) string {
	if with == "" {
		return " with no parameters"
	}
	return with
}
