package adminpage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

// asked is the question of the page Why, as its form shows it.
type asked struct {
	Kind                              string // user, service_account or sender; "": nothing is asked
	Who, Action, Bank, Channel, Topic string
}

// subjects are the parameters that name a subject, by kind. The first in a query counts.
var subjects = []struct{ Kind, Label, Parameter string }{
	{"user", "User", "user_id"},
	{"service_account", "Service account", "sa_id"},
	{"sender", "Sender", "sender"},
}

// askedIn reads a question. choice says that it came from the form, which names a kind and an id.
func askedIn(in url.Values) (q asked, choice bool) {
	q = asked{
		Action: in.Get("action"), Bank: in.Get("bank"),
		Channel: in.Get("channel"), Topic: in.Get("topic"),
	}
	if in.Has("kind") {
		q.Kind, q.Who = in.Get("kind"), strings.TrimSpace(in.Get("who"))
		return q, true
	}
	for _, s := range slices.Backward(subjects) {
		if in.Has(s.Parameter) {
			q.Kind, q.Who = s.Kind, in.Get(s.Parameter)
		}
	}
	return q, false
}

// Address returns the address of the answer, with the parameters of GET /debug/resolve.
func (q asked) Address() string {
	in := url.Values{}
	for name, value := range map[string]string{
		q.parameter(): q.Who, "action": q.Action, "bank": q.Bank,
		"channel": q.Channel, "topic": q.Topic,
	} {
		if value != "" || name == q.parameter() || name == "bank" {
			in.Set(name, value)
		}
	}
	return "why?" + in.Encode()
}

func (q asked) parameter() string {
	for _, s := range subjects {
		if s.Kind == q.Kind {
			return s.Parameter
		}
	}
	return "user_id"
}

// Kinds returns the choices of the form.
func (q asked) Kinds() any { return subjects }

func (q asked) question() svc.Question {
	out := svc.Question{Bank: q.Bank, Action: q.Action, Channel: q.Channel, Topic: q.Topic}
	switch q.parameter() {
	case "user_id":
		out.UserID = q.Who
	case "sa_id":
		out.ServiceAccountID = q.Who
	default:
		out.Sender = q.Who
	}
	return out
}

// explained is an answer as the page shows it.
type explained struct {
	svc.Resolution
	Word               string // Allowed or Denied
	Hint               string // what comes nearest to another answer; "": nothing
	Figure             figure
	Statements, Others []statement // those that speak of the request, and the rest
	Parameters         []parameter
}

func (e explained) Allowed() bool { return e.Outcome == svc.Allow }

// whyView is what the page Why shows.
type whyView struct {
	Asked   asked
	Answer  *explained // nil: nothing is asked, or the question is wrong
	Bundle  string     // of the change to try
	Tried   bool       // show the change
	Users   []string   // suggestions for Who
	Actions []string   // suggestions for Action
	Changed *explained // the answer with the change; nil: there is none
	Changes []changeRow
	More    int // the changes left out
}

// why answers a question, or shows the form alone.
func (v *visit) why() error {
	q, choice := askedIn(v.URL.Query())
	if choice {
		v.redirect(q.Address())
		return nil
	}
	return v.showWhy(http.StatusOK, whyView{Asked: q}, nil)
}

// showWhy answers the question of a page and shows the page. wrong is why a change could not be
// tried.
func (v *visit) showWhy(status int, body whyView, wrong error) error {
	page := view{Template: "why", Title: "Why"}
	if wrong != nil {
		status, page.Alerts = statusOf(wrong), v.problems(wrong)
	}
	if body.Asked.Kind == "" {
		if err := v.need(svc.ActionUsersRead); err != nil {
			return err
		}
	} else {
		r, err := v.h.service.Policies.Resolve(v.Context(), v.by, body.Asked.question())
		switch svc.ErrorCode(err) {
		case "":
			body.Answer = explain(r, body.Asked)
		case svc.CodeInvalid:
			if wrong == nil {
				status, page.Alerts = http.StatusBadRequest, v.problems(err)
			}
		default:
			return err
		}
	}
	body.Actions = v.h.options.Actions
	body.Users = v.suggestedUsers(body.Asked.Who)
	page.Body = body
	v.render(status, page)
	return nil
}

