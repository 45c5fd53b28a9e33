package svc_test

import (
	"context"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// Whoever has been shown by any call that a template is not what the list has does not find that in the list, although nothing else has
// told this service of it.
func TestKeptTemplatesAgreeWithWhatWasShown(t *testing.T) {
	patch := svc.TemplatePatch{Name: ptr("Other")}
	for name, c := range map[string]struct {
		others func(*host) error
		shows  func(k keeper, ctx context.Context) error
		code   svc.Code
	}{
		"a patch that changes nothing": {
			func(h *host) error { _, err := h.Templates.Patch(context.Background(), admin, "a", patch); return err },
			func(k keeper, ctx context.Context) error {
				_, err := k.Templates.Patch(ctx, admin, "a", patch)
				return err
			}, "",
		},
		"a patch of what is gone": {
			func(h *host) error { return h.Templates.Delete(context.Background(), admin, "a") },
			func(k keeper, ctx context.Context) error {
				_, err := k.Templates.Patch(ctx, admin, "a", patch)
				return err
			}, svc.CodeNotFound,
		},
		"a deletion": {
			func(h *host) error { return h.Templates.Delete(context.Background(), admin, "a") },
			func(k keeper, ctx context.Context) error { return k.Templates.Delete(ctx, admin, "a") }, svc.CodeNotFound,
		},
		"a creation": {
			func(h *host) error {
				_, err := h.Templates.Create(context.Background(), admin, svc.NewTemplate{ID: "b", Content: content("B", "1")})
				return err
			},
			func(k keeper, ctx context.Context) error {
				_, err := k.Templates.Create(ctx, admin, svc.NewTemplate{ID: "b", Content: content("B", "1")})
				return err
			}, svc.CodeExists,
		},
		"a check": {
			func(h *host) error { _, err := h.Templates.Patch(context.Background(), admin, "a", patch); return err },
			func(k keeper, ctx context.Context) error {
				_, err := k.Templates.CheckUpdate(ctx, admin, "a")
				return err
			}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			k := newKeeper(t, 1<<20)
			create(t, k.plain, "a", svc.Content{})
			k.warm(t)
			k.store.plant(func() { k.store.deaf = true })
			k.warm(t)
			is.NoErr(c.others(k.plain))
			is.Equal(svc.ErrorCode(c.shows(k, k.ctx(t))), c.code)
			k.same(t)
		})
	}
}

// Re-binding changes nothing that an ETag follows from.
func TestKeptTemplatesAgreeWithTheirAddress(t *testing.T) {
	is := is.New(t)
	k := newKeeper(t, 1<<20)
	k.register(t)
	k.plain.install(t, "x", "x", content("X", "1"))
	k.market.put(elsewhere, "x", content("X", "1"))
	k.warm(t)
	k.store.plant(func() { k.store.deaf = true })
	k.warm(t)
	is.NoErr(k.plain.Sources.Remove(t.Context(), admin, "acme"))
	_, err := k.plain.Sources.Register(t.Context(), admin, svc.NewSource{URL: elsewhere, Alias: ptr("acme")})
	is.NoErr(err)
	_, err = k.plain.Sources.Rebind(t.Context(), admin, "acme")
	is.NoErr(err)
	_, err = k.Templates.CheckUpdate(k.ctx(t), admin, "x")
	is.NoErr(err)
	k.same(t)
}

// While a call of this service may be changing a template nothing is taken from memory.
func TestKeptTemplatesRestDuringAChange(t *testing.T) {
	is := is.New(t)
	slow := &slowTemplates{slowStore: slowStore{written: make(chan struct{}), answer: make(chan struct{})}}
	k := newKeeper(t, 1<<20, func(c *svc.Config) { slow.Store, c.Store = c.Store, slow })
	create(t, k.plain, "a", svc.Content{})
	k.store.plant(func() { k.store.deaf = true })
	k.warm(t)
	slow.slow = true
	ended := make(chan error)
	go func() {
		_, err := k.Templates.Patch(context.Background(), admin, "a", svc.TemplatePatch{Name: ptr("Other")})
		ended <- err
	}()
	<-slow.written
	k.same(t)
	close(slow.answer)
	is.NoErr(<-ended)
	k.same(t)
}

// slowTemplates hold back what was written of a template.
type slowTemplates struct{ slowStore }

func (s *slowTemplates) ChangeTemplate(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
	return s.hold(s.Store.ChangeTemplate(ctx, key, change))
}

// In a transaction of the host everything is read there.
func TestKeptTemplatesAreNotOfATransaction(t *testing.T) {
	is := is.New(t)
	k := newKeeper(t, 1<<20, func(c *svc.Config) { c.OnEvent = nil })
	create(t, k.plain, "a", svc.Content{})
	k.warm(t)
	before := k.store.templates.Load()
	inside := k.WithStore(k.store)
	_, err := inside.Templates.Read(k.ctx(t), admin, "a")
	is.NoErr(err)
	is.Equal(len(collect(t, inside.Templates.List(k.ctx(t), admin, svc.TemplateQuery{}))), 1)
	etag, err := inside.Templates.ETag(k.ctx(t), admin)
	is.NoErr(err)
	is.Equal(etag, "")
	is.Equal(k.store.templates.Load(), before+3) // the list has a chunk, and an empty one
	_, err = inside.Templates.Patch(k.ctx(t), admin, "a", svc.TemplatePatch{Name: ptr("Other")})
	is.NoErr(err)
}
