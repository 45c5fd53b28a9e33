package adminpage

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
)

//go:embed html style.css page.js
var files embed.FS

// What the first Handler makes of the files: a program that serves no pages starts without.
var (
	parsed        sync.Once
	style, script asset // whose addresses change with their content
	templates     map[string]*template.Template
)

func parse() {
	style = newAsset("style.css", "text/css; charset=utf-8")
	script = newAsset("page.js", "text/javascript; charset=utf-8")
	templates = parseTemplates()
}

// asset is a file that browsers keep.
type asset struct {
	path, kind    string
	plain, zipped []byte
}

func newAsset(name, kind string) asset {
	plain, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the file is part of the package
	}
	base, end, _ := strings.Cut(name, ".")
	return asset{base + "-" + digest(string(plain))[:12] + "." + end, kind, plain, zip(plain)}
}

// digest returns the SHA-256 of a text in hexadecimal digits.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func zip(plain []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(plain) // a Buffer takes everything
	_ = w.Close()
	return out.Bytes()
}

// sendAsset answers a request for the style or the script; false: the path is another one.
func (h *Handler) sendAsset(w http.ResponseWriter, r *http.Request, path string) bool {
	for _, a := range []asset{style, script} {
		if path != "/"+a.path || r.Method != http.MethodGet && r.Method != http.MethodHead {
			continue
		}
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		send(w, r, http.StatusOK, a.kind, a.plain, a.zipped)
		return true
	}
	return false
}

func takesGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// send answers with a body, zipped if there is a zipped one and the client takes it.
func send(w http.ResponseWriter, r *http.Request, status int, kind string, plain, zipped []byte) {
	header := w.Header()
	header.Set("Content-Type", kind)
	header.Set("Vary", "Accept-Encoding")
	body := plain
	if zipped != nil && takesGzip(r) {
		header.Set("Content-Encoding", "gzip")
		body = zipped
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

// view is what a template shows. A handler sets the first fields, render the others.
type view struct {
	Status   int    // of the answer; 0: 200
	Template string // the file in html/ that defines "main"
	Title    string // the heading; it begins with the name of the page
	Done     string // what was done, in words; "": nothing
	Alerts   []string
	Secret   bool // the page shows a secret: it is not compressed
	Refresh  bool // the page shows what is under way: it loads itself again
	Failed   bool // the page has its own alerts
	Body     any  // the values of the page's own template

	Brand, Page, Root, Style, Script string
	Links                            []link
	Who                              svc.Identity
	OwnSession, ReadOnly             bool

	wrongInputs map[string]string
}

// DoneWord returns the first word of what was done, for the title.
func (v view) DoneWord() string {
	word, _, _ := strings.Cut(v.Done, ".")
	return word
}

// link is an entry of the navigation.
type link struct{ Page, Address string }

func parseTemplates() map[string]*template.Template {
	layout := template.Must(template.New("layout.html").Funcs(functions).ParseFS(
		files, "html/layout.html", "html/parts.html",
	))
	all := map[string]*template.Template{}
	names, err := files.ReadDir("html")
	if err != nil {
		panic(err) // the folder is part of the package
	}
	for _, file := range names {
		name := strings.TrimSuffix(file.Name(), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		own := template.Must(layout.Clone())
		all[name] = template.Must(own.ParseFS(files, "html/"+file.Name()))
	}
	return all
}

// functions are the functions of the templates.
var functions = template.FuncMap{
	"time": func(t time.Time) template.HTML {
		if t.IsZero() {
			return "never"
		}
		t = t.UTC()
		return template.HTML(`<time datetime="` + t.Format(time.RFC3339Nano) + `">` +
			t.Format("2006-01-02 15:04 UTC") + `</time>`)
	},
	"now":    time.Now,
	"escape": url.PathEscape,
	"cut":    cut,
	"brief":  func(text string) string { return shorten(text, maxField) },
	"first":  func(ids []string) []string { ids, _ = head(ids, maxShown); return ids },
	"rest":   func(ids []string) int { return max(0, len(ids)-maxShown) },
	"add":    func(a, b int) int { return a + b },
	"dict":   dict,
	"short": func(revision string) string {
		return shorten(strings.TrimPrefix(revision, "sha256:"), 12)
	},
	"indent": func(raw json.RawMessage) string { return cut(indented(raw)) },
	"thousands": func(n int) string {
		text := strconv.Itoa(n)
		for at := len(text) - 3; at > 0; at -= 3 {
			text = text[:at] + "," + text[at:]
		}
		return text
	},
	"place":      placeOf,
	"placeField": placeField,
	"json":       func(raw json.RawMessage) string { return string(raw) },
	"words": func(kind event.TargetKind) string {
		return strings.ReplaceAll(string(kind), "_", " ")
	},
}

// dict returns the values of a template that needs several: names and values in turn.
func dict(pairs ...any) map[string]any {
	all := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i].(string)] = pairs[i+1]
	}
	return all
}

// render answers with a page, and returns nil.
func (v *visit) render(page view) error {
	page.Brand, page.Page, page.Root = v.h.options.Title, v.page, v.h.root(v.r)
	if v.h.tenants != nil {
		// Tabs of two tenants differ. A tenant that nobody has made looks like others.
		page.Brand += " · " + cut(v.h.prefix.TenantOf(v.r, v.h.options.Tenant))
	}
	page.Style, page.Script, page.wrongInputs = style.path, script.path, v.wrongInputs
	page.ReadOnly, page.Who = v.h.options.ReadOnly, v.by.Identity()
	page.OwnSession = v.in.bearer != ""
	if v.by.ID != "" {
		page.Links, _ = v.navigation() // the page shows what failed
	}
	var out bytes.Buffer
	if err := templates[page.Template].ExecuteTemplate(&out, "layout.html", page); err != nil {
		panic(err) // a fault of the template
	}
	shown := reveal(out.Bytes())
	var zipped []byte
	if !page.Secret && takesGzip(v.r) {
		zipped = zip(shown)
	}
	status := cmp.Or(page.Status, http.StatusOK)
	send(v.w, v.r, status, "text/html; charset=utf-8", shown, zipped)
	return nil
}

// pages are the pages in the order of the navigation, each with the right that it needs.
var pages = []struct{ name, address, action string }{
	{"Why", "why", action.UsersRead},
	{"Who can", "who-can", action.UsersRead},
	{"Access", "access/users", action.UsersRead},
	{"Templates", "templates", action.TemplateAdmin},
	{"Sources", "sources", action.TemplateAdmin},
	{"Keys", "keys", action.UsersRead},
	{"Audit", "audit", action.AuditRead},
}

// navigation returns the pages that the caller may see.
func (v *visit) navigation() (links []link, err error) {
	for _, p := range pages {
		may, err := v.may(p.action)
		if err != nil {
			return nil, err
		}
		may = may && (p.address != "audit" || v.h.service.Audit.Keeps())
		if may || p.address == "keys" && v.hasOwnKeys() {
			links = append(links, link{p.name, p.address})
		}
	}
	return links, nil
}
