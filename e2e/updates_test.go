package e2e_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

const (
	first  = `{"id": "chat", "name": "Chat", "description": "one", "category": "talk", "tags": ["t"], "manifest": {"version": "1", "n": 1.0}}`
	second = `{"id": "chat", "name": "Chat", "description": "two", "category": "talk", "tags": ["t"], "manifest": {"version": "2", "n": 1.0}}`
)

var (
	edit    = svc.TemplatePatch{Category: textOf(nil), Tags: &[]string{"t", "mine"}}
	restore = svc.TemplatePatch{Category: textOf(new("talk")), Tags: &[]string{"t"}}
)

func textOf(value *string) *svc.TextPatch { return &svc.TextPatch{Value: value} }

// installed serves a source with the template "chat", installed as "mine".
func installed(t *testing.T) (*upstream, caller) {
	t.Helper()
	return installedWithin(t, marketplace.Limits{})
}

func installedWithin(t *testing.T, limits marketplace.Limits) (*upstream, caller) {
	t.Helper()
	u := newUpstream(t, map[string]string{})
	u.offer(first)
	config := trusting(u)
	config.Limits = limits
	admin := newSite(t, config).admin()
	admin.register(u)
	must(admin.Templates.Install(t.Context(), svc.Install{TemplateID: "chat", SourceName: "acme", AliasID: new("mine")}))
	return u, admin
}

// TestUpdates is the table of updates: the source's change, the local edits, and the result of the
// update.
func TestUpdates(t *testing.T) {
	for _, c := range []struct {
		name        string
		upstream    string              // "": unchanged
		patches     []svc.TemplatePatch // local edits
		force       bool
		updated     bool
		description string // after an update without conflict
		edited      bool   // edited locally afterwards
		conflict    string // the fields in conflict
	}{
		{name: "nothing changed, forced", force: true, updated: true, description: "one"},
		{name: "nothing changed", description: "one"},
		{name: "upstream changed", upstream: second, updated: true, description: "two"},
		{name: "upstream changed, forced", upstream: second, force: true, updated: true, description: "two"},
		{name: "edited here", patches: []svc.TemplatePatch{edit}, description: "one", edited: true},
		{name: "edited here, forced", patches: []svc.TemplatePatch{edit}, force: true, updated: true, description: "one"},
		{name: "both", upstream: second, patches: []svc.TemplatePatch{edit}, conflict: "[category tags]"},
		{name: "both, forced", upstream: second, patches: []svc.TemplatePatch{edit}, force: true, updated: true, description: "two"},
		{name: "edited and restored", upstream: second, patches: []svc.TemplatePatch{edit, restore}, updated: true, description: "two"},
		{name: "edited to what upstream has", upstream: second, patches: []svc.TemplatePatch{{Description: textOf(new("two")), Manifest: []byte(`{"n": 1, "version": "2"}`)}}, updated: true, description: "two"},
		{name: "edited to a part of what upstream has", upstream: second, patches: []svc.TemplatePatch{{Description: textOf(new("two"))}}, conflict: "[description]"},
		{name: "manifest edited", upstream: second, patches: []svc.TemplatePatch{{Manifest: []byte(`{"version": "x"}`)}}, conflict: "[manifest]"},
		{name: "everything edited", upstream: second, patches: []svc.TemplatePatch{{
			Name: new("n"), Description: textOf(nil), Category: textOf(new("c")), Integrations: &[]string{"i"}, Tags: &[]string{}, Manifest: []byte(`{"version": "x"}`),
		}}, conflict: "[name description category integrations tags manifest]"},
		{name: "upstream only spelled otherwise", upstream: `{"manifest": {"n": 1, "version": "1"}, "tags": ["t"], "category": "talk", "description": "\u006fne", "name": "Chat", "id": "chat"}`,
			description: "one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, admin := installed(t)
			ctx := t.Context()
			before := must(admin.Templates.Read(ctx, "mine"))
			for _, patch := range c.patches {
				before = must(admin.Templates.Patch(ctx, "mine", patch))
			}
			if c.upstream != "" {
				u.offer(c.upstream)
			}
			check := must(admin.Templates.CheckUpdate(ctx, "mine"))
			if isNew := c.upstream == second; check.HasUpdate != isNew || (*check.CurrentRevision == *check.LatestRevision) == isNew {
				t.Errorf("%+v", check)
			}
			update, err := admin.Templates.Update(ctx, "mine", svc.UpdateRequest{Force: c.force})
			after := must(admin.Templates.Read(ctx, "mine"))
			if c.conflict != "" {
				if fields := fieldsOf(t, err); fields != c.conflict || !reflect.DeepEqual(after, before) {
					t.Errorf("fields %s, want %s; before %v, after %v", fields, c.conflict, before, after)
				}
				return
			}
			fails(t, err, "")
			if update.Updated != c.updated || update.PreviousRevision != *check.CurrentRevision || update.NewRevision != *check.LatestRevision || !reflect.DeepEqual(update.Template, after) {
				t.Errorf("%+v, after %+v", update, after)
			}
			if after.InstalledAt != before.InstalledAt || (after.UpdatedAt == before.UpdatedAt) == c.updated || after.Origin.Revision != *check.LatestRevision || after.ID != "mine" {
				t.Errorf("before %+v\nafter %+v", before, after)
			}
			if *after.Description != c.description || (after.Category == nil) != c.edited || slices.Contains(after.Tags, "mine") != c.edited {
				t.Errorf("after %+v", after)
			}
			if !c.edited && must(admin.Templates.Update(ctx, "mine", svc.UpdateRequest{})).Updated {
				t.Error("updated twice")
			}
		})
	}
}

