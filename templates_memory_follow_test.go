package svc_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// With too many templates there is nothing in memory, and the store is not read for it again and again.
func TestTooManyTemplatesAreNotKept(t *testing.T) {
	synctest.Test(t, testTooManyTemplatesAreNotKept)
}

func testTooManyTemplatesAreNotKept(t *testing.T) {
	k := newKeeper(t, 10_000)
	for i := range 20 {
		create(t, k.plain, fmt.Sprint("t", i), svc.Content{})
	}
	reads := func() int64 {
		before := k.store.templates.Load()
		k.list(t, k.host, svc.TemplateQuery{})
		return k.store.templates.Load() - before
	}
	same := 0 // lists in a row without a look in the background
	eventually(t, func() bool {
		if same++; reads() != 2 {
			same = 0
		}
		return same == 100
	})
	k.same(t)
	for i := range 15 {
		is.New(t).NoErr(k.Templates.Delete(k.ctx(t), admin, fmt.Sprint("t", i)))
	}
	k.warm(t)
	k.same(t)
}

// When the store has not been reached for 5 seconds, nothing old is said.
func TestKeptTemplatesEndWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, 1<<20)
		create(t, k.plain, "a", svc.Content{})
		k.warm(t)
		k.store.down.Store(true)
		must(k.Templates.Read(k.ctx(t), svc.Host, "a"))
		pass(5 * time.Second)
		wantCode(t, errorOf(k.Templates.Read(k.ctx(t), svc.Host, "a")), svc.CodeUnavailable, "")
		wantCode(t, lastError(k.Templates.List(k.ctx(t), svc.Host, svc.TemplateQuery{})), svc.CodeUnavailable, "")
		k.store.down.Store(false)
		k.patchPlain(t, "a")
		eventually(t, func() bool { _, err := k.Templates.Read(k.ctx(t), svc.Host, "a"); return err == nil })
		k.warm(t)
		k.same(t)
	})
}

// A reading in the background that fails, panics or never ends is nobody's trouble.
func TestKeepingTemplatesFails(t *testing.T) {
	for name, read := range map[string]func() error{
		"fails":  func() error { return errDown },
		"panics": func() error { panic("planted") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeeper(t, 1<<20)
				create(t, k.plain, "a", svc.Content{})
				tried := make(chan bool, 1000)
				k.store.plant(func() {
					k.store.read = func() error {
						tried <- true
						return read()
					}
				})
				k.same(t)
				eventually(t, func() bool { k.same(t); return len(tried) > 0 })
				k.store.plant(func() { k.store.read = nil })
				k.warm(t)
				if k.same(t); len(tried) == 0 {
					t.Error("it was not tried")
				}
			})
		})
	}
}

func TestCloseWaitsForReadsOfTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, 1<<20)
		create(t, k.plain, "a", svc.Content{})
		reading, ended := make(chan bool), make(chan bool)
		k.store.plant(func() {
			k.store.read = func() error {
				close(reading)
				<-ended
				return errDown
			}
		})
		k.same(t)
		<-reading
		closed := make(chan error, 1)
		go func() { closed <- k.Close() }()
		pass(time.Hour)
		if len(closed) > 0 {
			t.Error("closed while templates are read")
		}
		close(ended)
		is.New(t).NoErr(<-closed)
	})
}

// However many want to read while templates change, they are copied a small part of the time.
func TestTemplatesAreCopiedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, 1<<20)
		create(t, k.plain, "a", svc.Content{})
		const takes = 2 * time.Millisecond
		var copied atomic.Int64
		k.store.plant(func() {
			k.store.read = func() error {
				copied.Add(1)
				time.Sleep(takes)
				return nil
			}
		})
		began := time.Now()
		for time.Since(began) < 300*time.Millisecond {
			_, err := k.Templates.Patch(k.ctx(t), admin, "a", svc.TemplatePatch{Category: &svc.TextPatch{Value: ptr(fmt.Sprint(rand.Uint64()))}})
			if err != nil {
				t.Fatal(err)
			}
			k.list(t, k.host, svc.TemplateQuery{})
			time.Sleep(time.Millisecond / 10)
		}
		most := 2 * (1 + int64(time.Since(began)/(21*2*takes))) // of two chunks each, the second empty
		if n := copied.Load(); n == 0 || n > most {
			t.Errorf("%d chunks were read in %v, want at most %d", n, time.Since(began), most)
		}
	})
}

