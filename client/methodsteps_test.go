package client_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

const catalogue = `{"templates": [
  {"id": "notes", "name": "Notes <&>", "description": "", "category": "work", "integrations": ["mcp"], "tags": ["a", "a"],
   "manifest": {"version": "1", "steps": [1.50, 9007199254740993], "html": "<b>&\u2028", "none": null}},
  {"id": "mail", "name": "Mail", "manifest": {"version": "1"}},
  {"id": "bad", "name": "", "manifest": {"version": "1"}},
  {"name": "worse", "manifest": {"version": "1"}}]}`

const (
	mended   = `{"templates": [{"id": "notes", "name": "Notes <&>", "manifest": {"version": "1", "steps": [1.75], "none": null, "x": 3}}]}`
	document = `{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:recall"],"banks":["a"],"recall_tag_groups":[{"x":1.50}]}]}`
)

var (
	secret  = svc.Secret("the-token-of-the-source")
	everyIn = svc.NewTemplate{ID: "a", Content: svc.Content{
		Name: "Ä <&>", Description: new(""), Category: new("c&d=+ ;"), Integrations: []string{"x"}, Tags: []string{"ü", "ü"},
		Manifest: []byte(`{ "version":"1", "n":[1.50,1e400], "s":"<&>\u2028\u003c" }`),
	}}
	leastIn = svc.NewTemplate{ID: "b", Content: svc.Content{Name: "b", Manifest: []byte(`{"version":"1"}`)}}
	badIn   = svc.NewTemplate{ID: "..", Content: svc.Content{Tags: []string{"", strings.Repeat("x", 129)}, Manifest: []byte(`{"version":7}`)}}
	notes   = svc.Install{TemplateID: "notes", SourceName: "acme", IdempotencyKey: "once"}
	slack   = svc.Channel{Provider: "slack", SenderID: `T1/U\7?#%`}
	to      = svc.Attachment{PolicyID: "p", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "bob"}, Priority: -1 << 31}
	overlay = must(svc.ParseBundle([]byte(`{
	  "users": [{"id": "carol", "channels": [{"provider": "slack", "sender_id": "<7>"}]}, {"id": "bob", "is_active": false}, {"id": "alice"}],
	  "groups": [{"id": "staff", "members": []}],
	  "bank_policies": [{"bank_id": "none", "document": {"version": "2026-03-24", "default_strategy": "<brief>"}}]}`)))
	quick = must(svc.ParseBundle([]byte(`{"groups": [{"id": "staff", "members": ["bob"]}],
	  "bank_policies": [{"bank_id": "support", "document": {"version": "2026-03-24", "default_strategy": "quick",
	    "public_access": {"default": {"actions": ["bank:recall"], "recall_budget": "mid"}}}}]}`)))
	makers = must(svc.ParseBundle([]byte(`{"users": [{"id": "admin"}], "policies": [{"id": "makes", "document": {"version": "2026-03-24",
	  "statements": [{"effect": "allow", "actions": ["bank:create"], "banks": ["*"]}]}}],
	  "attachments": [{"policy_id": "makes", "principal_type": "user", "principal_id": "admin"}]}`)))
	unknown = svc.Bundle{Attachments: []svc.Attachment{{PolicyID: "none", Principal: svc.GrantedTo{Type: "user", ID: "bob"}}}}
	queries = []svc.Question{
		{Bank: "support", UserID: "alice"},
		{Bank: "support", ServiceAccountID: "robot", Action: "bank:recall"},
		{Bank: "other&bank=x;+ ü", UserID: "alice", Action: "bank:retain"},
		{Bank: "support", UserID: "alice", Action: "bank:delete"},
		{Bank: "support", Sender: "telegram:1001", Channel: "#ops", Topic: "outage"},
		{Bank: "support", Sender: "telegram:0"},
		{Bank: "support", Sender: "telegram:0", Topic: "billing"},
		{Bank: "none", UserID: "nobody"},
		{Bank: "none", Sender: "slack:<7>"}, {Bank: "none", UserID: "bob"}, {Bank: "a"}, {UserID: "alice"}, {Bank: "b", Sender: "x"},
		{Bank: "a\xff", UserID: "alice"},
	}
	mine = []svc.Question{{Me: true, Bank: "support"}, {Me: true, Bank: "other", Action: "bank:retain", Channel: "#ops", Topic: "t"}, {Me: true, Bank: "support", Action: "bank:delete"}}
)

