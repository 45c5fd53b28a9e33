package adminpage_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/testscript"
)

// clinic has a principal for each kind of answer.
func clinic() svc.Bundle {
	to := func(policy, user string) svc.Attachment {
		return svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: "user", ID: user}}
	}
	return svc.Bundle{
		Users: []svc.User{
			{ID: "vera", Channels: []svc.Channel{{Provider: "telegram", SenderID: "1"}}}, {ID: "away", Inactive: true}, {ID: "bob"}, {ID: "novice"},
		},
		ServiceAccounts: []svc.ServiceAccount{
			{ID: "bot", OwnerUserID: "vera"}, {ID: "limited", OwnerUserID: "vera", ScopingPolicyID: "recalls"},
			{ID: "shut", OwnerUserID: "vera", ScopingPolicyID: "empty"}, {ID: "resting", OwnerUserID: "vera", Inactive: true},
			{ID: "orphan", OwnerUserID: "away"}, {ID: "tied", OwnerUserID: "novice", ScopingPolicyID: "recalls"},
		},
		Policies: []svc.Policy{
			{ID: "works", Document: document(`{"effect":"allow","actions":["bank:recall","bank:retain"],"banks":["support"]},{"effect":"allow","actions":["bank:recall"],"banks":["drafts"]}`)},
			{ID: "recalls", Document: document(`{"effect":"allow","actions":["bank:recall"],"banks":["*"]}`)},
			{ID: "never", Document: document(`{"effect":"deny","actions":["bank:recall"],"banks":["support"]}`)},
			{ID: "empty", Document: document(``)},
		},
		Attachments: []svc.Attachment{to("works", "vera"), to("works", "away"), to("works", "bob"), to("never", "bob")},
		BankPolicies: []svc.BankPolicy{{BankID: "support", Document: json.RawMessage(`{"version":"2026-03-24","default_strategy":"balanced",
			"public_access":{"default":{"actions":["bank:recall"],"recall_budget":"low"},"overrides":[{"scope":"topic","value":"billing","actions":[]}]}}`)}},
	}
}

// All that the page says of a decision is what testdata/why.txt has: a line for each box of the picture, item of the
// lists and row of the tables, with its state in brackets. The states of the lines between the boxes come first.
func TestWhy(t *testing.T) {
	s := newSite(t, clinic()).signIn()
	for _, asked := range testscript.Sections(t, "testdata/why.txt") {
		expect.Equal(t, asked.Title, s.get("why?"+asked.Title).is(t, 200).explains(), asked.Lines)
	}
}

var (
	explanation = regexp.MustCompile(`(?s)<section class="verdict.*?<details class="card">`)
	stated      = regexp.MustCompile(`<(?:section|g|li|tr) class="((?:verdict|result|decides|would|off)[^"]*|)"`)
	lineState   = regexp.MustCompile(`<path class="([^"]*)"`)
)

func (a answer) explains() (lines []string) {
	text := lineState.ReplaceAllString(explanation.FindString(a.body), "[$1]$0")
	for part := range strings.SplitSeq(stated.ReplaceAllString(text, "\x00[$1]$0"), "\x00") {
		if line := words(part); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// The picture has its lines and boxes in their places.
func TestPicture(t *testing.T) {
	places := regexp.MustCompile(`(?:viewBox| d)="([^"]+)"|<rect x="(\d+)" y="(\d+)" width`)
	s := newSite(t, clinic()).signIn()
	for query, want := range map[string]string{
		"user_id=nobody": "0 0 1086 82;M150 56C559 56 559 56 968 56;0 35;968 35;",
		"sa_id=limited": "0 0 1086 186;M650 82C666 82 666 56 682 56;M938 56C953 56 953 108 968 108;M650 82C666 82 666 108 682 108;" +
			"M938 108C953 108 953 108 968 108;M452 82C468 82 468 82 484 82;M286 82C299 82 299 82 312 82;M650 160C666 160 666 160 682 160;" +
			"M938 160C953 160 953 108 968 108;M452 160C468 160 468 160 484 160;M140 108C226 108 226 160 312 160;" +
			"M140 108C153 108 153 82 166 82;0 87;166 61;968 87;312 61;484 61;682 35;682 87;312 139;484 139;682 139;",
	} {
		got := ""
		for _, m := range places.FindAllStringSubmatch(s.get("why?action=bank:recall&bank=support&"+query).body, -1) {
			got += strings.Trim(strings.Join(m[1:], " "), " ") + ";"
		}
		expect.Equal(t, query, got, want)
	}
}

// The pages take the actions of the host, and tell it of patterns that cover none of them.
func TestOwnActions(t *testing.T) {
	bundle := office()
	bundle.Policies = append(bundle.Policies, svc.Policy{ID: "typo", Document: document(`{"effect":"allow","actions":["order:raed"],"banks":["*"]}`)})
	s := newSite(t, bundle, func(o *adminpage.Options) { o.Actions = []string{"order:read"} })
	s.signIn()
	s.get("access/policies/typo").is(t, 200, "covers no known action")
	s.get("who-can").is(t, 200, `value="order:read"`, "", "bank:recall")
	s.get("why").is(t, 200, `value="order:read"`, "", "bank:recall")
	s.get("why?user_id=bob&bank=b").is(t, 200, `value="bank:recall"`) // which is answered
	s.get("who-can?bank=b&action=order:*").is(t, 400, "not a pattern")
	plain := newSite(t, bundle, func(o *adminpage.Options) { o.Actions = []string{} })
	plain.signIn()
	plain.get("access/policies/typo").is(t, 200, "", "covers no known action")
	plain.get("why").is(t, 200, `value="bank:recall"`)
}
