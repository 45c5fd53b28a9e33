package adminpage_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

var (
	wrongInput = regexp.MustCompile(`<(?:input|textarea)[^>]* name="([^"]*)" aria-invalid="true" aria-describedby="([^"]*)"`)
	aboutInput = regexp.MustCompile(`<p id="([^"]*)">([^<]*)</p>`)
	titleTag   = regexp.MustCompile(`<title>([^<]*)</title>`)
	minute     = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d UTC`)
	timeTag    = regexp.MustCompile(`<time datetime="\d{4}-\d\d-\d\dT[\d:.]+Z">\d{4}-\d\d-\d\d \d\d:\d\d UTC</time>`)
)

func (a answer) title() string { return titleTag.FindStringSubmatch(a.body)[1] }

// An alert about a field names it as its label does, and the input refers to the alert.
func TestAlertsLeadToTheirFields(t *testing.T) {
	s := newShop(t)
	for _, c := range []struct {
		address string
		form    url.Values // nil: GET
		input   string     // "": none
		alert   string
	}{
		{"why?user_id=bob&bank=", nil, "bank", "Bank is required"},
		{"why?user_id=&bank=support", nil, "who", "Who is required."},
		{"why?sender=nocolon&bank=support", nil, "who", "Who must be"},
		{"why?user_id=bob&bank=support&scoping_policy_id=" + strings.Repeat("p", 200), nil, "scoping_policy_id", "Policy must be"},
		{"why", form("kind", "user", "who", "bob", "bank", "support", "bundle", `{"users":[{"id":""}]}`), "bundle", "/users/0/id"},
		{"who-can?bank=&action=bank:recall", nil, "bank", "Bank"},
		{"audit?since=yesterday", nil, "since", "Since must be"},
		{"audit?until=tomorrow", nil, "until", "Until must be"},
		{"audit?until=0001-01-01", nil, "until", "Until must be"},
		{"audit?cursor=x", nil, "", "cursor is not"},
		{"keys", form("do", "issue", "kind", "user", "for", "bob", "once", "x", "expires", "soon"), "expires", "Expires must be"},
		{"keys", form("do", "issue", "kind", "user", "for", "bob", "once", "x", "per_second", "many"), "per_second", "Requests a second must be"},
		{"keys", form("do", "issue", "kind", "user", "for", "bob", "once", "x", "policy", "gone"), "policy", "Policy"},
		{"keys", form("do", "issue", "kind", "user", "for", "", "once", "x"), "for", "Who must be"},
		{"keys", form("do", "issue", "kind", "service_account", "for", "gone", "once", "x"), "for", "There is no such"},
		{"keys", form("do", "find", "find", "gone"), "find", "There is no such key"},
		{"sources", form("do", "register", "url", "nowhere"), "url", "URL"},
		{"access/users/bob", form("do", "join", "of", "gone"), "of", "There is no such group"},
		{"access/groups/staff", form("do", "add", "who", "gone"), "who", "Who names a user"},
		{"access/policies/works", form("do", "attach", "kind", "group", "who", "gone"), "who", "Who names a group"},
		{"access/policies/works", form("do", "attach", "kind", "user", "who", "bob", "priority", "high"), "priority", "Priority must be"},
		{"access/policies/works", form("do", "document", "document", `{`), "document", "document must be"},
		{"access/policies/works", form("do", "document", "document", `{"version": "2026-03-24", "statements": [{"effect": "maybe"}]}`), "document", "/document/statements/0/effect"},
		{"access/banks/support", form("do", "document", "document", `{"x": 1}`), "document", "/document/x is"},
	} {
		got := s.ask(c.address, c.form)
		if got.StatusCode < 400 || !strings.HasPrefix(got.title(), "Error: ") || !strings.Contains(got.body, ">"+c.alert) {
			t.Errorf("%s %s: %d %q, want the alert %q: %s", c.address, c.form.Encode(), got.StatusCode, got.title(), c.alert, got.body)
		}
		wrong, alert := wrongInput.FindAllStringSubmatch(got.body, -1), aboutInput.FindAllStringSubmatch(got.body, -1)
		if c.input == "" {
			if wrong != nil || alert != nil {
				t.Errorf("%s: %q is blamed", c.address, wrong)
			}
			continue
		}
		if len(wrong) != 1 || len(alert) != 1 || wrong[0][1] != c.input || wrong[0][2] != alert[0][1] || !strings.HasPrefix(alert[0][2], c.alert) {
			t.Errorf("%s %s: the wrong inputs are %q, the alerts %q", c.address, c.form.Encode(), wrong, alert)
		}
	}
}

func (s *site) ask(address string, in url.Values) answer {
	s.t.Helper()
	if in == nil {
		return s.get(address)
	}
	return s.post(address, in)
}

// Every time is one for machines as well: the script adds the local time.
func TestTimes(t *testing.T) {
	s := newShop(t)
	key := must(s.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{}))
	s.edit("Remembers.")
	for _, address := range []string{"keys", "keys/" + key.ID, "audit", "templates/desk", "sources/acme", "why?user_id=bob&bank=support"} {
		a := s.get(address).is(t, 200)
		all, marked := len(minute.FindAllString(a.body, -1)), len(timeTag.FindAllString(a.body, -1))
		if all == 0 || all != marked {
			t.Errorf("%s: %d of %d times are marked: %s", address, marked, all, a.body)
		}
	}
}