// halfSteps are those of the server's templates and sources, and of the caller's own with the prefix "My".
func halfSteps(my string, scope svc.Scope) []step {
	install, alias, elsewhere := notes, notes, notes
	install.SourceScope, install.IdempotencyKey = scope, "once"+my
	alias.SourceScope, alias.IdempotencyKey, alias.AliasID = scope, "", new("mine")
	elsewhere.SourceName, elsewhere.IdempotencyKey = "nothing", ""
	steps := []step{
		{"", "Sources.List", nil}, {"", "Sources.Search", with(svc.CatalogFilter{})}, {"", "Templates.List", with(svc.TemplateQuery{})}, {"", "Templates.CheckUpdates", nil},
		{"", "Sources.Register", with(svc.NewSource{URL: "fs://acme/x", Alias: new("broken"), AuthToken: &secret, Description: new("")})},
		{"", "Sources.Register", with(svc.NewSource{URL: "fs://acme/alias", Alias: new("signed"), SigningKey: make([]byte, 32)})},
		{"", "Sources.Register", with(svc.NewSource{URL: "fs://acme", Alias: new("acme")})},
		{"", "Sources.Register", with(svc.NewSource{URL: "fs://acme", Alias: new("acme")})}, {"", "Sources.Register", with(svc.NewSource{})},
		{"", "Sources.List", nil}, {"session-of-bob", "Sources.List", nil}, {"", "Sources.Patch", with("signed", svc.SourcePatch{AuthToken: &svc.SecretPatch{Value: &secret}, Description: &svc.TextPatch{}})}, {"", "Sources.Patch", with("none", svc.SourcePatch{})},
		{"", "Sources.Remove", with("signed")}, {"", "Sources.Remove", with("signed")},
		{"", "Templates.Create", with(everyIn)}, {"", "Templates.Create", with(everyIn)}, {"", "Templates.Create", with(leastIn)}, {"", "Templates.Create", with(badIn)},
		{"", "Templates.Read", with("a")}, {"", "Templates.Read", with("none")}, {"", "Templates.Read", with("..")}, {"session-of-bob", "Templates.Read", with("a")},
		{"", "Templates.Install", with(install)}, {"", "Templates.Install", with(install)}, {"", "Templates.Install", with(alias)}, {"", "Templates.Install", with(elsewhere)},
		{"", "Templates.CheckUpdate", with("notes")}, {"", "Templates.CheckUpdate", with("a")}, {"", "Templates.Diff", with("notes")}, {"", "Templates.Diff", with("none")},
		{"", "offer", with(mended)},
		{"", "Templates.CheckUpdate", with("mine")}, {"", "Templates.Diff", with("mine")}, {"", "Templates.CheckUpdates", nil},
		{"", "Templates.Patch", with("notes", svc.TemplatePatch{Manifest: []byte(`{"version":"2","x":2}`), Category: &svc.TextPatch{Value: new("c")}})},
		{"", "Templates.Diff", with("notes")}, {"", "Templates.Update", with("notes", svc.UpdateRequest{})},
		{"", "Templates.Update", with("mine", svc.UpdateRequest{})}, {"", "Templates.Update", with("mine", svc.UpdateRequest{})}, {"", "Templates.Update", with("a", svc.UpdateRequest{})},
		{"", "Templates.Update", with("notes", svc.UpdateRequest{LocalEdits: svc.TakeTheirs}, `"x"`)}, {"", "Templates.Update", with("notes", svc.UpdateRequest{LocalEdits: svc.TakeTheirs}, `"x"`, current{})},
		{"", "Templates.History", with("notes")}, {"", "Templates.Rollback", with("notes", int64(1), `"x"`)}, {"", "Templates.Rollback", with("notes", int64(1), current{})},
		{"", "Templates.Rollback", with("notes", int64(9))}, {"", "Templates.History", with("none")}, {"", "Sources.Rebind", with("acme")},
		{"", "fail", with(errors.New("gone"))}, {"", "Sources.Browse", with("acme", svc.CatalogFilter{})}, {"", "Templates.CheckUpdates", nil}, {"", "fail", with(nil)},
		{"", "offer", with(`{"templates": []}`)}, {"", "Templates.CheckUpdate", with("mine")}, {"", "offer", with(catalogue)},
		{"", "Sources.Remove", with("acme")}, {"", "Sources.Register", with(svc.NewSource{URL: "fs://acme/.x", Alias: new("acme")})},
		{"", "Templates.CheckUpdate", with("notes")}, {"", "Sources.Rebind", with("acme")}, {"", "Sources.Rebind", with("acme")}, {"", "Sources.Rebind", with("none")},
		{"", "Templates.Delete", with("notes", `"x"`)}, {"", "Templates.Delete", with("notes", current{})}, {"", "Templates.Delete", with("notes")},
	}
	for _, filter := range []svc.CatalogFilter{{}, {Category: "work"}, {Tag: "a"}, {Tag: "none"}, {Text: "no TE"}, {Text: "none"}} {
		at := slices.IndexFunc(steps, func(s step) bool { return s.call == "Templates.CheckUpdate" })
		steps = slices.Insert(steps, at, step{"", "Sources.Browse", with("acme", filter)}, step{"", "Sources.Search", with(filter)})
	}
	for _, query := range []svc.TemplateQuery{
		{}, {Category: "c&d=+ ;"}, {Tag: "ü"}, {Category: "c&d=+ ;", Tag: "ü"}, {Tag: "none"}, {Limit: 1}, {Limit: 4}, {Limit: 2000}, {Tag: "ü", Limit: 2},
		{AfterName: "b", AfterID: "b"}, {AfterName: "Notes <&>", AfterID: "mine", Limit: 2},
	} {
		steps = append(steps, step{"", "Templates.List", with(query)})
	}
	for _, patch := range []svc.TemplatePatch{
		{}, {Name: new("new <name>")}, {Description: &svc.TextPatch{}}, {Description: &svc.TextPatch{Value: new("")}}, {Category: &svc.TextPatch{Value: new("other")}},
		{Category: &svc.TextPatch{}}, {Tags: &[]string{}}, {Integrations: new([]string)}, {Tags: &[]string{"x", "x"}, Integrations: &[]string{"<y>"}},
		{Manifest: []byte(`{"version": "2", "a": "<>"}`)}, {Name: new("")},
	} {
		steps = append(steps, step{"", "Templates.Patch", with("a", patch)}, step{"", "Templates.Patch", with("a", patch, `"x"`)})
	}
	for i := range steps {
		if noun, _, _ := strings.Cut(steps[i].call, "."); noun == "Templates" || noun == "Sources" {
			steps[i].call = my + steps[i].call
		}
	}
	return steps
}

