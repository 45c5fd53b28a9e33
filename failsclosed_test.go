package svc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// A household that has everything right: alice recalls through her team, bob by himself, ci and free for alice.
const intact = `{
	"users": [{"id":"alice","channels":[{"provider":"telegram","sender_id":"1"}]}, {"id":"bob"}],
	"groups": [{"id":"team","members":["alice"]}],
	"service_accounts": [{"id":"ci","owner_user_id":"alice","scoping_policy_id":"narrow"},{"id":"free","owner_user_id":"alice"}],
	"policies": [
		{"id":"wide","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:*","iam:*","template:*"],"banks":["*"],"recall_budget":"high"}]}},
		{"id":"bobs","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:*"],"banks":["*"]}]}},
		{"id":"narrow","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:recall"],"banks":["project::*"]}]}}],
	"attachments": [{"policy_id":"wide","principal_type":"group","principal_id":"team"},{"policy_id":"bobs","principal_type":"user","principal_id":"bob"}],
	"bank_policies": [{"bank_id":"project::notes","document":{"version":"2026-03-24","default_strategy":"deep",
		"public_access":{"default":{"actions":["bank:recall"]},"overrides":[{"scope":"channel","value":"internal"},{"scope":"provider","value":"slack","actions":["bank:*"]}]}}}]}`

func newHousehold(t *testing.T) *host {
	h := newHost(t)
	h.apply(t, intact)
	return h
}

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

func TestIntactAllows(t *testing.T) {
	h := newHousehold(t)
	for _, p := range []svc.Principal{user("alice"), user("bob"), account("ci"), account("free"), svc.Unmapped} {
		h.wantAllowed(t, p, recall, notes)
	}
}

func TestScopingPolicyGoneDenies(t *testing.T) {
	h := newHousehold(t)
	h.write(t, svc.Bundle{ServiceAccounts: []svc.ServiceAccount{{ID: "ci", OwnerUserID: "alice", ScopingPolicyID: "gone"}}})
	h.wantDenied(t, account("ci"), recall, notes, `the scoping policy "gone" of service account "ci" is gone`)
	h.wantDenied(t, account("ci"), "iam:users:read", "*", "is gone")
	h.wantAllowed(t, user("alice"), recall, notes)

	err := h.tryApply(t, `{"service_accounts": [{"id":"ci","owner_user_id":"alice","scoping_policy_id":"never"}]}`)
	wantCode(t, err, svc.CodeInvalid, "/service_accounts/0/scoping_policy_id")
}

// tryApply is apply of what may be refused.
func (h *host) tryApply(t *testing.T, bundle string) error {
	t.Helper()
	b, err := svc.ParseBundle([]byte(bundle))
	is.New(t).NoErr(err)
	return h.Access.Apply(t.Context(), svc.Host, b)
}

func TestInactiveDenies(t *testing.T) {
	for _, c := range []struct {
		harm, mend, reason string
		denied             []svc.Principal
		allowed            []svc.Principal
	}{
		{`{"users":[{"id":"alice","is_active":false}]}`, `{"users":[{"id":"alice","is_active":true}]}`, `"alice"`,
			[]svc.Principal{user("alice"), account("ci"), account("free")}, []svc.Principal{user("bob")}},
		{`{"service_accounts":[{"id":"free","owner_user_id":"alice","is_active":false}]}`, `{"service_accounts":[{"id":"free","is_active":true}]}`,
			`service account "free" is inactive`, []svc.Principal{account("free")}, []svc.Principal{user("alice"), account("ci")}},
	} {
		h := newHousehold(t)
		h.apply(t, c.harm)
		for _, p := range c.denied {
			h.wantDenied(t, p, recall, notes, c.reason)
			h.wantDenied(t, p, "bank:retain", "inbox", "inactive")
		}
		for _, p := range c.allowed {
			h.wantAllowed(t, p, recall, notes)
		}
		h.apply(t, c.mend)
		for _, p := range append(c.denied, c.allowed...) {
			h.wantAllowed(t, p, recall, notes)
		}
	}
}

