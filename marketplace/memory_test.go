package marketplace_test

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

// After a restart, a source does not send unchanged files again.
func TestRestartCostsA304(t *testing.T) {
	is := is.New(t)
	s, first, from := newShelf(t, marketplace.Config{})
	kept := &memory{}
	from.Memory = kept
	is.Equal(version(t, first, from), `{"version":"1"}`)
	is.Equal(len(kept.files), 2)
	s.requests()
	restarted := newClient(t, marketplace.Config{AllowOrigins: []string{from.URL}})
	for range 2 {
		is.Equal(version(t, restarted, from), `{"version":"1"}`)
		for _, asked := range s.requests() {
			is.True(strings.HasSuffix(asked, " 304"))
		}
	}
	is.Equal(restarted.CacheStats().Unchanged, uint64(4))

	s.tagged("/m.json", `{"version":"22"}`)
	is.Equal(version(t, restarted, from), `{"version":"22"}`)
	again := newClient(t, marketplace.Config{AllowOrigins: []string{from.URL}, Cache: -1}) // with no memory of its own
	s.requests()
	is.Equal(version(t, again, from), `{"version":"22"}`)
	is.True(!slices.ContainsFunc(s.requests(), func(asked string) bool { return strings.HasSuffix(asked, " 200") }))
}

// The clock of the process that stored an answer may be ahead.
func TestStoredByAnotherClock(t *testing.T) {
	is := is.New(t)
	s, ahead, from := newShelf(t, marketplace.Config{})
	ahead.SetNow(func() time.Time { return time.Now().Add(time.Hour) })
	from.Memory = &memory{}
	is.Equal(version(t, ahead, from), `{"version":"1"}`)
	restarted := newClient(t, marketplace.Config{AllowOrigins: []string{from.URL}})
	s.tagged("/templates.json", `{"templates":[]}`)
	for range 2 {
		catalog := must(restarted.Catalog(t.Context(), from, time.Minute))
		is.Equal(len(catalog.Entries), 0)
		is.True(!catalog.FetchedAt.After(time.Now()))
	}
}

// A stored answer replaces an unreachable source, as a cached copy does.
func TestRestartWithoutTheSource(t *testing.T) {
	is := is.New(t)
	s, first, from := newShelf(t, marketplace.Config{})
	from.Memory = &memory{}
	is.Equal(version(t, first, from), `{"version":"1"}`)
	s.beforeEach(func(*http.Request) { panic(http.ErrAbortHandler) })
	restarted := newClient(t, marketplace.Config{AllowOrigins: []string{from.URL}})
	catalog := must(restarted.Catalog(t.Context(), from, time.Minute))
	is.True(catalog.Failure != nil)
	is.Equal(catalog.Entries[0].ID, "a")
	refuses(t, restarted, from, "cannot be reached")
}

// Only the same registration uses a stored answer, and only if it is readable.
func TestMemoryOfAnother(t *testing.T) {
	for name, change := range map[string]func(from *svc.Upstream, kept *memory){
		"another token":        func(from *svc.Upstream, _ *memory) { from.Token = "s3cr3t" },
		"another registration": func(from *svc.Upstream, _ *memory) { from.Registered = from.Registered.Add(time.Microsecond) },
		"another name":         func(from *svc.Upstream, _ *memory) { from.Source.Name = "acme2" },
		"another path":         func(from *svc.Upstream, _ *memory) { from.URL += "/" },
		"cut off":              func(_ *svc.Upstream, kept *memory) { kept.files[""] = kept.files[""][:len(kept.files[""])-9] },
		"without a line": func(_ *svc.Upstream, kept *memory) {
			kept.files[""] = bytes.ReplaceAll(kept.files[""], []byte("\n"), nil)
		},
		"rubbish":         func(_ *svc.Upstream, kept *memory) { kept.files[""] = []byte("rubbish") },
		"empty":           func(_ *svc.Upstream, kept *memory) { kept.files[""] = nil },
		"of another file": func(_ *svc.Upstream, kept *memory) { kept.files[""] = kept.files["m.json"] },
		"signed by nobody": func(from *svc.Upstream, _ *memory) { // the client verifies stored answers
			from.SigningKey = newSigner('a').public()
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s, first, from := newShelf(t, marketplace.Config{})
			kept := &memory{}
			from.Memory = kept
			is.Equal(version(t, first, from), `{"version":"1"}`)
			s.requests()
			change(&from, kept)
			_, _ = newClient(t, marketplace.Config{AllowOrigins: []string{strings.TrimSuffix(from.URL, "/")}}).Template(t.Context(), from, "a")
			asked := s.requests()
			is.True(len(asked) > 0)
			is.Equal(strings.Fields(asked[0])[1], "200")
		})
	}
}

