package policy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/matryer/is"
)

// With -update the wanted results are written anew. Read the diff: the corpus
// is the law, and the evaluator is what is on trial.
var update = flag.Bool("update", false, "write the wanted results of testdata/decisions anew")

// corpus is one file of testdata/decisions: cases of one rule, and the
// documents they name.
type corpus struct {
	Rule      string                     `json:"rule"`
	Documents map[string]json.RawMessage `json:"documents"`
	Cases     []*corpusCase              `json:"cases"`
}

type corpusCase struct {
	Name    string          `json:"name"`
	Subject corpusSubject   `json:"subject"`
	Request corpusRequest   `json:"request"`
	Want    json.RawMessage `json:"want"`
}

type corpusSubject struct {
	Kind           policy.Kind   `json:"kind"`
	ServiceAccount string        `json:"service_account,omitempty"`
	Closed         string        `json:"closed,omitempty"`
	Grants         []corpusGrant `json:"grants,omitempty"`
	Scoping        string        `json:"scoping,omitempty"`
}

type corpusGrant struct {
	Policy   string `json:"policy"`
	Group    string `json:"group,omitempty"`
	Priority int64  `json:"priority,omitempty"`
}

type corpusRequest struct {
	Action     string `json:"action"`
	Bank       string `json:"bank"`
	Provider   string `json:"provider,omitempty"`
	Channel    string `json:"channel,omitempty"`
	Topic      string `json:"topic,omitempty"`
	BankPolicy string `json:"bank_policy,omitempty"`
}

// corpusResult spells a Result with the keys of the corpus.
type corpusResult struct {
	Decision   policy.Outcome    `json:"decision"`
	Reason     string            `json:"reason"`
	Strategy   *string           `json:"strategy"`
	Parameters policy.Parameters `json:"parameters"`
	Trace      []policy.Entry    `json:"trace"`
}

func TestDecisions(t *testing.T) {
	files, err := filepath.Glob("testdata/decisions/*.json")
	is.New(t).NoErr(err)
	cases := 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c := load[corpus](t, file)
			for _, tc := range c.Cases {
				cases++
				t.Run(tc.Name, func(t *testing.T) { c.run(t, tc) })
			}
			if *update {
				is.New(t).NoErr(os.WriteFile(file, encode(t, c, "  "), 0o644))
			}
		})
	}
	is.New(t).True(cases >= 60) // the corpus was found
}

func (c corpus) run(t *testing.T, tc *corpusCase) {
	is := is.New(t)
	got := encode(t, resultKeys(evaluate(c.subject(t, tc.Subject), c.request(t, tc.Request))), "")
	if *update {
		tc.Want = got
		return
	}
	var want bytes.Buffer
	is.NoErr(json.Compact(&want, tc.Want))
	is.Equal(string(bytes.TrimSpace(got)), want.String())
}

func resultKeys(r policy.Result) corpusResult {
	return corpusResult{r.Outcome, r.Reason, r.Strategy, r.Parameters, r.Trace}
}

func (c corpus) subject(t *testing.T, s corpusSubject) policy.Subject {
	out := policy.Subject{Kind: s.Kind, ServiceAccountID: s.ServiceAccount, Closed: s.Closed, Scoping: c.named(t, s.Scoping)}
	for _, g := range s.Grants {
		doc := c.named(t, g.Policy).Document
		out.Grants = append(out.Grants, policy.Grant{PolicyID: g.Policy, Group: g.Group, Priority: g.Priority, Document: doc})
	}
	return out
}

func (c corpus) request(t *testing.T, r corpusRequest) policy.Request {
	return policy.Request{
		Action: r.Action, Bank: r.Bank,
		Context: policy.Context{Provider: r.Provider, Channel: r.Channel, Topic: r.Topic},
		Policy:  policy.CompileBank(c.named(t, r.BankPolicy)),
	}
}

func (c corpus) named(t *testing.T, id string) *policy.Named {
	if id == "" {
		return nil
	}
	doc, ok := c.Documents[id]
	is.New(t).True(ok) // every document that is named is in the file
	return &policy.Named{ID: id, Document: doc}
}

// parseCase is a document that must be refused at Pointer with Detail ("?": the
// wording is strictjson's), or, without Detail, one that must be taken.
type parseCase struct {
	Name     string
	Kind     string // access or bank
	Document json.RawMessage
	Text     string // instead of Document, for what is not JSON
	Pointer  string
	Detail   string
}

func TestDocuments(t *testing.T) {
	for _, tc := range load[[]parseCase](t, "testdata/documents.json") {
		t.Run(tc.Kind+"/"+tc.Name, func(t *testing.T) {
			is := is.New(t)
			raw := []byte(tc.Document)
			if raw == nil {
				raw = []byte(tc.Text)
			}
			err := parse(tc.Kind, raw)
			if tc.Detail == "" {
				is.NoErr(err)
				return
			}
			var refused *strictjson.Error
			is.True(errors.As(err, &refused)) // refused with a pointer
			is.Equal(refused.Pointer, tc.Pointer)
			is.True(refused.Detail == tc.Detail || tc.Detail == "?")
		})
	}
}

func parse(kind string, raw []byte) (err error) {
	if kind == "bank" {
		_, err = policy.ParseBankDocument(raw)
		return err
	}
	_, err = policy.ParseDocument(raw)
	return err
}

func load[T any](t *testing.T, file string) (v T) {
	is := is.New(t)
	raw, err := os.ReadFile(file)
	is.NoErr(err)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	is.NoErr(d.Decode(&v))
	return v
}

func encode(t *testing.T, v any, indent string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	is.New(t).NoErr(e.Encode(v))
	return b.Bytes()
}
