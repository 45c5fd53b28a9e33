package svc_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
)

// shelfStore counts the reads of templates, and does what is planted.
type shelfStore struct {
	*intercept.Store
	templates, lists atomic.Int64

	down, deaf atomic.Bool                  // deaf: AwaitChange wakes only for what this process has heard
	reset      atomic.Bool                  // the store has forgotten what changed, as after a restore
	before     atomic.Pointer[func() error] // a read in the background
}

type asked struct{} // marks the context of a caller

func (s *shelfStore) beforeReads(do func() error) { s.before.Store(&do) }

func (s *shelfStore) around(ctx context.Context, call intercept.Call) error {
	switch {
	case s.down.Load():
		return errDown
	case call.Method == "AwaitChange" && s.deaf.Load():
		<-ctx.Done()
		return ctx.Err()
	case call.Method == "Changes" && s.reset.Load():
		err, changes := call.Do(), call.Result.(*svc.StoreChanges)
		*changes = svc.StoreChanges{Generation: changes.Generation, Reset: true}
		return err
	case call.Method == "Templates":
		s.lists.Add(1)
		fallthrough
	case call.Method == "Template":
		s.templates.Add(1)
		if before := s.before.Load(); before != nil && *before != nil && ctx.Value(asked{}) == nil {
			if err := (*before)(); err != nil {
				return err
			}
		}
	}
	return call.Do()
}

// keeper is a service that keeps templates in memory, and beside it one over the same store that does not.
type keeper struct {
	*host
	store *shelfStore
	plain *host
}

func newKeeper(t *testing.T, cached int, edits ...func(*svc.Config)) keeper {
	t.Helper()
	k := keeper{store: &shelfStore{}}
	k.host = newHost(t, append(edits, func(c *svc.Config) {
		k.store.Store = outside(c.Store, k.store.around)
		c.Store, c.Memory.Templates = k.store, cached
	})...)
	k.plain = newHost(t, func(c *svc.Config) {
		c.Store, c.Sources.Marketplace, c.Memory.Templates = k.store.FullStore, k.market, -1
	})
	k.plain.market = k.market
	return k
}

func keeperOfOne(t *testing.T) keeper {
	t.Helper()
	k := newKeeper(t, 1<<20)
	create(t, k.plain, "a", svc.Content{})
	return k
}

func (k keeper) ctx(t *testing.T) context.Context {
	return context.WithValue(t.Context(), asked{}, true)
}

func (k keeper) list(t *testing.T, h *host, query svc.TemplateQuery) []svc.Template {
	t.Helper()
	return collect(t, h.Templates.List(k.ctx(t), admin, query))
}

func (k keeper) warm(t *testing.T) {
	t.Helper()
	eventually(t, func() bool {
		before := k.store.templates.Load()
		k.list(t, k.host, svc.TemplateQuery{})
		return k.store.templates.Load() == before
	})
}

func (k keeper) sameList(t *testing.T, query svc.TemplateQuery) []svc.Template {
	t.Helper()
	want, have := k.list(t, k.plain, query), k.list(t, k.host, query)
	if !reflect.DeepEqual(have, want) {
		t.Fatalf("%+v: %d templates, not the %d of the store", query, len(have), len(want))
	}
	return want
}

func (k keeper) same(t *testing.T) {
	t.Helper()
	is, want := is.New(t), k.sameList(t, svc.TemplateQuery{})
	for _, row := range append(want, svc.Template{TemplateKey: svc.TemplateKey{ID: "none"}}) {
		template, err := k.plain.Templates.Read(k.ctx(t), admin, row.ID)
		for range 2 { // a base is read once
			kept, failed := k.Templates.Read(k.ctx(t), admin, row.ID)
			is.Equal(svc.ErrorCode(failed), svc.ErrorCode(err))
			is.Equal(kept, template)
			is.Equal(kept.ETag(), template.ETag())
		}
	}
}

func (k keeper) fill(t *testing.T, random *rand.Rand, count int) {
	t.Helper()
	few := func(prefix string) string { return fmt.Sprint(prefix, random.IntN(4)) }
	for i := range count {
		id, content := fmt.Sprint("t", i), content(few("name"), "1")
		if random.IntN(3) > 0 {
			content.Category = ptr(few("category"))
		}
		for range random.IntN(4) {
			content.Tags = append(content.Tags, few("tag"))
		}
		if random.IntN(2) == 0 {
			create(t, k.plain, id, content)
			continue
		}
		k.plain.install(t, id, id, content)
		if random.IntN(2) == 0 {
			must(k.plain.Templates.Patch(t.Context(), admin, id, svc.TemplatePatch{Name: ptr(few("edited"))}))
		}
	}
}

