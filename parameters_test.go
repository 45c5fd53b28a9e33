package svc_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
)

func TestNewRefusesParameters(t *testing.T) {
	for _, p := range []svc.Parameter{
		{Name: "words", Type: svc.ParameterText, Merge: svc.MergeGreatest, Narrow: svc.NarrowReplace},
		{Name: "words", Type: svc.ParameterLevel, Merge: svc.MergeGreatest, Narrow: svc.NarrowLesser},
		{Name: "words", Type: svc.ParameterText, Merge: svc.MergeClosest},
	} {
		_, err := svc.New(svc.Config{Store: memstore.New(), Parameters: []svc.Parameter{p}})
		if err == nil || !strings.Contains(err.Error(), `"words"`) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// An empty table is no table of AI memory: no statement sets anything, and the strategy is the bank's.
func TestNoParameters(t *testing.T) {
	is, ctx := is.New(t), t.Context()
	s := must(svc.New(svc.Config{Store: memstore.New(), Parameters: []svc.Parameter{}}))
	defer s.Close()
	is.NoErr(s.Access.Apply(ctx, svc.Host, must(svc.ParseBundle([]byte(`{"users": [{"id": "alice"}],
		"policies": [{"id": "p", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["a"], "banks": ["b"]}]}}],
		"bank_policies": [{"bank_id": "b", "document": {"version": "2026-03-24", "default_strategy": "deep"}}],
		"attachments": [{"policy_id": "p", "principal_type": "user", "principal_id": "alice"}]}`)))))
	r := must(s.Policies.Resolve(ctx, svc.Host, svc.Question{UserID: "alice", Action: "a", Bank: "b"}))
	is.Equal(*r.EffectiveStrategy, "deep")
	for name := range r.Parameters.All() {
		t.Errorf("a parameter %q", name)
	}
}

// A policy with ${user} gives each user of a group something else, so each is judged.
func TestVariablesAreJudgedForEachUser(t *testing.T) {
	is, ctx := is.New(t), t.Context()
	s := must(svc.New(svc.Config{Store: memstore.New()}))
	defer s.Close()
	apply := func(banks string) {
		is.NoErr(s.Access.Apply(ctx, svc.Host, must(svc.ParseBundle([]byte(`{"users": [{"id": "alice"}, {"id": "bob"}, {"id": "carol"}],
			"groups": [{"id": "team", "members": ["alice", "bob"]}],
			"policies": [{"id": "own", "document": {"version": "2026-03-24", "statements": []}},
				{"id": "carol", "document": {"version": "2026-03-24", "statements": [
					{"effect": "allow", "actions": ["iam:policies:write"], "banks": ["*"]},
					{"effect": "allow", "actions": ["bank:recall"], "banks": [`+banks+`]}]}}],
			"attachments": [{"policy_id": "own", "principal_type": "group", "principal_id": "team"},
				{"policy_id": "carol", "principal_type": "user", "principal_id": "carol"}]}`)))))
	}
	carol := svc.Principal{Kind: svc.KindUser, ID: "carol"}
	write := func() error {
		document := json.RawMessage(`{"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["bank:recall"], "banks": ["${user}::*"]}]}`)
		_, err := s.Policies.Patch(ctx, carol, "own", svc.PolicyPatch{Document: document})
		return err
	}
	apply(`"alice::*"`)
	is.Equal(svc.ErrorCode(write()), svc.CodeForbidden) // bob's banks are not carol's
	apply(`"alice::*", "bob::*"`)
	is.NoErr(write())
	bob := svc.Principal{Kind: svc.KindUser, ID: "bob"}
	is.True(must(s.Decide(ctx, bob, "bank:recall", "bob::notes", svc.Context{})).Allowed())
	is.True(!must(s.Decide(ctx, bob, "bank:recall", "alice::notes", svc.Context{})).Allowed())
}