// rowSteps are those of the rows of access.
func rowSteps() []step {
	rule := json.RawMessage(`{"version":"2026-03-24"}`)
	steps := []step{
		{"", "Users.Create", with(svc.User{ID: "carol", Email: new(""), Inactive: true})}, {"", "Users.Create", with(svc.User{ID: "carol"})}, {"", "Users.Read", with("carol")},
		{"", "Users.Patch", with("carol", svc.UserPatch{DisplayName: new("Carol"), Email: &svc.TextPatch{}, Inactive: new(false)}, current{}, `"x"`)},
		{"", "Users.Patch", with("carol", svc.UserPatch{Inactive: new(true)}, `"x"`)}, {"", "Users.Patch", with("carol", svc.UserPatch{})},
		{"", "Users.AddChannel", with("carol", slack)}, {"", "Users.AddChannel", with("carol", svc.Channel{Provider: "a", SenderID: "b:c"})}, {"", "Users.AddChannel", with("bob", slack)},
		{"", "Users.Channels", with("carol", svc.RowQuery{After: "a:b:c"})}, {"", "Users.RemoveChannel", with("carol", slack)}, {"", "Users.RemoveChannel", with("carol", slack)},
		{"", "Users.List", with(svc.UserQuery{})}, {"", "Users.List", with(svc.UserQuery{Text: "CAR"})}, {"", "Users.List", with(svc.UserQuery{RowQuery: svc.RowQuery{After: "alice", Limit: 1}})},
		{"", "Users.Delete", with("carol", `"x"`)}, {"", "Users.Delete", with("carol", current{})}, {"", "Users.Delete", with("carol")},
		{"session-of-alice", "Users.Me", nil}, {"", "Keys.Sweep", with(time.Time{})}, {"session-of-bob", "Keys.Sweep", with(time.Time{})},
		{"", "Keys.Sweep", with(time.Date(2990, 1, 1, 0, 0, 0, 0, time.UTC))},
		{"", "Groups.Create", with(svc.Group{ID: "ops", DisplayName: "Operations"})}, {"", "Groups.Read", with("ops")}, {"", "Groups.AddMember", with("ops", "bob")}, {"", "Groups.AddMember", with("ops", "bob")},
		{"", "Groups.Members", with("ops", svc.RowQuery{})}, {"", "Groups.List", with(svc.GroupQuery{Member: "bob"})}, {"", "Groups.RemoveMember", with("ops", "bob")}, {"", "Groups.RemoveMember", with("ops", "bob")},
		{"", "Groups.Patch", with("ops", svc.GroupPatch{DisplayName: new("Ops")}, current{})}, {"", "Groups.Delete", with("ops", `"x"`)}, {"", "Groups.Delete", with("ops", current{})}, {"", "Groups.List", with(svc.GroupQuery{})},
		{"", "Policies.Create", with(svc.Policy{ID: "p", Document: json.RawMessage(document)})}, {"", "Policies.Read", with("p")}, {"", "Policies.Read", with(svc.PolicyBankAdmin)},
		{"", "Policies.Create", with(svc.Policy{ID: "q", Document: json.RawMessage(`{"version":"2026-03-24","statements":[{}]}`)})},
		{"", "Policies.Patch", with("p", svc.PolicyPatch{DisplayName: new("P")}, current{})}, {"", "Policies.Patch", with("p", svc.PolicyPatch{Document: json.RawMessage(`{"version": "2026-03-24", "statements": []}`)})},
		{"", "Policies.Patch", with(svc.PolicyIAMAdmin, svc.PolicyPatch{DisplayName: new("P")})}, {"", "Policies.Attach", with(to)}, {"", "Policies.Attachments", with(svc.AttachmentQuery{PolicyID: "p"})},
		{"", "Policies.Attachments", with(svc.AttachmentQuery{})}, {"", "Policies.Attachments", with(svc.AttachmentQuery{RowQuery: svc.RowQuery{After: "more/user/alice"}})},
		{"", "Policies.Attachments", with(svc.AttachmentQuery{Principal: to.Principal})},
		{"", "Policies.Delete", with("p")}, {"", "Policies.Detach", with(svc.AttachmentKey{PolicyID: "p", Principal: to.Principal})}, {"", "Policies.Detach", with(svc.AttachmentKey{PolicyID: "p", Principal: to.Principal})},
		{"", "Policies.Delete", with("p", current{})}, {"", "Policies.List", with(svc.RowQuery{Limit: 3})},
		{"", "ServiceAccounts.Create", with(svc.ServiceAccount{ID: "ci", OwnerUserID: "alice", ScopingPolicyID: "recalls"})},
		{"session-of-owner", "MyServiceAccounts.Create", with(svc.ServiceAccount{ID: "own", DisplayName: "Own"})},
		{"", "ServiceAccounts.Read", with("own")}, {"session-of-owner", "MyServiceAccounts.Read", with("ci")}, {"", "ServiceAccounts.List", with(svc.ServiceAccountQuery{Owner: "alice"})},
		{"session-of-owner", "MyServiceAccounts.List", with(svc.ServiceAccountQuery{RowQuery: svc.RowQuery{After: "ci", Limit: 1}})},
		{"", "ServiceAccounts.Patch", with("ci", svc.ServiceAccountPatch{ScopingPolicyID: &svc.TextPatch{}, Inactive: new(true)}, current{})},
		{"session-of-owner", "MyServiceAccounts.Patch", with("own", svc.ServiceAccountPatch{DisplayName: new("Mine")})},
		{"session-of-owner", "MyServiceAccounts.Delete", with("own", current{})}, {"", "ServiceAccounts.Delete", with("ci")}, {"session-of-owner", "MyServiceAccounts.Delete", with("ci")},
		{"", "Templates.Create", with(leastIn)}, {"", "Access.Write", with(makers, svc.BundleWrite{})}, {"", "Banks.Create", with(svc.NewBank{ID: "a/b", Name: "New", Template: "server/b"})},
		{"", "Banks.Create", with(svc.NewBank{ID: "a/b", Template: "server/b"})}, {"", "Banks.Create", with(svc.NewBank{ID: "a/b", Template: "b"})},
	}
	for _, bank := range []string{"a", "a/b", `a\b`, "a%2Fb", "?#", "../x"} {
		steps = append(steps, step{"", "Banks.SetPolicy", with(svc.BankPolicy{BankID: bank, Document: rule})}, step{"", "Banks.Policy", with(bank)},
			step{"", "Banks.RemovePolicy", with(bank, `"x"`)}, step{"", "Banks.RemovePolicy", with(bank)}, step{"", "Banks.RemovePolicy", with(bank)})
	}
	for _, how := range []svc.BundleWrite{{}, {Prune: true}, {DryRun: true}} {
		steps = append(steps, step{"", "Access.Preview", with(quick, how)}, step{"", "Access.Preview", with(unknown, how)}, step{"", "Access.Write", with(unknown, how)},
			step{"session-of-bob", "Access.Write", with(unknown, how)}, step{"", "Access.Write", with(svc.Bundle{Users: []svc.User{{ID: "\xff"}}}, how)})
	}
	return append(steps, step{"", "Access.Export", nil}, step{"session-of-bob", "Access.Export", nil}, step{"", "Access.Preview", with(svc.Bundle{}, svc.BundleWrite{})},
		step{"", "Access.Write", with(quick, svc.BundleWrite{DryRun: true})}, step{"", "Access.Export", nil}, step{"", "Access.Write", with(quick, svc.BundleWrite{})}, step{"", "Access.Export", nil},
		step{"", "Access.Write", with(makers, svc.BundleWrite{Prune: true})}, step{"", "Access.Export", nil})
}

