package svc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/extsvc/svc"
)

// An administrator trusts a source, and installs a template from it.
func ExampleTemplates_Install() {
	ctx, service := context.Background(), exampleService()
	defer service.Close()
	house := svc.NewSource{URL: "fs://files/house"} // or https://github.com/acme/templates
	if _, err := service.Sources.Register(ctx, svc.Host, house); err != nil {
		log.Fatal(err)
	}
	notes := svc.Install{TemplateID: "notes", SourceName: "house"}
	installed, err := service.Templates.Install(ctx, svc.Host, notes)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(installed.ID, installed.Name, string(installed.Manifest))

	check, err := service.Templates.CheckUpdate(ctx, svc.Host, "notes")
	fmt.Println("update:", check.HasUpdate, err)
	// Output:
	// notes Notes {"version":"1"}
	// update: false <nil>
}

// A template can also be made by hand. A list is read row by row.
func ExampleTemplates_List() {
	ctx, service := context.Background(), exampleService()
	defer service.Close()
	report := svc.NewTemplate{ID: "report", Content: svc.Content{
		Name: "Weekly report", Tags: []string{"work"},
		Manifest: json.RawMessage(`{"version": "1", "columns": ["open", "late"]}`),
	}}
	_, err := service.Templates.Create(ctx, svc.Host, report)
	if err != nil {
		log.Fatal(err)
	}
	query := svc.TemplateQuery{Tag: "work"}
	for template, err := range service.Templates.List(ctx, svc.Host, query) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(template.ID, string(template.Manifest))
	}
	// Output:
	// report {"version":"1","columns":["open","late"]}
}

// With the ETag that it has read, a caller changes only what it has seen.
func ExampleTemplates_Patch() {
	ctx, service := context.Background(), exampleService()
	defer service.Close()
	notes := svc.NewTemplate{ID: "notes", Content: svc.Content{
		Name: "Notes", Manifest: json.RawMessage(`{"version": "1"}`),
	}}
	seen, err := service.Templates.Create(ctx, svc.Host, notes)
	if err != nil {
		log.Fatal(err)
	}
	name := "Team notes"
	patch := svc.TemplatePatch{Name: &name}
	patched, err := service.Templates.Patch(ctx, svc.Host, "notes", patch, seen.ETag())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(patched.Name)

	name = "Notes of the team"
	_, err = service.Templates.Patch(ctx, svc.Host, "notes", patch, seen.ETag())
	fmt.Println(svc.ErrorCode(err)) // it has changed since: read it again
	// Output:
	// Team notes
	// precondition_failed
}

// Browse lists what a source offers, and what of it is installed.
func ExampleSources_Browse() {
	ctx, service := context.Background(), exampleService()
	defer service.Close()
	house := svc.NewSource{URL: "fs://files/house"}
	source, err := service.Sources.Register(ctx, svc.Host, house)
	if err != nil {
		log.Fatal(err)
	}
	notes := svc.Install{TemplateID: "notes", SourceName: source.Name}
	if _, err := service.Templates.Install(ctx, svc.Host, notes); err != nil {
		log.Fatal(err)
	}
	offered, err := service.Sources.Browse(ctx, svc.Host, source.Name, svc.CatalogFilter{Tag: "work"})
	if err != nil {
		log.Fatal(err)
	}
	for _, template := range offered.Templates {
		fmt.Println(template.ID, template.InstalledAs, "behind:", *template.Behind)
	}
	// Output:
	// notes [notes] behind: false
}

// MyTemplates and MySources are the caller's own. A built-in policy gives the rights.
func ExampleTemplates_Install_own() {
	ctx, service := context.Background(), exampleService()
	defer service.Close()
	self := svc.Attachment{
		PolicyID: svc.PolicyTemplateUser, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "alice"},
	}
	rights := svc.Bundle{Users: []svc.User{{ID: "alice"}}, Attachments: []svc.Attachment{self}}
	if err := service.Access.Apply(ctx, svc.Host, rights); err != nil {
		log.Fatal(err)
	}
	alice := svc.Principal{Kind: svc.KindUser, ID: "alice"} // from Authenticate
	house := svc.NewSource{URL: "fs://files/house"}
	if _, err := service.MySources.Register(ctx, alice, house); err != nil {
		log.Fatal(err)
	}
	own := svc.Install{TemplateID: "notes", SourceName: "house", SourceScope: svc.ScopePersonal}
	installed, err := service.MyTemplates.Install(ctx, alice, own)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(installed.Scope, installed.Owner, installed.ID)

	_, err = service.Templates.Read(ctx, svc.Host, "notes") // the server has none
	fmt.Println(svc.ErrorCode(err))
	// Output:
	// personal alice notes
	// not_found
}
