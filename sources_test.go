package svc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

func offering(h *host, entries ...svc.CatalogEntry) {
	h.market.catalog = svc.Catalog{FetchedAt: time.Date(2026, 11, 21, 12, 0, 0, 1999, time.FixedZone("elsewhere", 3600))}
	for i, entry := range entries {
		entry.Index = i
		h.market.catalog.Entries = append(h.market.catalog.Entries, entry)
	}
}

// behind is "id as [ids] behind", each.
func behind(list svc.SourceTemplates) (all []string) {
	for _, t := range list.Templates {
		word := "unknown"
		if t.Behind != nil {
			word = fmt.Sprint(*t.Behind)
		}
		all = append(all, fmt.Sprint(t.ID, " ", t.InstalledAs, " ", word))
	}
	return all
}

func TestSourceTemplates(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	inFile := content("File", "1")
	inFile.Manifest = nil
	offering(h,
		svc.CatalogEntry{ID: "z", Content: content("Z", "1")}, svc.CatalogEntry{ID: "x", Content: content("X", "1")},
		svc.CatalogEntry{ID: "file", Content: inFile, ManifestFile: "f.json"}, svc.CatalogEntry{ID: "known", Content: content("Known", "1"), ManifestFile: "k.json"})
	install := func(id, alias string, c svc.Content) {
		t.Helper()
		h.market.put(acme, id, c)
		must(h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: id, SourceName: "acme", AliasID: &alias}))
	}
	browse := func() svc.SourceTemplates {
		t.Helper()
		return must(h.Sources.Browse(t.Context(), admin, "acme", svc.CatalogFilter{}))
	}
	install("file", "f", content("File", "1"))
	install("known", "k", content("Known", "1"))
	asked := len(h.market.asked)
	list := browse()
	is.Equal(behind(list), []string{"z [] unknown", "x [x] false", "file [f] unknown", "known [k] false"})
	is.Equal(list.FetchedAt, time.Date(2026, 11, 21, 11, 0, 0, 1000, time.UTC))
	is.Equal(list.Stale, false)
	is.Equal(list.Bad, nil)
	is.Equal(len(h.market.asked), asked+1) // no manifest
	is.Equal(h.market.maxAge, time.Minute)
	sources := collect(t, h.Sources.List(t.Context(), admin))
	up := h.market.asked[asked]
	is.True(up.Memory != nil)
	up.Memory = nil
	is.Equal(up, svc.Upstream{Source: sources[0].SourceKey, URL: acme, Registered: sources[0].CreatedAt})

	install("x", "a", content("X", "2")) // one of two is behind
	install("z", "mine", content("Z", "1"))
	install("known", "k2", content("Known", "2"))
	for _, id := range []string{"mine", "a"} { // "a" stands behind "x" now in a list
		must(h.Templates.Patch(t.Context(), admin, id, svc.TemplatePatch{Name: ptr("edited here")}))
	}
	is.Equal(behind(browse()), []string{"z [mine] false", "x [a x] true", "file [f] unknown", "known [k k2] true"})

	// Of another source, by hand, personal: none of this source.
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme, Alias: ptr("other")}))
	is.Equal(behind(must(h.Sources.Browse(t.Context(), admin, "other", svc.CatalogFilter{})))[0], "z [] unknown")
}

// More templates than one chunk of a list has.
func TestSourceTemplatesAmongMany(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	for i := range 300 {
		create(t, h, fmt.Sprintf("made-%03d", i), svc.Content{Name: fmt.Sprintf("A %03d", i)})
	}
	offering(h, svc.CatalogEntry{ID: "x", Content: content("X", "1")})
	is.Equal(behind(must(h.Sources.Browse(t.Context(), admin, "acme", svc.CatalogFilter{}))), []string{"x [x] false"})
}

