package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing/fstest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/event"
)

// A person joins, writes from a messenger, changes her name and leaves.
func ExampleUsers() {
	ctx, c := context.Background(), exampleClient()
	bob, err := c.Users.Create(ctx, svc.User{ID: "bob", DisplayName: "Bob"})
	check(err)
	slack := svc.Channel{Provider: "slack", SenderID: "U7"}
	check(c.Users.AddChannel(ctx, "bob", slack))
	for channel, err := range c.Users.Channels(ctx, "bob", svc.RowQuery{}) {
		check(err)
		fmt.Println("bob is", channel)
	}
	key, err := c.Keys.Issue(ctx, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{})
	check(err)
	me, err := c.As(key.Key).Users.Me(ctx) // as bob
	check(err)
	can, err := c.As(key.Key).Policies.WhatCanI(ctx)
	check(err)
	fmt.Println(me.DisplayName, me.Channels, "may do", can)

	_, err = c.Users.Patch(ctx, "bob", svc.UserPatch{DisplayName: new("Robert")}, bob.ETag()) // unless somebody else has
	check(err)
	for user, err := range c.Users.List(ctx, svc.UserQuery{Text: "rob"}) {
		check(err)
		fmt.Println(user.ID, user.DisplayName)
	}
	check(errors.Join(c.Users.RemoveChannel(ctx, "bob", slack), c.Users.Delete(ctx, "bob")))
	_, err = c.Users.Read(ctx, "bob")
	fmt.Println(svc.ErrorCode(err))
	// Output:
	// bob is slack:U7
	// Bob [slack:U7] may do []
	// bob Robert
	// not_found
}

// The members of a group have its policies.
func ExampleGroups() {
	ctx, c := context.Background(), exampleClient()
	_, err := c.Users.Create(ctx, svc.User{ID: "bob"})
	check(err)
	_, err = c.Groups.Create(ctx, svc.Group{ID: "support"})
	check(err)
	check(c.Groups.AddMember(ctx, "support", "bob"))
	_, err = c.Groups.Patch(ctx, "support", svc.GroupPatch{DisplayName: new("Support")})
	check(err)
	for group, err := range c.Groups.List(ctx, svc.GroupQuery{Member: "bob"}) {
		check(err)
		fmt.Println("bob is in", group.DisplayName)
	}
	check(c.Groups.RemoveMember(ctx, "support", "bob"))
	for member, err := range c.Groups.Members(ctx, "support", svc.RowQuery{}) {
		check(err)
		fmt.Println(member)
	}
	seen, err := c.Groups.Read(ctx, "support")
	check(err)
	check(c.Groups.Delete(ctx, "support", seen.ETag()))
	// Output: bob is in Support
}

// A policy is written, attached, asked about, changed and removed.
func ExamplePolicies() {
	ctx, c := context.Background(), exampleClient()
	_, err := c.Users.Create(ctx, svc.User{ID: "bob"})
	check(err)
	reads := svc.Policy{ID: "reads", Document: []byte(`{"version": "2026-03-24", "statements": [
		{"effect": "allow", "actions": ["ticket:read"], "banks": ["tickets::*"]}]}`)}
	written, err := c.Policies.Create(ctx, reads)
	check(err)
	bob := svc.GrantedTo{Type: svc.GrantedToUser, ID: "bob"}
	check(c.Policies.Attach(ctx, svc.Attachment{PolicyID: "reads", Principal: bob}))

	question := svc.Question{UserID: "bob", Action: "ticket:read", Bank: "tickets::acme"}
	why, err := c.Policies.Resolve(ctx, question)
	check(err)
	fmt.Println(why.Outcome, "by", why.Trace[0].PolicyID)
	who, err := c.Policies.WhoCan(ctx, question.Action, question.Bank)
	check(err)
	fmt.Println(who.Users)
	answers, err := c.Policies.Decide(ctx, question, svc.Question{UserID: "bob", Action: "ticket:close", Bank: "tickets::acme"})
	check(err)
	fmt.Println(answers[0].Allowed(), answers[1].Allowed())
	change := svc.Bundle{Users: []svc.User{{ID: "bob", Inactive: true}}}
	then, err := c.Policies.Simulate(ctx, change, question)
	check(err)
	fmt.Println("when bob is inactive:", then.Outcome)

	_, err = c.Policies.Patch(ctx, "reads", svc.PolicyPatch{DisplayName: new("Reads tickets")}, written.ETag())
	check(err)
	for attachment, err := range c.Policies.Attachments(ctx, svc.AttachmentQuery{PolicyID: "reads"}) {
		check(err)
		check(c.Policies.Detach(ctx, svc.AttachmentKey{PolicyID: "reads", Principal: attachment.Principal}))
	}
	seen, err := c.Policies.Read(ctx, "reads")
	check(err)
	check(c.Policies.Delete(ctx, "reads", seen.ETag()))
	for policy, err := range c.Policies.List(ctx, svc.RowQuery{Limit: 1}) { // those that are built in stay
		check(err)
		fmt.Println(policy.ID)
	}
	// Output:
	// allow by reads
	// [bob]
	// true false
	// when bob is inactive: implicit_deny
	// bank:admin
}

