package client_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

// A client of a host with its own parameters gets what the Service answers, in the same order.
func TestOwnParameters(t *testing.T) {
	is, ctx := is.New(t), t.Context()
	table := []svc.Parameter{
		{Name: "rows", Type: svc.ParameterInteger, Merge: svc.MergeGreatest, Narrow: svc.NarrowLesser},
		{Name: "llm_model", Type: svc.ParameterTextList, Merge: svc.MergeAll, Narrow: svc.NarrowAll},
		{Name: "level", Type: svc.ParameterLevel, Levels: []string{"a", "b"}, Merge: svc.MergeLeast, Narrow: svc.NarrowGreater},
		{Name: "filters", Type: svc.ParameterObjectList, Merge: svc.MergeAll, Narrow: svc.NarrowIntersection},
		{Name: "unset", Type: svc.ParameterText, Merge: svc.MergeClosest, Narrow: svc.NarrowReplace},
	}
	service := must(svc.New(svc.Config{Store: memstore.New(), Parameters: table}))
	defer service.Close()
	is.NoErr(service.Access.Apply(ctx, svc.Host, must(svc.ParseBundle([]byte(`{"users": [{"id": "alice"}],
		"policies": [{"id": "p", "document": {"version": "2026-03-24", "statements": [
			{"effect": "allow", "actions": ["a:*"], "banks": ["*"], "rows": 7, "llm_model": ["y", "x"], "level": "b", "filters": [{"k": "<v>"}]},
			{"effect": "allow", "actions": ["iam:*"], "banks": ["*"]}]}}],
		"bank_policies": [{"bank_id": "open", "document": {"version": "2026-03-24", "public_access": {"default": {"actions": ["a:b"], "rows": 1, "llm_model": []}}}}],
		"attachments": [{"policy_id": "p", "principal_type": "user", "principal_id": "alice"}]}`)))))
	server := httptest.NewServer(httpapi.New(service, httpapi.Options{}))
	t.Cleanup(server.Close)
	issued := must(service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{}))
	c := must(client.New(client.Config{BaseURL: server.URL + "/ext/svc", Token: issued.Key}))

	q := svc.Question{UserID: "alice", Action: "a:b", Bank: "x"}
	want, got := must(service.Policies.Resolve(ctx, svc.Host, q)), must(c.Policies.Resolve(ctx, q))
	is.Equal(got.Parameters, want.Parameters)
	is.Equal(got.Trace[0].Sets.Values, want.Trace[0].Sets.Values[:4]) // those that are set
	rows, ok := got.Parameter("rows")
	is.True(ok && rows == int64(7))
	filters, _ := got.Parameter("filters")
	is.Equal(filters, []json.RawMessage{json.RawMessage(`{"k":"<v>"}`)})
	_, ok = got.Parameter("unset")
	is.True(!ok)

	asked := []svc.Question{q, {Sender: "x:y", Action: "a:b", Bank: "open"}, {Sender: "x:y", Action: "a:c", Bank: "open"}}
	is.Equal(must(c.Policies.Decide(ctx, asked...)), must(service.Policies.Decide(ctx, svc.Host, asked...)))
	can := must(c.Policies.WhatCanI(ctx))
	level, _ := can[0].Parameter("level")
	is.Equal(level, "b")

	_, err := c.Policies.Create(ctx, svc.Policy{ID: "q", Document: json.RawMessage(`{"version": "2026-03-24", "statements": [
		{"effect": "allow", "actions": ["a"], "banks": ["b"], "recall_budget": "low"}]}`)})
	is.Equal(refused(err).Field, "/document/statements/0/recall_budget")
	is.Equal(refused(err).Message, "is an unknown key: known are effect, actions, banks, rows, llm_model, level, filters, unset")
}
