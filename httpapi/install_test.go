package httpapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

// stocked is a site with a source "acme" that offers "chat".
func stocked(t *testing.T, changes ...func(*setup)) (*site, caller) {
	s := newSite(t, changes...)
	admin := s.admin()
	admin.post("/admin/template-sources", `{"url": "https://h/acme"}`).is(201)
	s.market.offer("chat", "Chat", `{"version": "1", "n": 1.0}`)
	return s, admin
}

// revision is the digest of a content that has a name and a manifest only.
func revision(name, manifest string) string {
	return must(svc.Content{Name: name, Manifest: json.RawMessage(manifest)}.Revision())
}

func installed(id, name, manifest, installedAt, updatedAt string) string {
	return fmt.Sprintf(`{"id": %q, "name": %q, "description": null, "category": null, "integrations": [], "tags": [],
		"scope": "server", "owner": null, "source_name": "acme", "source_scope": "server", "source_owner": null,
		"source_revision": %q, "installed_at": %q, "updated_at": %q, "manifest": %s}`,
		id, name, revision(name, manifest), installedAt, updatedAt, manifest)
}

func TestInstall(t *testing.T) {
	s, admin := stocked(t)
	want := installed("chat", "Chat", `{"version": "1", "n": 1.0}`, beginText, beginText)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200).json(want)
	admin.get("/admin/templates/chat").is(200).json(want)
	at := s.clock.tick()
	alias := installed("mine", "Chat", `{"version": "1", "n": 1.0}`, at, at)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme", "source_scope": "server", "alias_id": "mine"}`).is(200).json(alias)
	admin.get("/admin/templates").is(200).json(`{"templates": [` + want + `,` + alias + `]}`)
	null := `{"source_name": "acme", "source_scope": null, "alias_id": null}`
	admin.post("/admin/templates/chat/install", null).fails(409, "already_exists")
	admin.delete("/admin/templates/chat").is(204)
	admin.post("/admin/templates/chat/install", null).is(200)
}

// The revision is the SHA-256 of what stands here, letter by letter.
func TestRevision(t *testing.T) {
	s, admin := stocked(t)
	description, category := "d\"<é>\u2028\n", ""
	s.market.entries["full"] = svc.Content{
		Name: "Full", Description: &description, Category: &category, Integrations: []string{"b", "a"}, Tags: []string{"t", "t"},
		Manifest: json.RawMessage(`{ "version": "\u0031", "\ud83d\ude00": 1, "\ufb33": 1.50, "n": [1e2, 1E-7, -0, 9007199254740993, 1e400, 0.1, 1e21], "a": {"\r": null} }`),
	}
	for id, canonical := range map[string]string{
		"chat": `{"category":null,"description":null,"integrations":[],"manifest":{"n":1,"version":"1"},"name":"Chat","tags":[]}`,
		"full": `{"category":"","description":"d\"<é>` + "\u2028" + `\n","integrations":["b","a"],"manifest":{"a":{"\r":null},"n":[100,1e-7,0,9007199254740993,1e400,0.1,1e+21],"version":"1","` +
			"\U0001f600" + `":1,"` + "\ufb33" + `":1.5},"name":"Full","tags":["t","t"]}`,
	} {
		want := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(canonical)))
		if have := admin.post("/admin/templates/"+id+"/install", `{"source_name": "acme"}`).is(200).text("source_revision"); have != want {
			t.Errorf("%s: revision %s, want %s of %s", id, have, want, canonical)
		}
	}
}

func TestInstallTakenBeforeAnythingIsFetched(t *testing.T) {
	s, admin := stocked(t)
	admin.post("/admin/templates", `{"id": "chat", "name": "Mine", "manifest": {"version": "1"}}`).is(200)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).fails(409, "already_exists")
	admin.post("/admin/templates/other/install", `{"source_name": "acme", "alias_id": "chat"}`).fails(409, "already_exists")
	if asked := s.market.requests(); len(asked) > 0 {
		t.Errorf("the source was asked %d times", len(asked))
	}
	admin.post("/admin/templates/chat/install", `{"source_name": "nobody"}`).fails(404, "not_found")
}