// fieldsOf returns the fields whose edits conflict with the update.
func fieldsOf(t *testing.T, err error) string {
	t.Helper()
	fails(t, err, svc.CodeEdited)
	conflict, _ := errors.AsType[*svc.Error](err)
	return fmt.Sprint(conflict.Fields)
}

// After edits were kept and then overruled, the next update compares with the content installed
// then.
func TestUpdatesFollowEachOther(t *testing.T) {
	u, admin := installed(t)
	ctx := t.Context()
	must(admin.Templates.Patch(ctx, "mine", edit))
	u.offer(second)
	fails(t, admin.update("mine", false), svc.CodeEdited)
	fails(t, admin.update("mine", true), "")
	must(admin.Templates.Patch(ctx, "mine", svc.TemplatePatch{Name: new("Mine")}))
	if kept := must(admin.Templates.Update(ctx, "mine", svc.UpdateRequest{})); kept.Updated || kept.Template.Name != "Mine" {
		t.Errorf("%+v", kept)
	}
	u.offer(first)
	if fields := fieldsOf(t, admin.update("mine", false)); fields != "[name]" {
		t.Errorf("fields %s", fields)
	}
	must(admin.Templates.Patch(ctx, "mine", svc.TemplatePatch{Name: new("Chat")}))
	fails(t, admin.update("mine", false), "")
	if have := must(admin.Templates.Read(ctx, "mine")); *have.Description != "one" || string(have.Manifest) != `{"version":"1","n":1.0}` {
		t.Errorf("%+v", have)
	}
}

