package svc_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/limits"
)

// narrowWorld: alice may do everything on her banks and administer keys; each other policy is there to narrow.
//
//go:embed testdata/narrow.json
var narrowWorld string

// narrowed issues a key and returns the principal that it makes.
func narrowed(t *testing.T, h *host, holder svc.Principal, by string) svc.Principal {
	t.Helper()
	return h.principal(t, must(h.Keys.Issue(t.Context(), svc.Host, holder.Identity(), svc.NewAPIKey{ScopingPolicyID: by})))
}

func (h *host) principal(t *testing.T, key svc.IssuedKey) svc.Principal {
	t.Helper()
	return must(h.Authenticate(t.Context(), string(key.Key)))
}

// A caller whose id is impossible gets no key, whatever the host vouches for.
func TestNoKeyOfAnImpossibleUser(t *testing.T) {
	h := newHost(t)
	for _, id := range []string{"", "..", "a/b", "a\x00", "\xff", strings.Repeat("x", limits.IDLength+1)} {
		by := svc.Principal{Kind: svc.KindUser, ID: id, Actions: []string{"*"}}
		if key, err := h.Keys.Issue(t.Context(), by, svc.Me, svc.NewAPIKey{}); svc.ErrorCode(err) != svc.CodeForbidden {
			t.Errorf("%q: %v, key %s", id, err, key.ID)
		}
	}
}

// Where nothing has changed since an administrator's key was judged, an issue for another user reads no
// row of both again. The key ends with its time nevertheless, and stands for its holder only.
func TestNothingIsJudgedAgainWhereNothingHasChanged(t *testing.T) {
	is := is.New(t)
	var h *host
	rows, late := []bool{}, 0
	h = newHost(t, func(c *svc.Config) {
		c.Store = hook(c.Store, hooks{access: func(read *svc.AccessSnapshot, tx bool) error {
			if tx {
				rows = append(rows, read.Key != nil || read.User != nil)
				h.mu.Lock()
				defer h.mu.Unlock()
				h.ticks += late
			}
			return nil
		}})
	})
	h.apply(t, staff)
	hour := h.now().Add(time.Hour)
	root := user("root").Identity()
	key := must(h.Keys.Issue(t.Context(), svc.Host, root, svc.NewAPIKey{ExpiresAt: hour}))
	by := h.principal(t, key)
	issue := func(by svc.Principal) (read []bool, err error) {
		rows = nil
		_, err = h.Keys.Issue(t.Context(), by, alice.Identity(), svc.NewAPIKey{})
		return rows, err
	}
	is.Equal(must(issue(by)), []bool{false})
	other := by
	other.ID, other.Actions = "other", []string{"*"}
	wantCode(t, errorOf(issue(other)), svc.CodeUnauthenticated, "")
	by, late = h.principal(t, key), 2*3600
	wantCode(t, errorOf(issue(by)), svc.CodeUnauthenticated, "")
	is.Equal(len(collect(t, h.Keys.List(t.Context(), svc.Host, alice.Identity(), svc.KeyQuery{}))), 1)
}

// A narrowed key may do what its holder may and its policy allows, with the lesser of their parameters.
func TestNarrowedKey(t *testing.T) {
	h := hostOf(t, narrowWorld)
	for _, c := range []struct {
		holder       svc.Principal
		by           string
		action, bank string
		tokens       int64 // 0: denied
	}{
		{alice, "", "bank:retain", "notes", 4000},
		{alice, "recall", "bank:recall", "notes", 1000},
		{alice, "recall", "bank:recall", "team::a", 1000},
		{alice, "recall", "bank:retain", "notes", 0},
		{alice, "recall", "bank:recall", "bobs", 0}, // alice may not
		{alice, "notes", "bank:retain", "notes", 2000},
		{alice, "notes", "bank:retain", "team::a", 0},
		{account("ci"), "", "bank:recall", "team::a", 1000},
		{account("ci"), "notes", "bank:recall", "notes", 1000},
		{account("ci"), "notes", "bank:recall", "team::a", 0},
		{account("ci"), "notes", "bank:retain", "notes", 0},
		{bob, "recall", "bank:recall", "notes", 0},
	} {
		p := narrowed(t, h, c.holder, c.by)
		for range 3 { // read, then remembered
			d, err := h.Decide(t.Context(), p, c.action, c.bank, svc.Context{})
			is.New(t).NoErr(err)
			var tokens int64
			if most := d.Parameters().RecallMaxTokens; most != nil {
				tokens = *most
			}
			if d.Allowed() != (c.tokens > 0) || tokens != c.tokens {
				t.Errorf("%v narrowed by %q, %s on %s: %v with %d tokens: %s", c.holder.Identity(), c.by, c.action, c.bank, d.Allowed(), tokens, d.Reason())
			}
		}
	}
}

