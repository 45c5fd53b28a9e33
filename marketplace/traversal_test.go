package marketplace_test

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

// traversals are references that leave their directory for some server, or that name no file.
var traversals = map[string][]string{
	"as it is": {"..", "../a.json", "a/../../b", "a/..", "a/../b", "./..", "./../a", "a/b/../../../c",
		"../../../../../../etc/passwd"},
	"here":                 {"", ".", "./", "././a", ".//a", "a/./b", "a/.", "./.", "%2e", "%2e/a", "a/%2E/b"},
	"percent-encoded dots": {"%2e%2e/a", "%2E%2E/a", ".%2e/a", "%2e./a", "a/%2e%2e/%2e%2e/b", "%2e%2e"},
	"percent-encoded slash": {"..%2fa", "..%2Fa", "%2e%2e%2fa", "%2E%2e%2Fa", "a%2fb", "a%2f..%2f..%2fb", "%2fa", "%2f%2fevil.example",
		"a%2f"},
	"backslashes": {`..\a`, `a\..\..\b`, `a\b`, `\a`, `\\evil\a`, "..%5ca", "..%5Ca", "%2e%2e%5ca", "a%5cb", "%5c%5cevil%5ca", `a/..\b`},
	"encoded twice": {"%252e%252e/a", "%252e%252e%252fa", "..%252fa", "..%255ca", "%25252e", "a%25b", "%25", "%252e%252e%5ca",
		"%2525252e%2525252e/a", "%%32%65%%32%65/a"},
	"badly encoded": {"a%", "a%2", "a%zz", "%u002e%u002e/a", "%u2216a", "..%u2215a", "%x2e/a", "%2 e", "=2e=2e/a%"},
	"overlong UTF-8": {"%c0%ae%c0%ae/a", "..%c0%afa", "%c0%2e%c0%2e/a", "..%c1%9ca", "%e0%80%ae%e0%80%ae/a", "..%e0%80%afa",
		"..%f0%80%80%afa", "%f8%80%80%80%ae/a", "\xc0\xae\xc0\xae/a", "..\xc0\xafa"},
	"no UTF-8": {"\xff", "%ff", "a/%80", "%ed%a0%80", "a%c3"},
	"wide dots": {"．．/a", ".．/a", "․․/a", "‥/a", "︰/a", "﹒﹒/a", "…/a", "︙/a", "%EF%BC%8E%EF%BC%8E/a", "%E2%80%A5/a",
		"%EF%B8%B0/a", "a/．"},
	"wide slashes": {"a／..／b", "..／a", "..＼a", "..﹨a", "%EF%BC%8Fa", "..%EF%BC%BCa", "℀", "℅", "／etc／passwd"},
	"slashes of mathematics": {"..∕a", "a∕..∕..∕b", "..⁄a", "..⧸a", "..∖a", "..⧵a", "..⧹a", "..⟋a", "..⟍a", "∕etc∕passwd", "..%E2%88%95a",
		"..%e2%81%84a", "%E2%A7%B8a", "a%E2%88%96b", ".․∕a"},
	"lines and strokes": {"..╱a", "..╲a", "..㇓a", "⼃", "..\U0001D23Aa", "..\u1735a", "..⫽a", "a┃b"},
	"currencies that are a backslash in other code pages": {"..¥a", "..₩a", "%C2%A5a"},
	"dots of other scripts":                               {"。。/a", "｡｡/a", "··/a", "・・/a", "۔۔/a", "।/a", "܁܁/a", "꘎꘎/a", "%E3%80%82%E3%80%82/a", "a·b"},
	"numbers that hold a mark":                            {"⒈/a", "🄀/a", "½", "⅟../a"},
	"other percent signs":                                 {"٪2e٪2e/a", "..٪2fa", "‰"},
	"wide percent signs":                                  {"％2e％2e/a", "﹪2e﹪2e/a", "..％2fa", "%EF%BC%852e"},
	"parameters": {"..;/a", "..;x=1/a", ".;/a", "..;", "..%3b/a", "..%3Bx/a", "a/..;/..;/b", "..；/a", "..\u037e/a",
		"..;..;/a", ".;x/a", "..;%2f..;/a"},
	"dots at the end": {".../a", "..../a", "a/...", "....//a", "..././a", "...;/a"},
	"spaces": {".. /a", " ../a", ". ./a", "..%20/a", "%20../a", " ", "%20", "..+/../a", ".. ;/a", "..\u00a0/a",
		"..\u3000/a", "..%E2%80%83/a", "..\t/a", "..%09/a", "a/ /b"},
	"what cannot be seen": {"..\u200b/a", ".\u200b./a", "\u2060../a", "..\ufeff/a", ".\u00ad./a", "..%E2%80%8B/a", "\u202e../a",
		"\u200b/a", "..\U000e0001/a"},
	"NUL and other control": {"a\x00b", "a%00b", "..%00/a", "%00", "a.json%00.txt", "a\nb", "a%0ab", "..%0a/a", "..%0d%0a/a",
		"a%0d%0aX: y", "a\x7fb", "a%7f", "a\u0085b", "a%C2%85b", ".\n./a", "..\r/a"},
	"absolute": {"/a", "/", "//evil.example/a", "///a", "/../a", "/./a", "//"},
	"other addresses": {"https://evil.example/a", "http://127.0.0.1/a", "HTTPS:a", "https:a", "javascript:x", "fs://x",
		"file:///etc/passwd", "file:a", "data:,{}", "gopher:x", "urn:x", "x:", ":a", "c%3a/a", "https%3a//evil.example"},
	"drives":                {"C:a", `C:\a`, "C:/a", "c:", "c%3Aa", `\\?\C:\a`},
	"queries and fragments": {"a?b", "a#b", "?a", "#a", "a%3fb", "a%23b", "?", "#", "a?../../b", "a#../b"},
	"empty segments":        {"a//b", "a/", "a//", "a///b", "a/;/../b"},
}

