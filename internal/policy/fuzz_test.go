package policy_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/strictjson"
)

func FuzzParseDocument(f *testing.F) {
	seed(f, "access")
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := policy.ParseDocument(raw)
		result := evaluate(policy.Subject{
			Kind:   policy.User,
			Grants: []policy.Grant{{PolicyID: "p", Document: raw}, {PolicyID: "p", Group: "g", Document: raw}},
		}, policy.Request{Action: "bank:recall", Bank: "a::b"})
		checkParse(t, err, result)
		if err == nil && len(result.Trace) != 2*len(d.Statements) {
			t.Errorf("%d statements twice, %d entries", len(d.Statements), len(result.Trace))
		}
	})
}

func FuzzParseBankDocument(f *testing.F) {
	seed(f, "bank")
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := policy.ParseBankDocument(raw)
		result := evaluate(policy.Subject{Kind: policy.Unmapped}, policy.Request{
			Action: "bank:recall", Bank: "b", Context: policy.Context{Provider: "slack", Channel: "c", Topic: "t"},
			Policy: policy.CompileBank(&policy.Named{ID: "b", Document: raw}),
		})
		checkParse(t, err, result)
		if err == nil && d.PublicAccess == nil && result.Outcome == policy.Allow {
			t.Error("allowed without public access")
		}
	})
}

// checkParse holds for both parsers: a refusal has a pointer and denies, and
// every answer can be written down.
func checkParse(t *testing.T, err error, result policy.Result) {
	if _, unwritable := json.Marshal(result); unwritable != nil {
		t.Error(unwritable)
	}
	if err == nil {
		return
	}
	var refused *strictjson.Error
	if !errors.As(err, &refused) || refused.Pointer != "" && !strings.HasPrefix(refused.Pointer, "/") {
		t.Errorf("refused without a pointer: %v", err)
	}
	if result.Outcome != policy.ImplicitDeny {
		t.Errorf("a document that does not parse: %s", result.Outcome)
	}
}

func seed(f *testing.F, kind string) {
	raw, err := os.ReadFile("testdata/documents.json")
	if err != nil {
		f.Fatal(err)
	}
	var cases []parseCase
	if err := json.Unmarshal(raw, &cases); err != nil {
		f.Fatal(err)
	}
	for _, c := range cases {
		if c.Kind == kind {
			f.Add([]byte(string(c.Document) + c.Text))
		}
	}
}