func (k keeper) register(t *testing.T) {
	must(k.plain.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
}

func TestKeptTemplatesAreThoseOfTheStore(t *testing.T) {
	for seed := range uint64(5) {
		is, random := is.New(t), rand.New(rand.NewPCG(seed, 0))
		k := newKeeper(t, 1<<20)
		k.register(t)
		k.fill(t, random, 10+random.IntN(200))
		k.warm(t)
		before := k.store.templates.Load()
		one := func(list ...string) string { return list[random.IntN(len(list))] }
		for range 200 {
			k.sameList(t, svc.TemplateQuery{
				Category:  one("", "", "category1", "category2", "none"),
				Tag:       one("", "", "tag1", "tag2", "none"),
				AfterName: one("", "name0", "name2", "name9", "a"), AfterID: one("", "t1", "t50", "t9"),
				Skip: random.IntN(3) * random.IntN(20), Limit: random.IntN(3) * random.IntN(100),
			})
		}
		is.Equal(k.store.templates.Load(), before)
		k.same(t)
		before = k.store.templates.Load()
		k.same(t)
		is.Equal(k.store.templates.Load(), before) // bases, too, are kept
	}
}

// What this service does counts at once, whatever it is; so does what it is told.
func TestKeptTemplatesFollowTheirService(t *testing.T) {
	is, k := is.New(t), newKeeper(t, 1<<20)
	k.register(t)
	k.fill(t, rand.New(rand.NewPCG(1, 1)), 20)
	publish := func(name string) {
		for _, url := range []string{acme, elsewhere} {
			k.market.put(url, "new", content(name, "1"))
		}
	}
	publish("New")
	alias := "from-acme"
	for name, do := range map[string]func() error{
		"patch": func() error {
			return errorOf(k.Templates.Patch(k.ctx(t), admin, alias, svc.TemplatePatch{Name: ptr(fmt.Sprint(rand.Uint64()))}))
		},
		"delete": func() error { return k.Templates.Delete(k.ctx(t), admin, alias) },
		"create": func() error {
			return errorOf(k.Templates.Create(k.ctx(t), admin, svc.NewTemplate{ID: fmt.Sprint("made", rand.Uint64()), Content: content("Made", "1")}))
		},
		"update": func() error {
			publish(fmt.Sprint("New ", rand.Uint64()))
			_, err := k.Templates.Update(k.ctx(t), admin, alias, svc.UpdateRequest{LocalEdits: svc.TakeTheirs})
			return err
		},
		"roll back": func() error {
			k.patchPlain(t, alias)
			k.warm(t)
			_, err := k.Templates.Rollback(k.ctx(t), admin, alias, 1)
			return err
		},
		"re-bind": func() error {
			_ = k.plain.Sources.Remove(t.Context(), admin, "acme")
			must(k.plain.Sources.Register(t.Context(), admin, svc.NewSource{URL: elsewhere, Alias: ptr("acme")}))
			k.warm(t)
			_, err := k.Sources.Rebind(k.ctx(t), admin, "acme")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := k.Templates.Read(k.ctx(t), admin, alias); err != nil {
				k.warm(t)
				must(k.Templates.Install(k.ctx(t), admin, svc.Install{TemplateID: "new", SourceName: "acme", AliasID: &alias}))
				k.same(t)
			}
			k.warm(t)
			is.New(t).NoErr(do())
			k.same(t)
			k.warm(t)
			k.same(t)
		})
	}
}

func (k keeper) patchPlain(t *testing.T, id string) {
	must(k.plain.Templates.Patch(t.Context(), admin, id, svc.TemplatePatch{Name: ptr(fmt.Sprint("Patched ", rand.Uint64()))}))
}

// All are read again when the store has forgotten what others have changed.
func TestKeptTemplatesFollowOthers(t *testing.T) {
	k := keeperOfOne(t)
	k.warm(t)
	k.store.reset.Store(true)
	before := k.store.lists.Load()
	k.patchPlain(t, "a")
	eventually(t, func() bool { k.list(t, k.host, svc.TemplateQuery{}); return k.store.lists.Load() > before })
	k.same(t)
}

