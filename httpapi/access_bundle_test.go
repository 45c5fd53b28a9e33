package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/slow"
)

const bundlePath = "/admin/access-bundle"

// state returns all rows of access, and the number of events.
func (c caller) state() (bundle string, events int) {
	c.t.Helper()
	return string(c.get(bundlePath).is(200).body), len(c.events("/admin/events?limit=1000"))
}

// exported returns the rows of access as a value, for a test to change.
func (c caller) exported() map[string][]map[string]any {
	c.t.Helper()
	var rows map[string][]map[string]any
	if err := json.Unmarshal(c.get(bundlePath).is(200).body, &rows); err != nil {
		c.t.Fatal(err)
	}
	return rows
}

func text(value any) string { return string(must(json.Marshal(value))) }

// Each single action of an export is needed, and the write action of each list that a bundle has.
func TestActionsOfBundles(t *testing.T) {
	s := newSite(t)
	reads := []string{"iam:users:read", "iam:groups:read", "iam:policies:read", "iam:service_accounts:manage", "iam:banks:read"}
	s.as("session-of-plain+" + strings.Join(reads, "+")).get(bundlePath).is(200)
	for i := range reads {
		fewer := slices.Delete(slices.Clone(reads), i, i+1)
		s.as("session-of-plain+"+strings.Join(fewer, "+")).get(bundlePath).fails(403, "forbidden")
	}
	writes := map[string]string{
		"iam:users:write":             `{"users": [{"id": "new"}]}`,
		"iam:groups:write":            `{"groups": [{"id": "new"}]}`,
		"iam:service_accounts:manage": `{"service_accounts": [{"id": "new", "owner_user_id": "plain"}]}`,
		"iam:policies:write":          `{"policies": [{"id": "new", "document": {"version": "2026-03-24", "statements": []}}]}`,
		"iam:attachments:write":       `{"attachments": [{"policy_id": "recalls", "principal_type": "group", "principal_id": "staff"}]}`,
		"iam:banks:write":             `{"bank_policies": [{"bank_id": "new", "document": {"version": "2026-03-24"}}]}`,
	}
	var all []string
	for action := range writes {
		all = append(all, action)
	}
	for action, bundle := range writes {
		s.as("session-of-plain+"+action).post(bundlePath, bundle).is(204)
		s.as("session-of-plain+"+action).post(bundlePath+"?dry_run=1", bundle).fails(403, "forbidden")
		s.as("session-of-plain+"+action+"+iam:users:read").post(bundlePath+"?dry_run=1", bundle).is(200)
		others := slices.DeleteFunc(slices.Clone(all), func(other string) bool { return other == action })
		fewer := s.as("session-of-plain+" + strings.Join(others, "+"))
		fewer.post(bundlePath, bundle).fails(403, "forbidden")
		fewer.post(bundlePath+"?prune=1", `{}`).fails(403, "forbidden")
	}
	s.as("session-of-plain").post(bundlePath, `{}`).is(204) // names no row
}

func TestWhoWritesBundles(t *testing.T) {
	s := newSite(t)
	const harmless = `{"users": [{"id": "new"}]}`
	const administrator = `{"attachments": [{"policy_id": "all", "principal_type": "user", "principal_id": "writer"}]}`
	for bearer, status := range map[string][2]int{
		"":                          {401, 401},
		"session-of-ghost":          {401, 401},
		s.accountKey("robot"):       {204, 204}, // has the rights of its owner
		s.accountKey("narrow"):      {403, 403},
		s.key("plain"):              {403, 403},
		s.key("writer"):             {204, 403},
		"session-of-plain+iam:*":    {204, 403}, // lacks template:*, which the policy has as well
		s.key("admin"):              {204, 204},
		"session-of-robot+sa+iam:*": {204, 204},
	} {
		s.as(bearer).post(bundlePath, harmless).is(status[0])
		s.as(bearer).post(bundlePath, administrator).is(status[1])
		s.as(s.key("admin")).delete("/policy-attachments/all/user/writer").oneOf(204, 404)
	}
}

func (a answer) oneOf(statuses ...int) {
	a.t.Helper()
	if !slices.Contains(statuses, a.status) {
		a.t.Errorf("%s: status %d, want one of %v: %s", a.request, a.status, statuses, a.body)
	}
}

