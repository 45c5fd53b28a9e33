package svc_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// templateDiff installs base, patches it to ours and lets the source have theirs.
func templateDiff(t *testing.T, base, ours, theirs svc.Content) svc.TemplateDiff {
	t.Helper()
	is := is.New(t)
	h := newHost(t)
	h.market.put(acme, "x", base)
	_, err := h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme})
	is.NoErr(err)
	_, err = h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme"})
	is.NoErr(err)
	_, err = h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{
		Name: &ours.Name, Description: &svc.TextPatch{Value: ours.Description}, Category: &svc.TextPatch{Value: ours.Category}, Tags: &ours.Tags, Manifest: ours.Manifest,
	})
	is.NoErr(err)
	h.market.put(acme, "x", theirs)
	h.actions()
	diff, err := h.Templates.Diff(t.Context(), admin, "x")
	is.NoErr(err)
	is.Equal(h.actions(), nil)
	is.Equal(diff.CurrentRevision, revision(t, base))
	is.Equal(diff.LatestRevision, revision(t, theirs))
	return diff
}

// lines writes a diff as "path: base | ours | theirs", with "!" where both sides changed it.
func lines(diff svc.TemplateDiff) string {
	var b strings.Builder
	for _, c := range diff.Changes {
		mark := ""
		if c.Conflict() {
			mark = "!"
		}
		fmt.Fprintf(&b, "%s%s: %s | %s | %s\n", mark, c.Path, c.Base, c.Ours, c.Theirs)
	}
	return b.String()
}

func TestDiffOfTemplate(t *testing.T) {
	base := svc.Content{Name: "X", Description: ptr("d"), Tags: []string{"a", "b"}, Manifest: manifest(`{"version":"1","o":{"k":1,"gone":true,"a/b~c":[1]},"n":1.0}`)}
	for _, c := range []struct {
		name         string
		ours, theirs func(*svc.Content)
		want         string
	}{
		{"nothing", func(*svc.Content) {}, func(*svc.Content) {}, ``},
		{"here", func(c *svc.Content) { c.Name = "Mine" }, func(*svc.Content) {}, "/name: \"X\" | \"Mine\" | \"X\"\n"},
		{"there", func(*svc.Content) {}, func(c *svc.Content) { c.Category = ptr("c") }, "/category: null | null | \"c\"\n"},
		{"both alike", func(c *svc.Content) { c.Description = nil }, func(c *svc.Content) { c.Description = nil }, "/description: \"d\" | null | null\n"},
		{"both", func(c *svc.Content) { c.Tags = []string{"b", "a"} }, func(c *svc.Content) { c.Tags = []string{} },
			`!/tags: ["a","b"] | ["b","a"] | []` + "\n"},
		{"within the manifest",
			func(c *svc.Content) {
				c.Manifest = manifest(`{"version":"1","o":{"k":2,"gone":true,"a/b~c":[1]},"n":1,"ours":{}}`)
			},
			func(c *svc.Content) { c.Manifest = manifest(`{"n":1.0,"version":"2","o":{"k":3,"a/b~c":[1,2]}}`) },
			"/manifest/o/a~1b~0c: [1] | [1] | [1,2]\n/manifest/o/gone: true | true | \n!/manifest/o/k: 1 | 2 | 3\n" +
				"/manifest/ours:  | {} | \n/manifest/version: \"1\" | \"1\" | \"2\"\n"},
		{"an object and none",
			func(c *svc.Content) { c.Manifest = manifest(`{"version":"1","o":[],"n":1}`) },
			func(c *svc.Content) { c.Manifest = manifest(`{"version":"1","o":{"k":1},"n":1}`) },
			`!/manifest/o: {"a/b~c":[1],"gone":true,"k":1} | [] | {"k":1}` + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours, theirs := base, base
			c.ours(&ours)
			c.theirs(&theirs)
			if have := lines(templateDiff(t, base, ours, theirs)); have != c.want {
				t.Errorf("have\n%swant\n%s", have, c.want)
			}
		})
	}
}

// A diff stays about as long as what it compares, however many and deep the places are.
func TestDiffOfTemplateIsBounded(t *testing.T) {
	object := func(members int, value string) string {
		var b strings.Builder
		for i := range members {
			fmt.Fprintf(&b, `,"k%d":%s`, i, value)
		}
		return "{" + b.String()[1:] + "}"
	}
	deep := func(value string) string {
		return strings.Repeat(`{"a":`, 50) + value + strings.Repeat(`}`, 50)
	}
	long := strings.Repeat("k", 50_000)
	for name, of := range map[string]func(value string) string{
		"many":            func(v string) string { return object(50_000, v) },
		"many, below few": func(v string) string { return object(10, object(5_000, v)) },
		"deep":            deep,
		"long names":      func(v string) string { return `{"` + long + `":` + object(900, v) + `}` },
	} {
		t.Run(name, func(t *testing.T) {
			of := func(v string) svc.Content {
				return svc.Content{Name: "X", Manifest: manifest(`{"version":"1","o":` + of(v) + `}`)}
			}
			base, theirs := of("1"), of("2")
			diff := templateDiff(t, base, base, theirs)
			size := 0
			for _, c := range diff.Changes {
				size += len(c.Path) + len(c.Base) + len(c.Ours) + len(c.Theirs)
			}
			if most := 4 * len(base.Manifest); len(diff.Changes) == 0 || len(diff.Changes) > 1000 || size > most+1_000_000 {
				t.Errorf("%d changes of %d bytes", len(diff.Changes), size)
			}
		})
	}
}

func TestDiffOfTemplateRefuses(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	create(t, h, "made", svc.Content{})
	_, err := h.Templates.Diff(t.Context(), admin, "made")
	wantCode(t, err, svc.CodeInvalid, "template_id")
	is.NoErr(h.Sources.Remove(t.Context(), admin, "acme"))
	_, err = h.Templates.Diff(t.Context(), admin, "x")
	wantCode(t, err, svc.CodeNotFound, "")
}
