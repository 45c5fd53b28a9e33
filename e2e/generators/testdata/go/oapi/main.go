// Command oapi does the main tasks with a client that oapi-codegen generated. It prints one line for
// each.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"generators/oapi/api"
)

var ctx = context.Background()

func main() {
	client := newClient(os.Getenv("SVC_KEY"))
	templates(client)
	fmt.Println("a template is created, listed, patched and deleted")
	sources(client)
	fmt.Println("a conflict names the fields that were edited")
	problems(client)
	fmt.Println("problems have types")
	access(client)
	fmt.Println("a decision has its reasons")
	keys(client)
	fmt.Println("a key is issued, listed and revoked")
	events(client)
	fmt.Println("events are listed")
}

func newClient(bearer string) *api.ClientWithResponses {
	return must(api.NewClientWithResponses(os.Getenv("SVC_URL"), api.WithRequestEditorFn(
		func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+bearer)
			return nil
		})))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func want(is bool, about ...any) {
	if !is {
		panic(fmt.Sprintln(about...))
	}
}

func templates(c *api.ClientWithResponses) {
	made := must(c.CreateTemplateWithResponse(ctx, api.CreateTemplate{
		Id: "notes", Name: "Notes", Tags: &[]string{"work"},
		Manifest: api.Manifest{Version: "1", AdditionalProperties: map[string]any{"prompt": "Take notes."}},
	}))
	want(made.JSON200 != nil, made.Status())
	want(made.JSON200.Description == nil && made.JSON200.SourceScope == nil, made.JSON200)
	tag := api.Tag("work")
	list := must(c.ListTemplatesWithResponse(ctx, &api.ListTemplatesParams{Tag: &tag})).JSON200
	want(len(list.Templates) == 1 && list.Templates[0].Manifest.AdditionalProperties["prompt"] == "Take notes.", list)
	name, etag := "Our notes", made.HTTPResponse.Header.Get("ETag")
	patched := must(c.PatchTemplateWithResponse(ctx, "notes", &api.PatchTemplateParams{IfMatch: &etag}, api.PatchTemplate{Name: &name}))
	want(patched.JSON200 != nil && patched.JSON200.Name == name, patched.Status())
	stale := must(c.DeleteTemplateWithResponse(ctx, "notes", &api.DeleteTemplateParams{IfMatch: &etag}))
	want(stale.ApplicationproblemJSON412.Code == api.ProblemCodePreconditionFailed, stale.Status())
	gone := must(c.DeleteTemplateWithResponse(ctx, "notes", nil))
	want(gone.StatusCode() == http.StatusNoContent, gone.Status())
}

// offer publishes one template in the catalogue.
func offer(version string) {
	text := fmt.Sprintf(`{"templates": [{"id": "chat", "name": "Chat", "manifest": {"version": %q}}]}`, version)
	r := must(http.NewRequest("PUT", os.Getenv("SVC_CATALOGUE")+"/templates.json", strings.NewReader(text)))
	must(http.DefaultClient.Do(r)).Body.Close()
}

func sources(c *api.ClientWithResponses) {
	offer("1")
	source := must(c.RegisterSourceWithResponse(ctx, nil, api.RegisterSource{Url: os.Getenv("SVC_CATALOGUE")}))
	want(source.JSON201 != nil && source.JSON201.Serial == nil && source.JSON201.Owner == nil, source.Status())
	view := api.ListSourcesParamsViewFull
	list := must(c.ListSourcesWithResponse(ctx, &api.ListSourcesParams{View: &view})).JSON200
	want(len(*list) == 1 && (*list)[0].SigningKey == nil, list)
	installed := must(c.InstallTemplateWithResponse(ctx, "chat", nil, api.InstallTemplate{SourceName: "acme"})).JSON200
	want(*installed.SourceScope == api.MaybeScopeServer && strings.HasPrefix(*installed.SourceRevision, "sha256:"), installed)
	name := "Our chat"
	must(c.PatchTemplateWithResponse(ctx, "chat", nil, api.PatchTemplate{Name: &name}))
	offer("2")
	edited := must(c.UpdateTemplateWithResponse(ctx, "chat", nil, api.UpdateTemplate{}))
	problem := edited.ApplicationproblemJSON409
	want(problem.Code == api.ProblemCodeEditedLocally && len(*problem.Fields) == 1 && (*problem.Fields)[0] == api.ProblemFieldsName, problem)
	force := true
	updated := must(c.UpdateTemplateWithResponse(ctx, "chat", &api.UpdateTemplateParams{Force: &force}, api.UpdateTemplate{})).JSON200
	want(updated.Updated && updated.Template.Manifest.Version == "2", updated)
}