// Whoever has been shown by any call that a template is not what the list has does not find that in the list, although nothing else has
// told this service of it.
func TestKeptTemplatesAgreeWithWhatWasShown(t *testing.T) {
	type call func(ctx context.Context, h *host) error
	patch := call(func(ctx context.Context, h *host) error {
		return errorOf(h.Templates.Patch(ctx, admin, "a", svc.TemplatePatch{Name: ptr("Other")}))
	})
	remove := call(func(ctx context.Context, h *host) error { return h.Templates.Delete(ctx, admin, "a") })
	make := call(func(ctx context.Context, h *host) error {
		return errorOf(h.Templates.Create(ctx, admin, svc.NewTemplate{ID: "b", Content: content("B", "1")}))
	})
	check := call(func(ctx context.Context, h *host) error { return errorOf(h.Templates.CheckUpdate(ctx, admin, "a")) })
	for name, c := range map[string]struct {
		others, shows call
		code          svc.Code
	}{
		"a patch that changes nothing": {patch, patch, ""}, "a patch of what is gone": {remove, patch, svc.CodeNotFound},
		"a deletion": {remove, remove, svc.CodeNotFound}, "a creation": {make, make, svc.CodeExists}, "a check": {patch, check, ""},
	} {
		t.Run(name, func(t *testing.T) {
			is, k := is.New(t), keeperOfOne(t)
			k.warm(t)
			k.store.deaf.Store(true)
			k.warm(t)
			is.NoErr(c.others(t.Context(), k.plain))
			is.Equal(svc.ErrorCode(c.shows(k.ctx(t), k.host)), c.code)
			k.same(t)
		})
	}
}

// While a call of this service may be changing a template nothing is taken from memory.
func TestKeptTemplatesRestDuringAChange(t *testing.T) {
	var slow *slowStore
	k := newKeeper(t, 1<<20, func(c *svc.Config) {
		slow = newSlowStore(c.Store)
		c.Store = slow
	})
	create(t, k.plain, "a", svc.Content{})
	k.store.deaf.Store(true)
	k.warm(t)
	slow.slow.Store(true)
	ended := make(chan error)
	go func() {
		ended <- errorOf(k.Templates.Patch(context.Background(), admin, "a", svc.TemplatePatch{Name: ptr("Other")}))
	}()
	<-slow.written
	k.same(t)
	close(slow.answer)
	is.New(t).NoErr(<-ended)
	k.same(t)
}

// In a transaction of the host everything is read there.
func TestKeptTemplatesAreNotOfATransaction(t *testing.T) {
	is, k := is.New(t), newKeeper(t, 1<<20, func(c *svc.Config) { c.Events.OnEvent = nil })
	create(t, k.plain, "a", svc.Content{})
	k.warm(t)
	before := k.store.templates.Load()
	inside := k.WithTx(k.store)
	must(inside.Templates.Read(k.ctx(t), admin, "a"))
	is.Equal(len(collect(t, inside.Templates.List(k.ctx(t), admin, svc.TemplateQuery{}))), 1)
	is.Equal(must(inside.Templates.ETag(k.ctx(t), admin)), "")
	is.Equal(k.store.templates.Load(), before+3) // the list has a chunk, and an empty one
	must(inside.Templates.Patch(k.ctx(t), admin, "a", svc.TemplatePatch{Name: ptr("Other")}))
}

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
	k.store.beforeReads(func() error { time.Sleep(time.Millisecond); return nil }) // the rest after a look is many times as long
	same := 0                                                                      // lists in a row without a look in the background
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
		k := keeperOfOne(t)
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
				k := keeperOfOne(t)
				tried := make(chan bool, 1000)
				k.store.beforeReads(func() error {
					tried <- true
					return read()
				})
				k.same(t)
				eventually(t, func() bool { k.same(t); return len(tried) > 0 })
				k.store.beforeReads(nil)
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
		k := keeperOfOne(t)
		reading, ended := make(chan bool), make(chan bool)
		k.store.beforeReads(func() error {
			close(reading)
			<-ended
			return errDown
		})
		k.same(t)
		<-reading
		closed := make(chan error, 1)
		go func() { closed <- k.Close() }()
		pass(time.Hour)
		expect.Holds(t, len(closed) == 0, "it waits while templates are read")
		close(ended)
		is.New(t).NoErr(<-closed)
	})
}

// However many want to read while templates change, they are copied a small part of the time.
func TestTemplatesAreCopiedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeperOfOne(t)
		const takes = 2 * time.Millisecond
		var copied atomic.Int64
		k.store.beforeReads(func() error {
			copied.Add(1)
			time.Sleep(takes)
			return nil
		})
		began := time.Now()
		for time.Since(began) < 300*time.Millisecond {
			must(k.Templates.Patch(k.ctx(t), admin, "a", svc.TemplatePatch{Category: &svc.TextPatch{Value: ptr(fmt.Sprint(rand.Uint64()))}}))
			k.list(t, k.host, svc.TemplateQuery{})
			time.Sleep(time.Millisecond / 10)
		}
		most := 2 * (1 + int64(time.Since(began)/(21*2*takes))) // of two chunks each, the second empty
		if n := copied.Load(); n == 0 || n > most {
			t.Errorf("%d chunks were read in %v, want at most %d", n, time.Since(began), most)
		}
	})
}