func TestBundleRequestsRefused(t *testing.T) {
	s := newSite(t, keeping)
	admin := s.admin()
	before, events := admin.state()
	for query, places := range map[string][]string{
		"?dry_run=yes": {"dry_run"}, "?prune=2": {"prune"}, "?dry_run=1&dry_run=1": {"dry_run"}, "?force=1": {"force"}, "?prune=true%20": {"prune"},
		"?dryrun=1&prun=1": {"dryrun", "prun"},
	} {
		admin.post(bundlePath+query, `{}`).refuses(places...)
	}
	for body, places := range map[string][]string{
		``: {""}, `null`: {""}, `[]`: {""}, `7`: {""}, `{`: {""}, `{} {}`: {""}, `{"bundle": {}}`: {"/bundle"}, `{"Users": []}`: {"/Users"},
		`{"users": {}}`: {"/users"}, `{"users": [null]}`: {"/users/0"}, `{"users": [{}]}`: {"/users/0/id"}, `{"users": [{"id": 7}]}`: {"/users/0/id"},
		`{"users": [{"id": "a"}, {"id": "a"}]}`:                                                        {"/users/1"},
		`{"groups": [{"id": "g", "members": ["nobody"]}]}`:                                             {"/groups/0/members/0"},
		`{"service_accounts": [{"id": "a", "owner_user_id": "nobody"}]}`:                               {"/service_accounts/0/owner_user_id"},
		`{"policies": [{"id": "p", "document": {"version": "2026-03-24", "statements": [{}]}}]}`:       {"/policies/0/document/statements/0/effect"},
		`{"policies": [{"id": "iam:admin", "document": {"version": "2026-03-24", "statements": []}}]}`: {"/policies/0"},
		`{"attachments": [{"policy_id": "all", "principal_type": "user", "principal_id": "x"}]}`:       {"/attachments/0/principal_id"},
		`{"bank_policies": [{"bank_id": "b", "document": {}}]}`:                                        {"/bank_policies/0/document/version"},
	} {
		for _, query := range []string{"", "?dry_run=1"} {
			admin.post(bundlePath+query, body).refuses(places...)
		}
	}
	admin.send("PUT", bundlePath, `{}`).fails(405, "method_not_allowed")
	admin.get(bundlePath + "?dry_run=1").refuses("dry_run")
	if after, now := admin.state(); after != before || now != events {
		t.Errorf("a refused request changed\n%s\nto %s", before, after)
	}
}

// Of a bundle that is refused for its last row, nothing is written.
func TestHalfABundle(t *testing.T) {
	s := newSite(t, keeping)
	admin, writer := s.admin(), s.as("session-of-plain+iam:users:write+iam:groups:write+iam:attachments:write+iam:users:read")
	before, events := admin.state()
	const good = `{"users": [{"id": "new", "channels": []}, {"id": "plain", "display_name": "Other"}], "groups": [{"id": "staff", "members": ["new"]}], `
	for _, query := range []string{"", "?dry_run=1"} {
		admin.post(bundlePath+query, good+`"attachments": [{"policy_id": "unknown", "principal_type": "user", "principal_id": "new"}]}`).
			refuses("/attachments/0/policy_id")
		admin.post(bundlePath+query, good+`"service_accounts": [{"id": "robot", "owner_user_id": "nobody"}]}`).
			refuses("/service_accounts/0/owner_user_id")
		admin.post(bundlePath+query, strings.Replace(good, `"channels": []`, `"channels": [{"provider": "telegram", "sender_id": "1001"}]`, 1)+`"policies": []}`).
			fails(409, "already_exists")
		writer.post(bundlePath+query, good+`"attachments": [{"policy_id": "reads-users", "principal_type": "user", "principal_id": "new"}]}`).
			fails(403, "forbidden") // staff may recall, which the writer may not
		if after, now := admin.state(); after != before || now != events {
			t.Fatalf("a refused bundle changed\n%s\nto %s", before, after)
		}
	}
}

