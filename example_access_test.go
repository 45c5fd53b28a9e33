package svc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/extsvc/svc"
)

// teamBundle gives the group "team" the right to read and write the bank "notes".
const teamBundle = `{
	"users": [{"id": "alice"}, {"id": "bob"}],
	"groups": [{"id": "team", "members": ["alice"]}],
	"policies": [{"id": "notes", "document": {"version": "2026-03-24", "statements": [
		{"effect": "allow", "actions": ["bank:recall", "bank:retain"], "banks": ["notes"]}]}}],
	"attachments": [{"policy_id": "notes", "principal_type": "group", "principal_id": "team"}]}`

// Apply writes rights as one bundle, in one transaction. What the bundle does not name stays.
func ExampleAccess_Apply() {
	ctx, service := context.Background(), exampleService()
	defer service.Close()
	bundle, err := svc.ParseBundle([]byte(`{
		"users": [{"id": "alice"}, {"id": "bob"}],
		"groups": [{"id": "team", "members": ["alice"]}],
		"policies": [{"id": "notes", "document": {"version": "2026-03-24", "statements": [
			{"effect": "allow", "actions": ["bank:recall"], "banks": ["notes"]}]}}],
		"attachments": [{"policy_id": "notes", "principal_type": "group", "principal_id": "team"}]}`))
	if err != nil {
		log.Fatal(err)
	}
	if err := service.Access.Apply(ctx, svc.Host, bundle); err != nil {
		log.Fatal(err)
	}
	reach, err := service.Policies.WhoCan(ctx, svc.Host, "bank:recall", "notes")
	fmt.Println(reach.Users, err)
	// Output:
	// [alice] <nil>
}

// Preview shows what a bundle would change, before anybody writes it.
func ExampleAccess_Preview() {
	ctx, service := context.Background(), exampleTeam()
	defer service.Close()
	change := svc.Bundle{Groups: []svc.Group{{ID: "team", Members: []string{"alice", "bob"}}}}
	diff, err := service.Access.Preview(ctx, svc.Host, change, svc.BundleWrite{})
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range diff.Principals {
		for _, d := range p.Differences {
			fmt.Println(p.Principals, d.Change, d.Action, d.Bank)
		}
	}
	// Output:
	// [{user bob}] newly_allowed bank:recall notes
	// [{user bob}] newly_allowed bank:retain notes
}

// Resolve says what a user may do, and why.
func ExamplePolicies_Resolve() {
	ctx, service := context.Background(), exampleTeam()
	defer service.Close()
	for _, user := range []string{"alice", "bob"} {
		question := svc.Question{UserID: user, Action: "bank:retain", Bank: "notes"}
		r, err := service.Policies.Resolve(ctx, svc.Host, question)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user, r.Outcome)
		for _, entry := range r.Trace {
			fmt.Println(" policy", entry.PolicyID, "statement", entry.Statement, "via", entry.Via)
		}
	}
	// Output:
	// alice allow
	//  policy notes statement 0 via group:team
	// bob implicit_deny
}

