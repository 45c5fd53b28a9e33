package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing/fstest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/event"
)

// An administrator trusts a source, looks at what it offers, and ends the trust.
func ExampleSources() {
	ctx := context.Background()
	c, err := client.New(client.Config{BaseURL: exampleServer(exampleCatalogue("1")) + "/ext/svc", Token: "correct-horse"})
	check(err)
	source, err := c.Sources.Register(ctx, svc.NewSource{URL: "fs://acme", Alias: new("acme")})
	check(err)
	fmt.Println(source.Name, source.URL, "changed:", !source.UpdatedAt.Equal(source.CreatedAt))
	_, err = c.Sources.Patch(ctx, "acme", svc.SourcePatch{Description: &svc.TextPatch{Value: new("templates of Acme")}})
	check(err)
	for source, err := range c.Sources.List(ctx) {
		check(err)
		fmt.Println(*source.Description, "token:", source.HasAuth, "signed:", source.SigningKey != nil, source.Serial)
	}
	offers, err := c.Sources.Browse(ctx, "acme", svc.CatalogFilter{Text: "desk"})
	check(err)
	fmt.Println(offers.Templates[0].ID)
	everywhere, err := c.Sources.Search(ctx, svc.CatalogFilter{})
	check(err)
	fmt.Println(len(everywhere), "source")
	check(c.Sources.Remove(ctx, "acme"))
	_, err = c.Sources.Register(ctx, svc.NewSource{URL: "fs://acme/moved", Alias: new("acme")})
	check(err)
	bound, err := c.Sources.Rebind(ctx, "acme") // templates from the old address follow the new one
	check(err)
	fmt.Println(len(bound), "templates")
	// Output:
	// acme fs://acme changed: false
	// templates of Acme token: false signed: false 0
	// desk
	// 1 source
	// 0 templates
}

// A template is installed, edited, updated, and brought back.
func ExampleTemplates() {
	ctx, files := context.Background(), exampleCatalogue("1")
	c, err := client.New(client.Config{BaseURL: exampleServer(files) + "/ext/svc", Token: "correct-horse"})
	check(err)
	_, err = c.Sources.Register(ctx, svc.NewSource{URL: "fs://acme", Alias: new("acme")})
	check(err)
	desk, err := c.Templates.Install(ctx, svc.Install{TemplateID: "desk", SourceName: "acme"})
	check(err)
	_, err = c.Templates.Patch(ctx, "desk", svc.TemplatePatch{Name: new("Our desk")}, desk.ETag())
	check(err)

	files["templates.json"] = exampleCatalogue("2")["templates.json"] // the source has an update
	report, err := c.Templates.CheckUpdates(ctx)
	check(err)
	fmt.Println(len(report.Templates), "of", report.Checked)
	update, err := c.Templates.CheckUpdate(ctx, "desk")
	check(err)
	fmt.Println("update:", update.HasUpdate)
	diff, err := c.Templates.Diff(ctx, "desk")
	check(err)
	for _, change := range diff.Changes {
		fmt.Println(change.Path)
	}
	_, err = c.Templates.Update(ctx, "desk", svc.UpdateRequest{LocalEdits: svc.KeepOurs, Revision: diff.LatestRevision})
	check(err)
	for version, err := range c.Templates.History(ctx, "desk") {
		check(err)
		fmt.Println(version.Number, version.Name, string(version.Manifest))
	}
	_, err = c.Templates.Rollback(ctx, "desk", 1)
	check(err)
	seen, err := c.Templates.Read(ctx, "desk")
	check(err)
	fmt.Println(seen.Name)
	check(c.Templates.Delete(ctx, "desk", seen.ETag()))
	// Output:
	// 1 of 1
	// update: true
	// /manifest/version
	// /name
	// 1 Desk {"version":"1"}
	// Desk
}

// A user has templates and sources that others do not see.
func ExampleClient() {
	ctx, c := context.Background(), exampleClient()
	bob := exampleUser(c, "bob", svc.PolicyTemplateUser)
	_, err := bob.MyTemplates.Create(ctx, svc.NewTemplate{ID: "notes", Content: svc.Content{
		Name: "My notes", Manifest: []byte(`{"version": "1"}`),
	}})
	check(err)
	_, err = bob.MySources.Register(ctx, svc.NewSource{URL: "fs://acme", Alias: new("acme")})
	check(err)
	_, err = c.Templates.Read(ctx, "notes")
	fmt.Println(svc.ErrorCode(err))
	for source, err := range c.Sources.List(ctx) {
		check(err)
		fmt.Println(source.Name)
	}
	// Output: not_found
}

// The newest events say who has changed what.
func ExampleAudit() {
	ctx, c := context.Background(), exampleClient()
	_, err := c.Users.Create(ctx, svc.User{ID: "bob"})
	check(err)
	for record, err := range c.Audit.Records(ctx, svc.AuditQuery{TargetKind: event.TargetUser, Limit: 10}) {
		check(err)
		fmt.Println(record.Actor.ID, record.Action, record.Target.ID)
	}
	// Output: admin access.written bob
}

// exampleCatalogue is a source with one template.
func exampleCatalogue(version string) fstest.MapFS {
	catalogue := `{"templates": [{"id": "desk", "name": "Desk", "manifest": {"version": "VERSION"}}]}`
	return fstest.MapFS{"templates.json": {Data: []byte(strings.ReplaceAll(catalogue, "VERSION", version))}}
}
