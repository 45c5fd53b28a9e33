package adminpage

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/httpapi"
)

// asked is the question of the page Why, as its form shows it.
type asked struct {
	// Kind is user, service_account or sender. "": nothing is asked.
	Kind                              string
	Who, Action, Bank, Channel, Topic string
	// Policy limits the user or service account, as a key's does. "": none.
	Policy string
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
		Channel: in.Get("channel"), Topic: in.Get("topic"), Policy: in.Get("scoping_policy_id"),
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
	in.Set(q.parameter(), q.Who)
	in.Set("bank", q.Bank)
	for _, more := range [][2]string{
		{"action", q.Action}, {"channel", q.Channel}, {"topic", q.Topic},
		{"scoping_policy_id", q.Policy},
	} {
		if more[1] != "" {
			in.Set(more[0], more[1])
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
	out := svc.Question{
		Bank: q.Bank, Action: q.Action, Channel: q.Channel, Topic: q.Topic,
		ScopingPolicyID: q.Policy,
	}
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

// whyView is what the page Why shows.
type whyView struct {
	Asked   asked
	Action  string     // in the form
	Begun   bool       // the question has no bank yet
	Answer  *explained // nil: nothing is asked, or the question is wrong
	Bundle  string     // of the change to try
	Tried   bool       // show the change
	Users   []string   // suggestions for Who
	Actions []string   // suggestions for Action
	Changed *explained // the answer with the change; nil: there is none
	Gains   preview    // of the change
	Kept    keptView
	MayKeep bool // the question of the answer
}

// why answers a question, or shows only the form.
func (v *visit) why() error {
	q, choice := askedIn(v.r.URL.Query())
	if choice {
		return v.redirect(q.Address())
	}
	return v.showWhy(whyView{Asked: q, Begun: !v.r.URL.Query().Has("bank")}, nil)
}

// showWhy answers the question of a page and shows the page. wrong is why a change could not be
// tried.
func (v *visit) showWhy(body whyView, wrong error) error {
	page := view{Template: "why", Title: "Why", Done: v.done()}
	if wrong != nil {
		page.Status, page.Alerts = httpapi.Status(wrong), v.problems(wrong)
	}
	body.Action = cmp.Or(body.Asked.Action, action.Recall) // about which it is answered
	if body.Begun = body.Begun || body.Asked.Kind == ""; body.Begun {
		body.Action = cmp.Or(body.Asked.Action, v.h.options.Actions[0])
		if err := v.need(action.UsersRead); err != nil {
			return err
		}
	} else {
		r, err := v.resolve(body.Asked)
		switch svc.ErrorCode(err) {
		case "":
			body.Answer = explain(r, body.Asked)
		case svc.CodeInvalid:
			if wrong == nil {
				page.Status, page.Alerts = http.StatusBadRequest, v.problems(err)
			}
		default:
			return err
		}
	}
	var err error
	if body.Begun {
		body.Kept, err = v.kept()
	} else if body.Answer != nil && body.Asked.Policy == "" {
		body.MayKeep, err = v.mayWrite(action.PoliciesWrite)
	}
	if err != nil {
		return err
	}
	body.Actions = v.h.options.Actions
	body.Users = v.suggestedUsers(body.Asked.Who)
	page.Body = body
	return v.render(page)
}

// resolve answers a question.
func (v *visit) resolve(q asked) (svc.Resolution, error) {
	if q.Who == "" { // the Service would name its own parameters
		return svc.Resolution{}, svc.Invalid("user_id", "is required")
	}
	return v.h.service.Policies.Resolve(v.r.Context(), v.by, q.question())
}

// tryChange answers the question as it is, and as it would be with a bundle.
func (v *visit) tryChange() error {
	if err := v.need(action.UsersRead); err != nil { // before the bundle is parsed
		return err
	}
	if do := v.form.Get("do"); do == "keep" || do == "forget" {
		return v.askKept()
	}
	q, _ := askedIn(v.form)
	body := whyView{Asked: q, Bundle: v.form.Get("bundle"), Tried: true}
	bundle, err := svc.ParseBundleWithin([]byte(body.Bundle), httpapi.MaxBundleRows)
	if err == nil && q.Kind != "" {
		var r svc.Resolution
		r, err = v.h.service.Policies.Simulate(v.r.Context(), v.by, bundle, q.question())
		if err == nil {
			body.Changed = explain(r, q)
		}
	}
	if err == nil {
		var diff svc.AccessDiff
		diff, err = v.h.service.Access.Preview(v.r.Context(), v.by, bundle, svc.BundleWrite{})
		body.Gains = previewOf(diff)
	}
	return v.showWhy(body, err)
}