// What an installation would refuse is not offered; the order is that of the catalogue.
func TestSourceTemplatesThatAreBad(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	h.config.Templates.ValidateManifest = func(m json.RawMessage) error {
		if strings.Contains(string(m), "forbidden") {
			return errors.New("holds what is forbidden")
		}
		return nil
	}
	strict := newHost(t, func(c *svc.Config) { *c = h.config })
	long := strings.Repeat("a", 129)
	bad := func(change func(*svc.Content)) svc.Content {
		c := content("N", "1")
		change(&c)
		return c
	}
	offering(h,
		svc.CatalogEntry{ID: "good", Content: content("Good", "1")},
		svc.CatalogEntry{ID: "a/b", Content: content("N", "1")},
		svc.CatalogEntry{ID: "1", Content: bad(func(c *svc.Content) { c.Name = "" })},
		svc.CatalogEntry{ID: "2", Content: bad(func(c *svc.Content) { c.Category = &long })},
		svc.CatalogEntry{ID: "3", Content: bad(func(c *svc.Content) { c.Manifest = manifest(`{}`) })},
		svc.CatalogEntry{ID: "4", Content: bad(func(c *svc.Content) { c.Manifest = manifest(`{"version":"forbidden"}`) })},
		svc.CatalogEntry{ID: "5", Content: bad(func(c *svc.Content) { c.Tags = []string{"a\x00"} })})
	problems := []svc.CatalogProblem{{Index: -1, Reason: "first"}, {Index: 4, Reason: "between"}, {Index: 99, Reason: "last"}}
	h.market.catalog.Problems = append(make([]svc.CatalogProblem, 0, 20), problems...) // with room for more
	list := must(strict.Sources.Browse(t.Context(), admin, "acme", svc.CatalogFilter{Category: "matches none"}))
	is.Equal(len(list.Templates), 0)
	var reasons []string
	for _, p := range list.Bad {
		reasons = append(reasons, fmt.Sprint(p.Index, " ", p.ID, ": ", p.Reason))
	}
	is.Equal(reasons, []string{
		"-1 : first", "1 a/b: id must hold no slash or backslash", "2 1: name is required",
		"3 2: category must be at most 128 characters", "4 : between", "4 3: manifest.version is required", "5 4: manifest holds what is forbidden",
		"6 5: tags.0 must hold no NUL character", "99 : last",
	})
	is.Equal(h.market.catalog.Problems, problems) // what others share is as it was
	for _, p := range list.Bad[1:3] {
		_, err := strict.Templates.Install(t.Context(), admin, svc.Install{TemplateID: p.ID, SourceName: "acme", AliasID: ptr("other")})
		is.True(err != nil)
	}
}

func TestSourceTemplatesFilter(t *testing.T) {
	h, _ := withTemplate(t)
	talk, other := content("A", "1"), content("B", "1")
	talk.Category, talk.Tags = ptr("talk"), []string{"s", "t"}
	offering(h, svc.CatalogEntry{ID: "a", Content: talk}, svc.CatalogEntry{ID: "b", Content: other})
	for filter, want := range map[svc.CatalogFilter]string{
		{}:                              "[a b]",
		{Category: "talk"}:              "[a]",
		{Category: "Talk"}:              "[]",
		{Tag: "t"}:                      "[a b]",
		{Tag: "s"}:                      "[a]",
		{Tag: "st"}:                     "[]",
		{Category: "talk", Tag: "none"}: "[]",
	} {
		list := must(h.Sources.Browse(t.Context(), admin, "acme", filter))
		ids := []string{}
		for _, offered := range list.Templates {
			ids = append(ids, offered.ID)
		}
		is.New(t).Equal(fmt.Sprint(ids), want)
	}
}

func TestSourceTemplatesFails(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	offering(h, svc.CatalogEntry{ID: "x", Content: content("X", "1")})
	browse := func(by svc.Principal, name string, filter svc.CatalogFilter) error {
		return errorOf(h.Sources.Browse(t.Context(), by, name, filter))
	}
	asked := len(h.market.asked)
	nobody := svc.Principal{Kind: svc.KindUser, ID: "nobody"}
	wantCode(t, browse(admin, "..", svc.CatalogFilter{}), svc.CodeInvalid, "name")
	wantCode(t, browse(nobody, "acme", svc.CatalogFilter{Tag: "\x00"}), svc.CodeInvalid, "tag")
	wantCode(t, browse(nobody, "acme", svc.CatalogFilter{}), svc.CodeForbidden, "")
	wantCode(t, browse(nobody, "gone", svc.CatalogFilter{}), svc.CodeForbidden, "")
	wantCode(t, browse(admin, "gone", svc.CatalogFilter{}), svc.CodeNotFound, "")
	is.Equal(len(h.market.asked), asked)

	h.market.catalog.Failure = errors.New("dial tcp 10.0.0.1: refused")
	list := must(h.Sources.Browse(t.Context(), admin, "acme", svc.CatalogFilter{}))
	is.True(list.Stale)
	is.Equal(behind(list), []string{"x [x] false"})

	h.market.err = errors.New("dial tcp 10.0.0.1: refused")
	wantCode(t, browse(admin, "acme", svc.CatalogFilter{}), svc.CodeSourceFailed, "")
	h.market.err = context.DeadlineExceeded
	wantCode(t, browse(admin, "acme", svc.CatalogFilter{}), svc.CodeSourceTimeout, "")

	without := newHost(t, func(c *svc.Config) { c.Store, c.Sources.Marketplace = h.store, nil })
	_, err := without.Sources.Browse(t.Context(), admin, "acme", svc.CatalogFilter{})
	wantCode(t, err, svc.CodeSourceFailed, "")
}