func TestUpdateOfWhatIsGone(t *testing.T) {
	u, admin := installed(t)
	ctx := t.Context()
	before := must(admin.Templates.Read(ctx, "mine"))
	u.offer()
	if check := must(admin.Templates.CheckUpdate(ctx, "mine")); check.HasUpdate || *check.CurrentRevision != before.Origin.Revision || check.LatestRevision != nil || check.Source.Name != "acme" {
		t.Errorf("%+v", check)
	}
	fails(t, admin.update("mine", false), svc.CodeNotFound)
	fails(t, admin.update("mine", true), svc.CodeNotFound)
	fails(t, admin.Sources.Remove(ctx, "acme"), "")
	_, err := admin.Templates.CheckUpdate(ctx, "mine")
	for _, err := range []error{err, admin.update("mine", false), admin.update("mine", true)} {
		fails(t, err, svc.CodeNotFound)
		if !strings.Contains(err.Error(), `"acme"`) {
			t.Errorf("%v does not name the source", err)
		}
	}
	if after := must(admin.Templates.Read(ctx, "mine")); !reflect.DeepEqual(after, before) {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	admin.register(u)
	u.offer(second)
	if !must(admin.Templates.Update(ctx, "mine", svc.UpdateRequest{})).Updated {
		t.Error("registered again, and not updated")
	}
}

// A template follows the renames of its source: to the first id of the chain that is offered, and only
// when its own is not.
func TestRenamedTemplate(t *testing.T) {
	u, admin := installed(t)
	ctx := t.Context()
	before := must(admin.Templates.Read(ctx, "mine"))
	renames := func(renames string, entries ...string) {
		u.put("templates.json", `{"templates":[`+strings.Join(entries, ",")+`],"renames":`+renames+`}`)
	}
	named := func(id, entry string) string { return strings.Replace(entry, `"chat"`, `"`+id+`"`, 1) }
	const chain = `{"chat":"talk","talk":"room"}`

	renames(chain, first, named("room", second)) // still offered
	if must(admin.Templates.CheckUpdate(ctx, "mine")).HasUpdate || must(admin.Templates.Diff(ctx, "mine")).RenamedTo != "" {
		t.Error("it follows a rename although its id is offered")
	}
	renames(chain, named("room", first)) // nothing but the id
	must(admin.Templates.Patch(ctx, "mine", edit))
	if diff := must(admin.Templates.Diff(ctx, "mine")); diff.RenamedTo != "room" || diff.LatestRevision != before.Origin.Revision {
		t.Errorf("%+v", diff)
	}
	if report := must(admin.Templates.CheckUpdates(ctx)); len(report.Templates) != 1 || !report.Templates[0].HasUpdate() || report.Checked != 1 {
		t.Errorf("%+v", report)
	}
	if !must(admin.Templates.CheckUpdate(ctx, "mine")).HasUpdate {
		t.Error("a check does not see the rename")
	}
	update := must(admin.Templates.Update(ctx, "mine", svc.UpdateRequest{}))
	if !update.Updated || update.Template.ID != "mine" || update.Template.Category != nil || update.NewRevision != before.Origin.Revision {
		t.Errorf("%+v", update)
	}
	if again := must(admin.Templates.Update(ctx, "mine", svc.UpdateRequest{})); again.Updated || must(admin.Templates.Diff(ctx, "mine")).RenamedTo != "" {
		t.Errorf("%+v", again)
	}
	renames(`{"room":"hall"}`, named("hall", second)) // and the content
	if update = must(admin.Templates.Update(ctx, "mine", svc.UpdateRequest{Force: true})); *update.Template.Description != "two" {
		t.Errorf("%+v", update)
	}
	renames(`{"hall":"gone"}`)
	fails(t, admin.update("mine", true), svc.CodeNotFound)
	renames(`{"hall":"bad"}`, `{"id":"bad"}`)
	fails(t, admin.update("mine", true), svc.CodeSourceFailed)
}

func TestHandMadeTemplateHasNoUpdates(t *testing.T) {
	_, admin := installed(t)
	ctx := t.Context()
	fails(t, admin.create("chat", "n"), "")
	before := must(admin.Templates.Read(ctx, "chat"))
	if check := must(admin.Templates.CheckUpdate(ctx, "chat")); check != (svc.UpdateCheck{}) {
		t.Errorf("%+v", check)
	}
	fails(t, admin.update("chat", false), svc.CodeInvalid)
	fails(t, admin.update("chat", true), svc.CodeInvalid)
	if after := must(admin.Templates.Read(ctx, "chat")); !reflect.DeepEqual(after, before) {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
}
