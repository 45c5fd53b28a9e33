package svc_test

import (
	_ "embed"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

const doc = `{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:recall"],"banks":["*"]}]}`
const bankDoc = `{"version":"2026-03-24","default_strategy":"s"}`

//go:embed testdata/small.json
var small string

func TestLoadReportsProgress(t *testing.T) {
	is, h := is.New(t), newHost(t)
	bundle := must(svc.ParseBundle([]byte(small)))
	var reports [][2]int
	progress := func(done, total int) { reports = append(reports, [2]int{done, total}) }
	is.NoErr(h.Access.Load(t.Context(), svc.Host, bundle, progress))
	is.Equal(reports, [][2]int{{11, 11}}) // 7 rows, 2 channels, 2 memberships
	is.NoErr(h.Access.Load(t.Context(), svc.Host, bundle, progress))
	is.Equal(len(reports), 1) // no row differs
	bundle.Groups[0].Members = []string{"alice"}
	is.NoErr(h.Access.Load(t.Context(), svc.Host, bundle, progress))
	is.Equal(reports[1:], [][2]int{{1, 1}})
}

// TestApplyTakesGoValues: the zero value of a row is an active one, named by its id. The bundle stays as it is.
func TestApplyTakesGoValues(t *testing.T) {
	is, h := is.New(t), newHost(t)
	bundle := func() svc.Bundle {
		return svc.Bundle{
			Users:       []svc.User{{ID: "alice"}, {ID: "bob", Channels: []svc.Channel{{Provider: "b", SenderID: "1"}, {Provider: "a", SenderID: "1"}}}},
			Groups:      []svc.Group{{ID: "some"}, {ID: "all", Members: []string{"bob", "alice"}}},
			Policies:    []svc.Policy{{ID: "p", Document: []byte(" " + doc)}},
			Attachments: []svc.Attachment{{PolicyID: "p", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "alice"}}},
		}
	}
	applied := bundle()
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, applied))
	is.Equal(applied, bundle())
	is.Equal(must(h.Policies.Resolve(t.Context(), svc.Host, svc.Question{Bank: "b", UserID: "alice"})).Outcome, svc.Allow)
}

// A store may call a change again, with rows that have changed since: then those count.
func TestApplyThatIsCalledAgain(t *testing.T) {
	is, h := is.New(t), hostOf(t, small)
	is.NoErr(h.Users.AddChannel(t.Context(), svc.Host, "alice", svc.Channel{Provider: "slack", SenderID: "now"}))
	earlier := func(current svc.Bundle) svc.Bundle {
		current.Users, current.Groups = slices.Clone(current.Users), slices.Clone(current.Groups)
		for i := range current.Users {
			current.Users[i].Channels = []svc.Channel{{Provider: "slack", SenderID: "before"}}
		}
		for i := range current.Groups {
			current.Groups[i].Members = nil
		}
		return current
	}
	before := must(h.Access.Export(t.Context(), svc.Host))
	other := newHost(t, func(c *svc.Config) { c.Store = hook(h.store, hooks{again: earlier}) })
	other.apply(t, `{"users": [{"id": "alice", "display_name": "A"}], "groups": [{"id": "team", "display_name": "T"}]}`)
	after := must(h.Access.Export(t.Context(), svc.Host))
	after.Users[0].DisplayName, after.Groups[0].DisplayName = before.Users[0].DisplayName, before.Groups[0].DisplayName
	is.Equal(after, before)
}

func listed(n int) string {
	return `"` + strings.Join(times(n, "x#"), `","`) + `"`
}

func statement(effect string, actions, banks int) string {
	return `{"effect":"` + effect + `","actions":[` + listed(actions) + `],"banks":[` + listed(banks) + `]}`
}