// keySteps are those of the keys of one holder, which the caller names in its own way.
func keySteps(by string, holder svc.Identity) (steps []step) {
	at := time.Date(2090, 1, 2, 3, 4, 5, 678901999, time.FixedZone("", 3600)) // kept to the microsecond
	add := func(call string, args ...any) {
		steps = append(steps, step{by, "Keys." + call, append(with(holder), args...)}, step{by, "Keys.List", with(holder, svc.KeyQuery{})})
	}
	add("RevokeAll")
	add("Issue", svc.NewAPIKey{Description: new(""), ExpiresAt: at, ScopingPolicyID: "more", Rate: svc.Rate{PerSecond: 0.3, Burst: 7}})
	add("Issue", svc.NewAPIKey{Description: new("d")})
	for _, patch := range []svc.APIKeyPatch{
		{}, {Description: &svc.TextPatch{}}, {Description: &svc.TextPatch{Value: new("")}}, {ExpiresAt: &at}, {Disabled: new(true)}, {ExpiresAt: new(time.Time)}, {Disabled: new(bool)},
	} {
		add("Patch", newest{}, patch)
	}
	for _, overlap := range []time.Duration{time.Hour, 0} {
		add("Rotate", newest{}, svc.Rotation{Overlap: overlap})
	}
	add("Revoke", newest{})
	add("Revoke", "none")
	add("RevokeAll")
	return steps
}

