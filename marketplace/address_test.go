package marketplace_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

func TestCheckURLAccepts(t *testing.T) {
	client := newClient(t, marketplace.Config{
		AllowOrigins: []string{"http://127.0.0.1:9999", "HTTP://Localhost:8080/", "https://[::1]", "http://git.corp.example",
			"https://mail.example:25", "http://127.0.0.1:6000"},
		AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")},
		Files:      map[string]fs.FS{"local": fstest.MapFS{}},
	})
	for _, address := range []string{
		"https://example.com", "https://example.com/", "HTTPS://EXAMPLE.com:8443/a/b//", "https://example.com./x", "https://a_b.example/",
		"https://8.8.8.8/x", "https://[2606:4700::1111]/x", "https://example.com/a%20b/ü/%C3%BC", "https://xn--mnchen-3ya.example/",
		"https://example.com/a...b/.git/..c", "https://127.example.com/", "https://localhost.example.com/",
		"http://127.0.0.1:9999/dir", "http://127.0.0.1.:9999/dir", "http://localhost:8080", "https://[::1]:443/x", "https://[0:0::1]/x",
		"http://git.corp.example:80/x", "https://10.1.2.3/", "https://[fd00:1::5]/",
		"https://example.com:80/", "https://example.com:8080", "https://example.com:3000", "https://example.com:65535", "https://example.com:9443",
		"https://mail.example:25/", "http://127.0.0.1:6000",
		"fs://local", "fs://local/", "fs://local/a/b/",
	} {
		if err := client.CheckURL(address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestSpellings and TestSpecialRanges have more hosts.
func TestCheckURLRefuses(t *testing.T) {
	client := newClient(t, marketplace.Config{
		AllowOrigins: []string{"http://127.0.0.1:9999"},
		AllowCIDRs:   []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		Files:        map[string]fs.FS{"local": fstest.MapFS{}},
	})
	const (
		absolute, hidden, plain = "must be an absolute address", "is not public", "is plain http"
		four, ascii, six        = "four decimal numbers", "ASCII letters", "IPv6 address without a zone"
	)
	for want, addresses := range map[string][]string{
		absolute: {"", "/", "example.com", "//example.com/x", "https:", "https://", "https:///x", "https:example.com", "ftp://example.com/",
			"file:///etc/passwd", "gopher://example.com", "javascript:alert(1)", "fs:local", "fs://", "https://exa%6Dple.com/", "https://127.0.0.%31/",
			"https://[::1/", "https://example.com:x/", "https://example.com/%", "/x", ":", "://example.com", "https:/example.com", "https:////example.com",
			"file://example.com/x", "dict://example.com/", "ldap://example.com", "data:application/json,{}", "jar:https://example.com!/x", "ws://example.com/",
			"about:blank", "blob:https://example.com/x", "unix:///run/x.sock", "httpss://example.com"},
		"user name": {"https://user@example.com/", "https://u:p@example.com", "https://example.com@127.0.0.1/", "https://@example.com/"},
		"no query":  {"https://example.com/?a=b", "https://example.com?", "fs://local?x"},
		"fragment":  {"https://example.com/#a", "https://example.com#"},
		plain:       {"http://example.com/", "http://127.0.0.1/", "http://127.0.0.1:9998", "http://10.1.2.3/", "http://localhost:9999"},
		hidden: {"https://127.0.0.1:9999/", "https://127.0.0.1../", "https://10.2.0.1", "https://[::ffff:10.1.2.3]",
			"https://LOCALHOST:443"},
		four:           {"https://2130706433", "https://127.1", "https://0177.0.0.1", "https://256.1.1.1", "https://a.0x1f"},
		ascii:          {"https://１２７.0.0.1", "https://münchen.example", "https://a..b", "https://*.example.com", "https://a;b"},
		six:            {"https://[fe80::1%25eth0]", "https://[::1%25lo]", "https://[2606:4700::1%25eth0]"},
		"port from":    {"https://example.com:0/", "https://example.com:65536/", "https://example.com:99999999999999999999"},
		"name a host":  {"https://.", "https://:443", "https://..:443"},
		"file system":  {"fs://other/", "fs://LOCAL/", "fs://local:80/", "fs://local.evil"},
		"empty":        {"fs://local/a//b"},
		"spaces":       {"https://example.com/a b", "https://exa\\mple.com", "https://example.com\\@127.0.0.1", "https://example.com/\n", " https://example.com", "ht\ttps://example.com", `https:\\example.com`, `https:/\example.com`, "https://example.com/\x00", "https://example.com/\u202e", "https://\xff.example"},
		"segment":      {"https://example.com/a/../b", "https://example.com/..", "https://example.com/./a", "https://example.com/%2e%2e/a", "https://example.com/.%2E", "https://example.com/..;x/", "https://example.com/..%20/", "https://example.com/.../", "fs://local/..", "fs://local/a/%2e%2e/b"},
		"encoded slas": {"https://example.com/a%2fb", "https://example.com/..%2F", "fs://local/a%2fb"},
		"backslash":    {"https://example.com/a%5cb"},
		"percent sign": {"https://example.com/%252e%252e/", "https://example.com/a%25"},
		"control":      {"https://example.com/%00", "https://example.com/%0d%0a"},
		"percent-enc":  {"https://example.com/%ff", "https://example.com/%c0%ae%c0%ae/"},
		"look-alikes": {"https://example.com/．．/x", "https://example.com/a／b", "https://example.com/%EF%BC%8E",
			"https://example.com/a∕b", "https://example.com/%E2%88%95", "https://example.com/a⁄..⁄b", "fs://local/..∕b"},
		"port 22":  {"https://example.com:22/", "https://10.1.2.3:022/"},
		"port 587": {"https://example.com:587"},
	} {
		for _, address := range addresses {
			if err := client.CheckURL(address); err == nil {
				t.Errorf("%s: accepted", address)
			} else if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", address, err, want)
			}
		}
	}
}

// CheckURL accepted the address at registration; the rules can have changed since.
func TestTemplateChecksTheAddress(t *testing.T) {
	_, err := newClient(t, marketplace.Config{}).Template(t.Context(), upstream("http://example.com"), "a")
	wantError(t, err, svc.CodeSourceFailed, "its address is plain http")
}

func TestLoopbackNamesFollowCIDRs(t *testing.T) {
	client := newClient(t, marketplace.Config{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err := client.CheckURL("https://localhost:8443/x"); err != nil {
		t.Error(err)
	}
}

func TestSourceURLs(t *testing.T) {
	client := newClient(t, marketplace.Config{})
	const raw = "https://raw.githubusercontent.com/"
	for address, want := range map[string]string{
		"https://example.com":                                    "https://example.com/t.json",
		"https://example.com///":                                 "https://example.com/t.json",
		"https://EXAMPLE.com:443/a%20b/c!d/":                     "https://example.com/a%20b/c!d/t.json",
		"https://example.com:8443/%3Fx":                          "https://example.com:8443/%3Fx/t.json",
		"https://[2606:4700:0::1]/x":                             "https://[2606:4700::1]/x/t.json",
		"https://[2606:4700::1]:8443":                            "https://[2606:4700::1]:8443/t.json",
		"https://github.com/acme/templates":                      raw + "acme/templates/HEAD/t.json",
		"https://GitHub.com/acme/templates.git/":                 raw + "acme/templates/HEAD/t.json",
		"https://github.com/acme/templates/tree/v1":              raw + "acme/templates/v1/t.json",
		"https://github.com/acme/t.git/tree/v1/a/b%20c/":         raw + "acme/t/v1/a/b%20c/t.json",
		"https://github.com/acme":                                "https://github.com/acme/t.json",
		"https://github.com/acme/t/tree":                         "https://github.com/acme/t/tree/t.json",
		"https://github.com/acme/t/raw/HEAD/x":                   "https://github.com/acme/t/raw/HEAD/x/t.json",
		"https://github.com:8443/acme/t":                         "https://github.com:8443/acme/t/t.json",
		"https://gist.github.com/acme/t":                         "https://gist.github.com/acme/t/t.json",
		"https://github.com/acme//t":                             "https://github.com/acme//t/t.json",
		"https://gitlab.com/group/project":                       "https://gitlab.com/group/project/-/raw/HEAD/t.json",
		"https://gitlab.com/group/sub/sub/project.git":           "https://gitlab.com/group/sub/sub/project/-/raw/HEAD/t.json",
		"https://gitlab.com/group/sub/project/-/tree/main/dir/x": "https://gitlab.com/group/sub/project/-/raw/main/dir/x/t.json",
		"https://gitlab.com/group/project/-/tree/main":           "https://gitlab.com/group/project/-/raw/main/t.json",
		"https://gitlab.com/group/project/-/raw/main/dir":        "https://gitlab.com/group/project/-/raw/main/dir/t.json",
		"https://gitlab.com/group":                               "https://gitlab.com/group/t.json",
		"https://gitlab.com/group/-/tree/main":                   "https://gitlab.com/group/-/tree/main/t.json",
	} {
		if got := client.URL(address, "t.json"); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
	if got := client.URL("https://example.com/a", "b c/d?e.json"); got != "https://example.com/a/b%20c/d%3Fe.json" {
		t.Errorf("got %s", got)
	}
}

func TestConfined(t *testing.T) {
	for reference, want := range map[string]string{
		"a.json": "a.json", "a/b/c.json": "a/b/c.json", "./a.json": "a.json", "a%20b.json": "a b.json", "a b.json": "a b.json",
		"%61.json": "a.json", "..a/b..json": "..a/b..json", "a/b:c.json": "a/b:c.json", "ü.json": "ü.json", "a;v=1.json": "a;v=1.json",
		"日本語/チャット.json": "日本語/チャット.json", "हिन्दी٣.json": "हिन्दी٣.json", "a–b—c’d“e”（f）.json": "a–b—c’d“e”（f）.json", "%E6%97%A5/%C3%BC.json": "日/ü.json",
		"e\u0301.json": "e\u0301.json", "a~b$c+d=e^f|g.json": "a~b$c+d=e^f|g.json",
	} {
		if got, problem := marketplace.Confined(reference); got != want || problem != "" {
			t.Errorf("%q: got %q, %q", reference, got, problem)
		}
	}
	long := strings.Repeat("é", 1024)
	if got, problem := marketplace.Confined(long); got != long || problem != "" {
		t.Errorf("2,048 bytes: %s", problem)
	}
}

// An address that names the catalogue, or a page of GitHub or GitLab that shows a file, is no
// directory: its registration is refused, with the address to give. A source from before goes on.
func TestAddressesThatAreNoDirectory(t *testing.T) {
	client := newClient(t, marketplace.Config{Files: map[string]fs.FS{"shop": fstest.MapFS{}}})
	const file, page = "must be the directory of the catalogue, without templates.json", "is the page of a file"
	for address, want := range map[string]string{
		"https://one.example/templates.json":                               file,
		"https://one.example/dir/templates.json":                           file,
		"https://one.example/dir/templates.json/":                          file,
		"https://one.example/dir/%74emplates.json":                         file,
		"https://one.example/templates.json.sig":                           file + ".sig",
		"fs://shop/templates.json":                                         file,
		"https://raw.githubusercontent.com/acme/shop/main/templates.json":  file,
		"https://github.com/acme/shop/tree/main/templates.json":            file,
		"https://github.com/acme/shop/blob/main/templates.json":            page,
		"https://github.com/acme/shop/blob/main/dir/templates.json":        page,
		"https://github.com/acme/shop/blob/main/dir":                       page,
		"https://GitHub.com:443/acme/shop/edit/main/templates.json":        page,
		"https://www.github.com/acme/shop/blob/main/templates.json":        page,
		"https://www.github.com./acme/shop/blame/main/templates.json":      page,
		"https://gitlab.com/acme/team/shop/-/blob/main/dir/templates.json": page,
		"https://www.gitlab.com/acme/shop/-/blob/main/templates.json":      page,
		"https://one.example/acme/shop/blob/main":                          "",
		"https://one.example/templates.json/dir":                           "",
		"https://github.com/acme/blob":                                     "",
		"https://github.com/acme/shop/tree/main/blob":                      "",
		"https://github.com/blob/edit":                                     "",
		"https://gitlab.com/blob/shop/-/tree/main/edit":                    "",
		"https://github.com/acme/shop/releases/download/v1":                "",
	} {
		err := client.CheckURL(address)
		if got := fmt.Sprint(err); (want == "") != (err == nil) || want != "" && !strings.Contains(got, want) {
			t.Errorf("%s: %s", address, got)
		}
	}
	for address, want := range map[string]string{
		"https://www.github.com/acme/shop":                 "https://raw.githubusercontent.com/acme/shop/HEAD/templates.json",
		"https://www.github.com/acme/shop.git/":            "https://raw.githubusercontent.com/acme/shop/HEAD/templates.json",
		"https://www.gitlab.com/acme/shop/-/tree/main/dir": "https://gitlab.com/acme/shop/-/raw/main/dir/templates.json",
		"https://one.example/templates.json":               "https://one.example/templates.json/templates.json",
	} {
		if got := client.URL(address, "templates.json"); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}

// The error of a request names the address that was asked first, with no token and nothing of a redirect.
func TestErrorsNameTheAddress(t *testing.T) {
	client, from := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/dir/templates.json":
			_, _ = w.Write([]byte(fileEntry))
		case "/moved/templates.json":
			http.Redirect(w, r, "/gone/s3cr3t?signature=s3cr3t", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}, marketplace.Limits{})
	base := from.URL
	from.Token = "s3cr3t"
	for dir, want := range map[string]string{
		"/templates.json": "its catalogue answered 404 (" + base + "/templates.json/templates.json)",
		"/moved":          "its catalogue answered 404 (" + base + "/moved/templates.json)",
		"/dir":            "its manifest_file answered 404 (" + base + "/dir/m.json)",
	} {
		from.URL = base + dir
		refuses(t, client, from, want)
	}
	shop := newClient(t, marketplace.Config{Files: map[string]fs.FS{"shop": fstest.MapFS{}}})
	refuses(t, shop, upstream("fs://shop/dir"), "its catalogue does not exist (fs://shop/dir: dir/templates.json)")
}

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
		refuses(t, client, from, "entry 0 of the catalogue is bad: ")
		if len(asked) != 1 {
			t.Errorf("%q: asked for %q", reference, asked)
		}

		opened := &openings{MapFS: fstest.MapFS{"dir/templates.json": {Data: []byte(catalog)}, "a.json": {Data: []byte(`{"secret":1}`)},
			"a": {Data: []byte(`{"secret":1}`)}}}
		client = newClient(t, marketplace.Config{Files: map[string]fs.FS{"local": opened}})
		refuses(t, client, upstream("fs://local/dir"), "entry 0 of the catalogue is bad: ")
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
