package parameter_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/parameter"
	"github.com/extsvc/svc/store/memstore"
)

// Without Config.Parameters, these are the parameters.
func ExampleMemory() {
	for _, p := range parameter.Memory()[:3] {
		fmt.Println(p.Name, p.Levels)
	}
	// Output:
	// recall_budget [low mid high]
	// recall_max_tokens []
	// recall_tag_groups []
}

// Two allows match: Merge combines what they set.
func ExampleMerge() {
	service, err := svc.New(svc.Config{Store: memstore.New(), Parameters: []parameter.Definition{
		{Name: "rows", Type: parameter.Integer, Merge: parameter.Greatest, Narrow: parameter.Lesser},
		{Name: "hosts", Type: parameter.TextList, Merge: parameter.Union, Narrow: parameter.Intersect},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
	bundle, err := svc.ParseBundle([]byte(`{
		"users": [{"id": "alice"}],
		"policies": [{"id": "reads", "document": {"version": "2026-03-24", "statements": [
			{"effect": "allow", "actions": ["report:read"], "banks": ["*"], "rows": 10, "hosts": ["a"]},
			{"effect": "allow", "actions": ["report:*"], "banks": ["sales"], "rows": 50, "hosts": ["b"]}]}}],
		"attachments": [{"policy_id": "reads", "principal_type": "user", "principal_id": "alice"}]}`))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if err := service.Access.Apply(ctx, svc.Host, bundle); err != nil {
		log.Fatal(err)
	}
	alice := svc.Principal{Kind: svc.KindUser, ID: "alice"}
	d, err := service.Decide(ctx, alice, "report:read", "sales", svc.Context{})
	if err != nil {
		log.Fatal(err)
	}
	for name, value := range d.Parameters().All() {
		fmt.Println(name, value)
	}
	// Output:
	// rows 50
	// hosts [a b]
}

func ExampleDefinition_Check() {
	d := parameter.Definition{
		Name: "rows", Type: parameter.Integer, Merge: parameter.Union, Narrow: parameter.Lesser,
	}
	fmt.Println(d.Check())
	// Output:
	// Merge does not fit Type
}

func ExampleValidName() {
	fmt.Println(parameter.ValidName("row_limit"), parameter.ValidName("actions"))
	fmt.Println(parameter.ValidName(strings.Repeat("n", 64)), parameter.ValidName(strings.Repeat("n", 65)))
	// Output:
	// true false
	// true false
}