// A narrowing policy gives a bearer nothing that the key's holder has not: no model, no provider, no strategy, and no value where the
// holder has none.
func TestNarrowingNeverWidens(t *testing.T) {
	is, h := is.New(t), hostOf(t, narrowWorld)
	h.apply(t, `{"policies": [
		{"id": "tempting", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["bank:*"], "banks": ["*"],
			"recall_budget": "high", "recall_max_tokens": 9000, "recall_tag_groups": [{"all": true}], "retain_roles": ["system"], "retain_tags": ["trusted"],
			"retain_every_n_turns": 1, "retain_strategy": "deep", "llm_model": "largest", "llm_provider": "dearest", "exclude_providers": ["cheap"]}]}},
		{"id": "own", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["bank:*"], "banks": ["*"],
			"recall_budget": "low", "recall_tag_groups": [{"team": "a"}], "retain_roles": ["system", "user"], "retain_tags": ["a"], "retain_every_n_turns": 3,
			"retain_strategy": "quick", "llm_model": "small", "llm_provider": "cheap", "exclude_providers": ["dearest"]}]}}],
		"attachments": [{"policy_id": "own", "principal_type": "user", "principal_id": "bob"}],
		"service_accounts": [{"id": "bot", "owner_user_id": "bob"}]}`)
	parameters := func(p svc.Principal) string {
		d := must(h.Decide(t.Context(), p, "bank:recall", "notes", svc.Context{}))
		is.True(d.Allowed())
		q := svc.Question{UserID: p.ID, Bank: "notes", ScopingPolicyID: p.ScopingPolicyID}
		if p.Kind == svc.KindServiceAccount {
			q.UserID, q.ServiceAccountID = "", p.ID
		}
		r := must(h.Policies.Resolve(t.Context(), svc.Host, q))
		is.Equal(r.Parameters, d.Parameters())
		is.Equal(r.EffectiveStrategy, d.Parameters().RetainStrategy)
		return string(must(json.Marshal(d.Parameters())))
	}
	is.Equal(parameters(narrowed(t, h, alice, "tempting")), parameters(alice)) // alice has recall_max_tokens alone
	narrow := `{"recall_budget":"low","recall_max_tokens":null,"recall_tag_groups":[{"team":"a"}],"retain_roles":["system"],"retain_tags":["a"],` +
		`"retain_every_n_turns":3,"retain_strategy":"quick","llm_model":"small","llm_provider":"cheap","exclude_providers":["cheap","dearest"]}`
	is.Equal(parameters(narrowed(t, h, bob, "tempting")), narrow)
	is.Equal(parameters(narrowed(t, h, account("bot"), "tempting")), narrow)
}

func TestNarrowingPolicyGone(t *testing.T) {
	is, h := is.New(t), hostOf(t, narrowWorld)
	key := must(h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{ScopingPolicyID: "recall"}))
	lost := hooks{access: func(a *svc.AccessSnapshot, _ bool) error { a.Narrowing = nil; return nil }}
	gone := newHost(t, func(c *svc.Config) { c.Store = hook(h.store, lost) })
	p := gone.principal(t, key)
	d := must(gone.Decide(t.Context(), p, "bank:recall", "notes", svc.Context{}))
	is.True(!d.Allowed())
	is.Equal(d.Reason(), `the scoping policy "recall" that narrows it no longer exists`)
}