// A search lists no more than fits into one answer. What does not fit has a problem, and is listed alone.
func TestSearchOfManyLargeSources(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	large := content("X", "1")
	large.Manifest = manifest(`{"version":"1","a":"` + strings.Repeat("x", 100_000) + `"}`)
	var offered []svc.CatalogEntry
	for i := range 100 {
		offered = append(offered, svc.CatalogEntry{ID: fmt.Sprint("x", i), Content: large})
		offered[i].Content.Manifest = slices.Clone(large.Manifest)
	}
	offering(h, offered...)
	for i := range 5 { // of 10 MB
		must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme, Alias: new(fmt.Sprint("s", i))}))
	}
	list := must(h.Sources.Search(t.Context(), admin, svc.CatalogFilter{}))
	whole := 0
	for _, source := range list {
		if source.Problem == "" {
			is.Equal(len(source.Templates), 100)
			whole++
			continue
		}
		is.True(strings.Contains(source.Problem, source.Source.Name))
		is.Equal(len(source.Templates), 0)
		alone := must(h.Sources.Browse(t.Context(), admin, source.Source.Name, svc.CatalogFilter{}))
		is.Equal(len(alone.Templates), 100)
	}
	is.True(whole > 0 && whole < len(list))
	few := must(h.Sources.Search(t.Context(), admin, svc.CatalogFilter{Text: "y"}))
	for _, source := range few {
		is.Equal(source.Problem, "")
	}
}

func TestRegisterSource(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	made, err := h.Sources.Register(t.Context(), admin, svc.NewSource{
		URL: "https://github.com/acme/templates.git", Description: ptr(""), AuthToken: ptr(svc.Secret("hush")),
	})
	is.NoErr(err)
	is.Equal(made.SourceKey, svc.SourceKey{Scope: svc.ScopeServer, Name: "acme"})
	is.Equal(*made.Description, "")
	is.True(made.HasAuth())
	is.True(!strings.Contains(string(made.SealedToken), "hush"))
	is.Equal(made.CreatedAt, made.UpdatedAt)
	is.Equal(collect(t, h.Sources.List(t.Context(), admin)), []svc.Source{made})
	is.Equal(h.actions(), []string{"source.registered source/acme by admin"})

	_, err = h.Sources.Register(t.Context(), admin, svc.NewSource{URL: "https://example.com/acme"})
	wantCode(t, err, svc.CodeExists, "/alias")

	is.NoErr(h.Sources.Remove(t.Context(), admin, "acme"))
	is.Equal(h.actions(), []string{"source.removed source/acme by admin"})
	wantCode(t, h.Sources.Remove(t.Context(), admin, "acme"), svc.CodeNotFound, "")
	wantCode(t, h.Sources.Remove(t.Context(), admin, "a/b"), svc.CodeInvalid, "name")
}

func TestPatchSource(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	ctx, hush := t.Context(), svc.Secret("hush")
	made, err := h.Sources.Register(ctx, admin, svc.NewSource{URL: "https://example.com/acme", SigningKey: make([]byte, 32)})
	is.NoErr(err)
	h.actions()

	patched := must(h.Sources.Patch(ctx, admin, "acme", svc.SourcePatch{AuthToken: &svc.SecretPatch{Value: &hush}}))
	is.True(patched.HasAuth())
	is.True(patched.UpdatedAt.After(made.UpdatedAt))
	counts, err := h.Sources.Sealed(ctx, svc.Host) // the token opens in its row
	is.NoErr(err)
	is.Equal(counts.Lost, 0)
	is.Equal(h.actions(), []string{"source.patched source/acme by admin"})

	cleared, err := h.Sources.Patch(ctx, admin, "acme", svc.SourcePatch{AuthToken: &svc.SecretPatch{}, Description: &svc.TextPatch{Value: ptr("")}})
	is.NoErr(err)
	made.Description, made.UpdatedAt = ptr(""), cleared.UpdatedAt
	is.Equal(cleared, made) // nothing else is lost
	is.Equal(collect(t, h.Sources.List(ctx, admin)), []svc.Source{made})
	h.actions()

	same, err := h.Sources.Patch(ctx, admin, "acme", svc.SourcePatch{AuthToken: &svc.SecretPatch{}, Description: &svc.TextPatch{Value: ptr("")}})
	is.NoErr(err)
	is.Equal(same, made)
	is.Equal(len(h.actions()), 0)
	wantCode(t, errorOf(h.Sources.Patch(ctx, admin, "none", svc.SourcePatch{})), svc.CodeNotFound, "")
	wantCode(t, errorOf(h.Sources.Patch(ctx, user("bob"), "acme", svc.SourcePatch{})), svc.CodeForbidden, "")
	_, err = h.Sources.Patch(ctx, admin, "acme", svc.SourcePatch{AuthToken: &svc.SecretPatch{Value: ptr(svc.Secret("a b"))}})
	wantCode(t, err, svc.CodeInvalid, "/auth_token")
}

