package policy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
	"github.com/extsvc/svc/internal/strictjson"
)

// With -update the test writes the expected results. Read the diff: the corpus is the standard, and
// the test checks the engine against it.
var update = flag.Bool("update", false, "write the wanted results of testdata/policies anew")

// corpus is one file of testdata/policies: a rule in a sentence, documents, and the expected results.
type corpus struct {
	Rule         string                     `json:"rule"`
	Policies     map[string]json.RawMessage `json:"policies,omitempty"`
	BankPolicies map[string]json.RawMessage `json:"bank_policies,omitempty"` // by bank
	Cases        []*corpusCase              `json:"cases,omitempty"`
	Documents    []storedCase               `json:"documents,omitempty"`
}

type corpusCase struct {
	Name string        `json:"name"`
	Who  corpusSubject `json:"who"`
	Asks corpusRequest `json:"asks"`

	Decision   policy.Outcome    `json:"decision"`
	Reason     string            `json:"reason"`
	Parameters policytest.Memory `json:"parameters"` // those that are set
	Strategy   *string           `json:"strategy,omitempty"`
	Trace      []corpusEntry     `json:"trace"`
}

type corpusSubject struct {
	Kind   policy.Kind   `json:"kind"`
	ID     string        `json:"id,omitempty"`
	Closed string        `json:"closed,omitempty"`
	Grants []corpusGrant `json:"grants,omitempty"`
	// The first policy of a service account is its own, the others are those of keys.
	Scoping []string `json:"scoping,omitempty"`
}

type corpusGrant struct {
	Policy   string `json:"policy"`
	Group    string `json:"group,omitempty"`
	Priority int64  `json:"priority,omitempty"`
}

type corpusRequest struct {
	Action   string `json:"action"`
	Bank     string `json:"bank"`
	Provider string `json:"provider,omitempty"`
	Channel  string `json:"channel,omitempty"`
	Topic    string `json:"topic,omitempty"`
}

type corpusEntry struct {
	Statement string            `json:"statement"` // "policy#index"
	Via       string            `json:"via"`
	Says      policy.Effect     `json:"says"`
	Code      string            `json:"code"`
	By        []string          `json:"by,omitempty"` // the action pattern and the bank pattern that match
	Reason    string            `json:"reason"`
	Sets      policytest.Memory `json:"sets,omitzero"`
	Lost      map[string]string `json:"lost,omitempty"`
}

func TestCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/policies/*.json")
	is.New(t).NoErr(err)
	cases := 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c := load(t, file)
			cases += len(c.Cases)
			for i, tc := range c.Cases {
				t.Run(tc.Name, func(t *testing.T) { c.Cases[i] = c.run(t, tc) })
			}
			for _, tc := range c.Documents {
				t.Run(tc.Kind+"/"+tc.Name, tc.run)
			}
			c.neat(t, file)
		})
	}
	t.Logf("%d cases", cases)
	is.New(t).True(cases >= 80) // the corpus was found
}

// run returns the case with the engine's answer, which must equal the reference's.
func (c corpus) run(t *testing.T, want *corpusCase) *corpusCase {
	is, s, q := is.New(t), c.subject(t, want.Who), c.request(want.Asks)
	got := want.answered(is, evaluate(s, q))
	is.Equal(string(encode(t, got)), string(encode(t, want.answered(is, policytest.Evaluate(s, q))))) // engine and reference agree
	is.True(agrees(decide(compiler.Compile(s), q), evaluate(s, q)))
	if !*update {
		is.Equal(string(encode(t, got)), string(encode(t, want)))
	}
	return got
}

// answered returns the case with this answer.
func (tc corpusCase) answered(is *is.I, r policy.Result) *corpusCase {
	tc.Decision, tc.Reason, tc.Parameters, tc.Strategy, tc.Trace = r.Outcome, r.Reason, policytest.MemoryOf(r.Parameters), r.Strategy, []corpusEntry{}
	for _, e := range r.Trace {
		is.Equal(e.Matched, slices.Contains(matching, e.Code))
		is.True(e.Lost != nil)
		is.True(e.Matched || e.Sets == nil) // what is not matched sets nothing
		var by []string
		for _, pattern := range []*string{e.ActionPattern, e.BankPattern} {
			if pattern != nil {
				by = append(by, *pattern)
			}
		}
		statement := fmt.Sprintf("%s#%d", e.PolicyID, e.Statement)
		tc.Trace = append(tc.Trace, corpusEntry{statement, e.Via, e.Effect, e.Code, by, e.Reason, policytest.MemoryOf(e.Sets), e.Lost})
	}
	return &tc
}

var matching = []string{
	policy.CodeAllowMatched, policy.CodeAllowOverridden, policy.CodeDenyMatched, policy.CodePublicAllowed, policy.CodeBankOverride, policy.CodeBankDefault,
}

func (c corpus) subject(t *testing.T, s corpusSubject) policy.Subject {
	out := policy.Subject{Kind: s.Kind, Closed: s.Closed}
	if s.Kind == policy.ServiceAccount {
		out.ServiceAccountID = s.ID
	}
	for i, id := range s.Scoping {
		n := policy.Named{ID: id, Document: c.document(t, id)}
		if i == 0 && s.Kind == policy.ServiceAccount {
			out.Scoping = []policy.Named{n}
		} else {
			out.Narrowing = append(out.Narrowing, n)
		}
	}
	for _, g := range s.Grants {
		out.Grants = append(out.Grants, policy.Grant{PolicyID: g.Policy, Group: g.Group, Priority: g.Priority, Document: c.document(t, g.Policy)})
	}
	return out
}

func (c corpus) document(t *testing.T, id string) []byte {
	raw, ok := c.Policies[id]
	is.New(t).True(ok) // every policy that is named is in the file
	return raw
}

func (c corpus) request(r corpusRequest) policytest.Request {
	q := policytest.Request{Action: r.Action, Bank: r.Bank, Provider: r.Provider, Channel: r.Channel, Topic: r.Topic}
	if raw, ok := c.BankPolicies[r.Bank]; ok {
		q.BankPolicy = &policy.Named{ID: r.Bank, Document: raw}
	}
	return q
}

// storedCase is a document that must be refused at Pointer with Detail ("?": the wording is
// strictjson's). Without Detail it must be accepted.
type storedCase struct {
	Name     string          `json:"name"`
	Kind     string          `json:"kind"` // access or bank
	Document json.RawMessage `json:"document,omitempty"`
	Text     string          `json:"text,omitempty"` // instead of Document, for what is not JSON
	Pointer  string          `json:"pointer,omitempty"`
	Detail   string          `json:"detail,omitempty"`
}

func (tc storedCase) raw() []byte { return append([]byte(tc.Text), tc.Document...) }

func (tc storedCase) run(t *testing.T) {
	is := is.New(t)
	_, err := policy.Memory.ParseDocument(tc.raw())
	if tc.Kind == "bank" {
		_, err = policy.Memory.ParseBankDocument(tc.raw())
	}
	if tc.Detail == "" {
		is.NoErr(err)
		return
	}
	var refused *strictjson.Error
	is.True(errors.As(err, &refused)) // refused with a pointer
	is.Equal(refused.Pointer, tc.Pointer)
	is.True(refused.Detail == tc.Detail || tc.Detail == "?")
}

func load(tb testing.TB, file string) (c corpus) {
	is := is.New(tb)
	raw, err := os.ReadFile(file)
	is.NoErr(err)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	is.NoErr(d.Decode(&c))
	return c
}

func encode(t *testing.T, v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	is.New(t).NoErr(e.Encode(v))
	return bytes.TrimSpace(b.Bytes())
}

// neat checks that the file has the right answers and layout, or writes it so with -update.
func (c corpus) neat(t *testing.T, file string) {
	is, want := is.New(t), append(laidOut(t, encode(t, c), ""), '\n')
	if *update {
		is.NoErr(os.WriteFile(file, want, 0o644))
		return
	}
	got, err := os.ReadFile(file)
	is.NoErr(err)
	is.True(t.Failed() || bytes.Equal(got, want)) // laid out as -update does it
}

const width = 220

// laidOut puts a JSON value on one line if it fits, and otherwise each of its parts on lines of its own.
func laidOut(t *testing.T, raw []byte, indent string) []byte {
	if len(indent)+len(raw) <= width || raw[0] != '{' && raw[0] != '[' {
		return raw
	}
	is, d := is.New(t), json.NewDecoder(bytes.NewReader(raw))
	_, err := d.Token()
	is.NoErr(err)
	out := []byte{raw[0]}
	for separator := ""; d.More(); separator = "," {
		out = append(out, separator+"\n"+indent+"  "...)
		if raw[0] == '{' {
			key, err := d.Token()
			is.NoErr(err)
			out = append(append(out, encode(t, key)...), ": "...)
		}
		var part json.RawMessage
		is.NoErr(d.Decode(&part))
		out = append(out, laidOut(t, part, indent+"  ")...)
	}
	return append(append(out, "\n"+indent...), raw[len(raw)-1])
}