// A narrowed key administers what its policy allows it, and makes no keys, not even of its own user.
func TestNarrowedKeyMakesNoKeys(t *testing.T) {
	is, h := is.New(t), hostOf(t, narrowWorld)
	bobs, mine := issue(t, h, bob), issue(t, h, alice)
	keys, recall := narrowed(t, h, alice, "keys"), narrowed(t, h, alice, "recall")
	is.NoErr(lastError(h.Keys.List(t.Context(), keys, bob.Identity(), svc.KeyQuery{})))
	wantCode(t, lastError(h.Keys.List(t.Context(), recall, bob.Identity(), svc.KeyQuery{})), svc.CodeForbidden, "")
	wantCode(t, lastError(h.Templates.List(t.Context(), keys, svc.TemplateQuery{})), svc.CodeForbidden, "")
	for _, p := range []svc.Principal{keys, recall} {
		calls := h.makes(t, p, bob.Identity(), bobs.ID)
		for name, call := range h.makes(t, p, svc.Me, mine.ID) {
			calls["mine: "+name] = call
		}
		calls["narrower"] = func() error {
			return errorOf(h.Keys.Issue(t.Context(), p, bob.Identity(), svc.NewAPIKey{ScopingPolicyID: p.ScopingPolicyID}))
		}
		calls["revoke"] = func() error { return h.Keys.Revoke(t.Context(), p, svc.Me, mine.ID) }
		calls["revoke all"] = func() error { return errorOf(h.Keys.RevokeAll(t.Context(), p, svc.Me)) }
		calls["list"] = func() error { return lastError(h.Keys.List(t.Context(), p, svc.Me, svc.KeyQuery{})) }
		for name, call := range calls {
			if err := call(); svc.ErrorCode(err) != svc.CodeForbidden && (err == nil || !strings.HasSuffix(name, "import")) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	is.NoErr(h.Keys.Revoke(t.Context(), keys, bob.Identity(), bobs.ID))
	wantCode(t, h.Keys.Revoke(t.Context(), recall, alice.Identity(), mine.ID), svc.CodeForbidden, "")
	is.True(h.good(mine))
}

// An Authenticator of the host may narrow whom it finds: what it vouches for does not count then.
func TestNarrowedByTheHost(t *testing.T) {
	is := is.New(t)
	found := svc.Principal{Kind: svc.KindUser, ID: "alice", Actions: []string{"iam:*"}, ScopingPolicyID: "recall"}
	h := newHost(t, func(c *svc.Config) {
		c.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) { return found, nil })
	})
	h.apply(t, narrowWorld)
	p := must(h.Authenticate(t.Context(), "token"))
	for action, want := range map[string]bool{"bank:recall": true, "bank:retain": false} {
		is.Equal(must(h.Decide(t.Context(), p, action, "notes", svc.Context{})).Allowed(), want)
	}
	is.True(!must(h.Decide(t.Context(), p, "iam:users:read", "*", svc.Context{})).Allowed())
	wantCode(t, lastError(h.Keys.List(t.Context(), p, bob.Identity(), svc.KeyQuery{})), svc.CodeForbidden, "")
	found.ScopingPolicyID = "a/b"
	wantCode(t, errorOf(h.Authenticate(t.Context(), "token")), svc.CodeInternal, "")
}

// Resolve says why somebody narrowed is decided as it is.
func TestResolveNarrowed(t *testing.T) {
	is, h := is.New(t), hostOf(t, narrowWorld)
	for _, c := range []struct {
		q       svc.Question
		outcome svc.Outcome
		reason  string
	}{
		{svc.Question{UserID: "alice", Bank: "notes", ScopingPolicyID: "recall"}, svc.Allow, `within statement 0 of scoping policy "recall"`},
		{svc.Question{UserID: "alice", Bank: "notes", Action: "bank:retain", ScopingPolicyID: "recall"}, svc.ImplicitDeny, `scoping policy "recall" does not allow`},
		{svc.Question{UserID: "alice", Bank: "notes", ScopingPolicyID: "none"}, svc.ImplicitDeny, `the scoping policy "none" that narrows it no longer exists`},
		{svc.Question{ServiceAccountID: "ci", Bank: "team::a", ScopingPolicyID: "notes"}, svc.ImplicitDeny, `scoping policy "notes" does not allow`},
		{svc.Question{UserID: "nobody", Bank: "notes", ScopingPolicyID: "none"}, svc.ImplicitDeny, `user "nobody" is unknown`},
	} {
		r := must(h.Policies.Resolve(t.Context(), svc.Host, c.q))
		is.Equal(must(h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{}, c.q)), r)
		if r.Outcome != c.outcome || !strings.Contains(r.Reason, c.reason) {
			t.Errorf("%+v: %s, %s", c.q, r.Outcome, r.Reason)
		}
	}
	for _, q := range []svc.Question{{Sender: "telegram:1", ScopingPolicyID: "recall"}, {UserID: "alice", ScopingPolicyID: "a/b"}} {
		q.Bank = "notes"
		wantCode(t, errorOf(h.Policies.Resolve(t.Context(), svc.Host, q)), svc.CodeInvalid, "scoping_policy_id")
	}
}