func TestSourceNames(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	for url, want := range map[string]string{
		"https://github.com/acme/templates":   "acme",
		"https://example.com/one.git":         "one",
		"https://example.com//two/":           "two",
		"https://example.com/a%20b/templates": "a b",
	} {
		made := must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: url}))
		is.Equal(made.Name, want)
	}
	made, err := h.Sources.Register(t.Context(), admin, svc.NewSource{URL: "https://example.com", Alias: ptr("mine")})
	is.NoErr(err)
	is.Equal(made.Name, "mine")
}

func TestRegisterSourceRefuses(t *testing.T) {
	secret := func(s string) *svc.Secret { return ptr(svc.Secret(s)) }
	for _, c := range []struct {
		field string
		in    svc.NewSource
	}{
		{"/url", svc.NewSource{}},
		{"/url", svc.NewSource{URL: "https://example.com/\x00"}},
		{"/url", svc.NewSource{URL: "https://example.com/" + strings.Repeat("a", limits.URLLength)}},
		{"/url", svc.NewSource{URL: "ftp://example.com/a"}},
		{"/alias", svc.NewSource{URL: "https://example.com/"}},
		{"/alias", svc.NewSource{URL: "https://example.com/.git"}},
		{"/alias", svc.NewSource{URL: "https://example.com/a%2Fb"}},
		{"/alias", svc.NewSource{URL: "https://example.com/%00"}},
		{"/alias", svc.NewSource{URL: "https://example.com/a", Alias: ptr("")}},
		{"/alias", svc.NewSource{URL: "https://example.com/a", Alias: ptr("..")}},
		{"/auth_token", svc.NewSource{URL: "https://example.com/a", AuthToken: secret("")}},
		{"/auth_token", svc.NewSource{URL: "https://example.com/a", AuthToken: secret("a\r\nb")}},
		{"/auth_token", svc.NewSource{URL: "https://example.com/a", AuthToken: secret(strings.Repeat("a", 4097))}},
		{"/description", svc.NewSource{URL: "https://example.com/a", Description: ptr("\xff")}},
	} {
		h := newHost(t)
		wantCode(t, errorOf(h.Sources.Register(t.Context(), admin, c.in)), svc.CodeInvalid, c.field)
		if len(collect(t, h.Sources.List(t.Context(), admin))) > 0 {
			t.Errorf("%s: something was written", c.field)
		}
	}
}

func TestSourceTokens(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	h.market.put("https://example.com/a", "x", svc.Content{Name: "X", Manifest: manifest(`{"version":"1"}`)})
	_, err := h.Sources.Register(t.Context(), admin, svc.NewSource{URL: "https://example.com/a", AuthToken: ptr(svc.Secret("hush"))})
	is.NoErr(err)
	install := svc.Install{TemplateID: "x", SourceName: "a"}
	must(h.Templates.Install(t.Context(), admin, install))
	is.Equal(h.market.asked[0].Token, svc.Secret("hush"))

	with := func(key []byte) *host {
		return newHost(t, func(c *svc.Config) { c.Store, c.Sources.SealingKey = h.store, key })
	}
	wantCode(t, errorOf(with(nil).Templates.CheckUpdate(t.Context(), admin, "x")), svc.CodeInternal, "")
	wantCode(t, errorOf(with(make([]byte, 32)).Templates.CheckUpdate(t.Context(), admin, "x")), svc.CodeInternal, "")
	_, err = with(nil).Sources.Register(t.Context(), admin, svc.NewSource{URL: "https://example.com/b", AuthToken: ptr(svc.Secret("hush"))})
	wantCode(t, err, svc.CodeInvalid, "/auth_token")
}

