package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/marketplace"
)

// listed are the ids of a list, in its order.
func (a answer) listed(key string) []string {
	a.t.Helper()
	list, isArray := parse(a.t, a.is(200).body).([]any)
	if !isArray {
		list, _ = a.value()["templates"].([]any)
	}
	ids := []string{}
	for _, element := range list {
		id, _ := element.(map[string]any)[key].(string)
		ids = append(ids, id)
	}
	return ids
}

func TestManifestsDigitForDigitInAFile(t *testing.T) {
	s := newSite(t, marketplace.Config{})
	admin := s.admin()
	manifests := []string{
		`{"version":"1","a":1.0,"b":1,"c":1e400,"d":-0,"e":-0.0,"f":1E5,"g":9007199254740993,"h":0.1000}`,
		`{"z":1,"version":"1","a":2,"10":3,"9":4,"":5,"Version":{"version":[]}}`,
		`{"version":"1","s":"\u00e9\u0041\/\ud83d\ude00é😀<&>\u2028\u0000"}`,
		"{\"version\":\"1\",\"s\":\"\u2028\u2029\u007f\"}",
		`{"version":"1","s":"` + strings.Repeat("x", 900_000) + `"}`,
	}
	for i, manifest := range manifests {
		admin.post("/admin/templates", fmt.Sprintf(`{"id": "m%d", "name": "n", "manifest": %s}`, i, manifest)).is(200)
	}
	s.restart()
	admin = s.as(admin.bearer)
	list := unmarshal[struct{ Templates []template }](t, admin.get("/admin/templates").is(200).body).Templates
	for i, manifest := range manifests {
		one := admin.get(fmt.Sprint("/admin/templates/m", i)).is(200).template()
		if string(one.Manifest) != manifest || string(list[i].Manifest) != manifest {
			t.Errorf("have %.200s\nand %.200s\nwant %.200s", one.Manifest, list[i].Manifest, manifest)
		}
	}
}

// What a row says is the same however it is reached, and stays so when the database is opened again.
func TestTextsInAFile(t *testing.T) {
	s := newSite(t, marketplace.Config{})
	admin := s.admin()
	texts := []string{"", " ", "é", "e\u0301", "😀", "\u2028", "'; DROP TABLE svc_templates; --", `\`, `"`, "%", "$1", "?1", "null", "\r\n", "a\u007f", "ZWJ\u200d", "\ufeff"}
	before := map[string]string{}
	for i, text := range texts {
		body := string(must(marshal(map[string]any{
			"id": fmt.Sprint("t", i), "name": "n" + text, "description": text, "category": text, "tags": []string{text, text}, "integrations": []string{text},
			"manifest": json.RawMessage(`{"version":"1"}`),
		})))
		a := admin.post("/admin/templates", body).is(200)
		before[fmt.Sprint("t", i)] = string(a.body)
		if have := a.template(); *have.Description != text || !slices.Equal(have.Tags, []string{text, text}) {
			t.Errorf("%q: %s", text, a.body)
		}
	}
	for range 2 {
		for id, body := range before {
			admin.get("/admin/templates/" + id).is(200).json(body)
		}
		if have := len(admin.get("/admin/templates").listed("id")); have != len(texts) {
			t.Errorf("%d listed", have)
		}
		s.restart()
		admin = s.as(admin.bearer)
	}
}

func TestListsOfAFileAcrossChunks(t *testing.T) {
	admin := newSite(t, marketplace.Config{}).admin()
	var all, odd, third []string
	for i := range 130 {
		id, tags, category := fmt.Sprintf("t%03d", (i*37)%130), `"all", "all"`, "null"
		n := (i * 37) % 130
		if n%2 == 1 {
			tags += `, "odd"`
		}
		if n%3 == 0 {
			category = `"third"`
		}
		manifest := `{"version": "1"}`
		if n%10 == 0 {
			manifest = `{"version": "` + strings.Repeat("x", 100_000) + `"}` // chunks end early, too
		}
		admin.post("/admin/templates", fmt.Sprintf(`{"id": %q, "name": "n%d", "tags": [%s], "category": %s, "manifest": %s}`, id, n/20, tags, category, manifest)).is(200)
	}
	for n := range 130 {
		id := fmt.Sprintf("t%03d", n)
		if all = append(all, id); n%2 == 1 {
			odd = append(odd, id)
		}
		if n%3 == 0 {
			third = append(third, id)
		}
	}
	both := slices.DeleteFunc(slices.Clone(odd), func(id string) bool { return !slices.Contains(third, id) })
	for query, want := range map[string][]string{"": all, "?tag=all": all, "?tag=odd": odd, "?category=third": third, "?tag=odd&category=third": both, "?tag=Odd": {}, "?tag=none": {}} {
		if have := admin.get("/admin/templates" + query).listed("id"); !slices.Equal(have, want) {
			t.Errorf("%s: %d listed, want %d: %v", query, len(have), len(want), have)
		}
	}
}

// A filtered list follows what a patch and an update change: names, tags and categories.
func TestFiltersFollowChanges(t *testing.T) {
	u := newUpstream(t, map[string]string{})
	admin := newSite(t, trusting(u)).admin()
	admin.register(u)
	u.offer(first)
	admin.post("/admin/templates", `{"id": "a", "name": "A", "tags": ["x", "t"], "category": "talk", "manifest": {"version": "1"}}`).is(200)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	want := func(query string, ids ...string) {
		t.Helper()
		if have := admin.get("/admin/templates" + query).listed("id"); !slices.Equal(have, append([]string{}, ids...)) {
			t.Errorf("%s: listed %v, want %v", query, have, ids)
		}
	}
	want("?tag=t", "a", "chat")
	admin.patch("/admin/templates/a", `{"name": "Z"}`).is(200)
	want("?tag=t", "chat", "a")
	want("?tag=t&category=talk", "chat", "a")
	admin.patch("/admin/templates/a", `{"tags": ["y", "y"], "category": null}`).is(200)
	want("?tag=t", "chat")
	want("?tag=x")
	want("?tag=y", "a")
	want("?category=talk", "chat")
	u.offer(`{"id": "chat", "name": "ZZ", "tags": ["new", "y"], "manifest": {"version": "2"}}`)
	admin.post("/admin/templates/chat/update", "").is(200)
	want("?tag=t")
	want("?tag=new", "chat")
	want("?tag=y", "a", "chat")
	want("?category=talk")
	admin.delete("/admin/templates/a").is(204)
	want("?tag=y", "chat")
	admin.post("/admin/templates", `{"id": "a", "name": "A", "manifest": {"version": "1"}}`).is(200)
	want("?tag=y", "chat")
}

func TestKeysOfAFileAcrossChunks(t *testing.T) {
	s := newSite(t, marketplace.Config{})
	admin := s.admin()
	var want []string
	for i := range 120 {
		id := admin.post("/users/alice/api-keys", fmt.Sprintf(`{"description": "k%d"}`, i)).is(201).text("id")
		want = append([]string{id}, want...)
	}
	s.restart()
	admin = s.as(admin.bearer)
	if have := admin.get("/users/alice/api-keys").listed("id"); !slices.Equal(have, want) {
		t.Errorf("listed %v", have)
	}
	admin.delete("/users/alice/api-keys/" + want[60]).is(204)
	if have := admin.get("/users/alice/api-keys").listed("id"); !slices.Equal(have, slices.Delete(want, 60, 61)) {
		t.Errorf("listed %v", have)
	}
}
