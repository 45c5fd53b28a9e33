package client_test

import (
	"encoding/json"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
)

var queries = []svc.Question{
	{Bank: "support", UserID: "alice"},
	{Bank: "support", ServiceAccountID: "robot", Action: "bank:recall"},
	{Bank: "other&bank=x;+ ü", UserID: "alice", Action: "bank:retain"},
	{Bank: "support", UserID: "alice", Action: "bank:delete"},
	{Bank: "support", Sender: "telegram:1001", Channel: "#ops", Topic: "outage"},
	{Bank: "support", Sender: "telegram:0"},
	{Bank: "support", Sender: "telegram:0", Topic: "billing"},
	{Bank: "none", UserID: "nobody"},
	{Bank: "support", UserID: "alice", ScopingPolicyID: "recalls"},
}

func TestResolve(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	outcomes := map[svc.Outcome]bool{}
	for _, q := range queries {
		got, err := s.client.Policies.Resolve(ctx, q)
		is.NoErr(err)
		want := must(s.Policies.Resolve(ctx, svc.Host, q))
		is.Equal(got, spliced(want))
		outcomes[got.Outcome] = true
	}
	is.Equal(len(outcomes), 3)
}

// A client asks about itself. That it may not name anybody else then is for the server to say.
func TestResolveMe(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	mine := must(client.New(client.Config{BaseURL: s.server.URL + "/ext/svc", Token: "session-of-alice/"}))
	for _, q := range []svc.Question{{Bank: "support"}, {Bank: "other", Action: "bank:retain", Channel: "#ops", Topic: "t"}, {Bank: "support", Action: "bank:delete"}} {
		q.Me = true
		got, err := mine.Policies.Resolve(ctx, q)
		is.NoErr(err)
		is.Equal(got, spliced(must(s.Policies.Resolve(ctx, svc.Principal{Kind: svc.KindUser, ID: "alice"}, q))))
		q.UserID = "alice"
		_, err = mine.Policies.Resolve(ctx, q)
		is.Equal(refused(err).Field, "user_id")
	}
}

func TestDecide(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	questions := append(queries[:len(queries)-1:len(queries)-1], svc.Question{Me: true, Bank: "*", Action: "iam:users:read"}) // without the narrowed one
	got, err := s.client.Policies.Decide(ctx, questions...)
	is.NoErr(err)
	is.Equal(got, must(s.Policies.Decide(ctx, admin, questions...)))
	is.True(got[0].Allowed() && !got[3].Allowed() && got[len(got)-1].Allowed())
	got, err = s.client.Policies.Decide(ctx)
	is.NoErr(err)
	is.Equal(got, []svc.Answer{})
}

// Pointers lead into the questions. A question that the server would take for another is refused.
func TestDecideRefuses(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	for _, c := range []struct {
		question svc.Question
		field    string
	}{
		{svc.Question{UserID: "alice"}, "/1/bank"},
		{svc.Question{Bank: "\xff", UserID: "alice"}, "/1/bank"},
		{svc.Question{Bank: "b", Sender: "x"}, "/1/sender"},
		{svc.Question{Bank: "b"}, "/1/user_id"},
		{svc.Question{Bank: "b", Me: true, Sender: "a:1"}, "/1/user_id"},
		{svc.Question{Bank: "b", UserID: "alice", ServiceAccountID: "robot"}, "/1"},
		{svc.Question{Bank: "b", UserID: "alice", ScopingPolicyID: "recalls"}, "/1/scoping_policy_id"},
	} {
		_, err := s.client.Policies.Decide(ctx, svc.Question{Me: true, Bank: "b"}, c.question)
		is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
		is.Equal(refused(err).Field, c.field)
	}
	_, err := s.client.Policies.Decide(ctx, make([]svc.Question, svc.MaxQuestions+1)...)
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
	_, err = s.client.As("session-of-bob/").Policies.Decide(ctx, queries[0])
	is.Equal(refused(err).Code, svc.CodeForbidden)
	short := dial(t, says(200, "application/json", `{"decisions": []}`))
	_, err = short.Policies.Decide(ctx, queries[0])
	is.Equal(refused(err).Code, svc.CodeInternal)
}