func TestInstallRefused(t *testing.T) {
	_, admin := stocked(t)
	for body, places := range map[string][]string{
		``:                          {"/source_name"},
		`{}`:                        {"/source_name"},
		`{"source_name": null}`:     {"/source_name"},
		`{"source_name": ""}`:       {"/source_name"},
		`{"source_name": "a/b"}`:    {"/source_name"},
		`{"source_name": ["acme"]}`: {"/source_name"},
		`{"source_name": "acme", "source_scope": "global"}`:                       {"/source_scope"},
		`{"source_name": "acme", "source_scope": "Server"}`:                       {"/source_scope"},
		`{"source_name": "acme", "alias_id": ""}`:                                 {"/alias_id"},
		`{"source_name": "acme", "alias_id": "."}`:                                {"/alias_id"},
		`{"source_name": "acme", "alias_id": "a\\b"}`:                             {"/alias_id"},
		`{"source_name": "acme", "source_owner": "x"}`:                            {"/source_owner"},
		`{"source_name": "acme", "alias_id": "` + strings.Repeat("a", 129) + `"}`: {"/alias_id"},
	} {
		admin.post("/admin/templates/chat/install", body).refuses(places...)
	}
	admin.get("/admin/templates").is(200).json(`{"templates": []}`)
}

// An optional value is null or a good one: "" is no scope.
func TestInstallFromAnEmptyScope(t *testing.T) {
	_, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme", "source_scope": ""}`).refuses("/source_scope")
}