// A policy has no effect before it is attached.
func ExamplePolicies_Attach() {
	ctx, service := context.Background(), exampleTeam()
	defer service.Close()
	_, err := service.Policies.Create(ctx, svc.Host, svc.Policy{
		ID: "no-retain",
		Document: json.RawMessage(`{"version": "2026-03-24", "statements": [
			{"effect": "deny", "actions": ["bank:retain"], "banks": ["*"]}]}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	alice := svc.GrantedTo{Type: svc.GrantedToUser, ID: "alice"}
	attachment := svc.Attachment{PolicyID: "no-retain", Principal: alice}
	if err := service.Policies.Attach(ctx, svc.Host, attachment); err != nil {
		log.Fatal(err)
	}
	can, err := service.Policies.WhatCan(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"})
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range can {
		fmt.Println(c.Outcome, c.Action, c.Bank)
	}
	// Output:
	// allow bank:recall notes
	// explicit_deny bank:retain *
}

// A user needs a row for rights of its own. Its channels say which senders it is.
func ExampleUsers_Create() {
	ctx, service := context.Background(), exampleTeam()
	defer service.Close()
	carol := svc.User{ID: "carol", Channels: []svc.Channel{{Provider: "slack", SenderID: "U7"}}}
	if _, err := service.Users.Create(ctx, svc.Host, carol); err != nil {
		log.Fatal(err)
	}
	if err := service.Groups.AddMembers(ctx, svc.Host, "team", "carol"); err != nil {
		log.Fatal(err)
	}
	question := svc.Question{Sender: "slack:U7", Bank: "notes"}
	r, err := service.Policies.Resolve(ctx, svc.Host, question)
	fmt.Println(r.TenantID, r.Outcome, err)
	// Output:
	// carol allow <nil>
}

// When a user leaves, Delete removes all that is the user's, and revokes its keys.
func ExampleUsers_Delete() {
	ctx, service := context.Background(), exampleTeam()
	defer service.Close()
	alice := svc.Identity{Kind: svc.KindUser, ID: "alice"}
	issued, err := service.Keys.Issue(ctx, svc.Host, alice, svc.NewAPIKey{})
	if err != nil {
		log.Fatal(err)
	}
	if err := service.Users.Delete(ctx, svc.Host, "alice"); err != nil {
		log.Fatal(err)
	}
	_, err = service.Authenticate(ctx, string(issued.Key))
	fmt.Println(svc.ErrorCode(err))
	for member, err := range service.Groups.Members(ctx, svc.Host, "team", svc.RowQuery{}) {
		fmt.Println(member, err)
	}
	// Output:
	// unauthenticated
}

// Members of a group have the policies that are attached to it.
func ExampleGroups_AddMembers() {
	ctx, service := context.Background(), exampleTeam()
	defer service.Close()
	if err := service.Groups.AddMembers(ctx, svc.Host, "team", "bob"); err != nil {
		log.Fatal(err)
	}
	for member, err := range service.Groups.Members(ctx, svc.Host, "team", svc.RowQuery{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(member)
	}
	bob := svc.Principal{Kind: svc.KindUser, ID: "bob"} // from Authenticate
	d, err := service.Decide(ctx, bob, "bank:recall", "notes", svc.Context{})
	fmt.Println(d.Allowed(), err)
	// Output:
	// alice
	// bob
	// true <nil>
}

// A service account acts with the rights of its owner. A policy can narrow it.
func ExampleServiceAccounts_Create() {
	ctx, service := context.Background(), exampleTeam()
	defer service.Close()
	_, err := service.ServiceAccounts.Create(ctx, svc.Host, svc.ServiceAccount{
		ID: "nightly", OwnerUserID: "alice", ScopingPolicyID: svc.PolicyBankReadOnly,
	})
	if err != nil {
		log.Fatal(err)
	}
	nightly := svc.Identity{Kind: svc.KindServiceAccount, ID: "nightly"}
	issued, err := service.Keys.Issue(ctx, svc.Host, nightly, svc.NewAPIKey{})
	if err != nil {
		log.Fatal(err)
	}
	who, err := service.Authenticate(ctx, string(issued.Key))
	if err != nil {
		log.Fatal(err)
	}
	for _, action := range []string{"bank:recall", "bank:retain"} {
		d, err := service.Decide(ctx, who, action, "notes", svc.Context{})
		fmt.Println(who.ID, action, d.Allowed(), err)
	}
	// Output:
	// nightly bank:recall true <nil>
	// nightly bank:retain false <nil>
}

// MyServiceAccounts are the caller's own. A built-in policy gives the right to have some.
func ExampleServiceAccounts_Create_own() {
	ctx, service := context.Background(), exampleTeam()
	defer service.Close()
	err := service.Policies.Attach(ctx, svc.Host, svc.Attachment{
		PolicyID:  svc.PolicyIAMSelfService,
		Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "alice"},
	})
	if err != nil {
		log.Fatal(err)
	}
	alice := svc.Principal{Kind: svc.KindUser, ID: "alice"} // from Authenticate
	own, err := service.MyServiceAccounts.Create(ctx, alice, svc.ServiceAccount{ID: "laptop"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(own.ID, "of", own.OwnerUserID)
	issued, err := service.Keys.Issue(ctx, alice, svc.MyAccount("laptop"), svc.NewAPIKey{})
	fmt.Println(issued.Holder.ID, err)
	// Output:
	// laptop of alice
	// laptop <nil>
}

// The policy of a bank says what unmapped senders may do.
func ExampleBanks_SetPolicy() {
	ctx, service := context.Background(), exampleService()
	defer service.Close()
	_, err := service.Banks.SetPolicy(ctx, svc.Host, svc.BankPolicy{
		BankID: "notes",
		Document: json.RawMessage(`{"version": "2026-03-24", "public_access": {
			"default": {"actions": ["bank:recall"], "recall_budget": "low"}}}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, action := range []string{"bank:recall", "bank:retain"} {
		d, err := service.Decide(ctx, svc.Unmapped, action, "notes", svc.Context{Provider: "slack"})
		fmt.Println(action, d.Allowed(), err)
	}
	// Output:
	// bank:recall true <nil>
	// bank:retain false <nil>
}

// Lint finds mistakes in a bundle, such as a group without members.
func ExampleLint() {
	bundle, err := svc.ParseBundle([]byte(teamBundle))
	if err != nil {
		log.Fatal(err)
	}
	bundle.Groups[0].Members = nil
	for _, f := range svc.Lint(bundle, nil) {
		fmt.Println(f.Pointer, f.Code)
	}
	// Output:
	// /groups/0 group_empty
}

// Diff compares two bundles without a store.
func ExampleDiff() {
	before, err := svc.ParseBundle([]byte(teamBundle))
	if err != nil {
		log.Fatal(err)
	}
	after := before
	after.Attachments = nil
	diff, err := svc.Diff(before, after)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range diff.Principals {
		for _, d := range p.Differences {
			fmt.Println(p.Principals, d.Change, d.Action, d.Bank)
		}
	}
	// Output:
	// [{user alice}] newly_denied bank:recall notes
	// [{user alice}] newly_denied bank:retain notes
}

// exampleTeam returns a Service with the rows of teamBundle.
func exampleTeam() *svc.Service { return withBundle(exampleService(), teamBundle) }

// withBundle returns a Service after it has applied a bundle.
func withBundle(service *svc.Service, text string) *svc.Service {
	bundle, err := svc.ParseBundle([]byte(text))
	if err != nil {
		log.Fatal(err)
	}
	if err := service.Access.Apply(context.Background(), svc.Host, bundle); err != nil {
		log.Fatal(err)
	}
	return service
}
