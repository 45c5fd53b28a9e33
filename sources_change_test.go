package svc_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/store/memstore"
)

var keyA, keyB, keyC = []byte("the first key of sources, 32 b. "), []byte("the second key of sources, 32 b."), []byte("the third key of sources, 32 b. ")

func sealedUnder(t *testing.T, store svc.Store, keys ...[]byte) *host {
	return newHost(t, func(c *svc.Config) {
		c.Store, c.Sources.SealingKey, c.Sources.OldSealingKeys = store, keys[0], keys[1:]
	})
}

func address(name string) string { return "https://example.com/" + name }

// register registers a source of each name, with the token "token-of-NAME".
func (h *host) register(t *testing.T, names ...string) {
	for _, name := range names {
		must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: address(name), AuthToken: ptr(svc.Secret("token-of-" + name))}))
	}
	h.actions()
}

func (h *host) asksWith(t *testing.T, name string) (svc.Secret, error) {
	h.market.asked = nil
	_, err := h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "none", SourceName: name})
	if svc.ErrorCode(err) != svc.CodeNotFound {
		return "", err
	}
	return h.market.asked[0].Token, nil
}

func (h *host) wantTokens(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if token, err := h.asksWith(t, name); err != nil || token != svc.Secret("token-of-"+name) {
			t.Errorf("%s is asked with %q: %v", name, string(token), err)
		}
	}
}

func (h *host) wantLost(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		wantCode(t, errorOf(h.asksWith(t, name)), svc.CodeInternal, "")
	}
}

// wantResealed expects that n tokens are sealed anew, without an event.
func (h *host) wantResealed(t *testing.T, n int) {
	is := is.New(t)
	is.Equal(must(h.Sources.Reseal(t.Context(), svc.Host)), n)
	is.Equal(h.actions(), nil)
}

func TestProblemsOfACatalogueHideTheToken(t *testing.T) {
	h := newHost(t)
	h.register(t, "acme")
	h.market.catalog.Problems = []svc.CatalogProblem{{ID: "of token-of-acme", Reason: "bad token-of-acme"}}
	is.New(t).Equal(must(h.Sources.Browse(t.Context(), admin, "acme", svc.CatalogFilter{})).Bad, []svc.CatalogProblem{{ID: "of ***", Reason: "bad ***"}})
}

func TestPanicsOfAMarketplaceHideTheToken(t *testing.T) {
	h := newHost(t)
	h.register(t, "acme")
	h.market.during = func() { panic(errors.New("asked with token-of-acme")) }
	for name, ask := range map[string]func(){
		"catalogue": func() { _, _ = h.Sources.Browse(t.Context(), admin, "acme", svc.CatalogFilter{}) },
		"template":  func() { _, _ = h.asksWith(t, "acme") },
	} {
		func() {
			defer func() { expect.Equal(t, name, fmt.Sprint(recover()), "asked with ***") }()
			ask()
		}()
	}
}

func (h *host) rows(t *testing.T) []svc.Source {
	t.Helper()
	return collect(t, h.Sources.List(t.Context(), admin))
}

func edit(t *testing.T, store svc.Store, name string, change func(*svc.Source)) {
	is.New(t).NoErr(store.ChangeSource(t.Context(), svc.SourceKey{Scope: svc.ScopeServer, Name: name}, func(s *svc.Source) (bool, error) {
		change(s)
		return true, nil
	}))
}

// TestSealingKeyIsChanged is the whole way, of more sources than a list reads at a time.
func TestSealingKeyIsChanged(t *testing.T) {
	is, store := is.New(t), memstore.New()
	var names []string
	for i := range 140 {
		names = append(names, fmt.Sprintf("source-%03d", i))
	}
	before := sealedUnder(t, store, keyA)
	before.register(t, names...)
	must(before.Sources.Register(t.Context(), admin, svc.NewSource{URL: address("open")}))

	known := sealedUnder(t, store, keyA, keyC, keyB) // first the new key is known everywhere
	known.wantTokens(t, names...)
	known.wantResealed(t, 0)
	both := sealedUnder(t, store, keyB, keyA) // then it is the first, here and there
	both.wantTokens(t, names...)
	both.register(t, "later")
	known.wantTokens(t, "later")
	before.wantLost(t, "later")

	rows := both.rows(t)
	both.wantResealed(t, len(names))
	resealed := both.rows(t)
	is.Equal(len(resealed), len(rows))
	for i, row := range resealed {
		anew := row.Name != "open" && row.Name != "later"
		is.Equal(string(row.SealedToken) != string(rows[i].SealedToken), anew)
		row.SealedToken = rows[i].SealedToken
		is.Equal(row, rows[i]) // UpdatedAt, too
	}
	nothing := ahead(store, "ChangeSource", func(any) error { return errors.New("a transaction, though there is nothing to do") })
	sealedUnder(t, nothing, keyB, keyA).wantResealed(t, 0)

	names = append(names, "later")
	both.wantTokens(t, names...)
	after := sealedUnder(t, store, keyB) // at last the old key goes
	after.wantTokens(t, names...)
	after.wantResealed(t, 0)
	before.wantLost(t, names...)
	is.Equal(must(after.asksWith(t, "open")), svc.Secret(""))
}

