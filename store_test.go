package svc_test

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
)

// mostStoreMethods is the most methods that a store must have.
const mostStoreMethods = 26

func TestStoreIsSmall(t *testing.T) {
	is := is.New(t)
	required, full := reflect.TypeFor[svc.Store](), reflect.TypeFor[svc.FullStore]()
	if n := required.NumMethod(); n > mostStoreMethods {
		t.Errorf("a store must have %d methods, more than %d", n, mostStoreMethods)
	}
	optional := 0
	for _, role := range []reflect.Type{
		reflect.TypeFor[svc.SourceFileStore](), reflect.TypeFor[svc.OutboxStore](),
		reflect.TypeFor[svc.AnswerStore](), reflect.TypeFor[svc.AuditStore](),
		reflect.TypeFor[svc.FreshnessStore](),
	} {
		is.True(full.Implements(role))
		for m := range role.Methods() {
			_, also := required.MethodByName(m.Name)
			is.True(!also)
		}
		optional += role.NumMethod()
	}
	is.Equal(full.NumMethod(), required.NumMethod()+optional)
}

// bareStore is a store without the optional roles.
type bareStore struct{ svc.Store }

func (s bareStore) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.Store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return fn(ctx, bareStore{tx}) })
}

func withBareStore(c *svc.Config) { c.Store = bareStore{c.Store} }

// lacking expects an error that names the role, and that the store is as it was.
func lacking(t *testing.T, h *host, before int64, err error, role string) {
	t.Helper()
	is := is.New(t)
	wantCode(t, err, svc.CodeInternal, "")
	is.True(strings.Contains(err.Error(), role))
	is.Equal(h.generation(t), before)
}

// A store without the optional roles serves all that needs none of them: OnEvent gets its events.
func TestStoreWithoutOptionalRoles(t *testing.T) {
	is := is.New(t)
	h := newHost(t, withBareStore)
	h.apply(t, world)
	h.actions()
	key := issue(t, h, alice)
	is.True(h.good(key))
	is.Equal(h.actions(), []string{"api_key.issued api_key/" + key.ID + " by "})
	wantCode(t, lastError(h.Audit.Records(t.Context(), svc.Host, svc.AuditQuery{})), svc.CodeNotFound, "")
	is.NoErr(h.Close())
}

// Without an outbox nobody could deliver the events of a host's transaction: nothing happens there.
func TestStoreWithoutOutbox(t *testing.T) {
	h := newHost(t)
	create(t, h, "a", svc.Content{})
	before, inTx := h.generation(t), h.WithTx(bareStore{h.store})
	_, err := inTx.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{})
	lacking(t, h, before, err, "svc.OutboxStore")
	lacking(t, h, before, inTx.Templates.Delete(t.Context(), admin, "a"), "svc.OutboxStore")
	must(inTx.Templates.Read(t.Context(), admin, "a"))

	silent := newHost(t, func(c *svc.Config) { c.Events.OnEvent = nil })
	create(t, &host{Service: silent.WithTx(bareStore{silent.store})}, "a", svc.Content{})
}

func TestStoreWithoutAuditRecords(t *testing.T) {
	is := is.New(t)
	_, err := svc.New(svc.Config{Store: bareStore{memstore.New()}, Events: svc.EventConfig{Keep: true}})
	is.True(err != nil)
	for _, part := range []string{"Config.Events.Keep", "svc.AuditStore"} {
		is.True(strings.Contains(err.Error(), part))
	}

	h := newHost(t, keeping, func(c *svc.Config) { c.Events.OnEvent = nil })
	before, inTx := h.generation(t), h.WithTx(bareStore{h.store})
	_, err = inTx.Templates.Create(t.Context(), admin, svc.NewTemplate{ID: "a", Content: content("A", "1")})
	lacking(t, h, before, err, "svc.AuditStore")
	_, err = inTx.Audit.Verify(t.Context(), svc.Host)
	lacking(t, h, before, err, "svc.AuditStore")
	lacking(t, h, before, lastError(inTx.Audit.Records(t.Context(), svc.Host, svc.AuditQuery{})), "svc.AuditStore")
}

// A request with an idempotency key is refused when its answer cannot be kept, and never done twice.
func TestStoreWithoutAnswers(t *testing.T) {
	h := newHost(t, withBareStore)
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.market.put(acme, "x", content("X", "1"))
	before := h.generation(t)
	_, err := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"})
	wantCode(t, err, svc.CodeInvalid, "Idempotency-Key")
	_, err = h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme", IdempotencyKey: "once"})
	wantCode(t, err, svc.CodeInvalid, "Idempotency-Key")
	is.New(t).Equal(h.generation(t), before)
	must(h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme"}))
}

// halfStore loses the optional roles in its transactions, which breaks the contract.
type halfStore struct{ svc.FullStore }

func (s halfStore) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return fn(ctx, bareStore{tx}) })
}

// Nothing happens then that needs such a role.
func TestTransactionWithoutOptionalRoles(t *testing.T) {
	half := func(c *svc.Config) { c.Store = halfStore{c.Store.(svc.FullStore)} }
	h := newHost(t, half)
	issue(t, h, alice)
	before := h.generation(t)
	_, err := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"})
	lacking(t, h, before, err, "svc.AnswerStore")

	h = newHost(t, half, keeping)
	_, err = h.Templates.Create(t.Context(), admin, svc.NewTemplate{ID: "a", Content: content("A", "1")})
	lacking(t, h, 0, err, "svc.AuditStore")
}

// A source's answers are then kept nowhere: each process asks the source once more, without a warning.
func TestStoreWithoutSourceFiles(t *testing.T) {
	is := is.New(t)
	var log bytes.Buffer
	h := newHost(t, withBareStore, func(c *svc.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.market.put(acme, "x", content("X", "1"))
	must(h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme"}))
	kept := h.market.asked[len(h.market.asked)-1].Memory
	kept.KeepFile(t.Context(), "", []byte("{}"))
	is.Equal(kept.File(t.Context(), ""), nil)
	serial, err := kept.AcceptSerial(t.Context(), 7) // is kept with the source itself
	is.NoErr(err)
	is.Equal(serial, int64(7))
	is.Equal(log.String(), "")
}