// questionSteps are those of decisions.
func questionSteps() (steps []step) {
	for _, q := range queries {
		steps = append(steps, step{"", "Policies.Resolve", with(q)}, step{"", "Policies.Simulate", with(svc.Bundle{}, q)}, step{"", "Policies.Simulate", with(overlay, q)},
			step{"session-of-bob", "Policies.Resolve", with(q)}, step{"", "Policies.Decide", with(q)}, step{"", "Policies.Decide", with(mine[0], q)})
	}
	for _, q := range mine {
		steps = append(steps, step{"session-of-alice", "Policies.Resolve", with(q)}, step{"session-of-alice", "Policies.Decide", with(q, mine[0])})
	}
	for _, bundle := range []svc.Bundle{
		{Users: []svc.User{{ID: ""}, {ID: "a/b"}}}, {Policies: []svc.Policy{{ID: "p"}}}, {Policies: []svc.Policy{{ID: "p", Document: json.RawMessage(`{"a":`)}}},
		{Users: []svc.User{{ID: "a\xff"}}}, {Groups: []svc.Group{{ID: "g", Members: []string{"nobody"}}}},
	} {
		steps = append(steps, step{"", "Policies.Simulate", with(bundle, queries[0])})
	}
	for _, c := range [][2]string{{"", "support"}, {"bank:delete", "support"}, {"bank:retain", "other bank"}, {"iam:users:read", "*"}, {"", ""}} {
		steps = append(steps, step{"", "Policies.WhoCan", with(c[0], c[1])})
	}
	for _, id := range []string{"alice", "bob", "nobody"} {
		steps = append(steps, step{"session-of-" + id, "Policies.WhatCanI", nil})
	}
	narrowed := svc.Question{Bank: "support", UserID: "alice", ScopingPolicyID: "recalls"}
	return append(steps, step{"", "Policies.Decide", nil}, step{"", "Policies.Resolve", with(narrowed)}, step{"", "Policies.Simulate", with(overlay, narrowed)},
		step{"", "Policies.Simulate", with(svc.Bundle{Users: []svc.User{{ID: ""}}}, svc.Question{Sender: "x"})})
}

