package svc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
)

const (
	updated  = "template.updated template/x by admin"
	diverged = "template.diverged template/x by admin"
)

// TestResolutions is what each resolution does, whatever was changed. one is the base, two what the
// source has now.
func TestResolutions(t *testing.T) {
	one, two, mine, both := content("X", "1"), content("X", "2"), content("Mine", "1"), content("Both", "2")
	for _, c := range []struct {
		rule         string
		source, here svc.Content
		in           svc.UpdateRequest
		becomes      svc.Content
		actions      []string
		edited       bool
	}{
		{"theirs", two, mine, svc.UpdateRequest{LocalEdits: svc.TakeTheirs}, two, []string{updated}, false},
		{"theirs, nothing new", one, mine, svc.UpdateRequest{LocalEdits: svc.TakeTheirs}, one, []string{updated}, false},
		{"ours", two, mine, svc.UpdateRequest{LocalEdits: svc.KeepOurs}, mine, []string{updated}, true},
		{"ours, not edited before", two, one, svc.UpdateRequest{LocalEdits: svc.KeepOurs}, one, []string{updated, diverged}, true},
		{"ours, as theirs", two, two, svc.UpdateRequest{LocalEdits: svc.KeepOurs}, two, []string{updated}, false},
		{"ours, nothing new", one, mine, svc.UpdateRequest{LocalEdits: svc.KeepOurs}, mine, nil, true},
		{"merged", two, mine, svc.UpdateRequest{LocalEdits: svc.TakeMerged, Content: &both}, both, []string{updated}, true},
		{"merged, not edited before", two, one, svc.UpdateRequest{LocalEdits: svc.TakeMerged, Content: &both}, both, []string{updated, diverged}, true},
		{"merged, as theirs", two, mine, svc.UpdateRequest{LocalEdits: svc.TakeMerged, Content: &two}, two, []string{updated}, false},
		{"merged, as ours", two, mine, svc.UpdateRequest{LocalEdits: svc.TakeMerged, Content: &mine}, mine, []string{updated}, true},
		{"merged, nothing new", one, mine, svc.UpdateRequest{LocalEdits: svc.TakeMerged, Content: &both}, both, []string{updated}, true},
		{"merged, nothing new at all", one, mine, svc.UpdateRequest{LocalEdits: svc.TakeMerged, Content: &mine}, mine, nil, true},
		{"edits overwritten", two, mine, svc.UpdateRequest{LocalEdits: svc.EditsOverwrite}, two, []string{updated}, false},
		{"edits merged", two, mine, svc.UpdateRequest{LocalEdits: svc.EditsMerge}, content("Mine", "2"), []string{updated}, true},
	} {
		t.Run(c.rule, func(t *testing.T) {
			is := is.New(t)
			h := merging(t, "", one, c.here, c.source)
			before := must(h.Templates.Read(t.Context(), admin, "x"))
			c.in.Revision = revision(t, c.source)
			wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", c.in, `"another"`)), svc.CodePrecondition, "")
			update := must(h.Templates.Update(t.Context(), admin, "x", c.in, before.ETag()))
			is.Equal(h.actions(), c.actions)
			is.Equal(update.Updated, c.actions != nil)
			is.Equal(update.PreviousRevision, revision(t, one))
			is.Equal(update.NewRevision, revision(t, c.source))

			after := must(h.Templates.Read(t.Context(), admin, "x"))
			is.Equal(update.Template, after)
			is.Equal(revision(t, after.Content), revision(t, c.becomes))
			is.Equal(after.Origin.Revision, revision(t, c.source))
			is.Equal(revision(t, after.Origin.Base), revision(t, c.source))
			is.Equal(after.InstalledAt, before.InstalledAt)
			is.Equal(after.UpdatedAt.After(before.UpdatedAt), c.actions != nil)
			if is.Equal(after.Version > before.Version, revision(t, c.becomes) != revision(t, c.here)); after.Version > before.Version {
				is.Equal(history(t, h, "x")[0].Name, before.Name) // what was replaced can be had back
			}
			is.Equal(must(h.Templates.CheckUpdate(t.Context(), admin, "x")).HasUpdate, false)
			is.Equal(len(must(h.Templates.Diff(t.Context(), admin, "x")).Changes) > 0, c.edited)
			is.Equal(after.Origin.Edited, c.edited)
			again, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{}) // settled for good
			is.NoErr(err)
			is.Equal(again.Updated, false)
		})
	}
}

