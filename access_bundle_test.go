package svc_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/limits"
	"github.com/extsvc/svc/store/memstore"
)

const tested = `{
	"users": [{"id": "ann", "channels": [{"provider": "chat", "sender_id": "7"}]}, {"id": "bob"}],
	"policies": [{"id": "reads", "document": {"version": "2026-03-24",
		"statements": [{"effect": "allow", "actions": ["bank:recall"], "banks": ["notes"]}]}}],
	"attachments": [{"policy_id": "reads", "principal_type": "user", "principal_id": "ann"}],
	"tests": [
		{"user_id": "ann", "action": "bank:recall", "bank": "notes", "allowed": true},
		{"sender": "chat:7", "action": "bank:recall", "bank": "notes", "allowed": true},
		{"user_id": "bob", "action": "bank:recall", "bank": "notes", "allowed": false}]}`

func parsed(t *testing.T, text string) svc.Bundle {
	t.Helper()
	b, err := svc.ParseBundle([]byte(text))
	is.New(t).NoErr(err)
	return b
}

// subjects says whom tests ask about.
func subjects(tests []svc.AccessTest) (all string) {
	for _, t := range tests {
		all += t.UserID + t.ServiceAccountID + t.Sender + " "
	}
	return all
}

func TestKeptTestsTurn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := must(svc.New(svc.Config{Store: memstore.New()}))
	is.NoErr(s.Access.Apply(t.Context(), svc.Host, parsed(t, tested)))
	turned := func(text string, how svc.BundleWrite) string {
		d := must(s.Access.Preview(t.Context(), svc.Host, parsed(t, text), how))
		return subjects(d.Turned)
	}
	is.Equal(turned(`{}`, svc.BundleWrite{}), "")
	none := `"policies": [{"id": "reads", "document": {"version": "2026-03-24", "statements": []}}]`
	is.Equal(len(strings.Fields(turned(`{`+none+`}`, svc.BundleWrite{}))), 2)
	// The sender is another user's.
	is.Equal(turned(`{"users": [{"id": "ann", "channels": []},
		{"id": "bob", "channels": [{"provider": "chat", "sender_id": "7"}]}]}`, svc.BundleWrite{}), "chat:7 ")
	// Tests of the bundle stand for the kept ones, and Prune leaves no others.
	is.Equal(turned(`{"tests": [{"user_id": "bob", "action": "bank:recall", "bank": "notes", "allowed": true}]}`,
		svc.BundleWrite{}), "bob ")
	is.Equal(turned(`{`+none+`, "users": [{"id": "ann"}]}`, svc.BundleWrite{Prune: true}), "")

	all := must(s.Access.Export(t.Context(), svc.Host))
	is.Equal(len(all.Tests), 3)
	text := must(all.JSON())
	is.NoErr(s.Access.Apply(t.Context(), svc.Host, parsed(t, string(text)))) // what is exported can be written
	is.Equal(must(s.Access.Export(t.Context(), svc.Host)), all)

	diff, err := svc.Diff(all, parsed(t, `{"users": [{"id": "ann"}], "tests": [
		{"user_id": "ann", "action": "bank:recall", "bank": "notes", "allowed": true}]}`))
	is.NoErr(err)
	is.Equal(subjects(diff.Turned), "ann ")
}

func TestTestsAreKeptAndRemoved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := must(svc.New(svc.Config{Store: memstore.New()}))
	is.NoErr(s.Access.Apply(t.Context(), svc.Host, parsed(t, tested)))
	before := must(s.Access.Export(t.Context(), svc.Host))
	// The question says which test it is: another answer is no second test.
	other := `{"tests": [{"user_id": "ann", "action": "bank:recall", "bank": "notes", "allowed": false}]}`
	editor := svc.Principal{Kind: svc.KindUser, ID: "editor", Actions: []string{action.PoliciesWrite, action.PoliciesRead}}
	is.NoErr(s.Access.Write(t.Context(), editor, parsed(t, other), svc.BundleWrite{}))
	ids := []string{}
	kept := must(s.Access.Tests(t.Context(), editor))
	for _, one := range kept {
		ids = append(ids, one.ID)
	}
	is.Equal(len(ids), 3)
	is.True(must(s.Access.Export(t.Context(), svc.Host)).Revision() != before.Revision())

	reader := svc.Principal{Kind: svc.KindUser, ID: "reader", Actions: []string{action.PoliciesRead}}
	is.Equal(svc.ErrorCode(s.Access.RemoveTest(t.Context(), reader, ids[0])), svc.CodeForbidden)
	is.Equal(svc.ErrorCode(s.Access.Write(t.Context(), reader, parsed(t, other), svc.BundleWrite{})), svc.CodeForbidden)
	is.NoErr(s.Access.RemoveTest(t.Context(), editor, ids[0]))
	is.Equal(svc.ErrorCode(s.Access.RemoveTest(t.Context(), editor, ids[0])), svc.CodeNotFound)

	for _, bad := range []struct{ test, at string }{
		{`{"user_id": "ann", "action": "a:b", "bank": "notes"}`, "/tests/0/allowed"},
		{`{"action": "a:b", "bank": "notes", "allowed": true}`, "/tests/0/user_id"},
		{`{"user_id": "ann", "sa_id": "bot", "action": "a:b", "bank": "notes", "allowed": true}`, "/tests/0"},
		{`{"user_id": "ann", "action": "a:b", "bank": "", "allowed": true}`, "/tests/0/bank"},
	} {
		errs := svc.Errors(s.Access.Write(t.Context(), editor, parsed(t, `{"tests": [`+bad.test+`]}`), svc.BundleWrite{}))
		is.Equal(len(errs), 1)
		is.Equal(errs[0].Field, bad.at)
	}
	var many svc.Bundle
	for i := range limits.AccessTests {
		many.Tests = append(many.Tests, svc.AccessTest{UserID: "ann", Bank: fmt.Sprint(i)})
	}
	errs := svc.Errors(s.Access.Write(t.Context(), editor, many, svc.BundleWrite{}))
	is.Equal(len(errs), 1)
	is.Equal(errs[0].Field, "/tests")
	is.NoErr(s.Access.Write(t.Context(), svc.Host, many, svc.BundleWrite{Prune: true}))
}

func TestLintFindsTurnedTests(t *testing.T) {
	t.Parallel()
	b := parsed(t, tested)
	b.Tests[1].Allowed = false
	b.Tests[2].Bank = "" // a fault of the row
	found := ""
	for _, f := range svc.Lint(b, nil) {
		found += f.Pointer + " " + string(f.Code) + " " + string(f.Severity) + "; "
	}
	is.New(t).Equal(found, "/tests/1 test_turned warning; /tests/2/bank row_invalid error; ")
}
