package svc_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
)

//go:embed testdata/staff.json
var staff string

func user(id string, vouched ...string) svc.Principal {
	return svc.Principal{Kind: svc.KindUser, ID: id, Actions: vouched}
}

func account(id string, vouched ...string) svc.Principal {
	return svc.Principal{Kind: svc.KindServiceAccount, ID: id, Actions: vouched}
}

func allowed(t *testing.T, err error) bool {
	t.Helper()
	if err != nil {
		wantCode(t, err, svc.CodeForbidden, "")
	}
	return err == nil
}

// TestEveryMethodAuthorizes: whoever has no rights can do nothing, and is told before anything is looked up.
func TestEveryMethodAuthorizes(t *testing.T) {
	h := newHost(t)
	for name, err := range callAll(t, h, user("plain")) {
		if name != "ping" && name != "issue mine" && svc.ErrorCode(err) != svc.CodeForbidden {
			t.Errorf("%s: got %v", name, err)
		}
	}
	wantCode(t, h.Access.Apply(t.Context(), admin, svc.Bundle{}), svc.CodeForbidden, "")
	if acts := h.actions(); len(acts) > 1 {
		t.Error("something happened:", acts) // beside the key of alice's own
	}
}

// A holder whose policy does not parse just now may be an administrator when it is mended.
func TestCeilingOfWhatCannotBeRead(t *testing.T) {
	h := hostOf(t, staff)
	h.write(t, svc.Bundle{Policies: []svc.Policy{{ID: "all", DisplayName: "all", Document: []byte("{")}}})
	h = newHost(t, func(c *svc.Config) { c.Store = h.store })
	wantCode(t, errorOf(h.Keys.Issue(t.Context(), user("helper"), user("root").Identity(), svc.NewAPIKey{})), svc.CodeForbidden, "")
}

// A household that has everything right: alice recalls through her team, bob by himself, ci and free for alice.
//
//go:embed testdata/intact.json
var intact string

// write writes rows past the service, as if something had come to harm since they were checked.
func (h *host) write(t *testing.T, rows svc.Bundle) {
	t.Helper()
	is.New(t).NoErr(h.store.ChangeAccess(t.Context(), svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) { return rows.Write(), nil }))
}

// wantDenied asks what somebody may do both ways, of a service that remembers nothing, and expects a denial with a reason.
func (h *host) wantDenied(t *testing.T, p svc.Principal, action, bank, reason string) {
	t.Helper()
	is := is.New(t)
	h = newHost(t, func(c *svc.Config) { c.Store = h.config.Store })
	r := must(h.Policies.Resolve(t.Context(), svc.Host, query(p, action, bank)))
	is.True(r.Outcome != svc.Allow)
	is.Equal(r.Parameters, svc.Parameters{})
	is.True(r.EffectiveStrategy == nil)
	if !strings.Contains(r.Reason, reason) {
		t.Errorf("the reason is %q, want it to speak of %q", r.Reason, reason)
	}
	for range 2 { // read, then remembered
		d := must(h.Decide(t.Context(), p, action, bank, svc.Context{}))
		is.True(!d.Allowed())
		is.Equal(d.Outcome(), r.Outcome)
		is.Equal(d.Parameters(), svc.Parameters{})
	}
}

func (h *host) wantAllowed(t *testing.T, p svc.Principal, action, bank string) {
	t.Helper()
	is := is.New(t)
	h = newHost(t, func(c *svc.Config) { c.Store = h.config.Store })
	is.Equal(must(h.Policies.Resolve(t.Context(), svc.Host, query(p, action, bank))).Outcome, svc.Allow)
	is.True(must(h.Decide(t.Context(), p, action, bank, svc.Context{})).Allowed())
}

func query(p svc.Principal, action, bank string) svc.Question {
	q := svc.Question{Action: action, Bank: bank}
	switch p.Kind {
	case svc.KindServiceAccount:
		q.ServiceAccountID = p.ID
	case svc.KindUnmapped:
		q.Sender = "telegram:nobody"
	default:
		q.UserID = p.ID
	}
	return q
}

