package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestTemplateOfItsMinimum(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	admin.get("/admin/templates").is(200).json(`{"templates": []}`)

	want := `{"id": "chat", "name": "Chat", "description": null, "category": null, "integrations": [], "tags": [],
		"scope": "server", "owner": null, "source_name": null, "source_scope": null, "source_owner": null,
		"source_revision": null, "installed_at": "` + beginText + `", "updated_at": "` + beginText + `",
		"manifest": {"version": "1"}}`
	admin.post("/admin/templates", `{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}`).is(200).json(want)
	s.clock.tick()
	admin.get("/admin/templates/chat").is(200).json(want)
	admin.get("/admin/templates").is(200).json(`{"templates": [` + want + `]}`)
	admin.patch("/admin/templates/chat", `{}`).is(200).json(want)

	admin.delete("/admin/templates/chat").is(204)
	admin.delete("/admin/templates/chat").fails(404, "not_found")
	admin.get("/admin/templates/chat").fails(404, "not_found")
	admin.patch("/admin/templates/chat", `{"name": "x"}`).fails(404, "not_found")
	admin.get("/admin/templates").is(200).json(`{"templates": []}`)
}

func TestTemplateWithAllFields(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	admin.post("/admin/templates", `{"tags": ["b", "a", "b"], "integrations": ["z", "y", "z"], "category": "talk",
		"description": "<&> \u2028 ü", "manifest": {"version": "1"}, "name": "Chat", "id": "chat"}`).is(200)
	at := s.clock.tick()
	want := `{"id": "chat", "name": "Talk", "description": "<&> \u2028 ü", "category": "talk",
		"integrations": ["z", "y", "z"], "tags": ["b", "a", "b"],
		"scope": "server", "owner": null, "source_name": null, "source_scope": null, "source_owner": null,
		"source_revision": null, "installed_at": "` + beginText + `", "updated_at": "` + at + `", "manifest": {"version": "1"}}`
	admin.patch("/admin/templates/chat", `{"name": "Talk"}`).is(200).json(want)
	admin.get("/admin/templates/chat").is(200).json(want)
}

func TestTemplateNullMeansAbsent(t *testing.T) {
	admin := newSite(t).admin()
	a := admin.post("/admin/templates", `{"id": "chat", "name": "Chat", "manifest": {"version": "1"},
		"description": null, "category": null, "integrations": null, "tags": null}`).is(200)
	v := a.value()
	if v["description"] != nil || v["category"] != nil || len(v["integrations"].([]any)) != 0 || len(v["tags"].([]any)) != 0 {
		t.Errorf("null is not as good as absent: %s", a.body)
	}
}

func TestEmptyTextIsNotNull(t *testing.T) {
	admin := newSite(t).admin()
	a := admin.post("/admin/templates", `{"id": "chat", "name": "Chat", "manifest": {"version": "1"}, "description": "", "category": ""}`).is(200)
	for range 2 {
		if v := a.value(); v["description"] != "" || v["category"] != "" {
			t.Errorf("an empty text did not stay one: %s", a.body)
		}
		a = admin.get("/admin/templates/chat").is(200)
	}
}

func TestTemplateIDTaken(t *testing.T) {
	admin := newSite(t).admin()
	admin.post("/admin/templates", `{"id": "chat", "name": "First", "manifest": {"version": "1"}}`).is(200)
	admin.post("/admin/templates", `{"id": "chat", "name": "Second", "manifest": {"version": "2"}}`).fails(409, "already_exists")
	admin.post("/admin/templates", `{"id": "Chat", "name": "Another", "manifest": {"version": "2"}}`).is(200)
	if name := admin.get("/admin/templates/chat").is(200).text("name"); name != "First" {
		t.Errorf("the one that was there is now %q", name)
	}
}

// manifests are JSON objects that something could want to rewrite.
var manifests = []string{
	`{"version":"1","a":1.0,"b":1,"c":1e400,"d":-0,"e":-0.0,"f":1E5,"g":9007199254740993,"h":0.1000}`,
	`{"version":"1","n":123456789012345678901234567890.123456789012345678901234567890}`,
	`{"z":1,"version":"1","a":2,"10":3,"9":4,"":5}`,
	`{"version":"1","s":"\u00e9\u0041\/\ud83d\ude00é😀"}`,
	`{"version":"1","s":"<script>&amp;</script>"}`,
	"{\"version\":\"1\",\"s\":\"\u2028\u2029\u007f\"}",
	`{"version":"1","s":"\u2028\u0000\u001f\b\n\"\\"}`,
	`{"\u0076ersion":"1"}`,
	`{"version":"1","nested":{"null":null,"true":true,"list":[[],{},[null]]},"Version":2}`,
}