// TestTokenThatNoKeyOpens: it stays as it is and is named, and the others are resealed.
func TestTokenThatNoKeyOpens(t *testing.T) {
	is, store := is.New(t), memstore.New()
	old := sealedUnder(t, store, keyA)
	old.register(t, "a", "cut", "from", "moved", "z")
	must(old.Sources.Register(t.Context(), admin, svc.NewSource{
		URL: address("from"), Alias: ptr("copied"), AuthToken: ptr(svc.Secret("its-own")),
	}))
	sealedUnder(t, store, keyC).register(t, "stranger")
	h := sealedUnder(t, store, keyB, keyA)
	h.register(t, "new", "new-moved")

	edit(t, store, "moved", func(s *svc.Source) { s.URL = "https://evil.example/moved" })
	edit(t, store, "new-moved", func(s *svc.Source) { s.URL = "https://evil.example/new-moved" })
	tokens := map[string][]byte{}
	for _, row := range h.rows(t) {
		tokens[row.Name] = row.SealedToken
	}
	edit(t, store, "copied", func(s *svc.Source) { s.SealedToken = tokens["from"] })
	edit(t, store, "cut", func(s *svc.Source) { s.SealedToken = s.SealedToken[:7] })
	lost := []string{"copied", "cut", "moved", "new-moved", "stranger"}
	h.wantLost(t, lost...)

	for _, want := range []int{3, 0} {
		before := h.rows(t)
		n, err := h.Sources.Reseal(t.Context(), svc.Host)
		is.Equal(n, want)
		is.Equal(svc.ErrorCode(err), svc.CodeInternal)
		for i, row := range h.rows(t) {
			if named := strings.Contains(err.Error(), `"`+row.Name+`"`); named != slices.Contains(lost, row.Name) {
				t.Errorf("%s is named: %v", row.Name, named)
			} else if named {
				is.Equal(row, before[i])
			}
		}
	}
	sealedUnder(t, store, keyB).wantTokens(t, "a", "from", "z", "new")
	h.wantLost(t, lost...)
	is.Equal(h.actions(), nil)
}

// TestResealThatBreaksOff: what is done stays done, the rest can be read on, and another call does it.
func TestResealThatBreaksOff(t *testing.T) {
	is, names := is.New(t), []string{"a", "b", "c", "d", "e"}
	for done := range names {
		store := memstore.New()
		sealedUnder(t, store, keyA).register(t, names...)
		left, down := done, errors.New("the process is gone")
		h := sealedUnder(t, ahead(store, "ChangeSource", func(any) error {
			if left--; left < 0 {
				return fmt.Errorf("%w: %w", svc.ErrUnavailable, down)
			}
			return nil
		}), keyB, keyA)
		n, err := h.Sources.Reseal(t.Context(), svc.Host)
		is.Equal(n, done)
		wantCode(t, err, svc.CodeUnavailable, "")
		is.True(errors.Is(err, down))
		is.Equal(left, -1) // it did not go on

		h = sealedUnder(t, store, keyB, keyA)
		h.wantTokens(t, names...)
		sealedUnder(t, store, keyB).wantTokens(t, names[:done]...)
		sealedUnder(t, store, keyB).wantLost(t, names[done:]...)
		h.wantResealed(t, len(names)-done)
		sealedUnder(t, store, keyB).wantTokens(t, names...)
	}
}

