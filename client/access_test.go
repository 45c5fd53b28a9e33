package client_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

const document = `{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:recall"],"banks":["a"],"recall_tag_groups":[{"x":1.50}]}]}`

// banks makes every bank.
type banks struct{}

func (banks) MakeBank(_ context.Context, _ svc.Principal, bank svc.NewBank) (svc.MadeBank, error) {
	return svc.MadeBank{Created: bank.Name == "New", ImportResult: bank.Manifest}, nil
}

func TestUsers(t *testing.T) {
	is, s, ctx := is.New(t), newSite(t), t.Context()
	c := s.client.Users
	carol, err := c.Create(ctx, svc.User{ID: "carol", Email: new(""), Inactive: true})
	is.NoErr(err)
	is.Equal(carol, svc.User{ID: "carol", DisplayName: "carol", Email: new(""), Inactive: true})
	is.Equal(must(c.Read(ctx, "carol")), carol)
	_, err = c.Create(ctx, svc.User{ID: "carol"})
	is.Equal(refused(err), refusal{Code: svc.CodeExists, Message: "a user with this id already exists"})
	patched, err := c.Patch(ctx, "carol", svc.UserPatch{DisplayName: new("Carol"), Email: &svc.TextPatch{}, Inactive: new(false)}, carol.ETag(), `"x"`)
	is.NoErr(err)
	is.Equal(patched, svc.User{ID: "carol", DisplayName: "Carol"})
	_, err = c.Patch(ctx, "carol", svc.UserPatch{Inactive: new(true)}, carol.ETag())
	is.Equal(svc.ErrorCode(err), svc.CodePrecondition)
	_, err = c.Patch(ctx, "carol", svc.UserPatch{})
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid)

	channel := svc.Channel{Provider: "slack", SenderID: `T1/U\7?#%`}
	is.NoErr(c.AddChannel(ctx, "carol", channel))
	is.Equal(must(s.Users.Read(ctx, svc.Host, "carol")).Channels, []svc.Channel{channel})
	is.NoErr(c.AddChannel(ctx, "carol", svc.Channel{Provider: "a", SenderID: "b:c"}))
	is.Equal(must(all(c.Channels(ctx, "carol", svc.RowQuery{After: "a:b:c"}))), []svc.Channel{channel})
	is.Equal(svc.ErrorCode(c.AddChannel(ctx, "bob", channel)), svc.CodeExists)
	is.NoErr(c.RemoveChannel(ctx, "carol", channel))
	is.Equal(refused(c.RemoveChannel(ctx, "carol", svc.Channel{Provider: "slack", SenderID: ".."})).Code, svc.CodeInvalid)

	is.Equal(len(must(all(c.List(ctx, svc.UserQuery{})))), 3)
	is.Equal(must(all(c.List(ctx, svc.UserQuery{Text: "CAR"}))), []svc.User{patched})
	second := must(all(c.List(ctx, svc.UserQuery{RowQuery: svc.RowQuery{After: "alice", Limit: 1}})))
	is.Equal([]any{len(second), second[0].ID}, []any{1, "bob"})
	_, err = all(c.List(ctx, svc.UserQuery{RowQuery: svc.RowQuery{Skip: 1}}))
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid)

	is.Equal(svc.ErrorCode(c.Delete(ctx, "carol", carol.ETag())), svc.CodePrecondition)
	is.NoErr(c.Delete(ctx, "carol", patched.ETag()))
	is.Equal(svc.ErrorCode(c.Delete(ctx, "carol")), svc.CodeNotFound)
	me, err := s.client.As("session-of-alice").Users.Me(ctx)
	is.NoErr(err)
	is.Equal(me, svc.User{ID: "alice", DisplayName: "alice", Channels: []svc.Channel{{Provider: "telegram", SenderID: "1001"}}})
}