func TestManifestDigitForDigit(t *testing.T) {
	admin := newSite(t).admin()
	for i, manifest := range manifests {
		id := fmt.Sprint("m", i)
		spaced := strings.NewReplacer(`:{`, ": \r\n{", `,"`, ",\t \"", `}`, " }").Replace(manifest)
		answers := []answer{
			admin.post("/admin/templates", `{"id":"`+id+`","name":"N","manifest":`+manifest+`}`),
			admin.get("/admin/templates/" + id),
			admin.patch("/admin/templates/"+id, `{"manifest":{"version":"0"}}`),
			admin.patch("/admin/templates/"+id, `{"manifest": `+spaced+` }`),
			admin.get("/admin/templates/" + id),
		}
		answers = append(answers[:2], answers[3:]...)
		for _, a := range answers {
			var template struct{ Manifest json.RawMessage }
			if err := json.Unmarshal(a.is(200).body, &template); err != nil {
				t.Fatal(err)
			}
			if string(template.Manifest) != manifest {
				t.Errorf("%s:\nhave %s\nwant %s", a.request, template.Manifest, manifest)
			}
		}
	}
	var list struct {
		Templates []struct{ Manifest json.RawMessage }
	}
	if err := json.Unmarshal(admin.get("/admin/templates").is(200).body, &list); err != nil {
		t.Fatal(err)
	}
	for i, template := range list.Templates {
		if string(template.Manifest) != manifests[i] {
			t.Errorf("in the list:\nhave %s\nwant %s", template.Manifest, manifests[i])
		}
	}
}

func TestAnswersAreNotEscapedForHTML(t *testing.T) {
	admin := newSite(t).admin()
	a := admin.post("/admin/templates", `{"id":"a<b>&c","name":"<>&","manifest":{"version":"1"}}`).is(200)
	if !bytes.Contains(a.body, []byte(`"a<b>&c"`)) || !bytes.Contains(a.body, []byte(`"<>&"`)) {
		t.Errorf("rewritten: %s", a.body)
	}
}

func TestPatch(t *testing.T) {
	const before = `{"id": "chat", "name": "Chat", "description": "old", "category": "talk", "integrations": ["i", "j"],
		"tags": ["t", "u"], "manifest": {"version": "1", "n": 1}}`
	for _, c := range []struct{ body, field, want string }{ // field "": nothing changes
		{`{}`, "", ""},
		{`{"name": "Chat"}`, "", ""},
		{`{"description": "old", "category": "talk"}`, "", ""},
		{`{"integrations": ["i", "j"], "tags": ["t", "u"]}`, "", ""},
		{`{"manifest": {"version": "1", "n": 1}}`, "", ""},
		{`{"manifest": { "version": "1",  "n": 1 }}`, "", ""},
		{`{"name": "New"}`, "name", `"New"`},
		{`{"description": "new"}`, "description", `"new"`},
		{`{"description": ""}`, "description", `""`},
		{`{"description": null}`, "description", `null`},
		{`{"category": "new"}`, "category", `"new"`},
		{`{"category": ""}`, "category", `""`},
		{`{"category": null}`, "category", `null`},
		{`{"integrations": []}`, "integrations", `[]`},
		{`{"integrations": ["j", "i"]}`, "integrations", `["j", "i"]`},
		{`{"tags": ["t", "u", "t"]}`, "tags", `["t", "u", "t"]`},
		{`{"tags": []}`, "tags", `[]`},
		{`{"manifest": {"version": "2"}}`, "manifest", `{"version": "2"}`},
		{`{"manifest": {"version": "1", "n": 2}}`, "manifest", `{"version": "1", "n": 2}`},
	} {
		t.Run(c.body, func(t *testing.T) {
			s := newSite(t)
			admin := s.admin()
			want := admin.post("/admin/templates", before).is(200).value()
			at := s.clock.tick()
			if c.field != "" {
				want[c.field], want["updated_at"] = parse(t, []byte(c.want)), at
			}
			whole := string(must(json.Marshal(want)))
			admin.patch("/admin/templates/chat", c.body).is(200).json(whole)
			admin.get("/admin/templates/chat").is(200).json(whole)
		})
	}
}

