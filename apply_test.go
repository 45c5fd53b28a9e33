package svc_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

const doc = `{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:recall"],"banks":["*"]}]}`

const small = `{
	"users": [{"id":"alice","display_name":"Alice","email":"a@example.com","channels":[{"provider":"telegram","sender_id":"1"},{"provider":"slack","sender_id":"a:b"}]},
		{"id":"bob"}],
	"groups": [{"id":"team","members":["bob","alice"]}],
	"service_accounts": [{"id":"ci","owner_user_id":"alice","scoping_policy_id":"p"}],
	"policies": [{"id":"p","document":` + doc + `}],
	"attachments": [{"policy_id":"p","principal_type":"group","principal_id":"team","priority":-5}],
	"bank_policies": [{"bank_id":"b","document":{"version":"2026-03-24","default_strategy":"deep"}}]}`

func TestApplyTwiceChangesNothing(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	h.apply(t, small)
	is.Equal(h.actions(), []string{
		"access.written user/alice by ", "access.written user/bob by ", "access.written group/team by ",
		"access.written service_account/ci by ", "access.written policy/p by ",
		"access.written attachment/p/group/team by ", "access.written bank_policy/b by ",
	})
	before, err := h.Policies.Resolve(t.Context(), svc.Host, svc.Question{Bank: "b", UserID: "alice"})
	is.NoErr(err)
	h.apply(t, small)
	h.apply(t, `{}`)
	is.Equal(h.actions(), nil)
	after, err := h.Policies.Resolve(t.Context(), svc.Host, svc.Question{Bank: "b", UserID: "alice"})
	is.NoErr(err)
	is.Equal(after, before) // revision included
}

