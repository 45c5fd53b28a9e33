package marketplace_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

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
	_, err := client.Template(t.Context(), from, "a")
	wantError(t, err, svc.CodeSourceFailed, "answered 304")
	handlers["one.example/templates.json"] = redirectTo("https://two.example/other", 302)
	handlers["two.example/other"] = status(304)
	_, err = client.Template(t.Context(), from, "a")
	wantError(t, err, svc.CodeSourceFailed, "answered 304")
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
