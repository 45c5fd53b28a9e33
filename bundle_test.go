package svc_test

import (
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

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
		written, err := b.JSON()
		is.NoErr(err)
		read, err := svc.ParseBundle(written)
		is.NoErr(err)
		is.Equal(read, b)
	}
}

func TestBundleOnPaper(t *testing.T) {
	is := is.New(t)
	written, err := svc.Bundle{Users: []svc.User{{ID: "a"}}, ServiceAccounts: []svc.ServiceAccount{{ID: "s", OwnerUserID: "a"}}}.JSON()
	is.NoErr(err)
	is.Equal(string(written), `{"users":[{"id":"a"}],"service_accounts":[{"id":"s","owner_user_id":"a"}]}`)
}

func TestBundleThatCannotBeWritten(t *testing.T) {
	for field, b := range map[string]svc.Bundle{
		"/users/1/id":                      {Users: []svc.User{{}, {ID: "\xff"}}},
		"/users/0/channels/0/sender_id":    {Users: []svc.User{{Channels: []svc.Channel{{SenderID: "\xff"}}}}},
		"/groups/0/members/1":              {Groups: []svc.Group{{Members: []string{"a", "\xff"}}}},
		"/attachments/0/principal_id":      {Attachments: []svc.Attachment{{Principal: svc.GrantedTo{ID: "\xff"}}}},
		"/service_accounts/0/display_name": {ServiceAccounts: []svc.ServiceAccount{{DisplayName: "\xff"}}},
		"/policies/0/document":             {Policies: []svc.Policy{{Document: []byte(`{"a":`)}}},
		"/bank_policies/0/document/a":      {BankPolicies: []svc.BankPolicy{{Document: []byte(`{"a":1,"a":2}`)}}},
	} {
		_, err := b.JSON()
		wantCode(t, err, svc.CodeInvalid, field)
	}
}
