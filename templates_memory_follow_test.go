package svc_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// With too many templates there is nothing in memory, and the store is not read for it again and again.
func TestTooManyTemplatesAreNotKept(t *testing.T) {
	is := is.New(t)
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
		is.NoErr(k.Templates.Delete(k.ctx(t), admin, fmt.Sprint("t", i)))
	}
	k.warm(t)
	k.same(t)
}

// When the store has not been reached for 5 seconds, nothing old is said.
func TestKeptTemplatesEndWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		k := newKeeper(t, 1<<20)
		create(t, k.plain, "a", svc.Content{})
		k.warm(t)
		k.store.down.Store(true)
		_, err := k.Templates.Read(k.ctx(t), svc.Host, "a")
		is.NoErr(err)
		pass(5 * time.Second)
		_, err = k.Templates.Read(k.ctx(t), svc.Host, "a")
		wantCode(t, err, svc.CodeUnavailable, "")
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
	t.Parallel()
	for name, read := range map[string]func() error{
		"fails":  func() error { return errDown },
		"panics": func() error { panic("planted") },
	} {
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
			t.Error(name)
		}
	}
}

func TestCloseWaitsForReadsOfTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
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
		is.NoErr(<-closed)
	})
}

// What is changed while the list is read, and what this service changes until it is kept, is in it, or there is none.
func TestKeptTemplatesAreOfOneMoment(t *testing.T) {
	is := is.New(t)
	k := newKeeper(t, 1<<20)
	for i := range 200 { // two chunks
		create(t, k.plain, fmt.Sprintf("t%03d", i), svc.Content{})
	}
	chunks, between := 0, make(chan bool)
	k.store.plant(func() {
		k.store.deaf = true
		k.store.read = func() error {
			if chunks++; chunks == 2 {
				k.patchPlain(t, "t000")
				k.patchPlain(t, "t199")
				close(between)
			}
			return nil
		}
	})
	eventually(t, func() bool {
		k.list(t, k.host, svc.TemplateQuery{})
		select {
		case <-between:
			return true
		default:
			return false
		}
	})
	k.warm(t)
	k.same(t)

	var left, version atomic.Int64
	k.store.plant(func() {
		k.store.changes = func(since int64) {
			if since != math.MaxInt64 && left.Add(-1) == 0 { // the reader's second look
				edited, err := k.Templates.Patch(k.ctx(t), admin, "t000", svc.TemplatePatch{Category: &svc.TextPatch{Value: ptr(fmt.Sprint(rand.Uint64()))}})
				is.NoErr(err)
				version.Store(edited.Version)
			}
			time.Sleep(5 * time.Millisecond) // so that the follower comes late
		}
	})
	for round := range 5 {
		left.Store(1)
		is.NoErr(k.Templates.Delete(k.ctx(t), admin, fmt.Sprint("t01", round)))
		eventually(t, func() bool {
			before, least := k.store.templates.Load(), version.Load()
			list := k.list(t, k.host, svc.TemplateQuery{})
			at := slices.IndexFunc(list, func(row svc.Template) bool { return row.ID == "t000" })
			if list[at].Version < least {
				t.Fatalf("version %d is listed after %d was written", list[at].Version, least)
			}
			return left.Load() <= 0 && k.store.templates.Load() == before
		})
	}
	k.warm(t)
	k.same(t)
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
	tag, err := h.Templates.ETag(context.WithValue(t.Context(), asked{}, true), admin)
	if err != nil {
		t.Fatal(err)
	}
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
	_, err := k.Templates.Patch(k.ctx(t), admin, "a", svc.TemplatePatch{Name: ptr("Other")})
	is.NoErr(err)
	next()
	before := k.etag(t)
	k.patchPlain(t, "a")
	eventually(t, func() bool { return k.etag(t) != before })
	next()
	is.NoErr(k.Templates.Delete(k.ctx(t), admin, "a"))
	next()

	_, err = k.Templates.ETag(k.ctx(t), user("alice"))
	wantCode(t, err, svc.CodeForbidden, "")
	etag, err := k.plain.Templates.ETag(k.ctx(t), admin)
	is.NoErr(err)
	is.Equal(etag, "")
	stored := k.plain.Templates.List(k.ctx(t), admin, svc.TemplateQuery{}, k.etag(t))
	wantCode(t, lastError(stored), svc.CodePrecondition, "")
}

// Of two templates that are changed one after the other nobody ever sees the second ahead of the first, nor either go back.
func TestKeptTemplatesWhileTheyChange(t *testing.T) {
	k := newKeeper(t, 1<<20)
	create(t, k.plain, "a", svc.Content{})
	create(t, k.plain, "b", svc.Content{})
	var readers sync.WaitGroup
	var stop atomic.Bool
	var kept atomic.Int64
	var lists sync.Map // what was listed, by tag
	for range 3 {
		readers.Go(func() {
			var seen [2]int64
			for !stop.Load() {
				before := k.store.templates.Load()
				if etag := k.etag(t); etag != "" {
					var versions []int64
					for row, err := range k.Templates.List(k.ctx(t), admin, svc.TemplateQuery{}, etag) {
						if versions = append(versions, row.Version); err != nil {
							versions = nil
							wantCode(t, err, svc.CodePrecondition, "")
						}
					}
					first, _ := lists.LoadOrStore(etag, versions)
					if versions != nil && first.([]int64) != nil && !slices.Equal(first.([]int64), versions) {
						t.Errorf("%s is the tag of %v and of %v", etag, first, versions)
					}
				}
				list := collect(t, k.Templates.List(k.ctx(t), admin, svc.TemplateQuery{}))
				if k.store.templates.Load() == before {
					kept.Add(1)
				}
				for i, row := range list {
					if row.Version < seen[i] {
						t.Errorf("%s went back from %d to %d", row.ID, seen[i], row.Version)
					}
					seen[i] = row.Version
				}
				if list[1].Version > list[0].Version {
					t.Errorf("%d is ahead of %d", list[1].Version, list[0].Version)
				}
			}
		})
	}
	for i := 0; i < 300 || kept.Load() < 100; i++ {
		for _, id := range []string{"a", "b"} {
			content := []byte(fmt.Sprintf(`{"version":"1","n":%d}`, i))
			edited, err := k.Templates.Patch(k.ctx(t), admin, id, svc.TemplatePatch{Manifest: content})
			if err != nil {
				t.Fatal(err)
			}
			if read, err := k.Templates.Read(k.ctx(t), admin, id); err != nil || read.Version != edited.Version {
				t.Errorf("version %d is read after %d was written, %v", read.Version, edited.Version, err)
			}
		}
		if i%10 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	stop.Store(true)
	readers.Wait()
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
		_, err := k.Templates.Patch(k.ctx(t), admin, "t7", svc.TemplatePatch{Name: ptr("Other")})
		is.NoErr(err)
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