// What is exported is what is there, and writing it back changes nothing.
func TestExportIsWrittenBack(t *testing.T) {
	s := newSite(t, keeping)
	admin := s.admin()
	before, events := admin.state()
	rows := admin.exported()
	want := map[string]int{"users": 8, "groups": 1, "service_accounts": 4, "policies": 6, "attachments": 7, "bank_policies": 1}
	for name, n := range want {
		if len(rows[name]) != n {
			t.Errorf("%d %s, want %d", len(rows[name]), name, n)
		}
	}
	if len(rows) != len(want) {
		t.Errorf("lists %v", rows)
	}
	const nothing = `{"principals": [], "public": [], "strategies": []}`
	admin.post(bundlePath+"?dry_run=1", before).is(200).json(nothing)
	admin.post(bundlePath+"?dry_run=1&prune=1", before).is(200).json(nothing)
	admin.post(bundlePath, before).is(204)
	admin.post(bundlePath+"?prune=1", before).is(204)
	if after, now := admin.state(); after != before || now != events {
		t.Errorf("%d events instead of %d\nbefore %s\nafter %s", now, events, before, after)
	}

	other := newSite(t).admin() // has other rows, some under the same ids
	other.post(bundlePath, `{"users": [{"id": "other", "channels": [{"provider": "x", "sender_id": "1"}]},
	  {"id": "plain", "channels": [{"provider": "x", "sender_id": "2"}]}], "groups": [{"id": "staff", "members": ["other"]}]}`).is(204)
	other.post(bundlePath+"?prune=1", `{"users": [{"id": "admin"}]}`).fails(409, "last_administrator")
	other.post(bundlePath+"?prune=1", before).is(204)
	if after := string(other.get(bundlePath).is(200).body); after != before {
		t.Errorf("another server has\n%s\nafter it has taken\n%s", after, before)
	}
}

// Prune removes exactly what the bundle does not name.
func TestPruneRemovesTheOthers(t *testing.T) {
	s := newSite(t, keeping)
	admin := s.admin()
	aliceKey := s.key("alice")
	keep := admin.exported()
	for name, gone := range map[string]string{"users": "alice", "service_accounts": "asleep", "policies": "recalls"} {
		keep[name] = slices.DeleteFunc(keep[name], func(row map[string]any) bool { return row["id"] == gone })
	}
	keep["attachments"] = slices.DeleteFunc(keep["attachments"], func(row map[string]any) bool {
		return row["principal_id"] == "staff" || row["principal_id"] == "templater"
	})
	delete(keep, "bank_policies") // an absent list names no row
	delete(keep, "groups")
	before, events := admin.state()
	admin.post(bundlePath+"?prune=1&dry_run=1", text(keep)).is(200)
	if after, now := admin.state(); after != before || now != events {
		t.Error("a dry run has written")
	}
	admin.post(bundlePath+"?prune=1", text(keep)).is(204)
	if after := admin.exported(); text(after) != text(keep) {
		t.Errorf("after the bundle\n%s\nthe rows are\n%s", text(keep), text(after))
	}
	s.as(aliceKey).get("/me/api-keys").is(401)
	var removed []string
	for _, e := range admin.events("/admin/events?limit=1000") {
		if e["action"] == "access.removed" || e["action"] == "api_key.revoked" {
			target := e["target"].(map[string]any)
			id := target["id"].(string)
			if target["kind"] == "api_key" {
				id = target["holder"].(map[string]any)["id"].(string)
			}
			removed = append(removed, target["kind"].(string)+" "+id)
		}
	}
	slices.Sort(removed)
	want := []string{
		"api_key alice", "attachment recalls/group/staff", "attachment templates/user/templater", "bank_policy support", "group staff",
		"policy recalls", "service_account asleep", "user alice",
	}
	if !slices.Equal(removed, want) {
		t.Errorf("removed %q\nwant %q", removed, want)
	}
}

// A policy that narrows a key is kept by the key.
func TestPruneOfAPolicyInUse(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	admin.post("/users/plain/api-keys", `{"scoping_policy_id": "no-templates"}`).is(201)
	keep := admin.exported()
	keep["policies"] = slices.DeleteFunc(keep["policies"], func(row map[string]any) bool { return row["id"] == "no-templates" })
	keep["attachments"] = slices.DeleteFunc(keep["attachments"], func(row map[string]any) bool { return row["policy_id"] == "no-templates" })
	for _, query := range []string{"?prune=1", "?prune=1&dry_run=1"} {
		a := admin.post(bundlePath+query, text(keep)).fails(409, "policy_in_use")
		if !strings.Contains(a.text("detail"), "no-templates") {
			t.Errorf("%s", a.body)
		}
	}
	admin.get("/policies/no-templates").is(200)
}

