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
	"github.com/extsvc/svc/httpapi"
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
	Statements, Others []statement // those that speak of the request, and the rest: maxListed of each
	Speak, Silent      int         // how many there are
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
		status, page.Alerts = httpapi.Status(wrong), v.problems(wrong)
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
	e.Speak, e.Silent = len(e.Statements), len(e.Others)
	e.Statements, _ = head(e.Statements, maxListed)
	e.Others, _ = head(e.Others, maxListed)
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
	// By are the statements that set the value in force. GaveWay are the others, each with its value
	// and the statement that won. Both have the first maxShown.
	By, GaveWay []string
	More        int // the statements left out of both
}

// parametersOf returns the parameters that a statement sets, in the order of their names.
func parametersOf(r svc.Resolution) (rows []parameter) {
	inForce, sets := fields(r.Parameters), make([]map[string]string, len(r.Trace))
	for i, entry := range r.Trace {
		if entry.Matched { // others set nothing
			sets[i] = fields(entry.Sets)
		}
	}
	for name := range r.Parameters.All() {
		p := parameter{Name: name, Value: inForce[name]}
		for i, entry := range r.Trace {
			value, set := sets[i][name]
			if !set {
				continue
			}
			at := fmt.Sprintf("%s #%d", entry.PolicyID, entry.Statement)
			winner, lost := entry.Lost[name]
			switch {
			case lost && len(p.GaveWay) < maxShown:
				lost := fmt.Sprintf("%s of %s, to %s", shorten(value, maxField), at, winner)
				p.GaveWay = append(p.GaveWay, lost)
			case !lost && p.Value != "" && len(p.By) < maxShown:
				p.By = append(p.By, at)
			case lost || p.Value != "":
				p.More++
			}
		}
		if p.Value != "" || p.GaveWay != nil {
			rows = append(rows, p)
		}
	}
	return rows
}

// fields returns the parameters that are set, as JSON.
func fields(p svc.Parameters) map[string]string {
	set := map[string]string{}
	for name, value := range p.All() {
		if value != nil {
			text, _ := json.Marshal(value) // texts and numbers always encode
			set[name] = string(text)
		}
	}
	return set
}

// changeRow is a row of the table of who gains or loses.
type changeRow struct {
	Who                []string
	Action, Bank, What string
}

// maxShown is the most principals or statements that a row names, and maxNamed the most bytes of
// their names.
const (
	maxShown = 20
	maxNamed = 500
)

// tryChange answers the question as it is, and as it would be with a bundle.
func (v *visit) tryChange() error {
	if err := v.need(svc.ActionUsersRead); err != nil { // before the bundle is parsed
		return err
	}
	q, _ := askedIn(v.form)
	body := whyView{Asked: q, Bundle: v.form.Get("bundle"), Tried: true}
	bundle, err := svc.ParseBundleWithin([]byte(body.Bundle), httpapi.MaxBundleRows)
	if err == nil && q.Kind != "" {
		var r svc.Resolution
		if r, err = v.h.service.Policies.Simulate(v.Context(), v.by, bundle, q.question()); err == nil {
			body.Changed = explain(r, q)
		}
	}
	if err == nil {
		var diff svc.AccessDiff
		diff, err = v.h.service.Access.Preview(v.Context(), v.by, bundle, svc.BundleWrite{})
		body.addChanges(diff)
	}
	return v.showWhy(http.StatusOK, body, err)
}

// addChanges adds the rows of a difference, the first maxListed of them.
func (b *whyView) addChanges(diff svc.AccessDiff) {
	b.More += diff.Omitted
	add := func(who []string, action, bank, what string) {
		if len(b.Changes) == maxListed {
			b.More++
			return
		}
		action, bank = shorten(action, maxField), shorten(bank, maxField)
		b.Changes = append(b.Changes, changeRow{who, action, bank, what})
	}
	addAll := func(who []string, differences []svc.Difference) {
		for _, d := range differences {
			if d.Change != svc.Unchanged {
				add(who, d.Action, d.Bank, words[d.Change])
			}
		}
	}
	for _, p := range diff.Principals {
		addAll(names(p.Principals), p.Differences)
	}
	for _, p := range diff.Public {
		at := cmp.Or(p.Context.Topic, p.Context.Channel, p.Context.Provider, "anywhere")
		addAll([]string{"the public, " + shorten(at, maxField)}, p.Differences)
	}
	for _, s := range diff.Strategies {
		what := orNone(s.Before) + " → " + orNone(s.After)
		add([]string{"everybody"}, "strategy", s.Bank, shorten(what, maxField))
	}
}

var words = map[svc.ChangeKind]string{
	svc.NewlyAllowed: "gains", svc.NewlyDenied: "loses", svc.OtherParameters: "other parameters",
}

// names returns the ids of principals, the first of them.
func names(all []svc.Identity) (ids []string) {
	size := 0
	for i, who := range all {
		if size += len(who.ID); i > 0 && (i == maxShown || size > maxNamed) {
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

func orNone(value *string) string {
	if value == nil {
		return "none"
	}
	return *value
}