func TestUpdateRequestsRefused(t *testing.T) {
	is := is.New(t)
	one, two := content("X", "1"), content("X", "2")
	h := merging(t, "", one, content("Mine", "1"), two)
	nameless, bad := content("", "1"), svc.Content{Name: "X", Manifest: manifest(`{"version":1}`)}
	for _, c := range []struct {
		in    svc.UpdateRequest
		field string
	}{
		{svc.UpdateRequest{LocalEdits: "keep"}, "local_edits"},
		{svc.UpdateRequest{Revision: revision(t, two)[:70]}, "revision"},
		{svc.UpdateRequest{Revision: strings.ToUpper(revision(t, two))}, "revision"},
		{svc.UpdateRequest{Revision: "sha256:" + strings.Repeat("A", 64)}, "revision"},
		{svc.UpdateRequest{Content: &two}, ""},
		{svc.UpdateRequest{Content: &two, LocalEdits: svc.TakeTheirs}, ""},
		{svc.UpdateRequest{Content: &nameless, LocalEdits: svc.TakeMerged}, "/name"},
		{svc.UpdateRequest{Content: &bad, LocalEdits: svc.TakeMerged}, "/manifest/version"},
		{svc.UpdateRequest{LocalEdits: svc.TakeMerged}, "/name"},
	} {
		wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", c.in)), svc.CodeInvalid, c.field)
		_, err := h.Templates.Update(t.Context(), user("plain"), "x", c.in) // the form comes first
		wantCode(t, err, svc.CodeInvalid, c.field)
	}
	for _, in := range []svc.UpdateRequest{{}, {LocalEdits: svc.TakeTheirs}, {LocalEdits: svc.KeepOurs}, {LocalEdits: svc.EditsMerge}, {LocalEdits: svc.TakeMerged, Content: &two}} {
		in.Revision = revision(t, one) // the source has moved on
		wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", in)), svc.CodePrecondition, "")
		wantCode(t, errorOf(h.Templates.Update(t.Context(), user("plain"), "x", in)), svc.CodeForbidden, "")
	}
	is.Equal(h.actions(), nil)
}

// The host checks what a caller has merged, once the caller is known to have the right, and before
// the source is asked.
func TestMergedIsCheckedByTheHost(t *testing.T) {
	is := is.New(t)
	checks := 0
	h := newHost(t, func(c *svc.Config) {
		c.Templates.ValidateManifest = func(m json.RawMessage) error {
			checks++
			if strings.Contains(string(m), "bad") {
				return &svc.Error{Field: "/steps", Message: "is bad"}
			}
			return nil
		}
	})
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.install(t, "x", "x", content("X", "1"))
	bad := svc.Content{Name: "X", Manifest: manifest(`{"version":"2","steps":"bad"}`)}
	in := svc.UpdateRequest{LocalEdits: svc.TakeMerged, Content: &bad}
	checks, h.market.asked = 0, nil
	wantCode(t, errorOf(h.Templates.Update(t.Context(), user("plain"), "x", in)), svc.CodeForbidden, "")
	is.Equal(checks, 0)
	wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", in)), svc.CodeInvalid, "/manifest/steps")
	is.Equal(len(h.market.asked), 0)
}

// transacting is a store that says when it runs a transaction, and does something else before.
type transacting struct {
	svc.Store
	before func()
	within bool
}

func (s *transacting) Atomically(ctx context.Context, fn func(ctx context.Context, tx svc.Store) error) error {
	if s.before != nil {
		s.before()
	}
	return s.Store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		s.within = true
		defer func() { s.within = false }()
		return fn(ctx, tx)
	})
}

// contested is a host that merges, whose template "x" can be merged.
func contested(t *testing.T) (*host, *transacting) {
	t.Helper()
	store := &transacting{}
	h := newHost(t, func(c *svc.Config) {
		store.Store = c.Store
		c.Store = store
		c.Templates.LocalEdits = svc.EditsMerge
		c.Templates.ValidateManifest = func(json.RawMessage) error {
			if store.within {
				return errors.New("checked within the transaction")
			}
			return nil
		}
	})
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.install(t, "x", "x", content("X", "1"))
	must(h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Name: ptr("Mine")}))
	h.market.put(acme, "x", content("X", "2"))
	h.actions()
	return h, store
}

// meanwhile patches "x" by another service on the same store, each time to something else, so
// often.
func (s *transacting) meanwhile(t *testing.T, times int) (done *int) {
	other := newHost(t, func(c *svc.Config) { c.Store = s.Store })
	done = new(int)
	s.before = func() {
		if *done < times {
			*done++
			_, err := other.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Description: &svc.TextPatch{Value: ptr(fmt.Sprint(*done))}})
			if err != nil {
				t.Error(err)
			}
		}
	}
	return done
}

