package marketplace_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/marketplace"
)

func newClient(t testing.TB, config marketplace.Config) *marketplace.Client {
	t.Helper()
	client := must(marketplace.New(config))
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// serve starts a server. It returns a client that may reach the server, and its source.
func serve(t testing.TB, handler http.HandlerFunc, limits marketplace.Limits) (*marketplace.Client, svc.Upstream) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client := newClient(t, marketplace.Config{AllowOrigins: []string{server.URL}, Limits: limits})
	return client, upstream(server.URL)
}

func upstream(url string) svc.Upstream {
	return svc.Upstream{Source: svc.SourceKey{Scope: svc.ScopeServer, Name: "acme"}, URL: url}
}

func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
}

// sections reads a file of testdata: texts, one a line, by the title above them. A text in quotes is as in Go.
func sections(file string) map[string][]string {
	all, title := map[string][]string{}, ""
	for line := range strings.Lines(string(must(os.ReadFile("testdata/" + file)))) {
		line = strings.TrimSuffix(line, "\n")
		if name, is := strings.CutPrefix(line, "== "); is {
			title = name
		} else if line != "" && line[0] != '#' {
			if line[0] == '"' {
				line = must(strconv.Unquote(line))
			}
			all[title] = append(all[title], line)
		}
	}
	return all
}

// namedAddress matches the address at the end of a message.
var namedAddress = regexp.MustCompile(` \(\S+/[^/ ]+\)$`)

func wantError(t testing.TB, err error, code svc.Code, parts ...string) {
	t.Helper()
	e, ok := errors.AsType[*svc.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("got %v, want code %s", err, code)
	}
	for _, part := range append(parts, `source "acme"`) {
		expect.Equal(t, e.Message+" says "+part, strings.Contains(e.Message, part), true)
	}
	message := namedAddress.ReplaceAllString(e.Message, "") // the caller has registered that one
	for _, secret := range []string{"127.0.0.1", "s3cr3t", "dial tcp"} {
		expect.Equal(t, e.Message, strings.Contains(message, secret), false)
	}
}

// refuses fails unless the template "a" of a source cannot be had, with all these parts in the message.
func refuses(t testing.TB, client *marketplace.Client, from svc.Upstream, parts ...string) error {
	t.Helper()
	_, err := client.Template(t.Context(), from, "a")
	wantError(t, err, svc.CodeSourceFailed, parts...)
	return err
}

const twoEntries = `{"$schema": "ignored", "templates": [
	{"id": "inline", "name": "In line", "description": "", "category": null, "tags": ["b", "a", "b"],
	 "manifest": {"version": "1", "n": 1.10, "big": 12345678901234567890, "a": "\u00e9"}, "more": [{}]},
	{"id": "file", "name": "File", "category": "c", "integrations": ["x"], "manifest": null, "manifest_file": "./m/the%20file.json"}
]}`

func TestTemplateFromServer(t *testing.T) {
	is := is.New(t)
	client, from := serve(t, http.FileServerFS(fstest.MapFS{
		"dir/templates.json":  {Data: []byte(twoEntries)},
		"dir/m/the file.json": {Data: []byte("{ \"version\": \"2\",\n \"x\": 1e400 }")},
	}).ServeHTTP, marketplace.Limits{})
	from.URL += "/dir//"
	is.NoErr(client.CheckURL(from.URL))

	content := must(client.Template(t.Context(), from, "inline"))
	is.Equal(content, svc.Content{Name: "In line", Description: new(""), Integrations: []string{}, Tags: []string{"b", "a", "b"},
		Manifest: json.RawMessage(`{"version":"1","n":1.10,"big":12345678901234567890,"a":"\u00e9"}`)})

	content = must(client.Template(t.Context(), from, "file"))
	is.Equal(content, svc.Content{Name: "File", Category: new("c"), Integrations: []string{"x"}, Tags: []string{},
		Manifest: json.RawMessage(`{"version":"2","x":1e400}`)})

	wantError(t, errorOf(client.Template(t.Context(), from, "other")), svc.CodeNotFound, `no such template`)
	wantError(t, errorOf(client.Template(t.Context(), from, "")), svc.CodeNotFound)

	catalog := must(client.Catalog(t.Context(), from, 0))
	is.Equal(len(catalog.Entries), 2)
	is.Equal(catalog.Entries[1].ManifestFile, "m/the file.json")
	is.Equal(catalog.Entries[1].Content.Manifest, nil)
}