// escapes are all traversals, and references that are too long.
func escapes() []string {
	all := []string{strings.Repeat("a", 2049), strings.Repeat("é", 1025)}
	for _, references := range traversals {
		all = append(all, references...)
	}
	slices.Sort(all)
	return all
}

// No reference names a file outside its source, on the web or in a file system. The client sends
// no request for a refused one.
func TestTraversals(t *testing.T) {
	for _, reference := range escapes() {
		if got, problem := marketplace.Confined(reference); problem == "" || got != "" {
			t.Errorf("%q: accepted as %q", reference, got)
		}
		if !utf8.ValidString(reference) {
			continue // the catalogue would be bad as a whole
		}
		catalog := `{"templates":[{"id":"a","name":"A","manifest_file":` + quote(reference) + `}]}`
		var asked []string
		client, from := serve(t, recorded(&asked, tree(map[string]string{"/dir/templates.json": catalog})), marketplace.Limits{})
		from.URL += "/dir"
		_, err := client.Template(t.Context(), from, "a")
		wantError(t, err, svc.CodeSourceFailed, "entry 0 of the catalogue is bad: ")
		if len(asked) != 1 {
			t.Errorf("%q: asked for %q", reference, asked)
		}

		opened := &openings{MapFS: fstest.MapFS{"dir/templates.json": {Data: []byte(catalog)}, "a.json": {Data: []byte(`{"secret":1}`)},
			"a": {Data: []byte(`{"secret":1}`)}}}
		client = newClient(t, marketplace.Config{Files: map[string]fs.FS{"local": opened}})
		_, err = client.Template(t.Context(), upstream("fs://local/dir"), "a")
		wantError(t, err, svc.CodeSourceFailed, "entry 0 of the catalogue is bad: ")
		if !slices.Equal(opened.names, []string{"dir/templates.json"}) {
			t.Errorf("%q: opened %q", reference, opened.names)
		}
	}
}

// openings is a file system that records each opened file.
type openings struct {
	fstest.MapFS
	names []string
}

func (o *openings) Open(name string) (fs.File, error) {
	o.names = append(o.names, name)
	return o.MapFS.Open(name)
}

// The address of a source has the same rules: a path below it is below it for every server.
func TestTraversalsInAddresses(t *testing.T) {
	client := newClient(t, marketplace.Config{Files: map[string]fs.FS{"local": fstest.MapFS{}}})
	// Empty segments lead nowhere else.
	harmless := []string{"", "a/", "a//", "/", "a//b", "///a", "//", "a///b", "/a", "//evil.example/a"}
	for what, references := range traversals {
		switch what {
		case "other addresses", "drives", "queries and fragments":
			continue // behind a host they are names, or refused for what they are
		}
		for _, reference := range references {
			address := "https://one.example/base/" + reference
			if client.CheckURL(address) == nil && !slices.Contains(harmless, reference) {
				t.Errorf("%s: %q may be registered", what, address)
			}
		}
	}
}
