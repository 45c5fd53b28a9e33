package svc_test

import (
	"context"
	"fmt"
	"log"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/parameter"
	"github.com/extsvc/svc/store/memstore"
)

// flags are the parameters of a host whose banks are feature flags.
var flags = []parameter.Definition{
	{Name: "row_limit", Type: parameter.Integer, Merge: parameter.Greatest, Narrow: parameter.Lesser},
	{Name: "environments", Type: parameter.TextList, Merge: parameter.Union, Narrow: parameter.Intersect},
	{Name: "review", Type: parameter.Level, Levels: []string{"none", "peer", "owner"},
		Merge: parameter.Least, Narrow: parameter.Greater},
}

// flagBundle lets each team write the flags under its own name, in one policy.
const flagBundle = `{
	"users": [{"id": "alice"}, {"id": "bob"}],
	"groups": [{"id": "search", "members": ["alice"]}, {"id": "billing", "members": ["bob"]}],
	"policies": [{"id": "own-flags", "document": {"version": "2026-03-24", "statements": [
		{"effect": "allow", "actions": ["flag:*"], "banks": ["${group}::*"], "row_limit": 100,
		 "environments": ["staging"], "review": "peer"},
		{"effect": "allow", "actions": ["flag:read"], "banks": ["draft::${user}"], "row_limit": 10}]}}],
	"attachments": [
		{"policy_id": "own-flags", "principal_type": "group", "principal_id": "search"},
		{"policy_id": "own-flags", "principal_type": "group", "principal_id": "billing"}]}`

func exampleFlags() *svc.Service {
	service, err := svc.New(svc.Config{Store: memstore.New(), Parameters: flags})
	if err != nil {
		log.Fatal(err)
	}
	return withBundle(service, flagBundle)
}

// A host brings its own parameters, and reads them by name.
func ExampleConfig_parameters() {
	ctx, service := context.Background(), exampleFlags()
	defer service.Close()
	alice := svc.Principal{Kind: svc.KindUser, ID: "alice"}
	d, err := service.Decide(ctx, alice, "flag:write", "search::ranking", svc.Context{})
	if err != nil {
		log.Fatal(err)
	}
	limit, ok := d.Parameter("row_limit")
	fmt.Println(d.Allowed(), limit, ok)
	for name, value := range d.Parameters().All() {
		fmt.Println(name, value)
	}
	// Output:
	// true 100 true
	// row_limit 100
	// environments [staging]
	// review peer
}

// ${group} and ${user} stand for the group and the user through whom a policy comes.
func Example_variables() {
	ctx, service := context.Background(), exampleFlags()
	defer service.Close()
	for _, bank := range []string{"search::ranking", "billing::invoices", "draft::bob"} {
		reach, err := service.Policies.WhoCan(ctx, svc.Host, "flag:read", bank)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(bank, reach.Users)
	}
	// Output:
	// search::ranking [alice]
	// billing::invoices [bob]
	// draft::bob [bob]
}

func ExampleService_Parameters() {
	service := exampleFlags()
	defer service.Close()
	for _, p := range service.Parameters() {
		fmt.Println(p.Name, p.Type == parameter.Integer)
	}
	// Output:
	// row_limit true
	// environments false
	// review false
}

