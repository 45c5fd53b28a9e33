package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const published = "agent-memory"

// entry is a template as a catalogue publishes it.
type entry struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Description  *string         `json:"description,omitempty"`
	Category     *string         `json:"category,omitempty"`
	Integrations []string        `json:"integrations,omitempty"`
	Tags         []string        `json:"tags,omitempty"`
	ManifestFile string          `json:"manifest_file,omitempty"`
	Manifest     json.RawMessage `json:"manifest,omitempty"`
}

type catalogue struct {
	Templates []entry `json:"templates"`
}

// readPublished returns the files of the published catalogue. Without it, the test is skipped.
func readPublished(t *testing.T) map[string]string {
	t.Helper()
	dir := findCatalogues(t)
	if dir == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("there is no shared/catalogues above this module, and SVC_CATALOGUES names none")
		}
		t.Skip("SKIPPED, so the published catalogue is NOT TESTED: there is no shared/catalogues above this module, and SVC_CATALOGUES names none")
	}
	files := map[string]string{}
	root := os.DirFS(filepath.Join(dir, published))
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func findCatalogues(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("SVC_CATALOGUES"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if info, err := os.Stat(filepath.Join(dir, "shared", "catalogues", published)); err == nil && info.IsDir() {
			return filepath.Join(dir, "shared", "catalogues")
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
		dir = filepath.Dir(dir)
	}
}

// read returns the catalogue in files, with the manifests in their place, compact and otherwise byte by byte.
func read(t *testing.T, files map[string]string) []entry {
	t.Helper()
	entries := unmarshal[catalogue](t, []byte(files["templates.json"])).Templates
	for i := range entries {
		var manifest bytes.Buffer
		if err := json.Compact(&manifest, []byte(files[entries[i].ManifestFile])); err != nil {
			t.Fatal(err)
		}
		entries[i].Manifest = manifest.Bytes()
	}
	return entries
}

func ids(e entry) []string { return []string{e.ID, "my-" + e.ID} }

// installAll installs every template under its own id and under another.
func (c caller) installAll(entries []entry) {
	c.t.Helper()
	for _, e := range entries {
		c.post("/admin/templates/"+e.ID+"/install", `{"source_name": "acme"}`).is(200)
		c.post("/admin/templates/"+e.ID+"/install", `{"source_name": "acme", "alias_id": "my-`+e.ID+`"}`).is(200)
	}
}

func (c caller) wantPublished(id string, e entry) {
	c.t.Helper()
	have := c.get("/admin/templates/" + id).is(200).template()
	switch {
	case have.ID != id, have.Name != e.Name, !equalText(have.Description, e.Description), !equalText(have.Category, e.Category):
		c.t.Errorf("%s: %q %q, want %q", id, have.ID, have.Name, e.Name)
	case !slices.Equal(have.Integrations, e.Integrations), !slices.Equal(have.Tags, e.Tags), have.Integrations == nil, have.Tags == nil:
		c.t.Errorf("%s: integrations %v, tags %v, want %v, %v", id, have.Integrations, have.Tags, e.Integrations, e.Tags)
	case !bytes.Equal(have.Manifest, e.Manifest):
		c.t.Errorf("%s: manifest\nhave %s\nwant %s", id, have.Manifest, e.Manifest)
	}
}

func equalText(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

func TestPublishedCatalogue(t *testing.T) {
	files := readPublished(t)
	entries := read(t, files)
	if len(entries) != 8 {
		t.Fatalf("%d templates are published, not 8", len(entries))
	}
	u := newUpstream(t, files)
	s := newSite(t, trusting(u))
	admin := s.admin()
	admin.register(u)
	admin.installAll(entries)
	before := string(admin.get("/admin/templates").is(200).body)
	s.restart()
	admin = s.as(admin.bearer)
	admin.get("/admin/templates").is(200).json(before)
	for _, e := range entries {
		for _, id := range ids(e) {
			admin.wantPublished(id, e)
			check := admin.get("/admin/templates/" + id + "/check-update").is(200)
			revision := check.text("current_revision")
			check.json(fmt.Sprintf(`{"has_update": false, "current_revision": %q, "latest_revision": %[1]q, "source_name": "acme", "source_scope": "server"}`, revision))
		}
		category := admin.get("/admin/templates?category=" + *e.Category).is(200)
		if !strings.Contains(string(category.body), `"id":"my-`+e.ID+`"`) {
			t.Errorf("%s is not listed in its category", e.ID)
		}
	}
}

// updates are the ids of the templates that have one.
func (c caller) updates(entries []entry) []string {
	c.t.Helper()
	updates := []string{}
	for _, e := range entries {
		for _, id := range ids(e) {
			if c.get("/admin/templates/" + id + "/check-update").is(200).value()["has_update"] == true {
				updates = append(updates, id)
			}
		}
	}
	return updates
}

func TestPublishedCatalogueChanges(t *testing.T) {
	files := readPublished(t)
	entries := read(t, files)
	u := newUpstream(t, files)
	s := newSite(t, trusting(u))
	admin := s.admin()
	admin.register(u)
	admin.installAll(entries)
	if have := admin.updates(entries); len(have) > 0 {
		t.Fatalf("updates of what was just installed: %v", have)
	}

	u.respell(t, entries)
	if have := admin.updates(entries); len(have) > 0 {
		t.Errorf("spelled otherwise, no more, and has updates: %v", have)
	}

	changed := slices.Clone(entries)
	text := *changed[2].Description + "!"
	changed[2].Description = &text
	changed[5].Manifest = json.RawMessage(strings.Replace(string(changed[5].Manifest), `{`, `{"added":1.50,`, 1))
	u.put("templates.json", string(must(marshal(catalogue{inline(changed)}))))
	want := append(ids(entries[2]), ids(entries[5])...)
	if have := admin.updates(entries); !slices.Equal(have, want) {
		t.Errorf("updates of %v, want %v", have, want)
	}
	for _, id := range want {
		if admin.post("/admin/templates/"+id+"/update", "").is(200).value()["updated"] != true {
			t.Errorf("%s was not updated", id)
		}
	}
	for _, i := range []int{2, 5} {
		for _, id := range ids(entries[i]) {
			admin.wantPublished(id, changed[i])
		}
	}
	if have := admin.updates(entries); len(have) > 0 {
		t.Errorf("still updates of %v", have)
	}
}

// inline drops the files of manifests.
func inline(entries []entry) []entry {
	entries = slices.Clone(entries)
	for i := range entries {
		entries[i].ManifestFile = ""
	}
	return entries
}

// respell publishes the same in other words: keys in another order, other white space, other escapes, numbers spelled
// otherwise, manifests in the catalogue, an empty list for none.
func (u *upstream) respell(t *testing.T, entries []entry) {
	entries = inline(entries)
	for i := range entries {
		entries[i].Manifest = must(json.MarshalIndent(otherwise(parse(t, entries[i].Manifest)), "\t", "   "))
		if entries[i].Tags == nil {
			entries[i].Tags = []string{}
		}
	}
	slices.Reverse(entries)
	u.put("templates.json", string(must(json.MarshalIndent(map[string]any{"a": 1, "templates": entries}, " ", "\t"))))
}

// otherwise spells whole numbers with a fraction and others with an exponent.
func otherwise(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = otherwise(v[key])
		}
	case []any:
		for i := range v {
			v[i] = otherwise(v[i])
		}
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return json.Number(v.String() + "e+00")
		}
		return json.Number(v.String() + ".0")
	}
	return value
}

