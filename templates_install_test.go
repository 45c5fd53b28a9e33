package svc_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/limits"
)

const acme, elsewhere = "https://example.com/acme", "https://elsewhere.example/acme"

func content(name, version string) svc.Content {
	return svc.Content{Name: name, Tags: []string{"t"}, Manifest: manifest(`{"version":"` + version + `"}`)}
}

func withTemplate(t *testing.T, edits ...func(*svc.Config)) *host {
	return withContent(t, content("X", "1"), edits...)
}

func withContent(t *testing.T, c svc.Content, edits ...func(*svc.Config)) *host {
	h := newHost(t, edits...)
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.install(t, "x", "x", c)
	h.actions()
	return h
}

func revision(t *testing.T, c svc.Content) string {
	return must(c.Revision())
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
	expect.Holds(t, errorOf((svc.Content{Manifest: manifest(`{`)}).Revision()) != nil, "what is no JSON has no revision")
}

// fill gives the owner so many templates and sources, with the names "n0", "n1" and so on.
func (h *host) fill(t *testing.T, templates, sources int) {
	t.Helper()
	is := is.New(t)
	template := must(h.MyTemplates.Create(t.Context(), owner, svc.NewTemplate{ID: "like", Content: content("X", "1")}))
	source := must(h.MySources.Register(t.Context(), owner, svc.NewSource{URL: acme, Alias: new("like")}))
	for i := range templates {
		template.ID = fmt.Sprint("n", i)
		is.NoErr(h.store.CreateTemplate(t.Context(), template))
	}
	for i := range sources {
		source.Name = fmt.Sprint("n", i)
		is.NoErr(h.store.CreateSource(t.Context(), source))
	}
	is.NoErr(h.MyTemplates.Delete(t.Context(), owner, "like"))
	is.NoErr(h.MySources.Remove(t.Context(), owner, "like"))
}

// A user has no more than is allowed, however many calls add at once, and whoever makes them. The server has no such limit.
func TestPersonalLimits(t *testing.T) {
	for what, c := range map[string]struct {
		templates, sources int
		add, drop          string
	}{
		"templates": {limits.PersonalTemplates - 3, 0, "template:create Create", "template:manage Delete"},
		"sources":   {0, limits.PersonalSources - 3, "template:source Register", "template:source Remove"},
	} {
		t.Run(what, func(t *testing.T) {
			is, h := is.New(t), withPersonalStaff(t, func(c *svc.Config) { c.Events.OnEvent = nil })
			h.fill(t, c.templates, c.sources)
			most := max(c.templates, c.sources) + 3
			var added atomic.Int64
			var group sync.WaitGroup
			for i := range 8 {
				group.Go(func() {
					by := []svc.Principal{owner, account("ops")}[i%2]
					if err := h.personal(t.Context(), by, fmt.Sprint("at-once", i))[c.add](); err == nil {
						added.Add(1)
					} else {
						wantCode(t, err, svc.CodeLimit, "")
					}
				})
			}
			group.Wait()
			is.Equal(added.Load(), int64(3))
			is.Equal(len(h.personalState(t, owner)), most)
			is.NoErr(h.personal(t.Context(), other, "n0")[c.add]())
			wantCode(t, h.personal(t.Context(), owner, "one-more")[c.add](), svc.CodeLimit, "")
			is.Equal(svc.ErrorCode(h.personal(t.Context(), owner, "n0")[c.add]()), svc.CodeExists)
			is.NoErr(h.personal(t.Context(), owner, "n0")[c.drop]())
			is.NoErr(h.personal(t.Context(), owner, "one-more")[c.add]())
		})
	}
}

// A repeated request gets its answer, also where no more is allowed. The halves have requests of their own.
func TestPersonalInstallsAreRepeatable(t *testing.T) {
	is, h := is.New(t), withPersonalStaff(t, func(c *svc.Config) { c.Events.OnEvent = nil })
	must(h.Sources.Register(t.Context(), owner, svc.NewSource{URL: acme}))
	in := svc.Install{TemplateID: "x", SourceName: "acme", IdempotencyKey: "once"}
	first := must(h.MyTemplates.Install(t.Context(), owner, in))
	is.Equal(first.Origin.Source.Scope, svc.ScopeServer)
	h.fill(t, limits.PersonalTemplates-1, 0)
	is.Equal(must(h.MyTemplates.Install(t.Context(), owner, in)), first)
	wantCode(t, errorOf(h.Templates.Install(t.Context(), owner, in)), svc.CodeKeyReused, "Idempotency-Key")
	in.IdempotencyKey, in.AliasID = "twice", ptr("y")
	wantCode(t, errorOf(h.MyTemplates.Install(t.Context(), owner, in)), svc.CodeLimit, "")
	is.NoErr(h.MyTemplates.Delete(t.Context(), owner, "n0"))
	must(h.MyTemplates.Install(t.Context(), owner, in)) // a refusal is no answer
}

// Nothing is left for a user that is deleted meanwhile. A user of the host, without a row, is none that could be.
func TestPersonalOfADeletedUser(t *testing.T) {
	is, gone := is.New(t), ""
	deletes := hooks{access: func(read *svc.AccessSnapshot, tx bool) error {
		if tx && read.User != nil && read.User.ID == gone { // between the look at its rights and the transaction
			read.User = nil
		}
		return nil
	}}
	h := withPersonalStaff(t, func(c *svc.Config) { c.Store = hook(c.Store, deletes) })
	add := func(by svc.Principal, id string) (codes []svc.Code) {
		for _, method := range []string{"template:create Create", "template:source Register", "template:install Install"} {
			codes = append(codes, svc.ErrorCode(h.personal(t.Context(), by, id)[method]()))
		}
		return codes
	}
	h.market.put(acme, "b", content("B", "1"))
	refused := []svc.Code{svc.CodeForbidden, svc.CodeForbidden, svc.CodeForbidden}
	gone = "owner"
	is.NoErr(func() error { return errorOf(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme})) }())
	is.Equal(add(owner, "a")[:2], refused[:2])
	is.Equal(add(account("ops"), "a")[:2], refused[:2])
	wantCode(t, errorOf(h.MyTemplates.Install(t.Context(), owner, svc.Install{TemplateID: "x", SourceName: "acme"})), svc.CodeForbidden, "")
	is.Equal(h.personalState(t, owner), nil)
	is.Equal(add(other, "b"), []svc.Code{"", "", svc.CodeExists})
	gone = "vouched"
	is.Equal(add(user("vouched", "template:*"), "b"), []svc.Code{"", "", svc.CodeExists})
}