// explain prepares a resolution for the page.
func explain(r svc.Resolution, q asked) *explained {
	e := &explained{Resolution: r, Word: "Denied", Parameters: parametersOf(r)}
	if e.Allowed() {
		e.Word = "Allowed"
	}
	for _, entry := range r.Trace {
		s := statementOf(entry, e.Allowed())
		if s.State == stateOff {
			e.Others = append(e.Others, s)
		} else {
			e.Statements = append(e.Statements, s)
		}
	}
	e.Hint = hint(r)
	e.Figure = draw(q, e)
	return e
}

// hint says what comes nearest to an allow.
func hint(r svc.Resolution) string {
	switch r.Outcome {
	case svc.Allow:
		return ""
	case svc.ExplicitDeny:
		return "A statement forbids it, so no allow helps."
	}
	for _, entry := range r.Trace {
		if entry.Effect == svc.EffectAllow && entry.Code == svc.TraceBankNotMatched {
			return fmt.Sprintf("Nearest: statement %d of policy %q allows the action, but on other banks.",
				entry.Statement, entry.PolicyID)
		}
	}
	for _, entry := range r.Trace {
		if entry.Effect == svc.EffectAllow && entry.Code == svc.TraceActionNotMatched {
			return fmt.Sprintf("Nearest: statement %d of policy %q, which allows other actions.",
				entry.Statement, entry.PolicyID)
		}
	}
	return "No policy that could allow it reaches this principal."
}

// The states of a statement in a decision.
const (
	stateDecides = "decides" // the decision rests on it
	stateWould   = "would"   // it would allow the request, but a deny wins
	stateOff     = "off"     // it does not speak of the request
)

// statement is a row of the table of statements.
type statement struct {
	svc.TraceEntry
	State string
}

func statementOf(entry svc.TraceEntry, allowed bool) statement {
	s := statement{entry, stateOff}
	switch entry.Code {
	case svc.TraceDenyMatched, svc.TraceDocumentInvalid, svc.TracePublicAllowed,
		svc.TracePublicActionNotMatched, svc.TraceBankOverride, svc.TraceBankDefault:
		s.State = stateDecides
	case svc.TraceAllowOverridden:
		s.State = stateWould
	case svc.TraceAllowMatched:
		if s.State = stateDecides; !allowed { // the other side of a service account denies it
			s.State = stateWould
		}
	}
	return s
}

// Decides reports whether the decision rests on the statement.
func (s statement) Decides() bool { return s.State == stateDecides }

// Name returns the number of the statement, or what stands in its place.
func (s statement) Name() string {
	if s.Statement < 0 {
		return "default"
	}
	return fmt.Sprint("#", s.Statement)
}

// Patterns returns the patterns by which the statement matched; "": none.
func (s statement) Patterns() string {
	if s.ActionPattern == nil {
		return ""
	}
	if s.BankPattern == nil {
		return *s.ActionPattern
	}
	return *s.ActionPattern + " on " + *s.BankPattern
}

// parameter is a row of the table of parameters.
type parameter struct {
	Name, Value string
	By          []string // the statements that set the value in force
	GaveWay     []string // the others, each with its value and the statement that won
}

// parametersOf returns the parameters that a statement sets, in the order of their names.
func parametersOf(r svc.Resolution) (rows []parameter) {
	inForce, sets := fields(r.Parameters), make([]map[string]string, len(r.Trace))
	for i, entry := range r.Trace {
		if entry.Matched { // others set nothing
			sets[i] = fields(entry.Sets)
		}
	}
	for _, name := range parameterNames {
		p := parameter{Name: name, Value: inForce[name]}
		for i, entry := range r.Trace {
			value, set := sets[i][name]
			if !set {
				continue
			}
			at := fmt.Sprintf("%s #%d", entry.PolicyID, entry.Statement)
			if winner, lost := entry.Lost[name]; lost {
				p.GaveWay = append(p.GaveWay, fmt.Sprintf("%s of %s, to %s", value, at, winner))
			} else if p.Value != "" {
				p.By = append(p.By, at)
			}
		}
		if p.Value != "" || p.GaveWay != nil {
			rows = append(rows, p)
		}
	}
	return rows
}