func TestMergesBeforeTheTransaction(t *testing.T) {
	is := is.New(t)
	h, _ := contested(t)
	update := must(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{}))
	is.Equal(update.Template.Name, "Mine")
	is.Equal(string(update.Template.Manifest), `{"version":"2"}`)
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
		store.before = nil
		is.NoErr(store.DeleteTemplate(t.Context(), svc.TemplateKey{Scope: svc.ScopeServer, ID: "x"}, nil))
	}
	wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})), svc.CodeNotFound, "")
}

// A conflict is settled in a transaction of the host as well, and undone with it.
func TestResolutionsInATransaction(t *testing.T) {
	is := is.New(t)
	merge := content("Both", "2")
	for _, in := range []svc.UpdateRequest{
		{LocalEdits: svc.TakeTheirs}, {LocalEdits: svc.KeepOurs}, {LocalEdits: svc.TakeMerged, Content: &merge}, {LocalEdits: svc.EditsMerge},
	} {
		h := merging(t, "", content("X", "1"), content("Mine", "1"), content("X", "2"))
		before := must(h.Templates.Read(t.Context(), admin, "x"))
		undone := errors.New("undone")
		for _, end := range []error{undone, nil} {
			err := h.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
				_, err := h.WithTx(tx).Templates.Update(ctx, admin, "x", in)
				return errors.Join(err, end)
			})
			is.True(errors.Is(err, end))
			after := must(h.store.Template(t.Context(), before.TemplateKey))
			is.Equal(after.Origin.Revision == before.Origin.Revision, end != nil)
			is.Equal(after.ETag() == before.ETag(), end != nil)
		}
	}
}

// largest is a manifest, of about 1 MiB in CI, with one value in it that may differ. What the shape of one costs is measured where
// manifests are compared.
func largest(v string) svc.Content {
	c := content("X", "1")
	c.Manifest = manifest(`{"version":"1","v":` + v + `,"a":[0` + strings.Repeat(`,0`, longtest.Times(50_000, 500_000)) + `]}`)
	return c
}

func TestLargeManifests(t *testing.T) {
	is := is.New(t)
	base, ours, theirs := largest("1"), largest("2"), largest("3")
	is.True(len(base.Manifest) > longtest.Times(90_000, 900_000))
	ours.Name = "Mine"
	h := merging(t, svc.EditsMerge, base, ours, theirs)
	is.Equal(len(must(h.Templates.Diff(t.Context(), admin, "x")).Changes), 2)
	_, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})
	wantCode(t, err, svc.CodeEdited, "")
	is.Equal(fieldsOf(err), []string{"manifest"})

	ours.Manifest = base.Manifest
	h = merging(t, svc.EditsMerge, base, ours, theirs)
	update := must(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{}))
	is.Equal(update.Template.Name, "Mine")
	is.Equal(string(update.Template.Manifest) == string(theirs.Manifest), true)
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

func TestRevision(t *testing.T) {
	is := is.New(t)
	// echo -n '{"category":null,"description":"d","integrations":[],"manifest":{"a":1,"version":"1"},"name":"n","tags":["t"]}' | sha256sum
	const want = "sha256:d09a7a7fee647053cb5ff648e4dfb974be00b10ab8fcd3c149853794555f6e67"
	spellings := []string{`{"version":"1","a":1}`, `{"a":1.0,"version":"1"}`, ` { "a" : 1e0 , "version" : "\u0031" } `}
	for _, spelling := range spellings {
		c := svc.Content{Name: "n", Description: ptr("d"), Tags: []string{"t"}, Manifest: manifest(spelling)}
		is.Equal(revision(t, c), want)
	}
}

func TestRevisionTellsContentsApart(t *testing.T) {
	contents := []svc.Content{
		{Name: "n", Manifest: manifest(`{}`)},
		{Name: "N", Manifest: manifest(`{}`)},
		{Name: "n", Description: ptr(""), Manifest: manifest(`{}`)},
		{Name: "n", Category: ptr(""), Manifest: manifest(`{}`)},
		{Name: "n", Tags: []string{""}, Manifest: manifest(`{}`)},
		{Name: "n", Tags: []string{"a", "b"}, Manifest: manifest(`{}`)},
		{Name: "n", Tags: []string{"b", "a"}, Manifest: manifest(`{}`)},
		{Name: "n", Integrations: []string{"a"}, Manifest: manifest(`{}`)},
		{Name: "n", Manifest: manifest(`{"a":9007199254740993}`)},
		{Name: "n", Manifest: manifest(`{"a":9007199254740992}`)},
	}
	seen := map[string]int{}
	for i, c := range contents {
		r := revision(t, c)
		if j, twice := seen[r]; twice {
			t.Errorf("contents %d and %d have one revision", i, j)
		}
		seen[r] = i
	}
	if _, err := (svc.Content{Manifest: manifest(`{`)}).Revision(); err == nil {
		t.Error("what is no JSON has a revision")
	}
}
