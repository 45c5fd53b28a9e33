package svc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

// With a user its own sources and templates go, each with its event.
func TestDeletedUserTakesItsOwnRows(t *testing.T) {
	is, h := is.New(t), newHost(t)
	h.apply(t, `{"users":[{"id":"bob"}]}`)
	bob := svc.Principal{Kind: svc.KindUser, ID: "bob", Actions: []string{"template:*"}}
	must(h.MySources.Register(t.Context(), bob, svc.NewSource{URL: acme}))
	h.market.put(acme, "x", content("X", "1"))
	must(h.MyTemplates.Install(t.Context(), bob, svc.Install{TemplateID: "x", SourceName: "acme", SourceScope: svc.ScopePersonal}))
	h.actions()
	is.NoErr(h.Users.Delete(t.Context(), svc.Host, "bob"))
	got := h.actions()
	slices.Sort(got)
	is.Equal(got, []string{"access.removed user/bob by ", "source.removed source/acme by ", "template.deleted template/x by "})
}

// Each method of access says which field of its arguments is wrong, and of which row nothing is known.
func TestWhatMethodsOfAccessRefuse(t *testing.T) {
	h := newHost(t, func(c *svc.Config) { c.Templates.Banks = bankMaker{} })
	h.apply(t, `{"users":[{"id":"bob","channels":[{"provider":"chat","sender_id":"1"}]}],"groups":[{"id":"team"}],
		"service_accounts":[{"id":"ci","owner_user_id":"bob"}],"policies":[{"id":"p","document":`+allowsAll+`}]}`)
	key := issue(t, h, user("bob"))
	must(h.Keys.Issue(t.Context(), svc.Host, user("bob").Identity(), svc.NewAPIKey{ScopingPolicyID: "p"}))
	bundle := svc.Bundle{}
	for i := range limits.ServiceAccounts {
		bundle.ServiceAccounts = append(bundle.ServiceAccounts, svc.ServiceAccount{ID: fmt.Sprint("of-bob-", i), OwnerUserID: "bob"})
	}
	ctx, by, own := t.Context(), svc.Host, user("bob", "iam:*", "template:*")
	is.New(t).NoErr(h.Access.Apply(ctx, by, bundle))
	channel := func(provider, sender string) svc.Channel { return svc.Channel{Provider: provider, SenderID: sender} }
	bank := func(by svc.Principal, id, name, template string) error {
		return errorOf(h.Banks.Create(ctx, by, svc.NewBank{ID: id, Name: name, Template: template}))
	}
	for _, c := range []struct {
		err   error
		code  svc.Code
		field string
	}{
		{errorOf(h.Users.Create(ctx, by, svc.User{ID: "eve", Channels: []svc.Channel{channel("chat", "1")}})), svc.CodeExists, "/channels/0"},
		{errorOf(h.Users.Create(ctx, by, svc.User{ID: string(key.Key)})), svc.CodeInvalid, "/id"},
		{errorOf(h.Users.Patch(ctx, by, "bob", svc.UserPatch{Email: &svc.TextPatch{Value: new("\x00")}})), svc.CodeInvalid, "/email"},
		{errorOf(h.Users.Me(ctx, by)), svc.CodeForbidden, ""},
		{h.Users.RemoveChannel(ctx, by, "a/b", channel("chat", "1")), svc.CodeInvalid, "user_id"},
		{h.Users.RemoveChannel(ctx, by, "bob", channel("", "1")), svc.CodeInvalid, "provider"},
		{h.Users.RemoveChannel(ctx, by, "bob", channel("chat", "")), svc.CodeInvalid, "sender_id"},
		{h.Users.RemoveChannel(ctx, by, "bob", channel("chat", "2")), svc.CodeNotFound, ""},
		{errorOf(h.Users.Read(ctx, by, "a/b")), svc.CodeInvalid, "user_id"},
		{errorOf(h.Banks.Policy(ctx, by, "a/b")), svc.CodeNotFound, ""},
		{errorOf(h.Groups.Patch(ctx, by, "a/b", svc.GroupPatch{DisplayName: new("x")})), svc.CodeInvalid, "group_id"},
		{errorOf(h.Groups.Patch(ctx, by, "team", svc.GroupPatch{DisplayName: new("")})), svc.CodeInvalid, "/display_name"},
		{errorOf(h.Groups.Patch(ctx, by, "team", svc.GroupPatch{})), svc.CodeInvalid, ""},
		{lastError(h.Groups.Members(ctx, by, "none", svc.RowQuery{})), svc.CodeNotFound, ""},
		{lastError(h.MyServiceAccounts.List(ctx, by, svc.ServiceAccountQuery{})), svc.CodeForbidden, ""},
		{errorOf(h.MyServiceAccounts.Read(ctx, user("eve", "iam:*"), "ci")), svc.CodeNotFound, ""},
		{errorOf(h.MyServiceAccounts.Create(ctx, own, svc.ServiceAccount{ID: "x", OwnerUserID: "bob"})), svc.CodeInvalid, "/owner_user_id"},
		{errorOf(h.MyServiceAccounts.Create(ctx, own, svc.ServiceAccount{ID: "x"})), svc.CodeLimit, ""},
		{errorOf(h.MyServiceAccounts.Patch(ctx, own, "ci", svc.ServiceAccountPatch{Inactive: new(true)})), svc.CodeInvalid, "/is_active"},
		{errorOf(h.MyServiceAccounts.Patch(ctx, own, "ci", svc.ServiceAccountPatch{ScopingPolicyID: &svc.TextPatch{}})), svc.CodeInvalid, "/scoping_policy_id"},
		{lastError(h.Policies.Attachments(ctx, by, svc.AttachmentQuery{Principal: svc.GrantedTo{Type: "user"}})), svc.CodeInvalid, "principal_id"},
		{h.Policies.Attach(ctx, by, svc.Attachment{PolicyID: "p", Principal: svc.GrantedTo{Type: "user", ID: "bob"}, Priority: 1 << 31}), svc.CodeInvalid, "/priority"},
		{errorOf(h.Policies.Simulate(ctx, by, svc.Bundle{}, svc.Question{Me: true, Bank: "b"})), svc.CodeInvalid, "user_id"},
		{h.Access.Apply(ctx, by, svc.Bundle{Policies: []svc.Policy{{ID: svc.PolicyIAMAdmin, Document: []byte(allowsAll)}}}), svc.CodeInvalid, "/policies/0"},
		{h.Access.Write(ctx, by, svc.Bundle{Users: []svc.User{{ID: "bob"}}}, svc.BundleWrite{Prune: true}), svc.CodeInUse, ""},
		{errorOf(h.Sources.Register(ctx, by, svc.NewSource{URL: acme, SigningKey: []byte("x")})), svc.CodeInvalid, "/signing_key"},
		{bank(by, "\x00", "", "server/x"), svc.CodeInvalid, "/bank_id"},
		{bank(by, "b", "\x00", "server/x"), svc.CodeInvalid, "/name"},
		{bank(by, "b", "", "server"), svc.CodeInvalid, "/template"},
		{bank(by, "b", "", "other/x"), svc.CodeInvalid, "/template"},
		{bank(by, "b", "", "server/a/b"), svc.CodeInvalid, "/template"},
		{bank(by, "b", "", "server/x"), svc.CodeNotFound, ""},
		{bank(user("bob"), "b", "", "server/x"), svc.CodeForbidden, ""},
		{bank(own, "b", "", "server/x"), svc.CodeForbidden, ""},
		{bank(svc.Principal{Kind: svc.KindServiceAccount, ID: "ci"}, "b", "", "personal/x"), svc.CodeForbidden, ""},
		{errorOf(newHost(t).Banks.Create(ctx, by, svc.NewBank{})), svc.CodeNotFound, ""},
	} {
		wantCode(t, c.err, c.code, c.field)
	}
}