const (
	recall = "bank:recall"
	notes  = "project::notes"
)

// brokenDocuments no longer parse, each for another reason. The last one holds an allow of everything before it goes wrong.
var brokenDocuments = []string{
	``, `null`, `{`, `{"version":"2027-01-01","statements":[]}`, `{"version":"2026-03-24"}`, "\xff",
	`{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:*"],"banks":["*"]},{"effect":"forbid","actions":["bank:*"],"banks":["*"]}]}`,
}

func TestBrokenPolicyDeniesItsPrincipalsOnly(t *testing.T) {
	for _, document := range brokenDocuments {
		h := hostOf(t, intact)
		h.write(t, svc.Bundle{Policies: []svc.Policy{{ID: "wide", Document: json.RawMessage(document)}}})
		for _, p := range []svc.Principal{user("alice"), account("ci"), account("free"), user("alice", "bank:*", "iam:*")} {
			h.wantDenied(t, p, recall, notes, `policy "wide" through group "team" is not valid`)
			h.wantDenied(t, p, "iam:users:read", "*", "is not valid")
		}
		h.wantAllowed(t, user("bob"), recall, notes)
		h.wantAllowed(t, svc.Unmapped, recall, notes)
		h.apply(t, intact)
		h.wantAllowed(t, user("alice"), recall, notes)
	}
}

func TestBrokenBankPolicyDeniesOnItsBankOnly(t *testing.T) {
	for _, document := range append(brokenDocuments[:4:4], `{"version":"2026-03-24","public_access":{"default":{"actions":["bank:recall","*"]}}}`, `{"statements":[]}`) {
		h := hostOf(t, intact)
		h.write(t, svc.Bundle{BankPolicies: []svc.BankPolicy{{BankID: notes, Document: json.RawMessage(document)}}})
		for _, p := range []svc.Principal{user("alice"), user("bob"), account("ci"), svc.Unmapped} {
			h.wantDenied(t, p, recall, notes, `bank policy "project::notes" is not valid`)
		}
		h.wantAllowed(t, user("alice"), recall, "project::plans")
		reach, err := h.Policies.WhoCan(t.Context(), svc.Host, recall, notes)
		is.New(t).NoErr(err)
		is.New(t).True(reach.Users != nil && reach.ServiceAccounts != nil) // [], and not null
	}
}

// TestBrokenPolicyStaysADeny: a document that may have held a deny does not let another one's allow through, and a deny that can
// still be read is one.
func TestBrokenPolicyStaysADeny(t *testing.T) {
	h := hostOf(t, intact)
	h.apply(t, `{"policies":[{"id":"no","document":{"version":"2026-03-24","statements":[{"effect":"deny","actions":["bank:recall"],"banks":["project::*"]}]}}],
		"attachments":[{"policy_id":"no","principal_type":"user","principal_id":"bob"}]}`)
	h.wantDenied(t, user("bob"), recall, notes, `denied by statement 0 of policy "no"`)
	h.write(t, svc.Bundle{Policies: []svc.Policy{{ID: "bobs", Document: json.RawMessage(`{`)}}})
	h.wantDenied(t, user("bob"), recall, notes, `denied by statement 0 of policy "no"`)
	h.wantDenied(t, user("bob"), recall, "inbox", `policy "bobs" attached to the user is not valid`)
	h.write(t, svc.Bundle{Policies: []svc.Policy{{ID: "no", Document: json.RawMessage(`{`)}}})
	h.apply(t, intact) // bob's allow is good again
	h.wantDenied(t, user("bob"), recall, notes, `policy "no" attached to the user is not valid`)
}