// The tokens of sources of users are counted and resealed with those of the server, also of a user without a row.
func TestPersonalTokensAreResealed(t *testing.T) {
	is, store := is.New(t), memstore.New()
	before := sealedUnder(t, store, keyA)
	before.register(t, "a")
	stranger := user("stranger", "*", "template:*")
	for i := range 80 {
		for _, by := range []svc.Principal{user("alice", "*", "template:*"), stranger} {
			name := fmt.Sprintf("own-%02d", i)
			must(before.MySources.Register(t.Context(), by, svc.NewSource{URL: address(name), AuthToken: ptr(svc.Secret("token-of-" + name))}))
		}
	}
	h := sealedUnder(t, store, keyB, keyA)
	h.register(t, "b")
	counts := func(h *host, want svc.SealReport) {
		t.Helper()
		is.Equal(must(h.Sources.Sealed(t.Context(), svc.Host)), want)
	}
	counts(h, svc.SealReport{Under: []int{1, 161}})
	counts(sealedUnder(t, store, keyB), svc.SealReport{Under: []int{1}, Lost: 161})
	counts(sealedUnder(t, store, keyC, keyA, keyB), svc.SealReport{Under: []int{0, 161, 1}})
	counts(newHost(t, func(c *svc.Config) { c.Store, c.Sources.SealingKey = store, nil }), svc.SealReport{Under: []int{}, Lost: 162})
	h.wantResealed(t, 161)
	h.wantResealed(t, 0)
	after := sealedUnder(t, store, keyB)
	counts(after, svc.SealReport{Under: []int{162}})
	after.market.asked = nil
	_, err := after.MyTemplates.Install(t.Context(), stranger, svc.Install{TemplateID: "none", SourceName: "own-79", SourceScope: svc.ScopePersonal})
	wantCode(t, err, svc.CodeNotFound, "")
	is.Equal(after.market.asked[0].Token, svc.Secret("token-of-own-79"))
}

// TestResealMeetsAChange: what is resealed is what the source holds then, and not what it held when it was listed.
func TestResealMeetsAChange(t *testing.T) {
	key := svc.SourceKey{Scope: svc.ScopeServer, Name: "a"}
	for name, c := range map[string]struct {
		meanwhile func(store svc.Store)
		resealed  int // of two
		token     svc.Secret
	}{
		"registered again": {func(store svc.Store) {
			is.New(t).NoErr(store.DeleteSource(t.Context(), key))
			again := svc.NewSource{URL: "https://new.example", Alias: ptr("a"), AuthToken: ptr(svc.Secret("newer"))}
			must(sealedUnder(t, store, keyA).Sources.Register(t.Context(), admin, again))
		}, 2, "newer"},
		"resealed by another":  {func(store svc.Store) { sealedUnder(t, store, keyB, keyA).wantResealed(t, 2) }, 0, "token-of-a"},
		"its token taken away": {func(store svc.Store) { edit(t, store, "a", func(s *svc.Source) { s.SealedToken = nil }) }, 1, ""},
		"described":            {func(store svc.Store) { edit(t, store, "a", func(s *svc.Source) { s.Description = ptr("new") }) }, 2, "token-of-a"},
		"removed":              {func(store svc.Store) { is.New(t).NoErr(store.DeleteSource(t.Context(), key)) }, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			is, store := is.New(t), memstore.New()
			sealedUnder(t, store, keyA).register(t, "a", "b")
			var before svc.Source
			sealedUnder(t, ahead(store, "ChangeSource", func(changed any) error {
				if changed == key {
					c.meanwhile(store)
					before, _ = store.Source(t.Context(), key)
				}
				return nil
			}), keyB, keyA).wantResealed(t, c.resealed)

			h := sealedUnder(t, store, keyB)
			h.wantTokens(t, "b")
			if name == "removed" {
				is.Equal(len(h.rows(t)), 1)
				return
			}
			is.Equal(must(h.asksWith(t, "a")), c.token)
			is.Equal(h.rows(t)[0].Description, before.Description)
		})
	}
}

// TestResealIsCountedOnce: a store may call change again, and only the last call counts.
func TestResealIsCountedOnce(t *testing.T) {
	for want, between := range []func(store svc.Store){
		func(store svc.Store) { sealedUnder(t, store, keyB, keyA).wantResealed(t, 1) },
		func(svc.Store) {},
	} {
		store := memstore.New()
		sealedUnder(t, store, keyA).register(t, "a")
		sealedUnder(t, around(store, func(call intercept.Call) error {
			if call.Method == "ChangeSource" {
				is.New(t).NoErr(store.ChangeSource(t.Context(), call.Args[0].(svc.SourceKey), func(s *svc.Source) (bool, error) {
					_, err := call.Funcs[0].(func(*svc.Source) (bool, error))(s)
					return false, err
				}))
				between(store)
			}
			return call.Do()
		}), keyB, keyA).wantResealed(t, want)
		sealedUnder(t, store, keyB).wantTokens(t, "a")
	}
}