// An answer with reasons, and what a principal can do, have the same parameters.
func ExampleParameters_Value() {
	ctx, service := context.Background(), exampleFlags()
	defer service.Close()
	r, err := service.Policies.Resolve(ctx, svc.Host, svc.Question{
		UserID: "bob", Action: "flag:write", Bank: "billing::invoices",
	})
	if err != nil {
		log.Fatal(err)
	}
	review, _ := r.Parameter("review")
	list, err := service.Policies.WhatCan(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(review, *r.Trace[0].BankPattern)
	for _, c := range list {
		limit, _ := c.Parameter("row_limit")
		fmt.Println(c.Action, c.Bank, limit)
	}
	// Output:
	// peer ${group}::*
	// flag:* billing::* 100
	// flag:read draft::bob 10
}

// Lint of a Service reads documents with the parameters of its Config.
func ExamplePolicies_Lint() {
	service := exampleFlags()
	defer service.Close()
	bundle, err := svc.ParseBundle([]byte(flagBundle))
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range service.Policies.Lint(bundle, []string{"flag:read", "flag:write"}) {
		fmt.Println(f.Code, f.Pointer)
	}
	// Output:
}

// Diff of a Service compares documents with the parameters of its Config.
func ExamplePolicies_Diff() {
	service := exampleFlags()
	defer service.Close()
	before, err := svc.ParseBundle([]byte(flagBundle))
	if err != nil {
		log.Fatal(err)
	}
	after := before
	after.Groups = []svc.Group{{ID: "search", Members: []string{"alice", "bob"}}, {ID: "billing"}}
	diff, err := service.Policies.Diff(before, after)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range diff.Principals {
		for _, d := range p.Differences {
			fmt.Println(p.Principals, d.Change, d.Action, d.Bank)
		}
	}
	// Output:
	// [{user bob}] newly_denied flag:* billing::*
	// [{user bob}] newly_allowed flag:* search::*
}

// A decision gives one parameter by its name.
func ExampleDecision_Parameter() {
	ctx, service := context.Background(), exampleFlags()
	defer service.Close()
	bob := svc.Principal{Kind: svc.KindUser, ID: "bob"}
	d, err := service.Decide(ctx, bob, "flag:read", "draft::bob", svc.Context{})
	if err != nil {
		log.Fatal(err)
	}
	limit, _ := d.Parameter("row_limit")
	_, reviewed := d.Parameter("review")
	fmt.Println(limit.(int64), reviewed)
	// Output:
	// 10 false
}

// All has every parameter of the table in its order, also those that are not set.
func ExampleParameters_All() {
	ctx, service := context.Background(), exampleFlags()
	defer service.Close()
	answers, err := service.Policies.Decide(ctx, svc.Host, svc.Question{
		UserID: "bob", Action: "flag:read", Bank: "draft::bob",
	})
	if err != nil {
		log.Fatal(err)
	}
	for name, value := range answers[0].Parameters.All() {
		fmt.Println(name, value)
	}
	// Output:
	// row_limit 10
	// environments <nil>
	// review <nil>
}

// A typed document needs no JSON in Go sources.
func ExampleDocument() {
	ownFlags := svc.Document{Statements: []svc.Statement{{
		Effect: svc.EffectAllow, Actions: []string{"flag:*"}, Banks: []string{"${group}::*"},
		Set: map[string]any{"row_limit": 100, "environments": []string{"staging"}},
	}}}
	service := exampleFlags()
	defer service.Close()
	policy, err := service.Policies.Create(context.Background(), svc.Host, svc.Policy{
		ID: "team-flags", Document: ownFlags.JSON(),
	})
	fmt.Println(string(policy.Document), err)
	// Output:
	// {"version":"2026-03-24","statements":[{"effect":"allow","actions":["flag:*"],"banks":["${group}::*"],"environments":["staging"],"row_limit":100}]} <nil>
}

// A program reads a stored policy, changes it and writes it back.
func ExampleParseDocument() {
	ctx, service := context.Background(), exampleFlags()
	defer service.Close()
	policy, err := service.Policies.Read(ctx, svc.Host, "own-flags")
	if err != nil {
		log.Fatal(err)
	}
	document, err := svc.ParseDocument(policy.Document)
	if err != nil {
		log.Fatal(err)
	}
	document.Statements[0].Set["row_limit"] = document.Statements[0].Set["row_limit"].(int64) / 2
	policy, err = service.Policies.Patch(ctx, svc.Host, policy.ID,
		svc.PolicyPatch{Document: document.JSON()}, policy.ETag())
	fmt.Println(string(policy.Document), err)
	// Output:
	// {"version":"2026-03-24","statements":[{"effect":"allow","actions":["flag:*"],"banks":["${group}::*"],"environments":["staging"],"review":"peer","row_limit":50},{"effect":"allow","actions":["flag:read"],"banks":["draft::${user}"],"row_limit":10}]} <nil>
}

func ExampleDocument_JSON() {
	readonly := svc.Document{Statements: []svc.Statement{{
		Effect: svc.EffectAllow, Actions: []string{"flag:read"}, Banks: []string{"*"},
	}}}
	fmt.Println(string(readonly.JSON()))
	// Output:
	// {"version":"2026-03-24","statements":[{"effect":"allow","actions":["flag:read"],"banks":["*"]}]}
}

func ExampleStatement() {
	st := svc.Statement{
		Effect: svc.EffectDeny, Actions: []string{"flag:delete"}, Banks: []string{"billing::*"},
	}
	fmt.Println(string(svc.Document{Statements: []svc.Statement{st}}.JSON()))
	// Output:
	// {"version":"2026-03-24","statements":[{"effect":"deny","actions":["flag:delete"],"banks":["billing::*"]}]}
}