type bankMaker struct{}

func (bankMaker) MakeBank(_ context.Context, _ svc.Principal, bank svc.NewBank) (svc.CreatedBank, error) {
	return svc.CreatedBank{Created: true, ImportResult: json.RawMessage(bank.Name + string(bank.Manifest))}, nil
}

// Callers have rows of their own: a user its name, its service accounts, and banks of its own templates.
func TestOwnRows(t *testing.T) {
	is, h := is.New(t), newHost(t, func(c *svc.Config) { c.Templates.Banks = bankMaker{} })
	ctx, bob := t.Context(), user("bob", "iam:*", "template:*", "bank:*")
	h.apply(t, `{"users":[{"id":"bob","email":"b@example.org","display_name":"Bob","channels":[{"provider":"chat","sender_id":"1"},{"provider":"chat","sender_id":"2"}]}],
		"groups":[{"id":"team","members":["bob"]}],"service_accounts":[{"id":"ci","owner_user_id":"bob"}],
		"policies":[{"id":"p","document":`+allowsAll+`}],"attachments":[{"policy_id":"p","principal_type":"user","principal_id":"bob"}]}`)
	is.NoErr(h.Users.RemoveChannel(ctx, svc.Host, "bob", svc.Channel{Provider: "chat", SenderID: "1"}))
	must(h.Users.Patch(ctx, svc.Host, "bob", svc.UserPatch{Email: &svc.TextPatch{}}))
	is.Equal(must(h.Users.Me(ctx, bob)), svc.User{ID: "bob", DisplayName: "Bob", Channels: []svc.Channel{{Provider: "chat", SenderID: "2"}}})
	is.Equal(must(h.Users.Me(ctx, user("eve"))), svc.User{ID: "eve", DisplayName: "eve", Channels: []svc.Channel{}})
	is.Equal(must(h.Groups.Read(ctx, svc.Host, "team")), svc.Group{ID: "team", DisplayName: "team"})
	is.Equal(must(h.MyServiceAccounts.Read(ctx, bob, "ci")).OwnerUserID, "bob")
	must(h.Templates.Create(ctx, svc.Host, svc.NewTemplate{ID: "x", Content: content("X", "1")}))
	must(h.MyTemplates.Create(ctx, bob, svc.NewTemplate{ID: "x", Content: content("X", "2")}))
	for _, by := range []svc.Principal{svc.Host, bob} {
		made := must(h.Banks.Create(ctx, by, svc.NewBank{ID: "a/b", Template: "server/x"}))
		is.Equal(string(made.ImportResult), `a/b{"version":"1"}`)
	}
	made := must(h.Banks.Create(ctx, bob, svc.NewBank{ID: "b", Name: "B", Template: "personal/x"}))
	is.Equal(string(made.ImportResult), `B{"version":"2"}`)
}

// Lists of access have all rows, whatever the chunks: those of documents are small.
func TestLongListsOfAccess(t *testing.T) {
	is, h, b := is.New(t), newHost(t), svc.Bundle{}
	for i := range 1500 {
		id := fmt.Sprint("x", i)
		b.Users = append(b.Users, svc.User{ID: id})
		b.Policies = append(b.Policies, svc.Policy{ID: id, Document: []byte(allowsAll)})
	}
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, b))
	is.Equal(len(collect(t, h.Users.List(t.Context(), svc.Host, svc.UserQuery{}))), 1500)
	is.Equal(len(collect(t, h.Users.List(t.Context(), svc.Host, svc.UserQuery{RowQuery: svc.RowQuery{Skip: 1100, Limit: 300}}))), 300)
	is.Equal(len(collect(t, h.Policies.List(t.Context(), svc.Host, svc.RowQuery{}))), 1508)
}