// Each method of the client says what the Service says, values and errors, and leaves the same rows.
func TestMethodsAreThoseOfTheService(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{
		"the server's half": halfSteps("", svc.ScopeServer), "one's own half": halfSteps("My", svc.ScopePersonal), "rows": rowSteps(), "questions": questionSteps(),
		"keys": keySteps("", alice), "my own keys": keySteps("session-of-alice", svc.Me),
		"keys of a service account": keySteps("", svc.Identity{Kind: svc.KindServiceAccount, ID: "robot"}), "keys of one of mine": keySteps("session-of-owner", svc.MyAccount("robot")),
	} {
		t.Run(name, func(t *testing.T) {
			maker := func(u *setup) { u.service.Templates.Banks = banks{} }
			w := newTwins(newSite(t, maker), newSite(t, maker))
			w.both(func(s *site) { s.offer(catalogue) })
			for i, s := range steps {
				w.both((*site).tick)
				switch s.call {
				case "offer":
					w.both(func(to *site) { to.offer(s.args[0].(string)) })
					continue
				case "fail":
					err, _ := s.args[0].(error)
					w.both(func(to *site) { to.market.fail(err) })
					continue
				}
				if have, want := w.do(t, s); have != want {
					t.Errorf("step %d, %s %s %+v:\n%s", i, s.by, s.call, s.args, firstDifference(have, want))
				}
			}
		})
	}
}

// What the interface refuses before the Service could, it refuses in words of its own.
func TestRefusalsOfTheInterface(t *testing.T) {
	s := newSite(t)
	w := newTwins(s, s)
	for _, c := range []struct {
		step
		field string
	}{
		{step{"", "Templates.List", with(svc.TemplateQuery{Limit: -1})}, "limit"},
		{step{"", "Templates.List", with(svc.TemplateQuery{Skip: 1})}, "skip"},
		{step{"", "Users.List", with(svc.UserQuery{RowQuery: svc.RowQuery{Skip: 1}})}, "skip"},
		{step{"", "Templates.List", with(svc.TemplateQuery{AfterName: "\x00"})}, "cursor"},
		{step{"", "Policies.Attach", with(svc.Attachment{PolicyID: "more", Principal: to.Principal, Priority: 1 << 31})}, "/priority"},
		{step{"", "ServiceAccounts.Create", with(svc.ServiceAccount{ID: "x"})}, "/owner_user_id"},
		{step{"session-of-owner", "MyServiceAccounts.Create", with(svc.ServiceAccount{ID: "x", OwnerUserID: "bob"})}, "/owner_user_id"},
		{step{"session-of-owner", "MyServiceAccounts.Patch", with("robot", svc.ServiceAccountPatch{Inactive: new(true)})}, "/is_active"},
		{step{"", "Policies.Decide", with(mine[0], svc.Question{Bank: "b", UserID: "alice", ScopingPolicyID: "recalls"})}, "/1/scoping_policy_id"},
		{step{"session-of-alice", "Policies.Resolve", with(svc.Question{Bank: "b", Me: true, UserID: "alice"})}, "user_id"},
		{step{"", "Keys.Rotate", with(alice, "k", svc.Rotation{Overlap: 1500 * time.Millisecond})}, "/overlap_seconds"},
	} {
		have, _ := w.do(t, c.step)
		for _, part := range []string{`"Code": "invalid_request"`, `"Field": "` + c.field + `"`} {
			if !strings.Contains(have, part) || strings.Count(have, `"Field"`) != 1 {
				t.Errorf("%s: want %s: %s", c.call, part, have)
			}
		}
	}
}

// firstDifference returns the first line that differs.
func firstDifference(have, want string) string {
	h, w := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range min(len(h), len(w)) {
		if h[i] != w[i] {
			return "have " + h[i] + "\nwant " + w[i]
		}
	}
	return "have " + have + "\nwant " + want
}

func (w twins) both(do func(*site)) { do(w.here); do(w.there) }
