// Command ogen does the main tasks with a client that ogen generated. It prints one line for each.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"generators/ogen/api"
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

// bearer is the credential of a client.
type bearer string

func (b bearer) Bearer(context.Context, api.OperationName) (api.Bearer, error) {
	return api.Bearer{Token: string(b)}, nil
}

func newClient(key string) *api.Client {
	return must(api.NewClient(os.Getenv("SVC_URL"), bearer(key)))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// answer returns the answer of a call, which must be a T.
func answer[T, R any](got R, err error) T {
	as, is := any(must(got, err)).(T)
	want(is, fmt.Sprintf("%T %+v", got, got))
	return as
}

func want(is bool, about ...any) {
	if !is {
		panic(fmt.Sprintln(about...))
	}
}

func templates(c *api.Client) {
	made := answer[*api.TemplateAnswerHeaders](c.CreateTemplate(ctx, &api.CreateTemplate{
		ID: "notes", Name: "Notes", Tags: api.NewOptNilLabelArray([]api.Label{"work"}), Description: api.NewOptNilString("Ours"),
		Manifest: api.Manifest{Version: "1", AdditionalProps: api.ManifestAdditional{"prompt": []byte(`"Take notes."`)}},
	}))
	want(made.Response.Category.Null && made.Response.SourceScope.Null && made.Response.Description.Value == "Ours", made)
	list := answer[*api.TemplatesHeaders](c.ListTemplates(ctx, api.ListTemplatesParams{Tag: api.NewOptString("work")})).Response
	want(len(list.Templates) == 1 && string(list.Templates[0].Manifest.AdditionalProps["prompt"]) == `"Take notes."`, list)
	patch := api.PatchTemplate{Name: api.NewOptString("Our notes")}
	patch.Description.SetToNull()
	etag := api.NewOptString(made.ETag)
	patched := answer[*api.TemplateAnswerHeaders](c.PatchTemplate(ctx, api.NewOptPatchTemplate(patch), api.PatchTemplateParams{TemplateID: "notes", IfMatch: etag})).Response
	want(patched.Name == "Our notes" && patched.Description.Null && len(patched.Tags) == 1, patched)
	stale := answer[*api.NotAsSeenHeaders](c.DeleteTemplate(ctx, api.DeleteTemplateParams{TemplateID: "notes", IfMatch: etag}))
	want(stale.Response.Code == api.ProblemCodePreconditionFailed, stale)
	answer[*api.Done](c.DeleteTemplate(ctx, api.DeleteTemplateParams{TemplateID: "notes"}))
}

// offer publishes one template in the catalogue.
func offer(version string) {
	text := fmt.Sprintf(`{"templates": [{"id": "chat", "name": "Chat", "manifest": {"version": %q}}]}`, version)
	r := must(http.NewRequest("PUT", os.Getenv("SVC_CATALOGUE")+"/templates.json", strings.NewReader(text)))
	must(http.DefaultClient.Do(r)).Body.Close()
}

func sources(c *api.Client) {
	offer("1")
	source := answer[*api.SourceAnswerHeaders](c.RegisterSource(ctx, &api.RegisterSource{URL: os.Getenv("SVC_CATALOGUE")}, api.RegisterSourceParams{})).Response
	want(source.Name == "acme" && source.Owner.Null && !source.Serial.Set, source)
	list := answer[*api.SourcesHeaders](c.ListSources(ctx, api.ListSourcesParams{View: api.NewOptView(api.ViewFull)})).Response
	want(len(list) == 1 && list[0].Serial.Set && list[0].Serial.Null, list)
	installed := answer[*api.TemplateAnswerHeaders](c.InstallTemplate(ctx, &api.InstallTemplate{SourceName: "acme"}, api.InstallTemplateParams{TemplateID: "chat"})).Response
	want(installed.SourceScope.Value == api.MaybeScopeServer && strings.HasPrefix(string(installed.SourceRevision.Value), "sha256:"), installed)
	edit := api.NewOptPatchTemplate(api.PatchTemplate{Name: api.NewOptString("Our chat")})
	answer[*api.TemplateAnswerHeaders](c.PatchTemplate(ctx, edit, api.PatchTemplateParams{TemplateID: "chat"}))
	offer("2")
	edited := answer[*api.EditedHeaders](c.UpdateTemplate(ctx, api.OptUpdateTemplate{}, api.UpdateTemplateParams{TemplateID: "chat"})).Response
	want(edited.Code == api.ProblemCodeEditedLocally && len(edited.Fields) == 1 && edited.Fields[0] == api.ProblemFieldsItemName, edited)
	force := api.UpdateTemplateParams{TemplateID: "chat", Force: api.NewOptBool(true)}
	updated := answer[*api.UpdateAnswerHeaders](c.UpdateTemplate(ctx, api.OptUpdateTemplate{}, force)).Response
	want(updated.Updated && updated.Template.Manifest.Version == "2", updated)
}

func problems(c *api.Client) {
	taken := &api.CreateTemplate{ID: "chat", Name: "Chat", Manifest: api.Manifest{Version: "1"}}
	want(answer[*api.TakenHeaders](c.CreateTemplate(ctx, taken)).Response.Code == api.ProblemCodeAlreadyExists)
	invalid := answer[*api.InvalidHeaders](c.Resolve(ctx, api.ResolveParams{Bank: "support"})).Response
	want(invalid.Errors[0].Parameter.Set && !invalid.Errors[0].Pointer.Set, invalid)
	unsealed := &api.CreateAPIKey{ScopingPolicyID: api.NewOptNilMaybeId("none")}
	body := answer[*api.InvalidHeaders](c.IssueUserKey(ctx, api.NewOptCreateAPIKey(*unsealed), api.IssueUserKeyParams{UserID: "admin"})).Response
	want(body.Errors[0].Pointer.Value == "/scoping_policy_id", body)
	missing := answer[*api.NotFoundHeaders](c.Template(ctx, api.TemplateParams{TemplateID: "none"}))
	want(missing.Response.Code == api.ProblemCodeNotFound && missing.XRequestID != "", missing)
	nobody := answer[*api.UnauthenticatedHeaders](newClient("nonsense").ListTemplates(ctx, api.ListTemplatesParams{}))
	want(nobody.Response.Code == api.ProblemCodeUnauthenticated, nobody)
}

func access(c *api.Client) {
	user := answer[*api.UserAnswerHeaders](c.CreateUser(ctx, &api.CreateUser{ID: "carol"})).Response
	want(user.Email.Null && user.DisplayName == "carol", user)
	policy := answer[*api.PolicyAnswerHeaders](c.CreatePolicy(ctx, &api.CreatePolicy{ID: "desk", Document: api.AccessPolicy{
		Version: api.PolicyVersion20260324, Statements: []api.Statement{{
			Effect: api.StatementEffectAllow, Actions: []api.ActionPattern{"bank:recall"}, Banks: []api.BankPattern{"support"},
			RecallBudget: api.NewOptNilStatementRecallBudget(api.StatementRecallBudgetHigh),
		}},
	}})).Response
	want(!policy.IsBuiltin && !policy.Document.Statements[0].LlmModel.Set, policy)
	attached := answer[*api.AttachmentHeaders](c.AttachPolicy(ctx, &api.PutAttachment{
		PolicyID: "desk", PrincipalType: api.PutAttachmentPrincipalTypeUser, PrincipalID: "carol",
	})).Response
	want(attached.Priority == 0, attached)
	may := answer[*api.ResolutionAnswerHeaders](c.Resolve(ctx, api.ResolveParams{Bank: "support", UserID: api.NewOptString("carol")})).Response
	want(may.Decision == api.ResolutionDecisionAllow && may.Access.ResolvedUserID.Value == "carol" && may.Access.LlmModel.Null, may)
	want(may.Access.RecallBudget.Value == api.AccessRecallBudgetHigh && may.BankPolicy.Null && may.EffectiveStrategy.Null, may)
	want(may.Trace[0].PolicyID == "desk" && may.Trace[0].BankPattern.Value == "support" && may.Trace[0].Sets.RecallBudget.Set, may.Trace)
	mayNot := answer[*api.ResolutionAnswerHeaders](c.Resolve(ctx, api.ResolveParams{Bank: "support", Sender: api.NewOptString("telegram:1")})).Response
	want(!mayNot.Access.Allowed && mayNot.Access.ResolvedUserID.Null && mayNot.PrincipalType == api.ResolutionPrincipalTypeUnmapped, mayNot)
}

func keys(c *api.Client) {
	issued := answer[*api.CreatedKeyHeaders](c.IssueUserKey(ctx, api.OptCreateAPIKey{}, api.IssueUserKeyParams{UserID: "carol"})).Response
	want(issued.Description.Null && !issued.CreatedAt.Set, issued)
	me := answer[*api.MeHeaders](newClient(issued.APIKey).Me(ctx)).Response
	want(me.ID == "carol" && len(me.Channels) == 0, me)
	full := api.ListUserKeysParams{UserID: "carol", View: api.NewOptView(api.ViewFull)}
	key := answer[*api.KeyListHeaders](c.ListUserKeys(ctx, full)).Response[0]
	want(key.ID == issued.ID && key.CreatedAt.Set && key.ExpiresAt.Null && !key.Disabled.Value, key)
	answer[*api.Done](c.RevokeUserKey(ctx, api.RevokeUserKeyParams{UserID: "carol", KeyID: key.ID}))
	left := answer[*api.KeyListHeaders](c.ListUserKeys(ctx, api.ListUserKeysParams{UserID: "carol"})).Response
	want(len(left) == 0, left)
}

func events(c *api.Client) {
	list := answer[*api.EventsHeaders](c.ListEvents(ctx, api.ListEventsParams{})).Response.Events
	last := list[0]
	want(last.Action == "api_key.revoked" && last.Was.Null && last.Target.Holder.Value.ID.Value == "carol" && !last.Previous.Null, last)
	for _, event := range list {
		if event.Action == "access.written" && event.Target.Kind == "user" && event.Target.ID == "carol" {
			want(event.Was.Null && string(event.Is.Value["id"]) == `"carol"` && event.Target.Holder.Null, event)
			return
		}
	}
	want(false, "carol was not written")
}