// A user has an account for a job, and an administrator sees it.
func ExampleServiceAccounts() {
	ctx, c := context.Background(), exampleClient()
	bob := exampleUser(c, "bob", svc.PolicyIAMSelfService)
	_, err := bob.MyServiceAccounts.Create(ctx, svc.ServiceAccount{ID: "nightly"})
	check(err)
	_, err = bob.MyServiceAccounts.Patch(ctx, "nightly", svc.ServiceAccountPatch{DisplayName: new("Nightly job")})
	check(err)
	for account, err := range c.ServiceAccounts.List(ctx, svc.ServiceAccountQuery{Owner: "bob"}) {
		check(err)
		fmt.Println(account.DisplayName, "of", account.OwnerUserID)
	}
	seen, err := c.ServiceAccounts.Read(ctx, "nightly")
	check(err)
	check(c.ServiceAccounts.Delete(ctx, "nightly", seen.ETag()))
	// Output: Nightly job of bob
}

// The rights of one server go to another: what would change is shown first.
func ExampleAccess() {
	ctx, staging, production := context.Background(), exampleClient(), exampleClient()
	_, err := staging.Users.Create(ctx, svc.User{ID: "bob"})
	check(err)
	check(staging.Policies.Attach(ctx, svc.Attachment{
		PolicyID: svc.PolicyTemplateAdmin, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "bob"},
	}))
	bundle, err := staging.Access.Export(ctx)
	check(err)
	diff, err := production.Access.Preview(ctx, bundle, svc.BundleWrite{})
	check(err)
	for _, p := range diff.Principals {
		fmt.Println(p.Principals, p.Differences[0].Change, p.Differences[0].Action)
	}
	check(production.Access.Write(ctx, bundle, svc.BundleWrite{Revision: diff.Revision})) // unless rows have changed
	// Output: [{user bob}] newly_allowed bank:create
}

// A bank is made from a template, and opened to senders without a user.
func ExampleBanks() {
	ctx, c := context.Background(), exampleClient()
	_, err := c.Templates.Create(ctx, svc.NewTemplate{ID: "desk", Content: svc.Content{
		Name: "Desk", Manifest: []byte(`{"version": "1"}`),
	}})
	check(err)
	bob := exampleUser(c, "bob", svc.PolicyTemplateAdmin)
	made, err := bob.Banks.Create(ctx, svc.NewBank{ID: "support", Name: "New", Template: "server/desk"})
	check(err)
	fmt.Println("created:", made.Created)
	open := svc.BankPolicy{BankID: "support", Document: []byte(
		`{"version": "2026-03-24", "public_access": {"default": {"actions": ["bank:recall"]}}}`)}
	_, err = c.Banks.SetPolicy(ctx, open)
	check(err)
	answers, err := c.Policies.Decide(ctx, svc.Question{Sender: "slack:U7", Action: "bank:recall", Bank: "support"})
	check(err)
	fmt.Println("open:", answers[0].Allowed())
	seen, err := c.Banks.Policy(ctx, "support")
	check(err)
	check(c.Banks.RemovePolicy(ctx, "support", seen.ETag()))
	// Output:
	// created: true
	// open: true
}

// exampleUser makes a user with a policy, and returns a client of it.
func exampleUser(c *client.Client, id, policy string) *client.Client {
	ctx := context.Background()
	_, err := c.Users.Create(ctx, svc.User{ID: id})
	check(err)
	to := svc.GrantedTo{Type: svc.GrantedToUser, ID: id}
	check(c.Policies.Attach(ctx, svc.Attachment{PolicyID: policy, Principal: to}))
	key, err := c.Keys.Issue(ctx, svc.Identity{Kind: svc.KindUser, ID: id}, svc.NewAPIKey{})
	check(err)
	return c.As(key.Key)
}

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