func TestInstallNotFound(t *testing.T) {
	_, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "nobody"}`).fails(404, "not_found")
	admin.post("/admin/templates/chat/install", `{"source_name": "acme", "source_scope": "personal"}`).fails(404, "not_found")
	admin.post("/admin/templates/nothing/install", `{"source_name": "acme"}`).fails(404, "not_found")
	admin.get("/admin/templates").is(200).json(`{"templates": []}`)
}

func TestSourceFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		status int
		code   string
	}{
		{"failed", &svc.Error{Code: svc.CodeSourceFailed, Message: `source "acme": its catalogue is bad`, Err: errors.New("internal")}, 502, "source_failed"},
		{"timeout", &svc.Error{Code: svc.CodeSourceTimeout, Message: `source "acme": its catalogue did not arrive in time`}, 504, "source_timeout"},
		{"anything", errors.New("dial tcp 10.0.0.7:443: internal"), 502, "source_failed"},
		{"deadline", fmt.Errorf("internal: %w", context.DeadlineExceeded), 504, "source_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, admin := stocked(t)
			admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
			before := string(admin.get("/admin/templates").is(200).body)
			s.market.fail(c.err)
			for _, a := range []answer{
				admin.post("/admin/templates/chat/install", `{"source_name": "acme", "alias_id": "other"}`),
				admin.get("/admin/templates/chat/check-update"),
				admin.post("/admin/templates/chat/update", ""),
				admin.post("/admin/templates/chat/update?force=1", ""),
			} {
				a.fails(c.status, c.code)
				if detail := a.text("detail"); !strings.Contains(detail, `"acme"`) || strings.Contains(detail, "internal") {
					t.Errorf("%s: %s", a.request, detail)
				}
			}
			admin.get("/admin/templates").is(200).json(before)
		})
	}
}

func TestBadEntryOfASource(t *testing.T) {
	s, admin := stocked(t)
	for id, content := range map[string]svc.Content{
		"no-name":    {Manifest: json.RawMessage(`{"version": "1"}`)},
		"no-version": {Name: "N", Manifest: json.RawMessage(`{}`)},
		"not-object": {Name: "N", Manifest: json.RawMessage(`[]`)},
		"twice":      {Name: "N", Manifest: json.RawMessage(`{"version": "1", "version": "2"}`)},
		"empty":      {Name: "N"},
		"tags":       {Name: "N", Manifest: json.RawMessage(`{"version": "1"}`), Tags: []string{strings.Repeat("a", 129)}},
	} {
		s.market.entries[id] = content
		a := admin.post("/admin/templates/"+id+"/install", `{"source_name": "acme"}`).fails(502, "source_failed")
		if !strings.Contains(a.text("detail"), `"acme"`) {
			t.Errorf("%s", a.body)
		}
	}
	admin.get("/admin/templates").is(200).json(`{"templates": []}`)
}

func check(hasUpdate bool, current, latest string) string {
	if latest = fmt.Sprintf("%q", latest); latest == `""` {
		latest = "null"
	}
	return fmt.Sprintf(`{"has_update": %v, "current_revision": %q, "latest_revision": %s, "source_name": "acme", "source_scope": "server"}`, hasUpdate, current, latest)
}

func TestUpdate(t *testing.T) {
	s, admin := stocked(t)
	const one, same, two = `{"version": "1", "n": 1.0}`, `{"n": 1, "version": "\u0031"}`, `{"version": "2"}`
	admin.post("/admin/templates/chat/install", `{"source_name": "acme", "alias_id": "mine"}`).is(200)
	first, second := revision("Chat", one), revision("Chat", two)
	old := installed("mine", "Chat", one, beginText, beginText)
	admin.get("/admin/templates/mine/check-update").is(200).json(check(false, first, first))
	unchanged := fmt.Sprintf(`{"updated": false, "previous_revision": %q, "new_revision": %[1]q, "template": %s}`, first, old)
	s.clock.tick()
	admin.post("/admin/templates/mine/update", "").is(200).json(unchanged)
	admin.post("/admin/templates/mine/update", "{}").is(200).json(unchanged)

	s.market.offer("chat", "Chat", same)
	admin.get("/admin/templates/mine/check-update").is(200).json(check(false, first, first))
	admin.post("/admin/templates/mine/update?force=false", "").is(200).json(unchanged)

	s.market.offer("chat", "Chat", two)
	admin.get("/admin/templates/mine/check-update").is(200).json(check(true, first, second))
	admin.get("/admin/templates/mine").is(200).json(old)
	at := s.clock.tick()
	updated := installed("mine", "Chat", two, beginText, at)
	admin.post("/admin/templates/mine/update", "").is(200).
		json(fmt.Sprintf(`{"updated": true, "previous_revision": %q, "new_revision": %q, "template": %s}`, first, second, updated))
	admin.get("/admin/templates/mine").is(200).json(updated)
	admin.get("/admin/templates/mine/check-update").is(200).json(check(false, second, second))
	admin.get("/admin/templates/chat/check-update").fails(404, "not_found")
}

func TestUpdateGoneUpstream(t *testing.T) {
	s, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	before := string(admin.get("/admin/templates").is(200).body)
	s.market.withdraw("chat")
	admin.get("/admin/templates/chat/check-update").is(200).json(check(false, revision("Chat", `{"version": "1", "n": 1.0}`), ""))
	admin.post("/admin/templates/chat/update", "").fails(404, "not_found")
	admin.post("/admin/templates/chat/update?force=TRUE", "").fails(404, "not_found")
	admin.get("/admin/templates").is(200).json(before)
}

func TestUpdateWithoutItsSource(t *testing.T) {
	_, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	before := string(admin.get("/admin/templates").is(200).body)
	admin.delete("/admin/template-sources/acme").is(204)
	for _, a := range []answer{admin.get("/admin/templates/chat/check-update"), admin.post("/admin/templates/chat/update?force=1", "")} {
		if detail := a.fails(404, "not_found").text("detail"); !strings.Contains(detail, `"acme"`) {
			t.Errorf("%s does not name the source: %s", a.request, detail)
		}
	}
	admin.get("/admin/templates").is(200).json(before)
}

func TestUpdateOfAHandMadeTemplate(t *testing.T) {
	s, admin := stocked(t)
	before := string(admin.post("/admin/templates", `{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}`).is(200).body)
	admin.get("/admin/templates/chat/check-update").is(200).
		json(`{"has_update": false, "current_revision": null, "latest_revision": null, "source_name": null, "source_scope": null}`)
	admin.post("/admin/templates/chat/update", "").fails(400, "invalid_request")
	admin.post("/admin/templates/chat/update?force=1", "").fails(400, "invalid_request")
	admin.get("/admin/templates/chat").is(200).json(before)
	if asked := s.market.requests(); len(asked) > 0 {
		t.Errorf("a source was asked")
	}
}

func TestUpdateInTheWay(t *testing.T) {
	s, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	admin.patch("/admin/templates/chat", `{"tags": ["mine"], "description": "mine", "manifest": {"version": "1", "mine": true}}`).is(200)
	before := string(admin.get("/admin/templates").is(200).body)
	s.market.offer("chat", "Chat", `{"version": "2"}`)
	conflict := admin.post("/admin/templates/chat/update", "").fails(409, "edited_locally").value()
	if have := fmt.Sprint(conflict["fields"]); have != "[description tags manifest]" {
		t.Errorf("fields %s", have)
	}
	admin.get("/admin/templates").is(200).json(before)
	at := s.clock.tick()
	admin.post("/admin/templates/chat/update?force=True", "").is(200)
	admin.get("/admin/templates/chat").is(200).json(installed("chat", "Chat", `{"version": "2"}`, beginText, at))
}

func TestForce(t *testing.T) {
	_, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	for query, want := range map[string]any{
		"": false, "?": false, "?force": false, "?force=": false, "?force=false": false, "?force=FALSE": false, "?force=0": false,
		"?force=true": true, "?force=True": true, "?force=tRUE": true, "?force=1": true, "?force=%31": true, "?Force=1": nil, "?x=1&force=1": nil,
		"?force=yes": nil, "?force=2": nil, "?force=t": nil, "?force=on": nil, "?force=%20true": nil, "?force=01": nil,
		"?force=1&force=1": nil, "?force=&force=1": nil, "?force=1;x": nil, "?force=%zz": nil, "?x=;": nil, "?%zz=1": nil, "?force=%ff": nil,
	} {
		a := admin.post("/admin/templates/chat/update"+query, "")
		if want == nil {
			a.fails(400, "invalid_request")
		} else if have := a.is(200).value()["updated"]; have != want {
			t.Errorf("%s: updated %v, want %v", query, have, want)
		}
	}
}

// A conflict is settled, in each way, and stays so.
func TestUpdateSettles(t *testing.T) {
	const base, next, mine, both = `{"version": "1", "n": 1.0}`, `{"version": "2"}`, `{"version": "1", "mine": true}`, `{"version": "2", "mine": true}`
	body := `{"name": "Both", "manifest": ` + both + `, "description": null, "tags": ["a", "a"]}`
	one, two := revision("Chat", base), revision("Chat", next)
	for _, c := range []struct{ query, body, name, manifest, edited string }{
		{"?resolution=theirs", "", "Chat", next, ""},
		{"?resolution=theirs&force=1", "{}", "Chat", next, ""},
		{"?resolution=ours&revision=" + two, "", "Chat", mine, "[manifest]"},
		{"?resolution=merged&revision=" + two, body, "Both", both, "[name tags manifest]"},
		{"?local_edits=overwrite", "", "Chat", next, ""},
		{"?local_edits=conflict&resolution=ours", "", "Chat", mine, "[manifest]"},
	} {
		s, admin := stocked(t)
		admin.post(chat+"/install", `{"source_name": "acme"}`).is(200)
		etag := admin.patch(chat, `{"manifest": `+mine+`}`).is(200).header.Get("ETag")
		s.market.offer("chat", "Chat", next)
		admin.post(chat+"/update", "").fails(409, "edited_locally")
		admin.post(chat+"/update?local_edits=conflict&resolution=", "").fails(409, "edited_locally")
		admin.with("If-Match", `"other"`, "POST", chat+"/update"+c.query, c.body).fails(412, "precondition_failed")

		a := admin.with("If-Match", etag, "POST", chat+"/update"+c.query, c.body).is(200)
		template := admin.get(chat).is(200)
		a.json(fmt.Sprintf(`{"updated": true, "previous_revision": %q, "new_revision": %q, "template": %s}`, one, two, template.body))
		have := template.value()
		if manifest := any(parse(t, []byte(c.manifest))); have["name"] != c.name || have["source_revision"] != two || !reflect.DeepEqual(have["manifest"], manifest) {
			t.Errorf("%s: %s", c.query, template.body)
		}
		admin.get(chat + "/check-update").is(200).json(check(false, two, two))
		s.market.offer("chat", "Chat", `{"version": "3"}`)
		if again := admin.post(chat+"/update", ""); c.edited == "" {
			again.is(200)
		} else if fields := fmt.Sprint(again.fails(409, "edited_locally").value()["fields"]); fields != c.edited {
			t.Errorf("%s: edited are %s", c.query, fields)
		}
	}
}

func TestUpdateSettlesNot(t *testing.T) {
	s, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	admin.patch("/admin/templates/chat", `{"tags": ["mine"]}`).is(200)
	s.market.offer("chat", "Chat", `{"version": "2"}`)
	before := string(admin.get("/admin/templates").is(200).body)
	const whole = `{"name": "x", "manifest": {"version": "1"}}`
	for _, c := range [][3]string{
		{"?resolution=mine", "", "resolution"}, {"?resolution=OURS", "", "resolution"}, {"?force=1&resolution=ours", "", "resolution"},
		{"?force=true&resolution=merged", whole, "resolution"}, {"?resolution=ours&resolution=ours", "", "resolution"},
		{"?local_edits=keep", "", "local_edits"}, {"?revision=x", "", "revision"}, {"?revision=sha256:" + strings.Repeat("A", 64), "", "revision"},
		{"", whole, ""}, {"?resolution=ours", `{"tags": []}`, ""}, {"?force=1", `{"name": ""}`, ""},
		{"?resolution=merged", "", "/name /manifest"}, {"?resolution=merged", "{}", "/name /manifest"}, {"?resolution=merged", `{"name": "x"}`, "/manifest"},
		{"?resolution=merged", `{"name": "x", "manifest": {}}`, "/manifest/version"}, {"?resolution=merged", `{"id": "x"}`, "/id"},
		{"?resolution=merged", `{"name": "x", "manifest": null}`, "/manifest"},
	} {
		admin.post("/admin/templates/chat/update"+c[0], c[1]).refuses(strings.Split(c[2], " ")...)
	}
	admin.post("/admin/templates/chat/update?resolution=ours&revision="+revision("Chat", `{"version": "1", "n": 1.0}`), "").fails(412, "precondition_failed")
	s.as("session-of-plain").post("/admin/templates/chat/update?resolution=merged", whole).fails(403, "forbidden")
	admin.get("/admin/templates").is(200).json(before)
}