// A dry run answers with the difference, and writes nothing.
func TestDryRunOfABundle(t *testing.T) {
	s := newSite(t, keeping)
	admin := s.admin()
	revision := admin.get("/debug/who-can?bank=support").is(200).text("revision")
	before, events := admin.state()
	admin.post(bundlePath+"?dry_run=true", `{
	  "users": [{"id": "new"}], "groups": [{"id": "staff", "members": ["new"]}],
	  "bank_policies": [{"bank_id": "support", "document": {"version": "2026-03-24", "default_strategy": "quick"}}]}`).is(200).json(`{
	  "principals": [
	    {"principals": [{"kind": "user", "id": "alice"}], "differences": [
	      {"action": "bank:recall", "bank": "support", "change": "newly_denied", "before": {"recall_budget": "low", "recall_max_tokens": 1024}, "after": {}}]},
	    {"principals": [{"kind": "user", "id": "new"}], "differences": [
	      {"action": "bank:recall", "bank": "support", "change": "newly_allowed", "before": {}, "after": {"recall_budget": "low", "recall_max_tokens": 1024}}]}],
	  "public": [{"bank": "support", "context": {"provider": "", "channel": "", "topic": ""}, "differences": [
	    {"action": "bank:recall", "bank": "support", "change": "newly_denied", "before": {"recall_budget": "low"}, "after": {}}]}],
	  "strategies": [{"bank": "support", "context": {"provider": "", "channel": "", "topic": ""}, "before": "balanced", "after": "quick"}]}`)
	if after, now := admin.state(); after != before || now != events {
		t.Errorf("a dry run changed\n%s\nto %s", before, after)
	}
	if now := admin.get("/debug/who-can?bank=support").is(200).text("revision"); now != revision {
		t.Errorf("revision %s after a dry run, and %s before", now, revision)
	}
}

