package client_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
)

// What is not asked for is not sent: neither null nor empty, unless that is a value.
func TestRequestsOnTheWire(t *testing.T) {
	var sent string
	server := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = r.Method + " " + r.RequestURI + " " + string(body)
		if (len(body) > 0) != (r.Header.Get("Content-Type") == "application/json") {
			sent += " as " + r.Header.Get("Content-Type")
		}
	}))
	c, ctx := must(client.New(client.Config{BaseURL: server.URL, Token: token})), t.Context()
	at := time.Date(2030, 1, 2, 3, 4, 5, 678901000, time.FixedZone("", -3600))
	secret := svc.Secret("a-token-of-a-source")
	for _, request := range []struct {
		call func() error
		want string
	}{
		{func() error { return second(all(c.Templates.List(ctx, svc.TemplateQuery{}))) }, `GET /admin/templates `},
		{func() error {
			return second(all(c.Templates.List(ctx, svc.TemplateQuery{Category: "a&b", Tag: "ü ;"})))
		},
			`GET /admin/templates?category=a%26b&tag=%C3%BC+%3B `},
		{func() error { return second(c.Templates.Create(ctx, svc.NewTemplate{ID: "a"})) },
			`POST /admin/templates {"id":"a","name":"","manifest":null}`},
		{func() error { return second(c.Templates.Patch(ctx, "a", svc.TemplatePatch{})) }, `PATCH /admin/templates/a {}`},
		{func() error {
			return second(c.Templates.Patch(ctx, "a", svc.TemplatePatch{
				Name: new(""), Description: &svc.TextPatch{}, Category: &svc.TextPatch{Value: new("<")}, Tags: new([]string),
			}))
		}, `PATCH /admin/templates/a {"name":"","description":null,"category":"<","tags":[]}`},
		{func() error { return second(c.Templates.Install(ctx, svc.Install{TemplateID: "a", SourceName: "s"})) },
			`POST /admin/templates/a/install {"source_name":"s"}`},
		{func() error {
			return second(c.Templates.Install(ctx, svc.Install{TemplateID: "a", SourceName: "s", SourceScope: "personal", AliasID: new("")}))
		}, `POST /admin/templates/a/install {"source_name":"s","source_scope":"personal","alias_id":""}`},
		{func() error { return second(c.Templates.Update(ctx, "a", svc.UpdateRequest{Force: true})) }, `POST /admin/templates/a/update?force=true `},
		{func() error {
			return second(c.Templates.Update(ctx, "a", svc.UpdateRequest{
				Resolution: svc.TakeMerged, LocalEdits: svc.EditsMerge, Revision: "sha256:1", Content: &svc.Content{Tags: []string{"t"}, Manifest: []byte(`{}`)},
			}))
		}, `POST /admin/templates/a/update?force=false&local_edits=merge&resolution=merged&revision=sha256%3A1 {"name":"","manifest":{},"tags":["t"]}`},
		{func() error { return second(c.Sources.Register(ctx, svc.NewSource{URL: "u"})) }, `POST /admin/template-sources?view=full {"url":"u"}`},
		{func() error { return second(c.Sources.Register(ctx, svc.NewSource{URL: "u", AuthToken: &secret})) },
			`POST /admin/template-sources?view=full {"url":"u","auth_token":"a-token-of-a-source"}`},
		{func() error { return second(c.Keys.Issue(ctx, svc.Me, svc.NewAPIKey{})) }, `POST /me/api-keys?view=full {}`},
		{func() error {
			return second(c.Keys.Issue(ctx, svc.Identity{Kind: svc.KindUser, ID: "u"}, svc.NewAPIKey{Description: new(""), ExpiresAt: at}))
		},
			`POST /users/u/api-keys?view=full {"description":"","expires_at":"2030-01-02T04:04:05.678901Z"}`},
		{func() error {
			return second(c.Keys.Patch(ctx, svc.Me, "k", svc.APIKeyPatch{ExpiresAt: new(time.Time)}))
		},
			`PATCH /me/api-keys/k {"expires_at":null}`},
		{func() error {
			return second(c.Keys.Issue(ctx, svc.Me, svc.NewAPIKey{Rate: svc.Rate{PerSecond: 0.5, Burst: 20}}))
		},
			`POST /me/api-keys?view=full {"rate":{"per_second":0.5,"burst":20}}`},
		{func() error {
			return second(c.Keys.Patch(ctx, svc.Me, "k", svc.APIKeyPatch{Rate: &svc.Rate{PerSecond: 10, Burst: 1}}))
		},
			`PATCH /me/api-keys/k {"rate":{"per_second":10,"burst":1}}`},
		{func() error { return second(c.Keys.Patch(ctx, svc.Me, "k", svc.APIKeyPatch{Rate: new(svc.Rate)})) },
			`PATCH /me/api-keys/k {"rate":null}`},
		{func() error { return second(c.Keys.Rotate(ctx, svc.Me, "k", time.Minute)) },
			`POST /me/api-keys/k/rotate?view=full {"overlap_seconds":60}`},
		{func() error { return c.Keys.RevokeAll(ctx, svc.Me) }, `DELETE /me/api-keys `},
		{func() error { return second(c.Policies.Resolve(ctx, svc.Question{Bank: "b", Topic: "t"})) }, `GET /debug/resolve?bank=b&topic=t `},
		{func() error { return second(c.Policies.Decide(ctx)) }, `POST /decide {"queries":[]}`},
		{func() error {
			return second(c.Policies.Decide(ctx, svc.Question{Me: true, Bank: "b"}, svc.Question{ServiceAccountID: "a", Bank: "b", Action: "x", Topic: "t"}))
		},
			`POST /decide {"queries":[{"action":"bank:recall","bank":"b"},{"sa_id":"a","action":"x","bank":"b","topic":"t"}]}`},
		{func() error { return second(c.Policies.Resolve(ctx, svc.Question{Me: true, Bank: "b"})) }, `GET /me/resolve?bank=b `},
		{func() error { return second(c.Policies.WhatCanI(ctx)) }, `GET /me/what-can `},
		{func() error {
			return second(c.Policies.Simulate(ctx, svc.Bundle{Users: []svc.User{{ID: "u"}}}, svc.Question{Bank: "b"}))
		},
			`POST /debug/simulate {"bundle":{"users":[{"id":"u"}]},"query":{"bank":"b","action":"","sa_id":"","user_id":"","sender":"",` +
				`"channel":"","topic":"","scoping_policy_id":""}}`},
	} {
		is := is.New(t)
		is.Equal(svc.ErrorCode(request.call()), svc.CodeInternal) // the server has nothing to say
		is.Equal(sent, request.want)
	}
}

func TestHeaders(t *testing.T) {
	is := is.New(t)
	var sent http.Header
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header
		w.WriteHeader(http.StatusNoContent)
	}))
	is.NoErr(must(client.New(client.Config{BaseURL: server.URL, Token: token})).Templates.Delete(t.Context(), "a"))
	is.Equal(sent, http.Header{
		"Authorization": {"Bearer " + token}, "User-Agent": {"extsvc-svc-client"}, "Accept-Encoding": {"gzip"},
		"Accept": {"application/json, application/problem+json"},
	})
	is.NoErr(must(client.New(client.Config{BaseURL: server.URL})).Templates.Delete(t.Context(), "a"))
	is.Equal(sent["Authorization"], nil)
}