var parameterNames = []string{
	"recall_budget", "recall_max_tokens", "recall_tag_groups", "retain_roles", "retain_tags",
	"retain_every_n_turns", "retain_strategy", "llm_model", "llm_provider", "exclude_providers",
}

// fields returns the parameters that are set, as JSON.
func fields(p svc.Parameters) map[string]string {
	text, _ := json.Marshal(p) // texts and numbers always encode
	var all map[string]json.RawMessage
	_ = json.Unmarshal(text, &all)
	set := map[string]string{}
	for name, value := range all {
		if string(value) != "null" {
			set[name] = string(value)
		}
	}
	return set
}

// changeRow is a row of the table of who gains or loses.
type changeRow struct {
	Who                []string
	Action, Bank, What string
}

// maxShown is how many principals a row names.
const maxShown = 20

// maxChanges is the most rows of a difference that the page shows.
const maxChanges = 100

// tryChange answers the question as it is, and as it would be with a bundle.
func (v *visit) tryChange() error {
	if err := v.ParseForm(); err != nil {
		return tooLarge(err)
	}
	q, _ := askedIn(v.PostForm)
	body := whyView{Asked: q, Bundle: v.PostForm.Get("bundle"), Tried: true}
	bundle, err := svc.ParseBundle([]byte(body.Bundle))
	if err == nil && q.Kind != "" {
		var r svc.Resolution
		if r, err = v.h.service.Policies.Simulate(v.Context(), v.by, bundle, q.question()); err == nil {
			body.Changed = explain(r, q)
		}
	}
	if err == nil {
		var diff svc.AccessDiff
		diff, err = v.h.service.Access.Preview(v.Context(), v.by, bundle, svc.BundleWrite{})
		body.Changes = changeRows(diff)
		body.More = max(0, len(body.Changes)-maxChanges)
		body.Changes = body.Changes[:len(body.Changes)-body.More]
	}
	return v.showWhy(http.StatusOK, body, err)
}

// changeRows returns the rows of a difference.
func changeRows(diff svc.AccessDiff) (rows []changeRow) {
	add := func(who []string, differences []svc.Difference) {
		for _, d := range differences {
			if d.Change != svc.Unchanged {
				rows = append(rows, changeRow{who, d.Action, d.Bank, words[d.Change]})
			}
		}
	}
	for _, p := range diff.Principals {
		add(names(p.Principals), p.Differences)
	}
	for _, p := range diff.Public {
		at := cmp.Or(p.Context.Topic, p.Context.Channel, p.Context.Provider, "anywhere")
		add([]string{"the public, " + at}, p.Differences)
	}
	for _, s := range diff.Strategies {
		rows = append(rows, changeRow{[]string{"everybody"}, "strategy", s.Bank,
			text(s.Before) + " → " + text(s.After)})
	}
	return rows
}

var words = map[svc.ChangeKind]string{
	svc.NewlyAllowed: "gains", svc.NewlyDenied: "loses", svc.OtherParameters: "other parameters",
}

// names returns the ids of principals, the first maxShown of them.
func names(all []svc.Identity) (ids []string) {
	for i, who := range all {
		if i == maxShown {
			return append(ids, fmt.Sprintf("and %d more", len(all)-i))
		}
		id := who.ID
		if who.Kind == svc.KindServiceAccount {
			id += " (service account)"
		}
		ids = append(ids, id)
	}
	return ids
}

func text(value *string) string {
	if value == nil {
		return "none"
	}
	return *value
}
