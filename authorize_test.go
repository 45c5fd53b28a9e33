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
	"github.com/extsvc/svc/internal/expect"
)

//go:embed testdata/staff.json
var staff string

func user(id string, vouched ...string) svc.Principal {
	return svc.Principal{Kind: svc.KindUser, ID: id, Actions: vouched}
}

func account(id string, vouched ...string) svc.Principal {
	return svc.Principal{Kind: svc.KindServiceAccount, ID: id, Actions: vouched}
}

// TestEveryMethodAuthorizes: whoever has no rights can do nothing, and is told before anything is looked up.
func TestEveryMethodAuthorizes(t *testing.T) {
	h := newHost(t, importing)
	for name, err := range callAll(t, h, user("plain")) {
		expect.Holds(t, name == "ping" || name == "issue mine" || svc.ErrorCode(err) == svc.CodeForbidden, name, ": ", err)
	}
	wantCode(t, h.Access.Apply(t.Context(), admin, svc.Bundle{}), svc.CodeForbidden, "")
	if acts := h.actions(); len(acts) > 1 {
		t.Error("something happened:", acts) // beside the key of alice's own
	}
}

// A household that has everything right: alice recalls through her team, bob by himself, ci and free for alice.
//
//go:embed testdata/intact.json
var intact string

// write writes rows past the service, as if something had come to harm since they were checked.
func (h *host) write(t *testing.T, rows svc.Bundle) {
	is.New(t).NoErr(h.store.ChangeAccess(t.Context(), svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) { return rows.Write(), nil }))
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

func (h *host) wantNoAnswer(t *testing.T, ctx context.Context, p svc.Principal) {
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