// A caller narrows keys by policies that it may read, or has. The answer for any other policy is that for one that does not exist.
func TestNarrowingByPoliciesOfOthers(t *testing.T) {
	is, h := is.New(t), hostOf(t, narrowWorld)
	h.apply(t, `{"users": [{"id": "reader"}, {"id": "member"}, {"id": "issuer"}],
		"groups": [{"id": "team", "members": ["member"]}],
		"policies": [
			{"id": "readers", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["iam:policies:read"], "banks": ["*"]}]}},
			{"id": "issuers", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["iam:users:write", "iam:banks:grant"], "banks": ["*"]}]}}],
		"attachments": [
			{"policy_id": "readers", "principal_type": "user", "principal_id": "reader"},
			{"policy_id": "issuers", "principal_type": "user", "principal_id": "issuer"},
			{"policy_id": "recall", "principal_type": "user", "principal_id": "bob"},
			{"policy_id": "notes", "principal_type": "group", "principal_id": "team"}]}`)
	vouched := svc.Principal{Kind: svc.KindUser, ID: "dave", Actions: []string{action.PoliciesRead}}
	for _, c := range []struct {
		by  svc.Principal
		has map[string]bool
	}{
		{alice, map[string]bool{"recall": true, "notes": true, "keys": true}}, // iam:*
		{user("reader"), map[string]bool{"recall": true, "notes": true, "keys": true}},
		{vouched, map[string]bool{"recall": true, "notes": true, "keys": true}},
		{bob, map[string]bool{"recall": true}},
		{user("member"), map[string]bool{"notes": true}},
		{user("issuer"), nil},
		{user("nobody"), nil},
	} {
		for _, id := range []string{"recall", "notes", "keys", "none"} {
			_, err := h.Keys.Issue(t.Context(), c.by, svc.Me, svc.NewAPIKey{ScopingPolicyID: id})
			if c.has[id] {
				is.NoErr(err)
				continue
			}
			wantCode(t, err, svc.CodeInvalid, "/scoping_policy_id")
			is.Equal(err.Error(), "/scoping_policy_id: names an unknown policy")
		}
	}
	for _, holder := range []svc.Principal{bob, user("issuer")} { // the caller's own policies count, not those of the holder
		_, err := h.Keys.Issue(t.Context(), user("issuer"), holder.Identity(), svc.NewAPIKey{ScopingPolicyID: "recall"})
		wantCode(t, err, svc.CodeInvalid, "/scoping_policy_id")
	}
	for _, id := range []string{"none", "a/b"} {
		wantCode(t, errorOf(h.Keys.Issue(t.Context(), svc.Host, bob.Identity(), svc.NewAPIKey{ScopingPolicyID: id})), svc.CodeInvalid, "/scoping_policy_id")
	}
	must(h.Keys.Issue(t.Context(), user("issuer"), bob.Identity(), svc.NewAPIKey{ScopingPolicyID: "issuers"}))
	must(h.Keys.Issue(t.Context(), svc.Host, bob.Identity(), svc.NewAPIKey{ScopingPolicyID: "keys"}))
}

var scarce = svc.Rate{PerSecond: 0.5, Burst: 5}

// rateOf is the rate of the principal that a key authenticates.
func (h *host) rateOf(t *testing.T, key svc.IssuedKey) svc.Rate {
	t.Helper()
	by, err := h.Authenticate(t.Context(), string(key.Key))
	if err != nil || by.KeyID() != key.ID {
		t.Fatal(by.KeyID(), err)
	}
	return by.Rate()
}

func TestRateOfAPrincipal(t *testing.T) {
	is := is.New(t)
	h, store := watched(t)
	for _, rate := range []svc.Rate{{}, scarce, {PerSecond: limits.Rate, Burst: limits.Burst}, {PerSecond: limits.LeastRate, Burst: 1}} {
		key := h.issueWith(t, svc.NewAPIKey{Rate: rate})
		is.Equal(key.Rate, rate)
		is.Equal(h.read(t, key.ID).Rate, rate)
		eventually(t, func() bool { // until it is from memory
			reads := store.reads.Load()
			is.Equal(h.rateOf(t, key), rate)
			return store.reads.Load() == reads
		})
	}
	is.Equal(alice.KeyID(), "")
	is.Equal(svc.Host.Rate(), svc.Rate{})
}