// A list from memory takes no memory for its rows.
func TestKeptTemplatesAreNotCopiedAgain(t *testing.T) {
	k := newKeeper(t, 1<<20)
	allocs := func() float64 {
		k.warm(t)
		return testing.AllocsPerRun(100, func() {
			for _, err := range k.Templates.List(t.Context(), svc.Host, svc.TemplateQuery{}) {
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	create(t, k.plain, "a", svc.Content{})
	few := allocs()
	for i := range 300 {
		create(t, k.host, fmt.Sprint("t", i), svc.Content{Tags: []string{"a", "b"}, Category: ptr("c")})
	}
	if many := allocs(); many > few || many > 10 {
		t.Errorf("a list of one allocates %v times, one of 301 %v times", few, many)
	}
}

func (k keeper) etag(t *testing.T) string {
	t.Helper()
	etag, _ := k.tag(t)
	return etag
}

// tag returns the entity tag of the list of templates, if the list is in memory.
func (h *host) tag(t *testing.T) (tag string, kept bool) {
	t.Helper()
	tag = must(h.Templates.ETag(context.WithValue(t.Context(), asked{}, true), admin))
	return tag, tag != ""
}

// Each list in memory has a tag of its own, and is read by that tag or not at all.
func TestETagOfTheList(t *testing.T) {
	is := is.New(t)
	k := newKeeper(t, 1<<20)
	seen := map[string]bool{"": true}
	next := func() {
		t.Helper()
		k.warm(t)
		etag := k.etag(t)
		if seen[etag] {
			t.Fatalf("the tag %s was there before", etag)
		}
		is.Equal(etag, k.etag(t))
		for old := range seen {
			list := k.Templates.List(k.ctx(t), admin, svc.TemplateQuery{}, "x", old)
			wantCode(t, lastError(list), svc.CodePrecondition, "")
		}
		for _, ifMatch := range [][]string{{etag}, {"x", etag}, {svc.AnyETag}} {
			list := collect(t, k.Templates.List(k.ctx(t), admin, svc.TemplateQuery{}, ifMatch...))
			is.Equal(list, k.list(t, k.plain, svc.TemplateQuery{}))
		}
		seen[etag] = true
	}
	next()
	create(t, k.host, "a", svc.Content{})
	is.True(!seen[k.etag(t)]) // at once
	next()
	must(k.Templates.Patch(k.ctx(t), admin, "a", svc.TemplatePatch{Name: ptr("Other")}))
	next()
	before := k.etag(t)
	k.patchPlain(t, "a")
	eventually(t, func() bool { return k.etag(t) != before })
	next()
	is.NoErr(k.Templates.Delete(k.ctx(t), admin, "a"))
	next()

	wantCode(t, errorOf(k.Templates.ETag(k.ctx(t), user("alice"))), svc.CodeForbidden, "")
	is.Equal(must(k.plain.Templates.ETag(k.ctx(t), admin)), "")
	stored := k.plain.Templates.List(k.ctx(t), admin, svc.TemplateQuery{}, k.etag(t))
	wantCode(t, lastError(stored), svc.CodePrecondition, "")
}

// One change, of whichever process, costs a read of one template, and the bases of edited templates are bounded.
func TestChangedTemplatesAreReadAlone(t *testing.T) {
	is := is.New(t)
	k := newKeeper(t, 1<<20)
	k.register(t)
	k.fill(t, rand.New(rand.NewPCG(2, 2)), 200)
	k.warm(t)
	reads := func(do func()) int64 {
		before := k.store.templates.Load()
		do()
		return k.store.templates.Load() - before
	}
	list := func() { k.sameList(t, svc.TemplateQuery{}) }
	is.Equal(reads(func() {
		must(k.Templates.Patch(k.ctx(t), admin, "t7", svc.TemplatePatch{Name: ptr("Other")}))
		list()
		list()
	}), int64(1))
	is.Equal(reads(func() {
		k.patchPlain(t, "t8")
		eventually(t, func() bool {
			rows := k.list(t, k.host, svc.TemplateQuery{})
			return slices.ContainsFunc(rows, func(row svc.Template) bool { return row.ID == "t8" && strings.HasPrefix(row.Name, "Patched") })
		})
		list()
	}), int64(1))
	is.Equal(reads(func() {
		is.NoErr(k.Templates.Delete(k.ctx(t), admin, "t9"))
		list()
	}), int64(1))
}
