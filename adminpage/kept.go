package adminpage

import (
	"net/url"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
)

// keptView are the questions that are kept with an expected answer.
type keptView struct {
	Rows []keptQuestion
	Next string // the address of the next questions; "": there are none
	May  bool   // keep and remove
}

// keptQuestion is a row of the table "Kept questions".
type keptQuestion struct {
	ID, Who, Action, Bank, Address string
	Expected, Is                   string
	Turned                         bool
}

// askedBy returns the question of a test.
func askedBy(t svc.AccessTest) asked {
	q := asked{Action: t.Action, Bank: t.Bank, Channel: t.Channel, Topic: t.Topic}
	switch {
	case t.ServiceAccountID != "":
		q.Kind, q.Who = "service_account", t.ServiceAccountID
	case t.UserID != "":
		q.Kind, q.Who = "user", t.UserID
	default:
		q.Kind, q.Who = "sender", t.Sender
	}
	return q
}

// test returns a question as one to keep.
func (q asked) test(allowed bool) svc.AccessTest {
	of := q.question()
	return svc.AccessTest{
		UserID: of.UserID, ServiceAccountID: of.ServiceAccountID, Sender: of.Sender,
		Action: of.Action, Bank: of.Bank, Channel: of.Channel, Topic: of.Topic, Allowed: allowed,
	}
}

func answerWord(allowed bool) string {
	if allowed {
		return "Allowed"
	}
	return "Denied"
}

// kept reads the kept questions, and asks them. It has none for a caller who may not read policies.
func (v *visit) kept() (shown keptView, err error) {
	if may, err := v.may(action.PoliciesRead); err != nil || !may {
		return shown, err
	}
	if shown.May, err = v.mayWrite(action.PoliciesWrite); err != nil {
		return shown, err
	}
	all, err := v.h.service.Access.Tests(v.r.Context(), v.by)
	if err != nil {
		return shown, err
	}
	after := v.r.URL.Query().Get("kept")
	at, _ := slices.BinarySearchFunc(all, after+"\x00", func(t svc.AccessTest, id string) int {
		return strings.Compare(t.ID, id)
	})
	all, more := head(all[at:], maxShown)
	for _, t := range all {
		q := askedBy(t)
		r, err := v.resolve(q)
		if err != nil {
			return shown, err
		}
		is := r.Outcome == svc.Allow
		shown.Rows = append(shown.Rows, keptQuestion{
			ID: t.ID, Who: q.Who, Action: q.Action, Bank: q.Bank, Address: q.Address(),
			Expected: answerWord(t.Allowed), Is: answerWord(is), Turned: is != t.Allowed,
		})
	}
	if more > 0 {
		shown.Next = "why?kept=" + url.QueryEscape(all[maxShown-1].ID)
	}
	return shown, nil
}

// askKept keeps the question of the form with its present answer, or removes a kept one.
func (v *visit) askKept() (err error) {
	if err := v.changes(); err != nil {
		return err
	}
	if v.form.Get("do") == "forget" {
		if err := v.h.service.Access.RemoveTest(v.r.Context(), v.by, v.form.Get("id")); err != nil {
			return v.showWhy(whyView{}, err)
		}
		return v.redirect("why?done=forgotten")
	}
	q, _ := askedIn(v.form)
	r, err := v.resolve(q)
	if q.Policy != "" {
		err = svc.Invalid("scoping_policy_id", "must be absent: a key's policy cannot be kept")
	}
	if err == nil {
		one := svc.Bundle{Tests: []svc.AccessTest{q.test(r.Outcome == svc.Allow)}}
		err = v.h.service.Access.Write(v.r.Context(), v.by, one, svc.BundleWrite{})
	}
	if err != nil {
		return v.showWhy(whyView{Asked: q}, err)
	}
	return v.redirect(q.Address() + "&done=kept")
}