func TestLongBundles(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	users := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"id":"u%d"}`, i)
		}
		return b.String()[1:]
	}
	admin.post(bundlePath, `{"users":[`+users(httpapi.MaxBundleRows)+`]}`).is(204)
	admin.post(bundlePath, `{"users":[`+users(httpapi.MaxBundleRows+1)+`]}`).refuses("/users/10000")
	members := strings.ReplaceAll(strings.ReplaceAll(users(httpapi.MaxBundleRows), `{"id":`, ``), `}`, ``)
	admin.post(bundlePath, `{"groups":[{"id":"g","members":[`+members+`]}]}`).refuses("/groups/0/members/9999")
	admin.post(bundlePath, `{"users":[`+strings.Repeat(" ", 1<<20)+`]}`).fails(413, "body_too_large")

	long := admin.get(bundlePath).is(200) // several parts
	if bundle, err := svc.ParseBundle(long.body); err != nil || len(bundle.Users) != httpapi.MaxBundleRows+8 {
		t.Errorf("%d users, %v", len(bundle.Users), err)
	}
}

func TestKeysOfAllHolders(t *testing.T) {
	s := newSite(t)
	issue := func(holder svc.Identity, in svc.NewAPIKey) svc.APIKey {
		t.Helper()
		issued := must(s.service.Keys.Issue(t.Context(), svc.Host, holder, in))
		s.keepSecret(string(issued.Key))
		s.clock.tick()
		return issued.APIKey
	}
	start := begin.UTC().Truncate(time.Microsecond)
	day := func(n int) time.Time { return start.AddDate(0, 0, n) }
	admin := s.as("session-of-admin")
	admin.get("/admin/api-keys").is(200).json(`[]`)
	alice, robot := svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.Identity{Kind: svc.KindServiceAccount, ID: "robot"}
	first := issue(alice, svc.NewAPIKey{Description: new("old"), ExpiresAt: day(20)})
	second := issue(robot, svc.NewAPIKey{ExpiresAt: day(10), ScopingPolicyID: "recalls"})
	third := issue(alice, svc.NewAPIKey{})
	gone := issue(alice, svc.NewAPIKey{ExpiresAt: day(5)})
	s.as("session-of-alice").delete("/me/api-keys/" + gone.ID).is(204)
	form := func(k svc.APIKey, description, expires, scope string) string {
		return fmt.Sprintf(`{"id": %q, "api_key_prefix": %q, "description": %s, "created_at": %q, "expires_at": %s, "disabled": false,
		  "last_used_at": null, "scoping_policy_id": %s, "rate": null, "holder": {"kind": %q, "id": %q}}`,
			k.ID, k.Prefix, description, k.CreatedAt.Format(micros), expires, scope, k.Holder.Kind, k.Holder.ID)
	}
	one := form(first, `"old"`, text(day(20).Format(micros)), "null")
	two := form(second, "null", text(day(10).Format(micros)), `"recalls"`)
	three := form(third, "null", "null", "null")
	after := func(at time.Time) string { return url.QueryEscape(at.Format(time.RFC3339Nano)) }
	for query, want := range map[string][]string{
		"": {three, two, one}, "?expires_before=&unused_since=": {three, two, one},
		"?expires_before=" + after(day(30)): {two, one}, "?expires_before=" + after(day(20)): {two}, "?expires_before=" + after(day(10)): nil,
		"?unused_since=" + after(day(1)): {one, two, three}, "?unused_since=" + after(third.CreatedAt): {one, two}, "?unused_since=" + after(start): nil,
	} {
		whole := admin.get("/admin/api-keys" + query).is(200)
		whole.json("[" + strings.Join(want, ",") + "]")
		between := "?"
		if query != "" {
			between = "&"
		}
		var pages []string
		for _, page := range admin.pages("/admin/api-keys" + query + between + "limit=1") {
			pages = append(pages, page...)
		}
		if ids := whole.texts("id"); !slices.Equal(pages, ids) {
			t.Errorf("%s: pages %v, whole %v", query, pages, ids)
		}
	}
	admin.get("/admin/api-keys?expires_before=2030-01-01T00:00:00Z&unused_since=2030-01-01T00:00:00Z").refuses("unused_since")
	admin.get("/admin/api-keys?expires_before=soon").refuses("expires_before")
	admin.get("/admin/api-keys?unused_since=2030-01-01").refuses("unused_since")
	admin.get("/admin/api-keys?view=full").refuses("view")
	admin.get("/admin/api-keys?cursor=WyJhIiwiYiJd").refuses("cursor")
	for _, action := range []string{"iam:users:read", "iam:service_accounts:manage"} {
		s.as("session-of-plain+"+action).get("/admin/api-keys").fails(403, "forbidden")
	}
	s.as("session-of-plain+iam:users:read+iam:service_accounts:manage").get("/admin/api-keys").is(200)
	s.as("session-of-alice").get("/admin/api-keys").fails(403, "forbidden")
}

// micros is how answers write a time.
const micros = "2006-01-02T15:04:05.000000Z"

func TestKeysOfAllHoldersWithoutAccess(t *testing.T) {
	s := newSite(t, func(u *setup) { u.HideAccess = true })
	s.as("session-of-admin").get("/admin/api-keys").is(200)
	s.as("session-of-admin").get(bundlePath).fails(404, "not_found")
	s.as("session-of-admin").post(bundlePath, `{}`).fails(404, "not_found")
}

// A list of more than MaxList keys ends there in each order, and its Link leads to the rest.
func TestManyKeysOfAllHolders(t *testing.T) {
	slow.Test(t, "lists of more than 10,000 keys")
	s := newSite(t)
	const n = httpapi.MaxList + 3
	for i := range n {
		key := svc.APIKey{
			ID: fmt.Sprintf("k%05d", i), Prefix: "p", Hash: []byte(fmt.Sprint(i)), CreatedAt: begin.UTC().Truncate(time.Microsecond).Add(time.Duration(i) * time.Millisecond),
			ExpiresAt: begin.UTC().Truncate(time.Microsecond).AddDate(1, 0, 0), Holder: svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint("u", i%20)},
		}
		if err := s.store.CreateAPIKey(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	admin := s.as("session-of-admin")
	for query, first := range map[string]int{"": n - 1, "?unused_since=2030-01-01T00:00:00Z": 0, "?expires_before=2030-01-01T00:00:00Z": 0} {
		pages := admin.pages("/admin/api-keys" + query)
		if len(pages) != 2 || len(pages[0]) != httpapi.MaxList || len(pages[1]) != 3 {
			t.Fatalf("%s: %d pages, the first with %d keys", query, len(pages), len(pages[0]))
		}
		for i, id := range slices.Concat(pages...) {
			want := i
			if first > 0 {
				want = first - i
			}
			if id != fmt.Sprintf("k%05d", want) {
				t.Fatalf("%s: key %d is %s", query, i, id)
			}
		}
	}
}