func TestGroups(t *testing.T) {
	is, s, ctx := is.New(t), newSite(t), t.Context()
	c := s.client.Groups
	ops, err := c.Create(ctx, svc.Group{ID: "ops", DisplayName: "Operations"})
	is.NoErr(err)
	is.Equal(must(c.Read(ctx, "ops")), svc.Group{ID: "ops", DisplayName: "Operations"})
	is.NoErr(c.AddMember(ctx, "ops", "bob"))
	is.NoErr(c.AddMember(ctx, "ops", "bob"))
	is.Equal(refused(c.AddMember(ctx, "ops", "nobody")).Field, "/user_id")
	is.Equal(must(all(c.Members(ctx, "ops", svc.RowQuery{}))), []string{"bob"})
	is.Equal(must(all(c.List(ctx, svc.GroupQuery{Member: "bob"}))), []svc.Group{ops})
	is.NoErr(c.RemoveMember(ctx, "ops", "bob"))
	is.Equal(svc.ErrorCode(c.RemoveMember(ctx, "ops", "bob")), svc.CodeNotFound)
	renamed, err := c.Patch(ctx, "ops", svc.GroupPatch{DisplayName: new("Ops")}, ops.ETag())
	is.NoErr(err)
	is.Equal(renamed.DisplayName, "Ops")
	is.NoErr(c.Delete(ctx, "ops", renamed.ETag()))
	is.Equal(len(must(all(c.List(ctx, svc.GroupQuery{})))), 1)
}

func TestPolicyRows(t *testing.T) {
	is, s, ctx := is.New(t), newSite(t), t.Context()
	c := s.client.Policies
	made, err := c.Create(ctx, svc.Policy{ID: "p", Document: json.RawMessage(document)})
	is.NoErr(err)
	is.Equal(made, svc.Policy{ID: "p", DisplayName: "p", Document: json.RawMessage(document)})
	is.Equal(must(c.Read(ctx, "p")), must(s.Policies.Read(ctx, svc.Host, "p")))
	is.True(must(c.Read(ctx, svc.PolicyBankAdmin)).Builtin())
	_, err = c.Create(ctx, svc.Policy{ID: "q", Document: json.RawMessage(`{"version":"2026-03-24","statements":[{}]}`)})
	is.Equal(refused(err).Field, "/document/statements/0/effect")
	patched, err := c.Patch(ctx, "p", svc.PolicyPatch{DisplayName: new("P")}, made.ETag())
	is.NoErr(err)
	is.Equal(string(patched.Document), document)
	patched, err = c.Patch(ctx, "p", svc.PolicyPatch{Document: json.RawMessage(`{"version": "2026-03-24", "statements": []}`)})
	is.NoErr(err)
	is.Equal(patched.DisplayName, "P")
	_, err = c.Patch(ctx, svc.PolicyIAMAdmin, svc.PolicyPatch{DisplayName: new("P")})
	is.Equal(svc.ErrorCode(err), svc.CodeBuiltin)

	to := svc.Attachment{PolicyID: "p", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "bob"}, Priority: -1 << 31}
	is.NoErr(c.Attach(ctx, to))
	is.Equal(must(all(c.Attachments(ctx, svc.AttachmentQuery{PolicyID: "p"}))), []svc.Attachment{to})
	is.Equal(len(must(all(c.Attachments(ctx, svc.AttachmentQuery{})))), 3)
	is.Equal(must(all(c.Attachments(ctx, svc.AttachmentQuery{RowQuery: svc.RowQuery{After: "more/user/alice"}}))), []svc.Attachment{to})
	is.Equal(len(must(all(c.Attachments(ctx, svc.AttachmentQuery{Principal: to.Principal})))), 1)
	to.Priority = 1 << 31
	is.Equal(refused(c.Attach(ctx, to)).Field, "/priority")
	is.Equal(svc.ErrorCode(c.Delete(ctx, "p")), svc.CodeInUse)
	key := svc.AttachmentKey{PolicyID: "p", Principal: to.Principal}
	is.NoErr(c.Detach(ctx, key))
	is.Equal(svc.ErrorCode(c.Detach(ctx, key)), svc.CodeNotFound)
	is.NoErr(c.Delete(ctx, "p", patched.ETag()))
	is.Equal(must(all(c.List(ctx, svc.RowQuery{Limit: 3}))), must(all(s.Policies.List(ctx, svc.Host, svc.RowQuery{Limit: 3}))))
}