// A stored answer does not contain the token. An answer without a validator is not stored.
func TestWhatIsRemembered(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	kept := &memory{}
	from.Memory, from.Token = kept, "s3cr3t-token"
	s.put("/m.json", `{"version":"1"}`, nil) // no validator
	is.Equal(version(t, client, from), `{"version":"1"}`)
	is.Equal(len(kept.files), 1)
	is.True(!bytes.Contains(kept.files[""], []byte("s3cr3t")))
}

// etagged answers a conditional request with 304 and records each condition as "host/path
// condition token".
func etagged(asked *[]string, tag, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		condition := r.Header.Get("If-None-Match")
		*asked = append(*asked, strings.TrimSpace(strings.Join([]string{r.Host + r.URL.RequestURI(), condition, r.Header.Get("Authorization")}, " ")))
		w.Header().Set("ETag", tag)
		if condition == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write([]byte(body))
	}
}

// A 304 after redirects counts as a 304 without them. The client sends a validator only to the
// address that gave it.
func TestValidatorsOfARedirect(t *testing.T) {
	is := is.New(t)
	var conditions []string
	handlers := map[string]http.HandlerFunc{
		"one.example/templates.json": redirectTo("/list", 302),
		"one.example/list":           redirectTo("https://two.example/x?v=1", 307),
		"two.example/x":              etagged(&conditions, `"1"`, oneEntry),
		"two.example/y":              etagged(&conditions, `"1"`, strings.Replace(oneEntry, `"1"`, `"2"`, 1)),
		"one.example/z":              etagged(&conditions, `"1"`, strings.Replace(oneEntry, `"1"`, `"3"`, 1)),
	}
	client, asked := newWeb(t, handlers)
	from := upstream("https://one.example")
	want := func(manifest string, conditional ...string) {
		t.Helper()
		conditions = nil
		is.Equal(version(t, client, from), manifest)
		is.Equal(conditions, conditional)
	}
	want(`{"version":"1"}`, "two.example/x?v=1")
	want(`{"version":"1"}`, `two.example/x?v=1 "1"`)
	is.Equal(len(*asked), 6)
	handlers["one.example/list"] = redirectTo("https://two.example/x?v=2", 307)
	want(`{"version":"1"}`, "two.example/x?v=2")
	handlers["one.example/list"] = redirectTo("https://two.example/y", 307)
	want(`{"version":"2"}`, "two.example/y")
	handlers["one.example/list"] = redirectTo("https://one.example/z", 307)
	want(`{"version":"3"}`, "one.example/z")
	want(`{"version":"3"}`, `one.example/z "1"`)
	handlers["one.example/templates.json"] = etagged(&conditions, `"1"`, strings.Replace(oneEntry, `"1"`, `"4"`, 1))
	want(`{"version":"4"}`, "one.example/templates.json")
	handlers["one.example/templates.json"] = redirectTo("https://two.example/x?v=1", 307)
	want(`{"version":"1"}`, "two.example/x?v=1") // that copy has gone
}

// A 304 of an earlier hop is no answer: the request to that hop had no condition.
func TestUnasked304OfARedirect(t *testing.T) {
	var conditions []string
	handlers := map[string]http.HandlerFunc{
		"one.example/templates.json": redirectTo("https://two.example/x", 302),
		"two.example/x":              etagged(&conditions, `"1"`, oneEntry),
	}
	client, _ := newWeb(t, handlers)
	from := upstream("https://one.example")
	version(t, client, from)
	handlers["one.example/templates.json"] = status(304)
	refuses(t, client, from, "answered 304")
	handlers["one.example/templates.json"] = redirectTo("https://two.example/other", 302)
	handlers["two.example/other"] = status(304)
	refuses(t, client, from, "answered 304")
}

// An address can give two answers: with the token and without it.
func TestValidatorsOfWhoMaySeeIt(t *testing.T) {
	is := is.New(t)
	var conditions []string
	handlers := map[string]http.HandlerFunc{
		"one.example/templates.json": redirectTo("/x", 302),
		"one.example/x":              etagged(&conditions, `"1"`, oneEntry),
		"two.example/back":           redirectTo("https://one.example/x", 302),
	}
	client, _ := newWeb(t, handlers)
	from := upstream("https://one.example")
	from.Token = "s3cr3t"
	version(t, client, from)
	version(t, client, from)
	handlers["one.example/templates.json"] = redirectTo("https://two.example/back", 302)
	version(t, client, from)
	version(t, client, from)
	is.Equal(conditions, []string{
		"one.example/x  Bearer s3cr3t", `one.example/x "1" Bearer s3cr3t`, "one.example/x", `one.example/x "1"`,
	})
}
