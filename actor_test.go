package svc_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// TestHostWithAName: events and records have the name, and it gives no other rights than Host has.
func TestHostWithAName(t *testing.T) {
	is := is.New(t)
	h := newHost(t, keeping)
	ops := svc.Host.As("ops@example.org")
	create(t, h, "unnamed", svc.Content{})
	must(h.Templates.Create(t.Context(), ops, svc.NewTemplate{ID: "named", Content: content("N", "1")}))
	is.NoErr(h.Access.Apply(t.Context(), ops, svc.Bundle{Users: []svc.User{{ID: "bob"}}}))
	key := must(h.Keys.Issue(t.Context(), ops, bob.Identity(), svc.NewAPIKey{}))
	must(h.Keys.RevokeLeaked(t.Context(), ops.As("scanner"), []string{string(key.Key)}))
	is.Equal(h.kept(t), []string{
		"template.created template/unnamed by admin", "template.created template/named by ops@example.org",
		"access.written user/bob by ops@example.org", "api_key.issued api_key/" + key.ID + " by ops@example.org",
		"api_key.revoked api_key/" + key.ID + " by scanner",
	})
	is.Equal(h.actions(), h.kept(t))
	by := svc.AuditQuery{ActorKind: svc.KindHost, ActorID: "ops@example.org"}
	is.Equal(len(collect(t, h.Audit.Records(t.Context(), ops, by))), 3)
	is.Equal(h.wantSound(t).Number, int64(5))
	d, err := h.Decide(t.Context(), ops, svc.ActionRecall, "bank", svc.Context{})
	is.NoErr(err)
	is.Equal(d.Outcome(), svc.Allow)

	is.Equal(alice.As("ops@example.org"), alice)
	is.Equal(svc.Unmapped.As("ops@example.org"), svc.Unmapped)
	is.Equal(svc.Host.ID, "")
}

// TestIdempotencyOfNames: two persons may draw the same idempotency key.
func TestIdempotencyOfNames(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	issue := func(name string) string {
		in := svc.NewAPIKey{IdempotencyKey: "once"}
		return must(h.Keys.Issue(t.Context(), svc.Host.As(name), alice.Identity(), in)).ID
	}
	first := issue("a")
	is.Equal(issue("a"), first)
	is.True(issue("b") != first)
}

// TestNamesThatNoRecordCanHold: every mutation with an event refuses them and writes nothing.
func TestNamesThatNoRecordCanHold(t *testing.T) {
	for _, edits := range [][]func(*svc.Config){{importing}, {importing, keeping}} {
		h := newHost(t, edits...)
		key := issue(t, h, alice)
		create(t, h, "a", svc.Content{})
		must(h.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: acme}))
		h.market.put(acme, "chat", content("Chat", "1"))
		h.actions()
		before := must(h.store.Changes(t.Context(), 0)).Generation
		for _, by := range []svc.Principal{
			svc.Host.As(""), svc.Host.As("a\n"), svc.Host.As("\xff"), svc.Host.As("\x00"), svc.Host.As("\x00a"), svc.Host.As("a\x00"),
			svc.Host.As("\u202e"), svc.Host.As(strings.Repeat("a", 129)), svc.Host.As(string(key.Key)), {Kind: svc.KindHost, ID: "\n"},
		} {
			for _, refused := range h.changesBy(t, by, key) {
				wantCode(t, refused, svc.CodeInvalid, "actor")
			}
		}
		is := is.New(t)
		is.Equal(must(h.store.Changes(t.Context(), 0)).Generation, before)
		is.Equal(h.actions(), nil)
		is.Equal(len(collect(t, h.Templates.List(t.Context(), svc.Host.As(""), svc.TemplateQuery{}))), 1) // reads need no name
		for _, name := range []string{"a", strings.Repeat("\u4e2d", 128), `https://ci/"job" 7`} {
			must(h.Templates.Patch(t.Context(), svc.Host.As(name), "a", svc.TemplatePatch{Name: &name}))
			is.Equal(h.actions(), []string{"template.patched template/a by " + name})
		}
	}
}

// changesBy returns the errors of one call of each method that makes an event.
func (h *host) changesBy(t *testing.T, by svc.Principal, key svc.IssuedKey) (errs []error) {
	ctx := t.Context()
	call := func(_ any, err error) { errs = append(errs, err) }
	call(h.Sources.Register(ctx, by, svc.NewSource{URL: acme, Alias: ptr("b")}))
	call(nil, h.Sources.Remove(ctx, by, "acme"))
	call(h.Sources.Rebind(ctx, by, "acme"))
	call(h.Templates.Create(ctx, by, svc.NewTemplate{ID: "b", Content: content("B", "1")}))
	call(h.Templates.Install(ctx, by, svc.Install{TemplateID: "chat", SourceName: "acme", IdempotencyKey: "once"}))
	call(h.Templates.Patch(ctx, by, "a", svc.TemplatePatch{Name: ptr("x")}))
	call(nil, h.Templates.Delete(ctx, by, "a"))
	call(h.Keys.Issue(ctx, by, alice.Identity(), svc.NewAPIKey{}))
	call(h.Keys.Import(ctx, by, bob.Identity(), svc.ImportedKey{Prefix: "sk-", Hash: plainDigest("sk-one")}))
	call(h.Keys.Patch(ctx, by, alice.Identity(), key.ID, svc.APIKeyPatch{Disabled: ptr(true)}))
	call(h.Keys.Rotate(ctx, by, alice.Identity(), key.ID, 0))
	call(nil, h.Keys.Revoke(ctx, by, alice.Identity(), key.ID))
	call(h.Keys.RevokeAll(ctx, by, alice.Identity()))
	call(h.Keys.RevokeLeaked(ctx, by, []string{string(key.Key)}))
	call(nil, h.Access.Apply(ctx, by, svc.Bundle{Users: []svc.User{{ID: "bob"}}}))
	return errs
}