func TestServiceAccounts(t *testing.T) {
	is, s, ctx := is.New(t), newSite(t), t.Context()
	c, mine := s.client.ServiceAccounts, s.client.As("session-of-owner").MyServiceAccounts
	made, err := c.Create(ctx, svc.ServiceAccount{ID: "ci", OwnerUserID: "alice", ScopingPolicyID: "recalls"})
	is.NoErr(err)
	is.Equal(made, svc.ServiceAccount{ID: "ci", DisplayName: "ci", OwnerUserID: "alice", ScopingPolicyID: "recalls"})
	own, err := mine.Create(ctx, svc.ServiceAccount{ID: "own", DisplayName: "Own"})
	is.NoErr(err)
	is.Equal(own, svc.ServiceAccount{ID: "own", DisplayName: "Own", OwnerUserID: "alice"})
	_, err = mine.Create(ctx, svc.ServiceAccount{ID: "x", OwnerUserID: "bob"})
	is.Equal(refused(err).Field, "/owner_user_id")
	_, err = c.Create(ctx, svc.ServiceAccount{ID: "x"})
	is.Equal(refused(err).Field, "/owner_user_id")
	is.Equal(must(c.Read(ctx, "own")), own)
	is.Equal(must(mine.Read(ctx, "ci")), made)
	is.Equal(len(must(all(c.List(ctx, svc.ServiceAccountQuery{Owner: "alice"})))), 3)
	is.Equal(must(all(mine.List(ctx, svc.ServiceAccountQuery{RowQuery: svc.RowQuery{After: "ci", Limit: 1}}))), []svc.ServiceAccount{own})
	wide, err := c.Patch(ctx, "ci", svc.ServiceAccountPatch{ScopingPolicyID: &svc.TextPatch{}, Inactive: new(true)}, made.ETag())
	is.NoErr(err)
	is.Equal(wide, svc.ServiceAccount{ID: "ci", DisplayName: "ci", OwnerUserID: "alice", Inactive: true})
	renamed, err := mine.Patch(ctx, "own", svc.ServiceAccountPatch{DisplayName: new("Mine")})
	is.NoErr(err)
	is.Equal(renamed.DisplayName, "Mine")
	_, err = mine.Patch(ctx, "own", svc.ServiceAccountPatch{Inactive: new(true)})
	is.Equal(refused(err).Field, "/is_active")
	is.NoErr(mine.Delete(ctx, "own", renamed.ETag()))
	is.NoErr(c.Delete(ctx, "ci"))
	is.Equal(svc.ErrorCode(mine.Delete(ctx, "ci")), svc.CodeNotFound)
}

func TestBanks(t *testing.T) {
	is, s, ctx := is.New(t), newSite(t, func(u *setup) { u.service.Banks = banks{} }), t.Context()
	c, rule := s.client.Banks, json.RawMessage(`{"version":"2026-03-24"}`)
	for _, bank := range []string{"a", "a/b", `a\b`, "a%2Fb", "?#", "../x"} {
		set, err := c.SetPolicy(ctx, svc.BankPolicy{BankID: bank, Document: rule})
		is.NoErr(err)
		is.Equal(set, svc.BankPolicy{BankID: bank, Document: rule})
		is.Equal(must(c.Policy(ctx, bank)), set)
		is.Equal(svc.ErrorCode(c.RemovePolicy(ctx, bank, `"x"`)), svc.CodePrecondition)
		is.NoErr(c.RemovePolicy(ctx, bank, set.ETag()))
		is.Equal(svc.ErrorCode(c.RemovePolicy(ctx, bank)), svc.CodeNotFound)
	}
	s.create("t")
	bundle := must(svc.ParseBundle([]byte(`{"users": [{"id": "admin"}], "policies": [{"id": "makes", "document": {"version": "2026-03-24", "statements": [
	  {"effect": "allow", "actions": ["bank:create"], "banks": ["*"]}]}}], "attachments": [{"policy_id": "makes", "principal_type": "user", "principal_id": "admin"}]}`)))
	is.NoErr(s.Access.Apply(ctx, svc.Host, bundle))
	made, err := c.Create(ctx, svc.NewBank{ID: "a/b", Name: "New", Template: "server/t"})
	is.NoErr(err)
	is.Equal(made, svc.MadeBank{Created: true, ImportResult: json.RawMessage(`{"version":"1"}`)})
	made, err = c.Create(ctx, svc.NewBank{ID: "a/b", Template: "server/t"})
	is.NoErr(err)
	is.True(!made.Created)
	_, err = c.Create(ctx, svc.NewBank{ID: "a/b", Template: "t"})
	is.Equal(refused(err).Field, "/template")
}