// The host is told once that a source fails, and once that it answers again, whatever it was asked for.
func TestSourceEvents(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	offering(h, svc.CatalogEntry{ID: "x", Content: content("X", "1")})
	fails := func(err error) error { h.market.err = err; return err }
	asks := map[string]func(){
		"check":  func() { _, _ = h.Templates.CheckUpdate(t.Context(), admin, "x") },
		"update": func() { _, _ = h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{}) },
		"all":    func() { _, _ = h.Templates.CheckUpdates(t.Context(), admin, nil) },
		"browse": func() {
			h.market.catalog.FetchedAt = time.Now().Add(time.Hour) // just now
			_, _ = h.Sources.Browse(t.Context(), admin, "acme", svc.CatalogFilter{})
		},
	}
	h.actions()
	for _, ask := range asks {
		for _, then := range asks {
			ask()
			is.Equal(len(h.actions()), 0)
			_ = fails(&svc.Error{Code: svc.CodeSourceFailed, Message: "answered 500"})
			ask()
			then()
			is.Equal(h.actions(), []string{"source.failing source/acme by admin"})
			_ = fails(nil)
			then()
			ask()
			is.Equal(h.actions(), []string{"source.recovered source/acme by admin"})
		}
	}
	// No failures of the source.
	for _, err := range []error{
		context.Canceled, &svc.Error{Code: svc.CodeNotFound, Message: "no such entry"},
		&svc.Error{Code: svc.CodeSourceFailed, Message: "entry 3 is bad", Err: fmt.Errorf("no name: %w", svc.ErrBadEntry)},
	} {
		_ = fails(err)
		asks["check"]()
		is.Equal(len(h.actions()), 0)
	}
	// Neither a failure nor a recovery: this server has not read the answer. The source has a problem, and others go on.
	waits := &svc.Error{Code: svc.CodeUnavailable, Message: "waited too long", Err: fmt.Errorf("busy: %w", svc.ErrSourceWaits)}
	_ = fails(errors.New("down"))
	asks["check"]()
	h.actions()
	_ = fails(waits)
	asks["check"]()
	is.Equal(len(h.actions()), 0)
	is.Equal(must(h.Sources.Search(t.Context(), admin, svc.CatalogFilter{}))[0].Problem, "waited too long")
	_ = fails(nil)
	asks["check"]()
	h.actions()
	// Others are.
	for _, err := range []error{context.DeadlineExceeded, errors.New("unknown")} {
		_ = fails(err)
		asks["check"]()
		is.Equal(h.actions(), []string{"source.failing source/acme by admin"})
		_ = fails(nil)
		asks["check"]()
		h.actions()
	}
	// One that is registered anew has not failed yet.
	_ = fails(errors.New("down"))
	asks["check"]()
	is.NoErr(h.Sources.Remove(t.Context(), admin, "acme"))
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.actions()
	asks["check"]()
	is.Equal(h.actions(), []string{"source.failing source/acme by admin"})
}

// A copy says nothing of the source now.
func TestCopyIsNoRecovery(t *testing.T) {
	h, _ := withTemplate(t)
	offering(h, svc.CatalogEntry{ID: "x", Content: content("X", "1")})
	h.market.err = errors.New("down")
	_, _ = h.Templates.CheckUpdate(t.Context(), admin, "x")
	h.actions()
	h.market.err = nil
	h.market.catalog.FetchedAt = time.Now().Add(-time.Second)
	must(h.Sources.Browse(t.Context(), admin, "acme", svc.CatalogFilter{}))
	is.New(t).Equal(len(h.actions()), 0)
}

// A template diverges when an edit makes it something else than its source gave: that once, not with each edit.
func TestDiverged(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	patch := func(id, name string) []string {
		must(h.Templates.Patch(t.Context(), admin, id, svc.TemplatePatch{Name: &name}))
		return h.actions()
	}
	const patched, diverged = "template.patched template/x by admin", "template.diverged template/x by admin"
	is.Equal(patch("x", "edited"), []string{patched, diverged})
	is.Equal(patch("x", "again"), []string{patched})
	is.Equal(patch("x", "X"), []string{patched}) // as it was
	is.Equal(patch("x", "edited"), []string{patched, diverged})
	is.Equal(len(patch("x", "edited")), 0)
	must(h.Templates.Create(t.Context(), admin, svc.NewTemplate{ID: "hand", Content: content("Hand", "1")}))
	h.actions()
	is.Equal(patch("hand", "edited"), []string{"template.patched template/hand by admin"})
}