func problems(c *api.ClientWithResponses) {
	invalid := must(c.CreateTemplateWithResponse(ctx, api.CreateTemplate{Id: "a/b", Name: "A", Manifest: api.Manifest{Version: "1"}}))
	problem := invalid.ApplicationproblemJSON400
	want(problem != nil && *(*problem.Errors)[0].Pointer == "/id" && (*problem.Errors)[0].Parameter == nil, invalid.Status())
	limit := api.Limit(-1)
	negative := must(c.ListTemplatesWithResponse(ctx, &api.ListTemplatesParams{Limit: &limit})).ApplicationproblemJSON400
	want(*(*negative.Errors)[0].Parameter == "limit", negative)
	missing := must(c.TemplateWithResponse(ctx, "none", nil)).ApplicationproblemJSON404
	want(missing != nil && missing.Code == api.ProblemCodeNotFound && missing.Status == 404, missing)
	nobody := must(newClient("nonsense").ListTemplatesWithResponse(ctx, nil)).ApplicationproblemJSON401
	want(nobody != nil && nobody.Code == api.ProblemCodeUnauthenticated, nobody)
}

func access(c *api.ClientWithResponses) {
	user := must(c.CreateUserWithResponse(ctx, api.CreateUser{Id: "carol"}))
	want(user.JSON201 != nil && user.JSON201.Email == nil && user.JSON201.DisplayName == "carol", user.Status())
	budget := api.StatementRecallBudget("high")
	policy := must(c.CreatePolicyWithResponse(ctx, api.CreatePolicy{Id: "desk", Document: api.AccessPolicy{
		Version: api.N20260324, Statements: []api.Statement{{
			Effect: "allow", Actions: []string{"bank:recall"}, Banks: []string{"support"}, RecallBudget: &budget,
		}},
	}}))
	want(policy.JSON201 != nil && !policy.JSON201.IsBuiltin, policy.Status(), string(policy.Body))
	attached := must(c.AttachPolicyWithResponse(ctx, api.PutAttachment{PolicyId: "desk", PrincipalType: "user", PrincipalId: "carol"}))
	want(attached.JSON200 != nil && attached.JSON200.Priority == 0, attached.Status(), string(attached.Body))
	id := "carol"
	may := must(c.ResolveWithResponse(ctx, &api.ResolveParams{Bank: "support", UserId: &id})).JSON200
	want(may.Decision == api.ResolutionDecisionAllow && *may.Access.ResolvedUserId == id && may.Access.LlmModel == nil, may)
	want(*may.Access.RecallBudget == "high" && may.BankPolicy == nil && may.EffectiveStrategy == nil, may)
	want(may.Trace[0].PolicyId == "desk" && *may.Trace[0].BankPattern == "support" && *may.Trace[0].Sets.RecallBudget == "high", may.Trace)
	sender := "telegram:1"
	mayNot := must(c.ResolveWithResponse(ctx, &api.ResolveParams{Bank: "support", Sender: &sender})).JSON200
	want(!mayNot.Access.Allowed && mayNot.Access.ResolvedUserId == nil && mayNot.PrincipalType == "unmapped", mayNot)
}

func keys(c *api.ClientWithResponses) {
	issued := must(c.IssueUserKeyWithResponse(ctx, "carol", nil, api.CreateAPIKey{}))
	want(issued.JSON201 != nil && issued.JSON201.Description == nil && issued.JSON201.CreatedAt == nil, issued.Status())
	me := must(newClient(issued.JSON201.ApiKey).MeWithResponse(ctx)).JSON200
	want(me.Id == "carol" && len(me.Channels) == 0, me)
	view := api.ListUserKeysParamsViewFull
	list := must(c.ListUserKeysWithResponse(ctx, "carol", &api.ListUserKeysParams{View: &view})).JSON200
	key := (*list)[0]
	want(key.Id == issued.JSON201.Id && key.CreatedAt != nil && key.ExpiresAt == nil && !*key.Disabled, key)
	revoked := must(c.RevokeUserKeyWithResponse(ctx, "carol", key.Id))
	want(revoked.StatusCode() == http.StatusNoContent, revoked.Status())
	want(len(*must(c.ListUserKeysWithResponse(ctx, "carol", nil)).JSON200) == 0)
}

func events(c *api.ClientWithResponses) {
	list := must(c.ListEventsWithResponse(ctx, nil)).JSON200.Events
	last := list[0]
	want(last.Action == "api_key.revoked" && last.Was == nil && *last.Target.Holder.Id == "carol" && last.Previous != nil, last)
	for _, event := range list {
		if event.Action == "access.written" && event.Target.Kind == "user" && event.Target.Id == "carol" {
			want(event.Was == nil && (*event.Is)["id"] == "carol" && event.Target.Holder == nil, event)
			return
		}
	}
	want(false, "carol was not written")
}