func TestLoadReportsProgress(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	bundle, err := svc.ParseBundle([]byte(small))
	is.NoErr(err)
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

func TestApplyWritesWhatIsNamed(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	h.apply(t, small)
	h.actions()
	h.apply(t, `{"users":[{"id":"alice"}],"groups":[{"id":"team","display_name":"Team"}]}`)
	is.Equal(h.actions(), []string{"access.written user/alice by ", "access.written group/team by "})
	rows := allAccess(t, h.store)
	alice := rows.Users[0]
	is.Equal(alice.DisplayName, "alice")
	is.Equal(alice.Email, nil)
	is.Equal(len(alice.Channels), 2) // absent: they stay
	bySender := func() string {
		r, err := h.Policies.Resolve(t.Context(), svc.Host, svc.Question{Bank: "b", Sender: "slack:a:b"})
		is.NoErr(err)
		return r.TenantID + " " + string(r.Outcome)
	}
	is.Equal(bySender(), "alice allow")
	h.apply(t, `{"users":[{"id":"alice","channels":[]},{"id":"bob","channels":[{"provider":"slack","sender_id":"a:b"}]}]}`)
	is.Equal(bySender(), "bob allow")
	h.apply(t, `{"groups":[{"id":"team","members":[]}]}`)
	is.Equal(bySender(), "bob implicit_deny")
}

func TestApplyRefuses(t *testing.T) {
	for _, c := range []struct{ at, bundle string }{
		{"/users/0/id", `{"users":[{"id":""}]}`},
		{"/users/0/id", `{"users":[{}]}`},
		{"/users/1", `{"users":[{"id":"a"},{"id":"a"}]}`},
		{"/users/0/email", `{"users":[{"id":"a","email":"\u0000"}]}`},
		{"/users/0/display_name", `{"users":[{"id":"a","display_name":"\u0000"}]}`},
		{"/users/0/channels/0/provider", `{"users":[{"id":"a","channels":[{"provider":"","sender_id":"1"}]}]}`},
		{"/users/0/channels/0/provider", `{"users":[{"id":"a","channels":[{"provider":"a:b","sender_id":"1"}]}]}`},
		{"/users/0/channels/0/sender_id", `{"users":[{"id":"a","channels":[{"provider":"a"}]}]}`},
		{"/groups/0/members/0", `{"groups":[{"id":"g","members":["nobody"]}]}`},
		{"/groups/0/members/0", `{"groups":[{"id":"g","members":[""]}]}`},
		{"/service_accounts/0/owner_user_id", `{"service_accounts":[{"id":"s"}]}`},
		{"/service_accounts/0/owner_user_id", `{"service_accounts":[{"id":"s","owner_user_id":"nobody"}]}`},
		{"/service_accounts/0/scoping_policy_id", `{"users":[{"id":"a"}],"service_accounts":[{"id":"s","owner_user_id":"a","scoping_policy_id":"none"}]}`},
		{"/service_accounts/0/scoping_policy_id", `{"users":[{"id":"a"}],"service_accounts":[{"id":"s","owner_user_id":"a","scoping_policy_id":"a/b"}]}`},
		{"/policies/0/document", `{"policies":[{"id":"p"}]}`},
		{"/policies/0/document/version", `{"policies":[{"id":"p","document":{"version":"1","statements":[]}}]}`},
		{"/policies/0/document/statements/0/effect", `{"policies":[{"id":"p","document":{"version":"2026-03-24","statements":[{"effect":"maybe","actions":["a"],"banks":["*"]}]}}]}`},
		{"/attachments/0/principal_type", `{"policies":[{"id":"p","document":` + doc + `}],"groups":[{"id":"g"}],"attachments":[{"policy_id":"p","principal_type":"team","principal_id":"g"}]}`},
		{"/attachments/0/policy_id", `{"groups":[{"id":"g"}],"attachments":[{"policy_id":"p","principal_type":"group","principal_id":"g"}]}`},
		{"/attachments/0/principal_id", `{"policies":[{"id":"p","document":` + doc + `}],"attachments":[{"policy_id":"p","principal_type":"group","principal_id":"g"}]}`},
		{"/attachments/0/principal_id", `{"policies":[{"id":"p","document":` + doc + `}],"attachments":[{"policy_id":"p","principal_type":"user","principal_id":"u"}]}`},
		{"/bank_policies/0/bank_id", `{"bank_policies":[{"bank_id":"a\u202eb","document":{"version":"2026-03-24"}}]}`},
		{"/bank_policies/0/document/default_strategy", `{"bank_policies":[{"bank_id":"b","document":{"version":"2026-03-24","default_strategy":7}}]}`},
		{"/users/0/Id", `{"users":[{"Id":"a"}]}`},
		{"/users/0/is_active", `{"users":[{"id":"a","is_active":1}]}`},
		{"/groups/0/members/1", `{"users":[{"id":"zoe"}],"groups":[{"id":"g","members":["zoe","nobody"]}]}`},
		{"/groups/0/members/0", `{"users":[{"id":"abe"}],"groups":[{"id":"g","members":["nobody","abe"]}]}`},
		{"/members", `{"members":[]}`},
		{"/users", `{"users":[],"users":[]}`},
		{"", `null`},
		{"", `[]`},
		{"", `{"users":[]} {}`},
	} {
		h := newHost(t)
		h.apply(t, `{"users":[{"id":"kept"}]}`)
		h.actions()
		b, err := svc.ParseBundle([]byte(c.bundle))
		if err == nil {
			err = h.Access.Apply(t.Context(), svc.Host, b)
		}
		wantCode(t, err, svc.CodeInvalid, c.at)
		if acts := h.actions(); len(acts) > 0 {
			t.Errorf("%s: something happened: %v", c.bundle, acts)
		}
	}
}

func TestApplyTellsEverythingThatIsWrong(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	b, err := svc.ParseBundle([]byte(`{"users":[{"id":"a"},{"id":"/"}],"groups":[{"id":""}]}`))
	is.NoErr(err)
	err = h.Access.Apply(t.Context(), svc.Host, b)
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
	is.True(strings.Contains(err.Error(), "/users/1/id") && strings.Contains(err.Error(), "/groups/0/id"))

	b, err = svc.ParseBundle([]byte(`{"groups":[{"id":"a","members":["x","y"]}]}`))
	is.NoErr(err)
	err = h.Access.Apply(t.Context(), svc.Host, b)
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
	is.True(strings.Contains(err.Error(), `"x"`) && strings.Contains(err.Error(), `"y"`))
}

func TestChannelsBelongToOneUser(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	h.apply(t, small)
	for _, bundle := range []string{
		`{"users":[{"id":"bob","channels":[{"provider":"telegram","sender_id":"1"}]}]}`,
		`{"users":[{"id":"alice"},{"id":"bob","channels":[{"provider":"telegram","sender_id":"1"}]}]}`,
		`{"users":[{"id":"bob","channels":[{"provider":"x","sender_id":"1"}]},{"id":"new","channels":[{"provider":"x","sender_id":"1"}]}]}`,
	} {
		b, err := svc.ParseBundle([]byte(bundle))
		is.NoErr(err)
		is.Equal(svc.ErrorCode(h.Access.Apply(t.Context(), svc.Host, b)), svc.CodeExists)
	}
	snapshot, err := h.store.Access(t.Context(), svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindUser, ID: "new"}})
	is.NoErr(err)
	is.True(snapshot.User == nil)
}

// TestApplyTakesGoValues: the zero value of a row is an active one, named by its id.
func TestApplyTakesGoValues(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, svc.Bundle{
		Users:       []svc.User{{ID: "alice"}},
		Policies:    []svc.Policy{{ID: "p", Document: []byte(" " + doc)}},
		Attachments: []svc.Attachment{{PolicyID: "p", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "alice"}}},
	}))
	r, err := h.Policies.Resolve(t.Context(), svc.Host, svc.Question{Bank: "b", UserID: "alice"})
	is.NoErr(err)
	is.Equal(r.Outcome, svc.Allow)
}
