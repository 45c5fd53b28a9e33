package svc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/memstore"
)

const (
	updated  = "template.updated template/x by admin"
	diverged = "template.diverged template/x by admin"
)

func contested(t *testing.T) (*host, *pausing) {
	t.Helper()
	store := newPausing(memstore.New())
	h := withTemplate(t, func(c *svc.Config) {
		c.Store = store
		c.Templates.LocalEdits = svc.EditsMerge
		c.Templates.ValidateManifest = func(json.RawMessage) error {
			if store.within {
				return errors.New("checked within the transaction")
			}
			return nil
		}
	})
	must(h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Name: ptr("Mine")}))
	h.market.put(acme, "x", content("X", "2"))
	h.actions()
	return h, store
}

// meanwhile patches "x" by another service on the same store, each time to something else, so often.
func (s *pausing) meanwhile(t *testing.T, times int) (done *int) {
	other := newHost(t, func(c *svc.Config) { c.Store = s.FullStore })
	done = new(int)
	var change func()
	change = func() {
		if s.before = change; *done < times {
			*done++
			must(other.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Description: &svc.TextPatch{Value: ptr(fmt.Sprint(*done))}}))
		}
	}
	s.before = change
	return done
}

func TestMergesAgainWhatWasChangedMeanwhile(t *testing.T) {
	is := is.New(t)
	h, store := contested(t)
	store.meanwhile(t, 3)
	update := must(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{}))
	is.Equal(*update.Template.Description, "3") // no edit is lost
	is.Equal(string(update.Template.Manifest), `{"version":"2"}`)
	is.Equal(h.actions(), []string{updated})
}

// Others who keep changing a template end a merge, but nothing that decides without one.
func TestMergesNotForEver(t *testing.T) {
	is := is.New(t)
	h, store := contested(t)
	done := store.meanwhile(t, 1000)
	wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})), svc.CodeChanged, "")
	is.Equal(*done, 8)
	is.Equal(len(h.actions()), 0)
	update := must(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.KeepOurs}))
	is.Equal(*update.Template.Description, "9")
	must(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.EditsConflict})) // nothing new

	h, store = contested(t)
	store.before = func() {
		is.NoErr(store.DeleteTemplate(t.Context(), svc.TemplateKey{Scope: svc.ScopeServer, ID: "x"}, nil))
	}
	wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})), svc.CodeNotFound, "")
}

// largest is a manifest, of about 1 MiB in CI, with one value in it that may differ. What the shape of one costs is measured where
// manifests are compared.
func largest(v string) svc.Content {
	c := content("X", "1")
	c.Manifest = manifest(`{"version":"1","v":` + v + `,"a":[0` + strings.Repeat(`,0`, longtest.Times(50_000, 500_000)) + `]}`)
	return c
}

// A caller who has left is waited for no longer.
func TestDiffAndMergeEndWithTheirContext(t *testing.T) {
	h := merging(t, svc.EditsMerge, largest("1"), largest("2"), largest("3"))
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { return errorOf(h.Templates.Diff(ctx, admin, "x")) },
		func(ctx context.Context) error {
			return errorOf(h.Templates.Update(ctx, admin, "x", svc.UpdateRequest{}))
		},
	} {
		ctx, leave := context.WithCancel(t.Context())
		h.market.during = leave
		if err := call(ctx); svc.ErrorCode(err) != svc.CodeUnavailable || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
}

// curls are the method, target and body of each curl in a shell's lines.
var curls = regexp.MustCompile(`(?s)curl -sS -H "Authorization: Bearer \$KEY"(?: -H 'Content-Type: application/json' -X (\w+))?[ \\\n]+'?http://127.0.0.1:8080([^'\n]+)'?(?:[ \\\n]+-d '([^']*)')?\n`)

// The lines of docs/howto/update-templates.md that settle a conflict do.
func TestSettlingInTheDocumentation(t *testing.T) {
	is := is.New(t)
	with := func(model string, tags ...string) svc.Content {
		return svc.Content{Name: "Notes", Integrations: []string{}, Tags: tags, Manifest: manifest(`{"version":"1","model":"` + model + `"}`)}
	}
	h := newHost(t, adminSignsIn)
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.install(t, "notes", "notes", with("small", "a"))
	must(h.Templates.Patch(t.Context(), admin, "notes", svc.TemplatePatch{Manifest: with("mine").Manifest}))
	h.market.put(acme, "notes", with("large", "a", "b"))

	lines := curls.FindAllStringSubmatch(exampleOf(t, "docs/howto/update-templates.md", "settle"), -1)
	is.Equal(len(lines), 2)
	ask := asking(t, h)
	is.Equal(ask("GET", lines[0][2], ""), object(exampleOf(t, "docs/howto/update-templates.md", "template-diff")))
	answer := ask(lines[1][1], lines[1][2], lines[1][3])
	is.Equal(answer["updated"], true)
	is.Equal(revision(t, must(h.Templates.Read(t.Context(), admin, "notes")).Content), revision(t, with("mine", "a", "b")))
	is.Equal(ask("GET", strings.Replace(lines[0][2], "diff", "check-update", 1), "")["has_update"], false)
}

func merging(t *testing.T, edits svc.LocalEdits, base, ours, theirs svc.Content) *host {
	t.Helper()
	h := withContent(t, base, func(c *svc.Config) { c.Templates.LocalEdits = edits })
	must(h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{
		Name: &ours.Name, Description: &svc.TextPatch{Value: ours.Description}, Category: &svc.TextPatch{Value: ours.Category},
		Integrations: &ours.Integrations, Tags: &ours.Tags, Manifest: ours.Manifest,
	}))
	h.market.put(acme, "x", theirs)
	h.actions()
	return h
}
