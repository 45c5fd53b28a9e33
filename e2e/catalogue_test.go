package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/strictjson"
)

const published = "agent-memory"

// entry is a template in a published catalogue.
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

// readPublished returns the files of the published catalogue, or skips the test when there is none.
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

// read returns the catalogue in files, with compact manifests inline and otherwise unchanged.
func read(t *testing.T, files map[string]string) []entry {
	t.Helper()
	var published catalogue
	if err := json.Unmarshal([]byte(files["templates.json"]), &published); err != nil {
		t.Fatal(err)
	}
	entries := published.Templates
	for i := range entries {
		entries[i].Manifest = []byte(compact(t, files[entries[i].ManifestFile]))
	}
	return entries
}

func ids(e entry) []string { return []string{e.ID, "my-" + e.ID} }

// installAll installs every template under its own id and under another.
func (c caller) installAll(entries []entry) {
	c.t.Helper()
	for _, e := range entries {
		for _, id := range ids(e) {
			must(c.Templates.Install(c.t.Context(), svc.Install{TemplateID: e.ID, SourceName: "acme", AliasID: &id}))
		}
	}
}

func (c caller) wantPublished(id string, e entry) {
	c.t.Helper()
	have := must(c.Templates.Read(c.t.Context(), id))
	switch {
	case have.ID != id, have.Name != e.Name, !equalText(have.Description, e.Description), !equalText(have.Category, e.Category):
		c.t.Errorf("%s: %q %q, want %q", id, have.ID, have.Name, e.Name)
	case !slices.Equal(have.Integrations, e.Integrations), !slices.Equal(have.Tags, e.Tags):
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
	ctx := t.Context()
	before := must(all(admin.Templates.List(ctx, svc.TemplateQuery{})))
	s.restart()
	admin = s.as(admin.bearer)
	if after := must(all(admin.Templates.List(ctx, svc.TemplateQuery{}))); !reflect.DeepEqual(after, before) {
		t.Errorf("before %v\nafter %v", before, after)
	}
	for _, e := range entries {
		for _, id := range ids(e) {
			admin.wantPublished(id, e)
			if check := must(admin.Templates.CheckUpdate(ctx, id)); check.HasUpdate || *check.CurrentRevision != *check.LatestRevision || check.Source.Name != "acme" {
				t.Errorf("%s: %+v", id, check)
			}
		}
		if !slices.Contains(admin.templates(svc.TemplateQuery{Category: *e.Category}), "my-"+e.ID) {
			t.Errorf("%s is not listed in its category", e.ID)
		}
	}
}

// updates returns the ids of the templates that have an update.
func (c caller) updates(entries []entry) []string {
	c.t.Helper()
	updates := []string{}
	for _, e := range entries {
		for _, id := range ids(e) {
			if must(c.Templates.CheckUpdate(c.t.Context(), id)).HasUpdate {
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
	u.put("templates.json", string(must(strictjson.Marshal(catalogue{inline(changed)}))))
	want := append(ids(entries[2]), ids(entries[5])...)
	if have := admin.updates(entries); !slices.Equal(have, want) {
		t.Errorf("updates of %v, want %v", have, want)
	}
	for _, id := range want {
		if !must(admin.Templates.Update(t.Context(), id, svc.UpdateRequest{})).Updated {
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

// inline removes the files of manifests.
func inline(entries []entry) []entry {
	entries = slices.Clone(entries)
	for i := range entries {
		entries[i].ManifestFile = ""
	}
	return entries
}

// respell publishes the same content in another form: other key order, white space, escapes and
// numbers, inline manifests, an empty list for none.
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

// otherwise writes integers with a fraction, and other numbers with an exponent.
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

// A published manifest may not have these numbers and escapes.
func TestRespelledManifests(t *testing.T) {
	u := newUpstream(t, map[string]string{})
	admin, ctx := newSite(t, trusting(u)).admin(), t.Context()
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
		fails(t, admin.install(id), "")
		if installed := must(admin.Templates.Read(ctx, id)); string(installed.Manifest) != c.one {
			t.Errorf("have %s, want %s", installed.Manifest, c.one)
		}
		u.offer(`{"name": "n", "tags": [], "description": null, "unknown": 1, "manifest": ` + c.other + `, "id": "` + id + `"}`)
		check, updated := must(admin.Templates.CheckUpdate(ctx, id)), must(admin.Templates.Update(ctx, id, svc.UpdateRequest{}))
		if check.HasUpdate == c.same || updated.Updated == c.same {
			t.Errorf("%s, then %s: %+v, %+v", c.one, c.other, check, updated)
		}
		if have := must(admin.Templates.Update(ctx, id, svc.UpdateRequest{Force: true})).Template.Manifest; len(have) != len(compact(t, c.other)) {
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

func parse(t *testing.T, data []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("not JSON: %v: %.300s", err, data)
	}
	return value
}