func TestTemplateFromFiles(t *testing.T) {
	is := is.New(t)
	files := fstest.MapFS{
		"dir/templates.json":  {Data: []byte(twoEntries)},
		"dir/m/the file.json": {Data: []byte(`{"version":"2"}`)},
		"bad/templates.json":  {Data: []byte(`{"templates":[{"id":"a","name":"A","manifest_file":"gone.json"},{"id":"b","name":"B","manifest_file":"list.json"},{"id":"c","name":"C","manifest_file":"d"}]}`)},
		"bad/list.json":       {Data: []byte(`[]`)},
		"bad/d":               {Mode: fs.ModeDir},
		"big/templates.json":  {Data: []byte(strings.Repeat(" ", 2000))},
		"unreadable":          {Data: []byte("file, not a directory")},
	}
	client := newClient(t, marketplace.Config{Files: map[string]fs.FS{"Lib-1.2": files, "broken": brokenFS{}}, Limits: marketplace.Limits{Catalog: 1000}})

	content := must(client.Template(t.Context(), upstream("fs://Lib-1.2/dir/"), "file"))
	is.Equal(string(content.Manifest), `{"version":"2"}`)

	for _, test := range []struct{ url, id, want string }{
		{"fs://Lib-1.2", "a", "its catalogue does not exist"},
		{"fs://Lib-1.2/bad", "a", "entry 0 of the catalogue is bad: its manifest_file does not exist"},
		{"fs://Lib-1.2/bad", "b", "entry 1 of the catalogue is bad: its manifest_file must be a JSON object"},
		{"fs://Lib-1.2/bad", "c", "entry 2 of the catalogue is bad: its manifest_file cannot be read"},
		{"fs://Lib-1.2/big", "a", "its catalogue is larger than 1000 bytes"},
		{"fs://broken", "a", "its catalogue cannot be read"},
		{"fs://gone", "a", "its address names a file system that this server does not have"},
	} {
		wantError(t, errorOf(client.Template(t.Context(), upstream(test.url), test.id)), svc.CodeSourceFailed, test.want)
	}

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := client.Template(cancelled, upstream("fs://Lib-1.2/dir"), "file")
	is.True(errors.Is(err, context.Canceled))
	is.Equal(svc.ErrorCode(err), svc.CodeInternal)
}

// brokenFS has a file that Stat finds and Open refuses.
type brokenFS struct{}

func (brokenFS) Open(string) (fs.File, error) { return nil, fs.ErrPermission }
func (brokenFS) Stat(string) (fs.FileInfo, error) {
	return fstest.MapFS{"f": {}}.Stat("f")
}

func TestNewNamesTheWrongField(t *testing.T) {
	for want, config := range map[string]marketplace.Config{
		"AllowOrigins[1]":      {AllowOrigins: []string{"https://ok.example", "example.com"}},
		"AllowOrigins[0]":      {AllowOrigins: []string{"http://127.0.0.1:80/path"}},
		"AllowOrigins[0] ":     {AllowOrigins: []string{"fs://x"}},
		"AllowOrigins[0] must": {AllowOrigins: []string{"http://127.1"}},
		"AllowCIDRs[0]":        {AllowCIDRs: make([]netip.Prefix, 1)},
		"AllowCIDRs[0] ":       {AllowCIDRs: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104)}},
		`Files[""]`:            {Files: map[string]fs.FS{"": fstest.MapFS{}}},
		`Files["a/b"]`:         {Files: map[string]fs.FS{"a/b": fstest.MapFS{}}},
		`Files["nil"]`:         {Files: map[string]fs.FS{"nil": nil}},
		"UserAgent":            {UserAgent: "a\r\nb"},
		"Limits.Catalog":       {Limits: marketplace.Limits{Catalog: -1}},
		"Limits.Entries":       {Limits: marketplace.Limits{Entries: -1}},
		"Limits.Manifest":      {Limits: marketplace.Limits{Manifest: -1}},
		"Limits.HeaderTimeout": {Limits: marketplace.Limits{HeaderTimeout: -1}},
		"Limits.Timeout":       {Limits: marketplace.Limits{Timeout: -1}},
	} {
		client, err := marketplace.New(config)
		expect.Holds(t, err != nil && client == nil && strings.Contains(err.Error(), "marketplace: Config."+want), err, want)
	}
}

func TestNoProxy(t *testing.T) {
	for _, transport := range newClient(t, marketplace.Config{}).Transports() {
		expect.Holds(t, transport.Proxy == nil && !transport.TLSClientConfig.InsecureSkipVerify, "no proxy, and good certificates only")
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func errorOf[T any](_ T, err error) error { return err }