func TestUnknownDenies(t *testing.T) {
	h := newHousehold(t)
	h.wantDenied(t, user("nobody"), recall, notes, `user "nobody" is unknown`)
	h.wantDenied(t, account("nobody"), recall, notes, `service account "nobody" is unknown`)
	h.write(t, svc.Bundle{ServiceAccounts: []svc.ServiceAccount{{ID: "free", OwnerUserID: "nobody"}}})
	h.wantDenied(t, account("free"), recall, notes, `the owner "nobody" of service account "free" is unknown`)

	is := is.New(t)
	r := must(h.Policies.Resolve(t.Context(), svc.Host, svc.Question{Bank: "inbox", Sender: "telegram:2"}))
	is.Equal(r.Outcome, svc.ImplicitDeny) // a sender that nobody has
	is.Equal(r.PrincipalType, svc.KindUnmapped)
}

// brokenDocuments no longer parse, each for another reason. The last one holds an allow of everything before it goes wrong.
var brokenDocuments = []string{
	``, `null`, `{`, `{"version":"2027-01-01","statements":[]}`, `{"version":"2026-03-24"}`, "\xff",
	`{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:*"],"banks":["*"]},{"effect":"forbid","actions":["bank:*"],"banks":["*"]}]}`,
}

func TestBrokenPolicyDeniesItsPrincipalsOnly(t *testing.T) {
	for _, document := range brokenDocuments {
		h := newHousehold(t)
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

func TestBrokenScopingPolicyDenies(t *testing.T) {
	for _, document := range brokenDocuments {
		h := newHousehold(t)
		h.write(t, svc.Bundle{Policies: []svc.Policy{{ID: "narrow", Document: json.RawMessage(document)}}})
		h.wantDenied(t, account("ci"), recall, notes, `scoping policy "narrow" is not valid`)
		h.wantAllowed(t, account("free"), recall, notes)
		h.wantAllowed(t, user("alice"), recall, notes)
	}
}

func TestBrokenBankPolicyDeniesOnItsBankOnly(t *testing.T) {
	for _, document := range append(brokenDocuments[:4:4], `{"version":"2026-03-24","public_access":{"default":{"actions":["bank:recall","*"]}}}`, `{"statements":[]}`) {
		h := newHousehold(t)
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
	h := newHousehold(t)
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

// TestIDsOfOtherKinds: a principal's kind is never read out of its id.
func TestIDsOfOtherKinds(t *testing.T) {
	h := newHousehold(t)
	var lookalikes []string
	for _, id := range []string{"sa:ci", "_unmapped", "group:team", "team", "ci", "user", "host", "*", "telegram:1", "unmapped", "scoping:ci", "wide"} {
		lookalikes = append(lookalikes, fmt.Sprintf(`{"id":%q}`, id))
		h.wantDenied(t, user(id), recall, notes, "unknown")
		h.wantDenied(t, account("sa:"+id), recall, notes, "unknown")
	}
	h.apply(t, `{"users":[`+strings.Join(lookalikes, ",")+`],
		"service_accounts":[{"id":"alice","owner_user_id":"ci"},{"id":"_unmapped","owner_user_id":"ci"}],"groups":[{"id":"alice","members":["ci"]}]}`)
	for _, id := range []string{"sa:ci", "_unmapped", "group:team", "team", "ci", "user", "host", "*", "telegram:1", "unmapped", "scoping:ci", "wide"} {
		h.wantDenied(t, user(id), recall, notes, "no policy of the user allows")
		h.wantDenied(t, user(id), "iam:users:read", "*", "no policy of the user allows")
		h.wantForbidden(t, user(id))
	}
	h.wantDenied(t, account("alice"), recall, notes, "no policy of its owner allows")
	h.wantDenied(t, account("_unmapped"), recall, notes, "no policy of its owner allows")
	h.wantDenied(t, account("sa:ci"), recall, notes, "unknown")
	h.wantForbidden(t, svc.Principal{Kind: svc.KindUnmapped, ID: "alice", Actions: []string{"iam:*", "template:*"}})
	h.wantForbidden(t, svc.Principal{Kind: "group", ID: "team", Actions: []string{"iam:*", "template:*"}})
	h.wantForbidden(t, svc.Principal{Kind: "HOST"})
}

// wantForbidden expects that the control plane is closed to somebody.
func (h *host) wantForbidden(t *testing.T, by svc.Principal) {
	t.Helper()
	_, resolve := h.Policies.Resolve(t.Context(), by, svc.Question{Bank: notes, UserID: "alice"})
	wantCode(t, resolve, svc.CodeForbidden, "")
	wantCode(t, lastError(h.Templates.List(t.Context(), by, svc.TemplateQuery{})), svc.CodeForbidden, "")
}

// TestTenantsOfOtherKinds: what is told of a principal has its kind beside its id.
func TestTenantsOfOtherKinds(t *testing.T) {
	is := is.New(t)
	h := newHousehold(t)
	h.apply(t, `{"users":[{"id":"sa:ci"},{"id":"_unmapped","channels":[{"provider":"sa","sender_id":"ci"}]}]}`)
	for _, c := range []struct {
		q      svc.Question
		tenant string
		kind   svc.Kind
	}{
		{svc.Question{UserID: "sa:ci"}, "sa:ci", svc.KindUser},
		{svc.Question{ServiceAccountID: "ci"}, "sa:ci", svc.KindServiceAccount},
		{svc.Question{UserID: "_unmapped"}, "_unmapped", svc.KindUser},
		{svc.Question{Sender: "sa:ci"}, "_unmapped", svc.KindUser},
		{svc.Question{Sender: "user:alice"}, "_unmapped", svc.KindUnmapped},
	} {
		c.q.Bank = notes
		r := must(h.Policies.Resolve(t.Context(), svc.Host, c.q))
		is.Equal([]any{r.TenantID, r.PrincipalType}, []any{c.tenant, c.kind})
	}
}

// TestNothingDecidesByTenant: the id of a tenant is written and handed on; nothing compares it or takes it apart. It cannot tell a user of the
// id "sa:ci" from the service account.
func TestNothingDecidesByTenant(t *testing.T) {
	decides := regexp.MustCompile(`TenantID\)?\s*[=!]=|[=!]=\s*[\w.]*TenantID|switch[^{]*TenantID|strings\.\w+\([^)]*TenantID|\[[\w.]*TenantID\]`)
	spoken := 0
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		spoken += bytes.Count(source, []byte("TenantID"))
		if found := decides.Find(source); found != nil {
			t.Errorf("%s decides by the id of a tenant: %s", path, found)
		}
		return err
	})
	is := is.New(t)
	is.NoErr(err)
	is.True(spoken > 5)
	for _, planted := range []string{`if r.TenantID == "a"`, `"a" != r.TenantID`, `strings.Cut(r.TenantID, ":")`, "switch r.TenantID {", "banks[r.TenantID]"} {
		is.True(decides.MatchString(planted))
	}
}

// TestNothingInUseIsDeleted: there is no way to delete a user, group, service account or policy, so that none can vanish under
// what refers to it. Who adds one has to refuse to delete a policy in use, and to leave nothing for a user of the same id.
func TestNothingInUseIsDeleted(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[svc.AccessStore](), reflect.TypeFor[*svc.Service]()} {
		for m := range of.Methods() {
			deletes := strings.HasPrefix(m.Name, "Delete") || strings.HasPrefix(m.Name, "Remove")
			if deletes && m.Name != "DeleteTemplate" && m.Name != "RemoveSource" {
				t.Errorf("%v has %s", of, m.Name)
			}
		}
	}
	h := newHousehold(t)
	h.apply(t, `{"policies":[{"id":"other","document":{"version":"2026-03-24","statements":[]}}],"groups":[{"id":"team"}],"users":[{"id":"alice"}]}`)
	h.wantAllowed(t, user("alice"), recall, notes) // what is not named stays
	h.apply(t, `{"policies":[{"id":"narrow","document":{"version":"2026-03-24","statements":[]}}],"groups":[{"id":"team","members":[]}]}`)
	h.wantDenied(t, account("ci"), recall, notes, "no policy of its owner allows")
	h.wantDenied(t, user("alice"), recall, notes, "no policy of the user allows") // a group is withdrawn by emptying it
}

// TestNobodyInheritsRights: nothing can be attached to, or be owned by, somebody who is not there yet.
func TestNobodyInheritsRights(t *testing.T) {
	h := newHousehold(t)
	for field, bundle := range map[string]string{
		"/attachments/0/principal_id":        `{"attachments":[{"policy_id":"wide","principal_type":"user","principal_id":"carol"}]}`,
		"/attachments/0/policy_id":           `{"attachments":[{"policy_id":"future","principal_type":"user","principal_id":"bob"}]}`,
		"/groups/0/members/0":                `{"groups":[{"id":"team","members":["carol"]}]}`,
		"/service_accounts/0/owner_user_id":  `{"service_accounts":[{"id":"carols","owner_user_id":"carol"}]}`,
		"/attachments/0/principal_id (team)": `{"attachments":[{"policy_id":"wide","principal_type":"user","principal_id":"team"}]}`,
	} {
		wantCode(t, h.tryApply(t, bundle), svc.CodeInvalid, strings.TrimSuffix(field, " (team)"))
	}
	h.apply(t, `{"users":[{"id":"carol"},{"id":"team"}],"policies":[{"id":"future","document":{"version":"2026-03-24","statements":[]}}]}`)
	h.wantDenied(t, user("carol"), recall, notes, "no policy of the user allows")
	h.wantDenied(t, user("team"), recall, notes, "no policy of the user allows")
	h.wantDenied(t, account("carols"), recall, notes, "unknown")
}

// TestPublicOverrideIsFinal: the most specific override that matches decides alone, even when it lists nothing.
func TestPublicOverrideIsFinal(t *testing.T) {
	h := newHousehold(t)
	for _, c := range []struct {
		in      svc.Context
		action  string
		outcome svc.Outcome
	}{
		{svc.Context{}, recall, svc.Allow},
		{svc.Context{Channel: "Internal"}, recall, svc.Allow},
		{svc.Context{Channel: "internal"}, recall, svc.ImplicitDeny},
		{svc.Context{Provider: "slack", Channel: "internal"}, recall, svc.ImplicitDeny},
		{svc.Context{Provider: "slack"}, "bank:retain", svc.Allow},
		{svc.Context{Provider: "slack", Channel: "internal"}, "bank:retain", svc.ImplicitDeny},
		{svc.Context{Topic: "internal"}, "bank:retain", svc.ImplicitDeny},
	} {
		is := is.New(t)
		d := must(h.Decide(t.Context(), svc.Unmapped, c.action, notes, c.in))
		is.Equal(d.Outcome(), c.outcome)
		if c.in.Provider != "" {
			q := svc.Question{Bank: notes, Action: c.action, Sender: c.in.Provider + ":9", Channel: c.in.Channel, Topic: c.in.Topic}
			r := must(h.Policies.Resolve(t.Context(), svc.Host, q))
			is.Equal(r.Outcome, c.outcome)
			is.Equal(r.Reason, d.Reason())
		}
	}
}

// failingStore hands out all that it has, and an error with it.
type failingStore struct {
	svc.Store
	err error
}

func (s *failingStore) Access(ctx context.Context, q svc.AccessQuery) (svc.AccessSnapshot, error) {
	a, _ := s.Store.Access(ctx, q)
	return a, s.err
}

func TestErrorIsNeverAnAllow(t *testing.T) {
	h := newHousehold(t)
	for _, cause := range []error{
		svc.ErrUnavailable, svc.ErrNotFound, svc.ErrExists, svc.ErrChanged, svc.ErrUnauthenticated, context.Canceled, context.DeadlineExceeded,
		errors.New("disk on fire"), &svc.Error{Code: svc.CodeNotFound},
	} {
		failing := newHost(t, func(c *svc.Config) { c.Store = &failingStore{h.store, cause} })
		for _, p := range []svc.Principal{user("alice"), account("free"), svc.Unmapped, user("alice", "bank:*", "iam:*", "template:*")} {
			failing.wantNoAnswer(t, t.Context(), p)
		}
	}
}

func TestCancelledIsNeverAnAllow(t *testing.T) {
	h := newHousehold(t)
	h.wantAllowed(t, user("alice"), recall, notes)
	_, err := h.Decide(t.Context(), user("alice"), recall, notes, svc.Context{}) // may be remembered now
	is.New(t).NoErr(err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
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
	_, err = h.Decide(ctx, p, "iam:users:read", "*", svc.Context{})
	is.True(err != nil)
	_, err = h.Policies.Resolve(ctx, p, svc.Question{Bank: notes, UserID: "bob"})
	is.True(err != nil)
	is.True(lastError(h.Templates.List(ctx, p, svc.TemplateQuery{})) != nil)
	is.True(lastError(h.Keys.List(ctx, p, user("bob").Identity(), svc.KeyQuery{})) != nil)
}