// spliced is a resolution whose policy is compact, as it is written.
func spliced(r svc.Resolution) svc.Resolution {
	if r.BankPolicy != nil {
		var v json.RawMessage
		if err := json.Unmarshal(r.BankPolicy, &v); err != nil {
			panic(err)
		}
		r.BankPolicy = v
	}
	return r
}

func TestSimulate(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	overlay := must(svc.ParseBundle([]byte(`{
	  "users": [{"id": "carol", "channels": [{"provider": "slack", "sender_id": "<7>"}]}, {"id": "bob", "is_active": false}, {"id": "alice"}],
	  "groups": [{"id": "staff", "members": []}],
	  "bank_policies": [{"bank_id": "none", "document": {"version": "2026-03-24", "default_strategy": "<brief>"}}]}`)))
	for _, bundle := range []svc.Bundle{{}, overlay} {
		for _, q := range append(queries, svc.Question{Bank: "none", Sender: "slack:<7>"}, svc.Question{Bank: "none", UserID: "bob"}) {
			got, err := s.client.Policies.Simulate(ctx, bundle, q)
			is.NoErr(err)
			is.Equal(got, spliced(must(s.Policies.Simulate(ctx, svc.Host, bundle, q))))
		}
	}
	is.Equal(must(s.client.Policies.Simulate(ctx, overlay, queries[4])).Parameters.RecallMaxTokens, nil)
}

// What is wrong is pointed to in the bundle and in the query, as the Service does, not in the body that was sent.
func TestSimulateRefuses(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	for _, c := range []struct {
		bundle svc.Bundle
		query  svc.Question
		fields []string
	}{
		{svc.Bundle{}, svc.Question{Bank: "a"}, []string{"user_id"}},
		{svc.Bundle{}, svc.Question{Bank: "\n", UserID: "alice", Action: ".."}, []string{"bank", "action"}},
		{svc.Bundle{Users: []svc.User{{ID: ""}, {ID: "a/b"}}}, svc.Question{Sender: "x"}, []string{"bank", "sender", "/users/0/id", "/users/1/id"}},
		{svc.Bundle{Policies: []svc.Policy{{ID: "p"}}}, queries[0], []string{"/policies/0/document"}},
		{svc.Bundle{Policies: []svc.Policy{{ID: "p", Document: json.RawMessage(`{"a":`)}}}, queries[0], []string{"/policies/0/document"}},
		{svc.Bundle{Users: []svc.User{{ID: "a\xff"}}}, queries[0], []string{"/users/0/id"}},
		{svc.Bundle{}, svc.Question{Bank: "a\xff", UserID: "alice"}, []string{"bank"}},
		{svc.Bundle{Groups: []svc.Group{{ID: "g", Members: []string{"nobody"}}}}, queries[0], []string{"/groups/0/members/0"}},
	} {
		_, err := s.client.Policies.Simulate(ctx, c.bundle, c.query)
		var fields []string
		for _, wrong := range refusals(err) {
			is.Equal(wrong.Code, svc.CodeInvalid)
			fields = append(fields, wrong.Field)
		}
		is.Equal(fields, c.fields)
	}
}

func TestWhoCan(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	for _, c := range [][2]string{{"", "support"}, {"bank:delete", "support"}, {"bank:retain", "other bank"}, {"iam:users:read", "*"}} {
		got, err := s.client.Policies.WhoCan(ctx, c[0], c[1])
		is.NoErr(err)
		is.Equal(must(json.Marshal(got)), must(json.Marshal(must(s.Policies.WhoCan(ctx, svc.Host, c[0], c[1])))))
	}
	got := must(s.client.Policies.WhoCan(ctx, "", "support"))
	is.Equal(got.Users, []string{"alice"})
	is.Equal(len(got.Public.Overrides), 1)
}

// What a client may do itself is what the Service says of it.
func TestWhatCanI(t *testing.T) {
	is := is.New(t)
	s := newSite(t)
	for _, id := range []string{"alice", "bob", "nobody"} {
		got, err := s.client.As(svc.Secret("session-of-" + id + "/")).Policies.WhatCanI(t.Context())
		is.NoErr(err)
		is.Equal(got, must(s.Policies.WhatCan(t.Context(), svc.Principal{Kind: svc.KindUser, ID: id}, svc.Me)))
		is.Equal(len(got) > 0, id == "alice")
	}
}
