package svc_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// told returns what the store tells of the changes since a generation, in short form.
func (h *host) told(t *testing.T, since int64) (targets, renamed string) {
	t.Helper()
	changes, err := h.store.Changes(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	short := func(list []svc.Target) string {
		var texts []string
		for _, t := range list {
			texts = append(texts, strings.TrimSpace(sprintf("%s/%s %s", t.Kind, t.ID, t.Holder.ID)))
		}
		slices.Sort(texts)
		return strings.Join(texts, ", ")
	}
	return short(changes.Targets), short(changes.Renamed)
}

// The feed tells what decisions depend on apart from names, and single members and channels.
func TestFeedTellsWhatChanged(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	h.apply(t, small)
	targets, renamed := h.told(t, 0)
	is.Equal(targets, "attachment/p/group/team, bank_policy/b, channel/slack:a:b, channel/telegram:1, group/team, "+
		"member/team alice, member/team bob, policy/p, service_account/ci, user/alice, user/bob")
	is.Equal(renamed, "")
	for _, c := range []struct{ bundle, targets, renamed string }{
		{`{"users":[{"id":"alice","display_name":"A"}]}`, "", "user/alice"},
		{`{"users":[{"id":"alice","display_name":"A","email":"a@b"}]}`, "", "user/alice"},
		{`{"users":[{"id":"bob","display_name":"B","is_active":false}]}`, "user/bob", ""},
		{`{"users":[{"id":"alice","display_name":"A","email":"a@b","channels":[{"provider":"slack","sender_id":"a:b"}]}]}`, "channel/telegram:1", ""},
		{`{"users":[{"id":"alice","channels":[]},{"id":"bob","is_active":false,"channels":[{"provider":"slack","sender_id":"a:b"}]}]}`,
			"channel/slack:a:b, channel/slack:a:b", "user/alice, user/bob"},
		{`{"groups":[{"id":"team","display_name":"T","members":["bob"]}]}`, "member/team alice", "group/team"},
		{`{"policies":[{"id":"p","display_name":"P","document":` + doc + `}]}`, "", "policy/p"},
		{`{"policies":[{"id":"p","display_name":"P","document":` + strings.Replace(doc, "allow", "deny", 1) + `}]}`, "policy/p", ""},
		{`{"service_accounts":[{"id":"ci","display_name":"CI","owner_user_id":"alice","scoping_policy_id":"p"}]}`, "", "service_account/ci"},
		{`{"service_accounts":[{"id":"ci","display_name":"CI","owner_user_id":"alice"}]}`, "service_account/ci", ""},
		{`{"attachments":[{"policy_id":"p","principal_type":"group","principal_id":"team","priority":1}]}`, "attachment/p/group/team", ""},
	} {
		before := h.generation(t)
		h.apply(t, c.bundle)
		targets, renamed := h.told(t, before)
		if targets != c.targets || renamed != c.renamed {
			t.Errorf("%s\n told: %s; renamed: %s\n want: %s; renamed: %s", c.bundle, targets, renamed, c.targets, c.renamed)
		}
	}
}

// A large change is one target, so that the feed stays short.
func TestFeedOfLargeChanges(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	many := svc.Bundle{Groups: []svc.Group{{ID: "team", Members: []string{}}}}
	for i := range 999 {
		many.Users = append(many.Users, svc.User{ID: sprintf("u%d", i)})
	}
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, many))
	targets, _ := h.told(t, 0)
	is.Equal(strings.Count(targets, ",")+1, 1000)
	for i := range 101 {
		many.Groups[0].Members = append(many.Groups[0].Members, many.Users[i].ID)
	}
	before := h.generation(t)
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, svc.Bundle{Groups: many.Groups}))
	targets, _ = h.told(t, before)
	is.Equal(targets, "member/team")
	for i := range many.Users {
		many.Users[i].DisplayName = "other"
	}
	many.Groups[0].Members = many.Groups[0].Members[:99]
	before = h.generation(t)
	is.NoErr(h.Access.Apply(t.Context(), svc.Host, many))
	targets, renamed := h.told(t, before)
	is.Equal(targets, "access/")
	is.Equal(renamed, "")
}

func TestMembersOneByOne(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	h.apply(t, small)
	h.apply(t, `{"users":[{"id":"carol"},{"id":"dave"}]}`)
	h.actions()
	before := h.generation(t)
	is.NoErr(h.Groups.AddMembers(t.Context(), svc.Host, "team", "carol", "bob", "carol"))
	is.Equal(h.actions(), []string{"access.written group/team by "})
	targets, renamed := h.told(t, before)
	is.Equal(targets, "member/team carol")
	is.Equal(renamed, "")
	r, err := h.Policies.Resolve(t.Context(), svc.Host, svc.Question{Bank: "b", UserID: "carol"})
	is.NoErr(err)
	is.Equal(r.Outcome, svc.Allow) // at once
	is.NoErr(h.Groups.AddMembers(t.Context(), svc.Host, "team", "carol"))
	is.NoErr(h.Groups.AddMembers(t.Context(), svc.Host, "team"))
	is.NoErr(h.Groups.RemoveMembers(t.Context(), svc.Host, "team"))
	is.Equal(h.actions(), nil)
	is.NoErr(h.Groups.RemoveMembers(t.Context(), svc.Host, "team", "bob", "carol"))
	is.Equal(h.actions(), []string{"access.written group/team by "})
	is.Equal(allAccess(t, h.store).Groups[0].Members, []string{"alice"})

	for _, c := range []struct {
		do    func() error
		code  svc.Code
		field string
	}{
		{func() error { return h.Groups.AddMembers(t.Context(), svc.Host, "none", "bob") }, svc.CodeNotFound, ""},
		{func() error { return h.Groups.RemoveMembers(t.Context(), svc.Host, "none", "bob") }, svc.CodeNotFound, ""},
		{func() error { return h.Groups.AddMembers(t.Context(), svc.Host, "team", "bob", "nobody") }, svc.CodeInvalid, "/members/1"},
		{func() error { return h.Groups.AddMembers(t.Context(), svc.Host, "team", "a/b") }, svc.CodeInvalid, "/members/0"},
		{func() error { return h.Groups.AddMembers(t.Context(), svc.Host, "", "bob") }, svc.CodeInvalid, "group_id"},
		{func() error { return h.Groups.RemoveMembers(t.Context(), svc.Host, "team", "alice", "bob") }, svc.CodeNotFound, "/members/1"},
		{func() error { return h.Groups.AddMembers(t.Context(), alice, "team", "bob") }, svc.CodeForbidden, ""},
	} {
		wantCode(t, c.do(), c.code, c.field)
	}
	is.Equal(h.actions(), nil)
	is.Equal(allAccess(t, h.store).Groups[0].Members, []string{"alice"}) // nothing was written
}