func TestWrongRates(t *testing.T) {
	is, h := is.New(t), newHost(t, importing)
	key := h.issueWith(t, svc.NewAPIKey{Rate: scarce})
	h.actions()
	for _, c := range []struct {
		rate   svc.Rate
		fields []string
	}{
		{svc.Rate{Burst: 1}, []string{"/rate/per_second"}}, {svc.Rate{PerSecond: 1}, []string{"/rate/burst"}},
		{svc.Rate{PerSecond: math.NaN(), Burst: 1}, []string{"/rate/per_second"}}, {svc.Rate{PerSecond: math.Inf(1), Burst: 1}, []string{"/rate/per_second"}},
		{svc.Rate{PerSecond: -1, Burst: -1}, []string{"/rate/per_second", "/rate/burst"}},
		{svc.Rate{PerSecond: limits.LeastRate / 2, Burst: 1}, []string{"/rate/per_second"}}, {svc.Rate{PerSecond: limits.Rate + 1, Burst: 1}, []string{"/rate/per_second"}},
		{svc.Rate{PerSecond: 1, Burst: limits.Burst + 1}, []string{"/rate/burst"}},
	} {
		_, err := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{Rate: c.rate})
		is.Equal(wrongFields(err), c.fields)
		_, err = h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Rate: &c.rate})
		is.Equal(wrongFields(err), c.fields)
		_, err = h.Keys.Import(t.Context(), svc.Host, alice.Identity(), svc.ImportedKey{
			Prefix: "sk-", Hash: plainDigest(foreign), NewAPIKey: svc.NewAPIKey{Rate: c.rate},
		})
		is.Equal(wrongFields(err), c.fields)
	}
	is.Equal(h.actions(), nil)
	is.Equal(h.read(t, key.ID), key.APIKey)
}

func wrongFields(err error) (fields []string) {
	for _, e := range svc.Errors(err) {
		fields = append(fields, e.Field)
	}
	return fields
}

// A key lowers its own rate, but raises it only with another credential.
func TestKeyAndItsOwnRate(t *testing.T) {
	is, h := is.New(t), newHost(t)
	key := h.issueWith(t, svc.NewAPIKey{Rate: scarce})
	itself := must(h.Authenticate(t.Context(), string(key.Key)))
	patch := func(by svc.Principal, rate svc.Rate) error {
		return errorOf(h.Keys.Patch(t.Context(), by, svc.Me, key.ID, svc.APIKeyPatch{Rate: &rate}))
	}
	for _, higher := range []svc.Rate{{}, {PerSecond: 0.6, Burst: 1}, {PerSecond: 0.1, Burst: 6}} {
		wantCode(t, patch(itself, higher), svc.CodeForbidden, "")
		is.Equal(h.rateOf(t, key), scarce)
	}
	is.NoErr(patch(itself, scarce))
	is.NoErr(patch(itself, svc.Rate{PerSecond: 0.4, Burst: 4}))
	is.NoErr(patch(alice, svc.Rate{}))
	is.NoErr(patch(itself, scarce)) // a key without a rate may set one
}

// Another owner's service account is as unknown as one that does not exist, whatever it is allowed.
func TestAnAccountOfAnotherIsUnknown(t *testing.T) {
	is, h := is.New(t), newHost(t)
	h.apply(t, anewWorld)
	h.apply(t, `{"service_accounts": [{"id": "bot", "owner_user_id": "bob"}],
		"attachments": [{"policy_id": "iam:admin", "principal_type": "user", "principal_id": "bob"}]}`)
	changes := func(of svc.Identity) []error {
		return []error{
			errorOf(h.Keys.Issue(t.Context(), alice, of, svc.NewAPIKey{})), errorOf(h.Keys.Patch(t.Context(), alice, of, "k", svc.APIKeyPatch{})),
			errorOf(h.Keys.Rotate(t.Context(), alice, of, "k", svc.Rotation{})), h.Keys.Revoke(t.Context(), alice, of, "k"), errorOf(h.Keys.RevokeAll(t.Context(), alice, of)),
		}
	}
	of, none := changes(svc.MyAccount("bot")), changes(svc.MyAccount("none"))
	for i, err := range none {
		wantCode(t, err, svc.CodeNotFound, "")
		is.Equal(of[i].Error(), err.Error())
	}
}