func TestPatchRefused(t *testing.T) {
	admin := newSite(t).admin()
	const body = `{"id": "chat", "name": "Chat", "manifest": {"version": "1"}, "tags": ["t"]}`
	before := string(admin.post("/admin/templates", body).is(200).body)
	for body, place := range map[string]string{
		`{"name": null}`:                  "/name",
		`{"name": ""}`:                    "/name",
		`{"integrations": null}`:          "/integrations",
		`{"tags": null}`:                  "/tags",
		`{"manifest": null}`:              "/manifest",
		`{"manifest": []}`:                "/manifest",
		`{"manifest": {}}`:                "/manifest/version",
		`{"manifest": {"version": 1}}`:    "/manifest/version",
		`{"manifest": {"version": null}}`: "/manifest/version",
		`{"manifest": {"version": ""}}`:   "/manifest/version",
		`{"tags": ["a", null]}`:           "/tags/1",
		`{"tags": "a"}`:                   "/tags",
		`{"id": "other"}`:                 "/id",
		`{"scope": "server"}`:             "/scope",
		`{"owner": null}`:                 "/owner",
		`{"source_revision": "x"}`:        "/source_revision",
		`{"installed_at": null}`:          "/installed_at",
		`{"Name": "x"}`:                   "/Name",
	} {
		admin.patch("/admin/templates/chat", body).refuses(place)
	}
	admin.patch("/admin/templates/chat", `{"name": "New", "tags": null}`).refuses("/tags")
	admin.get("/admin/templates/chat").is(200).json(before)
}

func TestConcurrentPatchesAllHold(t *testing.T) {
	admin := newSite(t).admin()
	admin.post("/admin/templates", `{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}`).is(200)
	patches := []string{`{"name": "N"}`, `{"description": "D"}`, `{"category": "C"}`, `{"integrations": ["I"]}`, `{"tags": ["T"]}`, `{"manifest": {"version": "M"}}`}
	var group sync.WaitGroup
	for _, body := range patches {
		group.Go(func() {
			if a := admin.patch("/admin/templates/chat", body); a.status != 200 {
				t.Errorf("%s: %d %s", body, a.status, a.body)
			}
		})
	}
	group.Wait()
	v := admin.get("/admin/templates/chat").is(200).value()
	have := fmt.Sprintf("%v %v %v %v %v %v", v["name"], v["description"], v["category"], v["integrations"], v["tags"], v["manifest"])
	if want := `N D C [I] [T] map[version:M]`; have != want {
		t.Errorf("have %s, want %s", have, want)
	}
}

func TestTemplatesInOrder(t *testing.T) {
	admin := newSite(t).admin()
	for _, idAndName := range []string{"c:Same", "a:Same", "b:Same", "z:Alpha", "y:alpha", "x:Ärger", "w:Beta"} {
		id, name, _ := strings.Cut(idAndName, ":")
		admin.post("/admin/templates", fmt.Sprintf(`{"id": %q, "name": %q, "manifest": {"version": "1"}}`, id, name)).is(200)
	}
	have := admin.get("/admin/templates").is(200).texts("id")
	if want := []string{"z", "w", "a", "b", "c", "y", "x"}; !slices.Equal(have, want) {
		t.Errorf("listed %v, want %v: by name, then id, byte by byte", have, want)
	}
}

func TestTemplateFilters(t *testing.T) {
	admin := newSite(t).admin()
	for _, body := range []string{
		`{"id": "a", "name": "a", "category": "chat", "tags": ["x", "y"]}`,
		`{"id": "b", "name": "b", "category": "Chat", "tags": ["x"]}`,
		`{"id": "c", "name": "c", "category": "chat", "tags": ["X", "xy"]}`,
		`{"id": "d", "name": "d", "category": "chat room", "tags": ["x,y", "ü&="]}`,
		`{"id": "e", "name": "e", "category": "", "tags": [""]}`,
		`{"id": "f", "name": "f"}`,
	} {
		admin.post("/admin/templates", strings.TrimSuffix(body, "}")+`, "manifest": {"version": "1"}}`).is(200)
	}
	for query, want := range map[string]string{
		"":                         "a b c d e f",
		"?category=chat":           "a c",
		"?category=Chat":           "b",
		"?category=cha":            "",
		"?category=chat%20room":    "d",
		"?category=chat+room":      "d",
		"?category=":               "a b c d e f",
		"?tag=x":                   "a b",
		"?tag=X":                   "c",
		"?tag=xy":                  "c",
		"?tag=x,y":                 "d",
		"?tag=%C3%BC%26%3D":        "d",
		"?tag=":                    "a b c d e f",
		"?tag":                     "a b c d e f",
		"?category=chat&tag=x":     "a",
		"?category=Chat&tag=y":     "",
		"?category=&tag=x":         "a b",
		"?category=%":              "400",
		"?category=chat&category=": "400",
		"?tag=x&tag=x":             "400",
		"?unknown=1&tag=xy":        "400",
		"?Category=Chat":           "400",
	} {
		a := admin.get("/admin/templates" + query)
		if want == "400" {
			a.fails(400, "invalid_request")
		} else if have := strings.Join(a.is(200).texts("id"), " "); have != want {
			t.Errorf("%s: listed %q, want %q", query, have, want)
		}
	}
}