func TestErrorIsNeverAnAllow(t *testing.T) {
	h := hostOf(t, intact)
	for _, cause := range []error{
		svc.ErrUnavailable, svc.ErrNotFound, svc.ErrExists, svc.ErrChanged, svc.ErrUnauthenticated, context.Canceled, context.DeadlineExceeded,
		errors.New("disk on fire"), &svc.Error{Code: svc.CodeNotFound},
	} {
		fails := hooks{access: func(*svc.AccessSnapshot, bool) error { return cause }} // beside all that there is
		failing := newHost(t, func(c *svc.Config) { c.Store = hook(h.store, fails) })
		for _, p := range []svc.Principal{user("alice"), account("free"), svc.Unmapped, user("alice", "bank:*", "iam:*", "template:*")} {
			failing.wantNoAnswer(t, t.Context(), p)
		}
	}
}

func TestCancelledIsNeverAnAllow(t *testing.T) {
	h := hostOf(t, intact)
	h.wantAllowed(t, user("alice"), recall, notes)
	for range 5 { // until it is cached
		must(h.Decide(t.Context(), user("alice"), recall, notes, svc.Context{}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	is.New(t).True(errors.Is(errorOf(h.Decide(ctx, user("alice"), recall, notes, svc.Context{})), context.Canceled))
	for _, p := range []svc.Principal{user("alice"), account("free"), svc.Unmapped, user("alice", "bank:*", "iam:*", "template:*")} {
		h.wantNoAnswer(t, ctx, p)
	}
}

// wantNoAnswer expects an error, nothing beside it that could be taken for an allow, and that nobody gets in on it.
func (h *host) wantNoAnswer(t *testing.T, ctx context.Context, p svc.Principal) {
	t.Helper()
	is := is.New(t)
	r, err := h.Policies.Resolve(ctx, svc.Host, query(p, recall, notes))
	is.True(err != nil)
	is.Equal(r, svc.Resolution{})
	is.True(r.Outcome != svc.Allow)
	d, err := h.Decide(ctx, p, recall, notes, svc.Context{})
	is.True(err != nil)
	is.True(!d.Allowed())
	is.Equal(d.Outcome(), svc.ImplicitDeny)
	is.True(errorOf(h.Decide(ctx, p, "iam:users:read", "*", svc.Context{})) != nil)
	is.True(errorOf(h.Policies.Resolve(ctx, p, svc.Question{Bank: notes, UserID: "bob"})) != nil)
	is.True(lastError(h.Templates.List(ctx, p, svc.TemplateQuery{})) != nil)
	is.True(lastError(h.Keys.List(ctx, p, user("bob").Identity(), svc.KeyQuery{})) != nil)
}

// One list has the actions of the Service: the constants, the table of docs/reference/actions.md and Lint follow it.
func TestActions(t *testing.T) {
	is := is.New(t)
	var constants []string
	constant := regexp.MustCompile(`\b\w+ += "([^"]+)"`)
	for _, found := range constant.FindAllStringSubmatch(string(must(os.ReadFile("action/action.go"))), -1) {
		if found[1] != action.Recall {
			constants = append(constants, found[1])
		}
	}
	slices.Sort(constants)
	is.Equal(action.All(), constants)

	_, table, _ := strings.Cut(string(must(os.ReadFile("docs/reference/actions.md"))), "| action | allows | operations |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for row := range strings.Lines(table) {
		for _, found := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			documented = append(documented, found[1])
		}
	}
	slices.Sort(documented)
	is.Equal(documented, constants)

	lint := func(actions ...string) (codes []svc.FindingCode) {
		document := must(json.Marshal(map[string]any{"version": "2026-03-24", "statements": []any{
			map[string]any{"effect": "allow", "actions": actions, "banks": []string{"*"}},
		}}))
		b := svc.Bundle{Policies: []svc.Policy{{ID: "p", Document: document}}}
		for _, f := range svc.Lint(b, []string{}) {
			if f.Code == svc.FindingUnknownAction {
				codes = append(codes, f.Code)
			}
		}
		return codes
	}
	is.Equal(len(lint(action.All()...)), 0)
	for _, misspelt := range []string{"iam:user:read", "iam", "template:admin:*", "iam:users:read ", "IAM:users:read", "bank:memories", "templates:*"} {
		is.Equal(len(lint(misspelt)), 1)
	}
}