// Numbers and escapes in a manifest that a published one may not have.
func TestRespelledManifests(t *testing.T) {
	u := newUpstream(t, map[string]string{})
	s := newSite(t, trusting(u))
	admin := s.admin()
	admin.register(u)
	for i, c := range []struct {
		one, other string
		same       bool
	}{
		{`{"version":"1","n":1.0}`, `{"n":1,"version":"1"}`, true},
		{`{"version":"1","n":1e2}`, `{"version":"1","n":100}`, true},
		{`{"version":"1","n":0.1}`, `{"version":"1","n":1e-1}`, true},
		{`{"version":"1","n":-0}`, `{"version":"1","n":0}`, true},
		{`{"version":"1","s":"\u00e9/"}`, `{"version":"1","s":"é\/"}`, true},
		{`{"version":"1","a":{"x":1,"y":[1,2]}}`, "{\n\"a\" : { \"y\": [ 1, 2 ], \"x\": 1 }, \"version\": \"1\" }", true},
		{`{"version":"1","n":1}`, `{"version":"1","n":1.5}`, false},
		{`{"version":"1","n":1}`, `{"version":"1","n":"1"}`, false},
		{`{"version":"1","n":9007199254740993}`, `{"version":"1","n":9007199254740992}`, false},
		{`{"version":"1","a":[1,2]}`, `{"version":"1","a":[2,1]}`, false},
		{`{"version":"1","a":null}`, `{"version":"1"}`, false},
		{`{"version":"1","s":"\u00e9"}`, `{"version":"1","s":"e\u0301"}`, false},
	} {
		id := fmt.Sprint("t", i)
		entry := `{"id": "` + id + `", "name": "n", "manifest": `
		u.offer(entry + c.one + `}`)
		installed := admin.post("/admin/templates/"+id+"/install", `{"source_name": "acme"}`).is(200).template()
		if string(installed.Manifest) != c.one {
			t.Errorf("have %s, want %s", installed.Manifest, c.one)
		}
		u.offer(`{"name": "n", "tags": [], "description": null, "unknown": 1, "manifest": ` + c.other + `, "id": "` + id + `"}`)
		if has := admin.get("/admin/templates/" + id + "/check-update").is(200).value()["has_update"]; has == c.same {
			t.Errorf("%s, then %s: has_update %v", c.one, c.other, has)
		}
		updated := admin.post("/admin/templates/"+id+"/update", "").is(200)
		if updated.value()["updated"] == c.same {
			t.Errorf("%s, then %s: %s", c.one, c.other, updated.body)
		}
		forced := admin.post("/admin/templates/"+id+"/update?force=true", "").is(200)
		if have := unmarshal[struct{ Template template }](t, forced.body).Template.Manifest; len(have) != len(compact(t, c.other)) {
			t.Errorf("forced: have %s, want %s", have, c.other)
		}
	}
}

func compact(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