// A stored document beyond a limit decides, may get a new name, and is compared.
func TestStoredDocumentsBeyondALimit(t *testing.T) {
	is, h := is.New(t), newHost(t)
	stored := held(nil)
	stored.Policies[0].Document = document(statement("allow", 2000, 2000))
	h.write(t, stored)
	is.True(must(h.Decide(t.Context(), user("u"), "x1999", "x1999", svc.Context{})).Allowed())
	must(h.Policies.Patch(t.Context(), svc.Host, "p", svc.PolicyPatch{DisplayName: new("P")}))
	_, err := h.Policies.Patch(t.Context(), svc.Host, "p", svc.PolicyPatch{Document: document(statement("allow", 2000, 1999))})
	wantCode(t, err, svc.CodeInvalid, "/document/statements/0/actions/1000")
	all := must(h.Access.Export(t.Context(), svc.Host))
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, all))
	is.Equal(must(svc.Diff(all, all)), svc.AccessDiff{})
	findings := svc.Lint(all, nil)
	is.Equal(findings[0].Code, svc.FindingDocument) // Apply into an empty store refuses it
}

// What is written of a bundle is read as that bundle: nil is not empty, and nothing is repaired.
func TestBundleIsReadAsItWasWritten(t *testing.T) {
	is := is.New(t)
	document := []byte(`{"version":"2026-03-24","statements":[{"effect":"allow","actions":["<&>"],"banks":["*"],"n":1.50}]}`)
	for _, b := range []svc.Bundle{
		{},
		{Users: []svc.User{}, Groups: []svc.Group{}, ServiceAccounts: []svc.ServiceAccount{}, Policies: []svc.Policy{},
			Attachments: []svc.Attachment{}, BankPolicies: []svc.BankPolicy{}},
		{
			Users: []svc.User{
				{ID: "a"},
				{ID: "<b>\u2028", DisplayName: "B", Email: new(""), Inactive: true, Channels: []svc.Channel{}},
				{ID: "c", Email: new("c@example.com"), Channels: []svc.Channel{{Provider: "p", SenderID: "1"}, {}}},
				{},
			},
			Groups:          []svc.Group{{ID: "g"}, {ID: "h", DisplayName: "H", Members: []string{}}, {Members: []string{"a", ""}}},
			ServiceAccounts: []svc.ServiceAccount{{ID: "s", OwnerUserID: "a"}, {DisplayName: "S", ScopingPolicyID: "p", Inactive: true}},
			Policies:        []svc.Policy{{ID: "p", DisplayName: "P", Document: document}, {ID: "none"}},
			Attachments: []svc.Attachment{
				{PolicyID: "p", Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: "g"}, Priority: -9007199254740993}, {},
			},
			BankPolicies: []svc.BankPolicy{{BankID: "b", Document: document}, {}},
		},
	} {
		is.Equal(must(svc.ParseBundle(must(b.JSON()))), b)
	}
}

func TestBundleThatCannotBeWritten(t *testing.T) {
	wantCode(t, errorOf(svc.ParseBundle([]byte(`{"users":[]} {}`))), svc.CodeInvalid, "")
	for field, b := range map[string]svc.Bundle{
		"/users/1/id":                      {Users: []svc.User{{}, {ID: "\xff"}}},
		"/users/0/channels/0/sender_id":    {Users: []svc.User{{Channels: []svc.Channel{{SenderID: "\xff"}}}}},
		"/groups/0/members/1":              {Groups: []svc.Group{{Members: []string{"a", "\xff"}}}},
		"/attachments/0/principal_id":      {Attachments: []svc.Attachment{{Principal: svc.GrantedTo{ID: "\xff"}}}},
		"/service_accounts/0/display_name": {ServiceAccounts: []svc.ServiceAccount{{DisplayName: "\xff"}}},
		"/policies/0/document":             {Policies: []svc.Policy{{Document: []byte(`{"a":`)}}},
		"/bank_policies/0/document/a":      {BankPolicies: []svc.BankPolicy{{Document: []byte(`{"a":1,"a":2}`)}}},
	} {
		wantCode(t, errorOf(b.JSON()), svc.CodeInvalid, field)
	}
}
