package svc_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

const (
	allowsAll   = `{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:*"],"banks":["*"]}]}`
	deniesNotes = `{"version":"2026-03-24","statements":[{"effect":"deny","actions":["bank:*"],"banks":["notes"]}]}`
)

// An operator makes all rows, reads them back, changes them and removes them in the reverse order.
func TestRowsOneByOne(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	ctx, by := t.Context(), admin

	bob, err := h.Users.Create(ctx, by, svc.User{ID: "bob", Email: new("bob@example.org")})
	is.NoErr(err)
	is.Equal(bob.DisplayName, "bob")
	team, err := h.Groups.Create(ctx, by, svc.Group{ID: "team", DisplayName: "Team"})
	is.NoErr(err)
	is.NoErr(h.Groups.AddMembers(ctx, by, "team", "bob"))
	is.NoErr(h.Groups.AddMembers(ctx, by, "team", "bob"))
	policy, err := h.Policies.Create(ctx, by, svc.Policy{ID: "all", Document: json.RawMessage(allowsAll)})
	is.NoErr(err)
	is.NoErr(h.Policies.Attach(ctx, by, svc.Attachment{PolicyID: "all", Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: "team"}}))
	is.NoErr(h.Policies.Attach(ctx, by, svc.Attachment{PolicyID: svc.PolicyBankReadOnly, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "bob"}}))
	ci, err := h.ServiceAccounts.Create(ctx, by, svc.ServiceAccount{ID: "ci", OwnerUserID: "bob", ScopingPolicyID: svc.PolicyBankReadOnly})
	is.NoErr(err)
	is.NoErr(h.Users.AddChannel(ctx, by, "bob", svc.Channel{Provider: "chat", SenderID: "1"}))
	wantCode(t, h.Users.AddChannel(ctx, by, "bob", svc.Channel{Provider: "chat", SenderID: "1"}), svc.CodeExists, "/sender_id")
	notes, err := h.Banks.SetPolicy(ctx, by, svc.BankPolicy{BankID: "notes", Document: json.RawMessage(`{"version":"2026-03-24","default_strategy":"s"}`)})
	is.NoErr(err)
	is.Equal(h.actions(), []string{
		"access.written user/bob by admin", "access.written group/team by admin", "access.written group/team by admin",
		"access.written policy/all by admin", "access.written attachment/all/group/team by admin",
		"access.written policy/bank:readonly by admin", "access.written attachment/bank:readonly/user/bob by admin",
		"access.written service_account/ci by admin", "access.written user/bob by admin", "access.written bank_policy/notes by admin",
	})

	is.Equal(ids(collect(t, h.Users.List(ctx, by, svc.UserQuery{Text: "BO"})), func(u svc.User) string { return u.ID }), []string{"bob"})
	is.Equal(len(collect(t, h.Users.List(ctx, by, svc.UserQuery{Text: "x"}))), 0)
	is.Equal(len(collect(t, h.Groups.List(ctx, by, svc.GroupQuery{Member: "bob"}))), 1)
	is.Equal(collect(t, h.Groups.Members(ctx, by, "team", svc.RowQuery{})), []string{"bob"})
	is.Equal(len(collect(t, h.Policies.List(ctx, by, svc.RowQuery{}))), 9) // eight are built in
	is.Equal(len(collect(t, h.Policies.List(ctx, by, svc.RowQuery{Limit: 3}))), 3)
	is.Equal(len(collect(t, h.Policies.List(ctx, by, svc.RowQuery{Skip: 7}))), 2)
	is.Equal(len(collect(t, h.Policies.Attachments(ctx, by, svc.AttachmentQuery{PolicyID: "all"}))), 1)
	is.Equal(len(collect(t, h.ServiceAccounts.List(ctx, by, svc.ServiceAccountQuery{Owner: "bob"}))), 1)
	is.Equal(collect(t, h.Users.Channels(ctx, by, "bob", svc.RowQuery{})), []svc.Channel{{Provider: "chat", SenderID: "1"}})
	readOnly, err := h.Policies.Read(ctx, by, svc.PolicyBankReadOnly)
	is.NoErr(err)
	is.True(readOnly.Builtin())

	_, err = h.Users.Patch(ctx, by, "bob", svc.UserPatch{DisplayName: new("Bob")}, `"old"`)
	wantCode(t, err, svc.CodePrecondition, "")
	bob, err = h.Users.Patch(ctx, by, "bob", svc.UserPatch{DisplayName: new("Bob")}, bob.ETag())
	is.NoErr(err)
	is.Equal(bob.DisplayName, "Bob")
	_, err = h.Policies.Patch(ctx, by, svc.PolicyIAMAdmin, svc.PolicyPatch{DisplayName: new("x")})
	wantCode(t, err, svc.CodeBuiltin, "")
	wantCode(t, h.Policies.Delete(ctx, by, svc.PolicyIAMAdmin), svc.CodeBuiltin, "")
	wantCode(t, h.Policies.Delete(ctx, by, "all"), svc.CodeInUse, "")
	wantCode(t, h.Policies.Delete(ctx, by, "none"), svc.CodeNotFound, "")
	_, err = h.Policies.Create(ctx, by, svc.Policy{ID: svc.PolicyIAMAdmin, Document: json.RawMessage(allowsAll)})
	wantCode(t, err, svc.CodeExists, "/id")
	h.actions()

	key := issue(t, h, user("bob"))
	ciKey, err := h.Keys.Issue(ctx, by, svc.Identity{Kind: svc.KindServiceAccount, ID: "ci"}, svc.NewAPIKey{})
	is.NoErr(err)
	h.actions()
	wantCode(t, h.Users.Delete(ctx, by, "nobody"), svc.CodeNotFound, "")
	is.NoErr(h.Users.Delete(ctx, by, "bob", bob.ETag()))
	wantCode(t, h.Users.Delete(ctx, by, "bob"), svc.CodeNotFound, "")
	for _, secret := range []svc.Secret{key.Key, ciKey.Key} {
		_, err = h.Authenticate(ctx, string(secret))
		wantCode(t, err, svc.CodeUnauthenticated, "")
	}
	events := h.actions()
	slices.Sort(events)
	want := []string{
		"access.removed attachment/bank:readonly/user/bob by admin", "access.removed service_account/ci by admin",
		"access.removed user/bob by admin", "access.written group/team by admin",
		"api_key.revoked api_key/" + ciKey.ID + " by admin", "api_key.revoked api_key/" + key.ID + " by admin",
	}
	slices.Sort(want)
	is.Equal(events, want)
	is.NoErr(h.Groups.Delete(ctx, by, "team", team.ETag()))
	is.NoErr(h.Policies.Delete(ctx, by, "all", policy.ETag()))
	is.NoErr(h.Banks.RemovePolicy(ctx, by, "notes", notes.ETag()))
	wantCode(t, h.Banks.RemovePolicy(ctx, by, "notes"), svc.CodeNotFound, "")
	_, err = h.ServiceAccounts.Read(ctx, by, ci.ID)
	wantCode(t, err, svc.CodeNotFound, "")
	rest, err := h.Access.Export(ctx, svc.Host)
	is.NoErr(err)
	is.True(rest.Empty())
}

func ids[R any](rows []R, id func(R) string) (all []string) {
	for _, row := range rows {
		all = append(all, id(row))
	}
	return all
}
