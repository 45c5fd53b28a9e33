package bench_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/parameter"
	"github.com/extsvc/svc/store/memstore"
)

// deciders is how many users have a policy in BenchmarkParameters.
const deciders = 1000

// BenchmarkParameters compares a decision of a host with parameters of its own, whose one policy names
// the user by a variable, with one that has the parameters of memory and a policy for each user.
func BenchmarkParameters(b *testing.B) {
	ten := deciding(b, nil, func(id string) svc.Document {
		return allowing(id+"::*", map[string]any{"recall_budget": "mid", "recall_max_tokens": 100, "llm_model": "m"})
	})
	own := deciding(b, []parameter.Definition{
		{Name: "review", Type: parameter.Level, Levels: []string{"none", "peer", "owner"}, Merge: parameter.Greatest, Narrow: parameter.Lesser},
		{Name: "row_limit", Type: parameter.Integer, Merge: parameter.Greatest, Narrow: parameter.Lesser},
		{Name: "model", Type: parameter.Text, Merge: parameter.Closest, Narrow: parameter.Replace},
	}, func(string) svc.Document {
		return allowing("${user}::*", map[string]any{"review": "peer", "row_limit": 100, "model": "m"})
	})
	compare(b, measure.Side{Name: "ten", Call: ten}, measure.Side{Name: "own", Call: own})
}

func allowing(bank string, set map[string]any) svc.Document {
	return svc.Document{Statements: []svc.Statement{
		{Effect: svc.EffectAllow, Actions: []string{"bank:recall"}, Banks: []string{bank}, Set: set},
	}}
}

// deciding returns a call that decides about the next user's own bank.
func deciding(b *testing.B, parameters []parameter.Definition, document func(id string) svc.Document) func() error {
	b.Helper()
	service := get(svc.New(svc.Config{Store: memstore.New(), Parameters: parameters}))
	b.Cleanup(func() { _ = service.Close() })
	var bundle svc.Bundle
	policies := map[string]json.RawMessage{}
	for i := range deciders {
		id := userID(i)
		document := document(id).JSON()
		policy := "of-" + id
		if i > 0 && string(document) == string(policies["of-"+userID(0)]) {
			policy = "of-" + userID(0)
		} else {
			policies[policy] = document
			bundle.Policies = append(bundle.Policies, svc.Policy{ID: policy, Document: document})
		}
		bundle.Users = append(bundle.Users, svc.User{ID: id})
		bundle.Attachments = append(bundle.Attachments, svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: id}})
	}
	check(service.Access.Apply(b.Context(), svc.Host, bundle))
	next := 0
	return func() error {
		id := userID(next % deciders)
		next++
		d, err := service.Decide(b.Context(), svc.Principal{Kind: svc.KindUser, ID: id}, "bank:recall", id+"::notes", svc.Context{})
		if err == nil && !d.Allowed() {
			err = fmt.Errorf("%s may not recall its own bank", id)
		}
		return err
	}
}
