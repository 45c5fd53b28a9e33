package e2e_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

func TestManifestsDigitForDigitInAFile(t *testing.T) {
	s, ctx := newSite(t, marketplace.Config{}), t.Context()
	admin := s.admin()
	manifests := []string{
		`{"version":"1","a":1.0,"b":1,"c":1e400,"d":-0,"e":-0.0,"f":1E5,"g":9007199254740993,"h":0.1000}`,
		`{"z":1,"version":"1","a":2,"10":3,"9":4,"":5,"Version":{"version":[]}}`,
		`{"version":"1","s":"\u00e9\u0041\/\ud83d\ude00é😀<&>\u2028\u0000"}`,
		"{\"version\":\"1\",\"s\":\"\u2028\u2029\u007f\"}",
		`{"version":"1","s":"` + strings.Repeat("x", 900_000) + `"}`,
	}
	for i, manifest := range manifests {
		must(admin.Templates.Create(ctx, svc.NewTemplate{ID: fmt.Sprint("m", i), Content: svc.Content{Name: "n", Manifest: []byte(manifest)}}))
	}
	s.restart()
	admin = s.as(admin.bearer)
	list := must(all(admin.Templates.List(ctx, svc.TemplateQuery{})))
	for i, manifest := range manifests {
		one := must(admin.Templates.Read(ctx, fmt.Sprint("m", i)))
		if string(one.Manifest) != manifest || string(list[i].Manifest) != manifest {
			t.Errorf("have %.200s\nand %.200s\nwant %.200s", one.Manifest, list[i].Manifest, manifest)
		}
	}
}

// A row has the same content on every path to it, also after the database is reopened.
func TestTextsInAFile(t *testing.T) {
	s, ctx := newSite(t, marketplace.Config{}), t.Context()
	admin := s.admin()
	texts := []string{"", " ", "é", "e\u0301", "😀", "\u2028", "'; DROP TABLE svc_templates; --", `\`, `"`, "%", "$1", "?1", "null", "\r\n", "a\u007f", "ZWJ\u200d", "\ufeff"}
	before := map[string]svc.Template{}
	for i, text := range texts {
		id, content := fmt.Sprint("t", i), svc.Content{
			Name: "n" + text, Description: &text, Category: &text, Tags: []string{text, text}, Integrations: []string{text}, Manifest: []byte(`{"version":"1"}`),
		}
		before[id] = must(admin.Templates.Create(ctx, svc.NewTemplate{ID: id, Content: content}))
		if have := before[id].Content; !reflect.DeepEqual(have, content) {
			t.Errorf("%q: %+v", text, have)
		}
	}
	for range 2 {
		for id, template := range before {
			if have := must(admin.Templates.Read(ctx, id)); !reflect.DeepEqual(have, template) {
				t.Errorf("have %+v\nwant %+v", have, template)
			}
		}
		if have := admin.templates(svc.TemplateQuery{}); len(have) != len(texts) {
			t.Errorf("%d listed", len(have))
		}
		s.restart()
		admin = s.as(admin.bearer)
	}
}

func TestListsOfAFileAcrossChunks(t *testing.T) {
	admin := newSite(t, marketplace.Config{}).admin()
	var every, odd, third []string
	for i := range 130 {
		n := (i * 37) % 130
		in := svc.NewTemplate{ID: fmt.Sprintf("t%03d", n), Content: svc.Content{Name: fmt.Sprint("n", n/20), Tags: []string{"all", "all"}, Manifest: []byte(`{"version": "1"}`)}}
		if n%2 == 1 {
			in.Tags = append(in.Tags, "odd")
		}
		if n%3 == 0 {
			in.Category = new("third")
		}
		if n%10 == 0 {
			in.Manifest = []byte(`{"version": "` + strings.Repeat("x", 100_000) + `"}`) // chunks also end early
		}
		must(admin.Templates.Create(t.Context(), in))
	}
	for n := range 130 {
		id := fmt.Sprintf("t%03d", n)
		if every = append(every, id); n%2 == 1 {
			odd = append(odd, id)
		}
		if n%3 == 0 {
			third = append(third, id)
		}
	}
	both := slices.DeleteFunc(slices.Clone(odd), func(id string) bool { return !slices.Contains(third, id) })
	for filter, want := range map[svc.TemplateQuery][]string{
		{}: every, {Tag: "all"}: every, {Tag: "odd"}: odd, {Category: "third"}: third, {Tag: "odd", Category: "third"}: both, {Tag: "Odd"}: {}, {Tag: "none"}: {},
	} {
		if have := admin.templates(filter); !slices.Equal(have, want) {
			t.Errorf("%+v: %d listed, want %d: %v", filter, len(have), len(want), have)
		}
	}
}

// A filtered list follows a patch and an update: names, tags and categories.
func TestFiltersFollowChanges(t *testing.T) {
	u := newUpstream(t, map[string]string{})
	admin, ctx := newSite(t, trusting(u)).admin(), t.Context()
	admin.register(u)
	u.offer(first)
	must(admin.Templates.Create(ctx, svc.NewTemplate{ID: "a", Content: svc.Content{Name: "A", Tags: []string{"x", "t"}, Category: new("talk"), Manifest: []byte(`{"version": "1"}`)}}))
	fails(t, admin.install("chat"), "")
	want := func(tag, category string, ids ...string) {
		t.Helper()
		if have := admin.templates(svc.TemplateQuery{Tag: tag, Category: category}); !slices.Equal(have, ids) {
			t.Errorf("%s %s: listed %v, want %v", tag, category, have, ids)
		}
	}
	want("t", "", "a", "chat")
	must(admin.Templates.Patch(ctx, "a", svc.TemplatePatch{Name: new("Z")}))
	want("t", "", "chat", "a")
	want("t", "talk", "chat", "a")
	must(admin.Templates.Patch(ctx, "a", svc.TemplatePatch{Tags: &[]string{"y", "y"}, Category: textOf(nil)}))
	want("t", "", "chat")
	want("x", "")
	want("y", "", "a")
	want("", "talk", "chat")
	u.offer(`{"id": "chat", "name": "ZZ", "tags": ["new", "y"], "manifest": {"version": "2"}}`)
	fails(t, admin.update("chat", false), "")
	want("t", "")
	want("new", "", "chat")
	want("y", "", "a", "chat")
	want("", "talk")
	fails(t, admin.Templates.Delete(ctx, "a"), "")
	want("y", "", "chat")
	fails(t, admin.create("a", "A"), "")
	want("y", "", "chat")
}

func TestKeysOfAFileAcrossChunks(t *testing.T) {
	s, ctx := newSite(t, marketplace.Config{}), t.Context()
	admin := s.admin()
	var want []string
	for i := range 120 {
		want = append([]string{must(admin.Keys.Issue(ctx, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{Description: new(fmt.Sprint("k", i))})).ID}, want...)
	}
	s.restart()
	admin = s.as(admin.bearer)
	listed := func() (ids []string) {
		for _, key := range must(all(admin.Keys.List(ctx, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.KeyQuery{}))) {
			ids = append(ids, key.ID)
		}
		return ids
	}
	if have := listed(); !slices.Equal(have, want) {
		t.Errorf("listed %v", have)
	}
	fails(t, admin.Keys.Revoke(ctx, svc.Identity{Kind: svc.KindUser, ID: "alice"}, want[60]), "")
	if have := listed(); !slices.Equal(have, slices.Delete(want, 60, 61)) {
		t.Errorf("listed %v", have)
	}
}
