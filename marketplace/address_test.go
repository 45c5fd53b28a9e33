package marketplace_test

import (
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/marketplace"
)

func TestCheckURL(t *testing.T) {
	client := newClient(t, marketplace.Config{
		AllowOrigins: []string{"http://127.0.0.1:9999", "HTTP://Localhost:8080/", "https://[::1]", "http://git.corp.example",
			"https://mail.example:25", "http://127.0.0.1:6000"},
		AllowCIDRs: prefixes("10.1.0.0/16", "fd00:1::/32"),
		Files:      map[string]fs.FS{"local": fstest.MapFS{}},
	})
	for want, addresses := range sections("addresses.txt") {
		for _, address := range addresses {
			err := client.CheckURL(address)
			accepted := want == "accepted"
			expect.Holds(t, accepted == (err == nil) && (accepted || strings.Contains(err.Error(), want)), address, err, want)
		}
	}
}

func TestLoopbackNamesFollowCIDRs(t *testing.T) {
	client := newClient(t, marketplace.Config{AllowCIDRs: prefixes("127.0.0.0/8")})
	expect.Equal(t, "localhost", client.CheckURL("https://localhost:8443/x"), nil)
}

func TestSourceURLs(t *testing.T) {
	client := newClient(t, marketplace.Config{})
	for _, line := range sections("urls.txt")[""] {
		address, want, _ := strings.Cut(line, " -> ")
		expect.Equal(t, address, client.URL(address, "t.json"), want)
	}
	expect.Equal(t, "escapes", client.URL("https://example.com/a", "b c/d?e.json"), "https://example.com/a/b%20c/d%3Fe.json")
}

func TestConfined(t *testing.T) {
	for reference, want := range map[string]string{
		"a.json": "a.json", "a/b/c.json": "a/b/c.json", "./a.json": "a.json", "a%20b.json": "a b.json", "a b.json": "a b.json",
		"%61.json": "a.json", "..a/b..json": "..a/b..json", "a/b:c.json": "a/b:c.json", "ü.json": "ü.json", "a;v=1.json": "a;v=1.json",
		"日本語/チャット.json": "日本語/チャット.json", "हिन्दी٣.json": "हिन्दी٣.json", "a–b—c’d“e”（f）.json": "a–b—c’d“e”（f）.json", "%E6%97%A5/%C3%BC.json": "日/ü.json",
		"e\u0301.json": "e\u0301.json", "a~b$c+d=e^f|g.json": "a~b$c+d=e^f|g.json",
		strings.Repeat("é", 1024): strings.Repeat("é", 1024), // 2,048 bytes
	} {
		got, problem := marketplace.Confined(reference)
		expect.Equal(t, reference, got+problem, want)
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
var traversals = sections("traversals.txt")

// escapes are all traversals, and references that are too long.
func escapes() []string {
	all := []string{strings.Repeat("a", 2049), strings.Repeat("é", 1025)}
	for _, references := range traversals {
		all = append(all, references...)
	}
	slices.Sort(all)
	return all
}

// No reference names a file outside its source. The client sends no request for a refused one.
func TestTraversals(t *testing.T) {
	for _, reference := range escapes() {
		got, problem := marketplace.Confined(reference)
		expect.Equal(t, reference, problem != "" && got == "", true)
		if !utf8.ValidString(reference) {
			continue // the catalogue would be bad as a whole
		}
		catalog := `{"templates":[{"id":"a","name":"A","manifest_file":` + quote(reference) + `}]}`
		var asked []string
		files := http.FileServerFS(fstest.MapFS{"dir/templates.json": {Data: []byte(catalog)}})
		client, from := serve(t, recorded(&asked, files.ServeHTTP), marketplace.Limits{})
		from.URL += "/dir"
		refuses(t, client, from, "entry 0 of the catalogue is bad: ")
		expect.Equal(t, asked, len(asked), 1)
		opened := &openings{MapFS: fstest.MapFS{"dir/templates.json": {Data: []byte(catalog)}, "a.json": {Data: []byte(`{"secret":1}`)},
			"a": {Data: []byte(`{"secret":1}`)}}}
		client = newClient(t, marketplace.Config{Files: map[string]fs.FS{"local": opened}})
		refuses(t, client, upstream("fs://local/dir"), "entry 0 of the catalogue is bad: ")
		expect.Equal(t, reference, opened.names, []string{"dir/templates.json"})
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
			refused := client.CheckURL("https://one.example/base/"+reference) != nil
			expect.Equal(t, what+reference, refused || slices.Contains(harmless, reference), true)
		}
	}
}
