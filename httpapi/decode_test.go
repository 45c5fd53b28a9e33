package httpapi_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// bodied are all endpoints that take a body, on a stocked site.
var bodied = []struct{ method, target string }{
	{"POST", "/admin/template-sources"},
	{"POST", "/admin/templates"},
	{"PATCH", "/admin/templates/chat"},
	{"POST", "/admin/templates/chat/install"},
	{"POST", "/admin/templates/chat/update"},
	{"POST", "/users/alice/api-keys"},
	{"POST", "/me/api-keys"},
	{"PATCH", "/users/alice/api-keys/0000000000000000"},
	{"PATCH", "/me/api-keys/0000000000000000"},
	{"POST", "/users/alice/api-keys/0000000000000000/rotate"},
	{"POST", "/me/api-keys/0000000000000000/rotate"},
	{"POST", "/debug/simulate"},
	{"POST", "/decide"},
}

// notObjects are bodies that no endpoint takes.
var notObjects = map[string]string{
	"null":               `null`,
	"array":              `[]`,
	"array of object":    `[{}]`,
	"number":             `1`,
	"string":             `"{}"`,
	"boolean":            `true`,
	"white space":        " \n",
	"trailing comma":     `{"description": "a",}`,
	"two values":         `{}{}`,
	"trailing text":      `{} x`,
	"trailing NUL":       "{}\x00",
	"cut off":            `{"description": "a`,
	"single quotes":      `{'description': 'a'}`,
	"comment":            `{/**/}`,
	"byte order mark":    "\ufeff{}",
	"UTF-16":             "\xfe\xff\x00{\x00}",
	"control in string":  "{\"description\": \"a\nb\"}",
	"bad escape":         `{"description": "\x41"}`,
	"bad UTF-8":          "{\"description\": \"\xff\"}",
	"bad UTF-8 in a key": "{\"\xff\": 1}",
	"overlong UTF-8":     "{\"description\": \"\xc0\xaf\"}",
	"UTF-8 surrogate":    "{\"description\": \"\xed\xa0\x80\"}",
	"lone surrogate":     `{"description": "\ud800"}`,
	"low surrogate":      `{"description": "\udc00x"}`,
	"surrogates swapped": `{"description": "\udc00\ud800"}`,
	"number NaN":         `{"description": NaN}`,
	"number 01":          `{"description": 01}`,
	"unknown key":        `{"unknown": null}`,
	"empty key":          `{"": 1}`,
	"escaped duplicate":  `{"description": "a", "descri\u0070tion": "b"}`,
	"duplicate key":      `{"description": "a", "description": "a"}`,
	"duplicate null":     `{"description": null, "description": null}`,
	"variant of case":    `{"Description": "a"}`,
	"variant by folding": `{"de\u017fcription": "a"}`,
	"depth 10,000":       strings.Repeat(`[`, 10_000),
	"depth 10,000 whole": `{"manifest": ` + strings.Repeat(`[`, 9_999) + strings.Repeat(`]`, 9_999) + `}`,
	"depth 400,000":      strings.Repeat(`{"a":`, 100_000),
}

func TestBodiesThatAreRefusedEverywhere(t *testing.T) {
	s, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	before := s.everything(admin)
	for _, e := range bodied {
		for name, body := range notObjects {
			t.Run(e.method+e.target+"/"+name, func(t *testing.T) {
				admin.in(t).send(e.method, e.target, body).fails(400, "invalid_request")
				s.as("session-of-plain").in(t).send(e.method, e.target, body).fails(400, "invalid_request")
			})
		}
	}
	if after := s.everything(admin); after != before {
		t.Errorf("a 400 changed something:\nbefore %s\nafter %s", before, after)
	}
}

// everything is all there is to list.
func (s *site) everything(admin caller) string {
	var all bytes.Buffer
	for _, path := range []string{"/admin/template-sources", "/admin/templates", "/users/alice/api-keys", "/users/admin/api-keys", "/users/plain/api-keys"} {
		all.Write(admin.get(path).is(200).body)
	}
	return all.String()
}

func TestDuplicateKeysAnywhere(t *testing.T) {
	admin := newSite(t).admin()
	for _, manifest := range []string{
		`{"version": "1", "version": "1"}`, `{"version": "1", "a": {"b": 1, "b": 1}}`, `{"version": "1", "a": [{"b": 1, "\u0062": 1}]}`,
	} {
		admin.post("/admin/templates", `{"id": "a", "name": "a", "manifest": `+manifest+`}`).fails(400, "invalid_request")
	}
	admin.post("/admin/templates", `{"id": "a", "name": "a", "name": "b", "manifest": {"version": "1"}}`).fails(400, "invalid_request")
	admin.post("/admin/templates", `{"id": "a", "name": "a", "manifest": {"version": "1", "Version": "2", "a": {"b": 1, "B": 1}}}`).is(200)
}

func TestBodySize(t *testing.T) {
	s, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	before := s.everything(admin)
	exact := `{"description": "` + strings.Repeat(" ", 1<<20-20) + `" }`
	if len(exact) != 1<<20 {
		t.Fatal(len(exact))
	}
	large := strings.Repeat(" ", 2<<20)
	chunked := func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader(large)), -1 }
	for _, e := range bodied {
		admin.send(e.method, e.target, large).fails(413, "body_too_large")
		admin.send(e.method, e.target, exact+" ").fails(413, "body_too_large")
		admin.send(e.method, e.target, exact).fails(400, "invalid_request")
		admin.sendWith(e.method, e.target, " ", chunked).fails(413, "body_too_large")
		s.as("session-of-plain").send(e.method, e.target, large).is(413)
		s.as("svcu_wrong").send(e.method, e.target, large).is(401)
		admin.sendWith(e.method, e.target, large, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }).is(413)
	}
	if s.everything(admin) != before {
		t.Error("a 413 changed something")
	}
	filled := `{"id": "big", "name": "n", "manifest": {"version": "` + strings.Repeat("v", 1<<20-60) + `"}}`
	admin.post("/admin/templates", filled).is(200)
}

func TestMaxBody(t *testing.T) {
	admin := newSite(t, func(u *setup) { u.MaxBody = 20 }).admin()
	admin.post("/me/api-keys", `{"description":"12"}`).is(201)
	admin.post("/me/api-keys", `{"description":"123"}`).fails(413, "body_too_large")
}

func TestNesting(t *testing.T) {
	admin := newSite(t).admin()
	nested := func(id string, levels int) string { // the body is one level, the manifest another
		return `{"id": "` + id + `", "name": "n", "manifest": {"version": "1", "a": ` + strings.Repeat("[", levels-2) + strings.Repeat("]", levels-2) + `}}`
	}
	admin.post("/admin/templates", nested("a", 64)).is(200)
	admin.post("/admin/templates", nested("b", 65)).fails(400, "invalid_request")
}

func TestContentType(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	for kind, status := range map[string]int{
		"application/json":                     201,
		"Application/JSON":                     201,
		"application/json; charset=utf-8":      201,
		`application/json;charset="UTF-8"`:     201,
		"":                                     415,
		"text/plain":                           415,
		"text/json":                            415,
		"application/x-www-form-urlencoded":    415,
		"multipart/form-data; boundary=x":      415,
		"application/jsonp":                    415,
		"application/json, application/json":   415,
		"application/json; charset=iso-8859-1": 415,
		"application/json; charset=utf-16":     415,
		"json":                                 415,
		"*/*":                                  415,
		"application/octet-stream":             415,
		"application/xml":                      415,
		"application/json\u00a0; charset=utf-8; more=\"": 415,
	} {
		set := func(r *http.Request) { r.Header.Set("Content-Type", kind) }
		a := admin.sendWith("POST", "/me/api-keys", `{"description": "d"}`, set)
		if status == 415 {
			a.fails(415, "unsupported_media_type")
			admin.sendWith("POST", "/admin/templates", `{`, set).fails(415, "unsupported_media_type")
			admin.sendWith("PATCH", "/admin/templates/nothing", `{}`, set).is(415)
			s.as("session-of-plain").sendWith("POST", "/admin/templates", `{}`, set).is(415)
			s.as("wrong").sendWith("POST", "/admin/templates", `{}`, set).is(401)
		} else {
			a.is(status)
		}
		admin.sendWith("POST", "/me/api-keys", "", set).is(201)
		admin.sendWith("GET", "/me/api-keys", "", set).is(200)
	}
	admin.sendWith("POST", "/me/api-keys", `{}`, func(r *http.Request) { r.Header["Content-Type"] = []string{"application/json", "text/plain"} }).is(415)
	admin.sendWith("POST", "/me/api-keys", `{}`, func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }).is(415)
	admin.sendWith("POST", "/me/api-keys", "", func(r *http.Request) { r.ContentLength = -1; r.Body = io.NopCloser(strings.NewReader("")) }).is(201)
}

func TestCreateTemplateRefused(t *testing.T) {
	admin := newSite(t).admin()
	const good = `"id": "a", "name": "n", "manifest": {"version": "1"}`
	text := func(n int) string { return `"` + strings.Repeat("ü", n) + `"` }
	list := func(n int) string { return `["` + strings.Repeat(`x","`, n-1) + `x"]` }
	for body, places := range map[string][]string{
		``:   {"/id", "/manifest", "/name"},
		`{}`: {"/id", "/manifest", "/name"},
		`{"name": "n", "manifest": {"version": "1"}}`:              {"/id"},
		`{"id": null, "name": "n", "manifest": {"version": "1"}}`:  {"/id"},
		`{"id": 1, "name": "n", "manifest": {"version": "1"}}`:     {"/id"},
		`{"id": "a", "manifest": {"version": "1"}}`:                {"/name"},
		`{"id": "a", "name": "", "manifest": {"version": "1"}}`:    {"/name"},
		`{"id": "a", "name": null, "manifest": {"version": "1"}}`:  {"/name"},
		`{"id": "a", "name": ["n"], "manifest": {"version": "1"}}`: {"/name"},
		`{"id": "a", "name": "n"}`:                                 {"/manifest"},
		`{"id": "a", "name": "n", "manifest": null}`:               {"/manifest"},
		`{"id": "a", "name": "n", "manifest": "{}"}`:               {"/manifest"},
		`{"id": "a", "name": "n", "manifest": []}`:                 {"/manifest"},
		`{"id": "a", "name": "n", "manifest": 1}`:                  {"/manifest"},
		`{"id": "a", "name": "n", "manifest": {}}`:                 {"/manifest/version"},
		`{"id": "a", "name": "n", "manifest": {"Version": "1"}}`:   {"/manifest/version"},
		`{"id": "a", "name": "n", "manifest": {"version": 1}}`:     {"/manifest/version"},
		`{"id": "a", "name": "n", "manifest": {"version": ""}}`:    {"/manifest/version"},
		`{"id": "a", "name": "n", "manifest": {"version": null}}`:  {"/manifest/version"},
		`{"id": "a", "name": "n", "manifest": {"version": ["1"]}}`: {"/manifest/version"},
		`{"id": "a/b", "name": "n", "manifest": {"version": "1"}}`: {"/id"},
		`{` + good + `, "description": 1}`:                         {"/description"},
		`{` + good + `, "description": "\u0000"}`:                  {"/description"},
		`{` + good + `, "description": ` + text(4097) + `}`:        {"/description"},
		`{` + good + `, "category": ["c"]}`:                        {"/category"},
		`{` + good + `, "category": ` + text(129) + `}`:            {"/category"},
		`{` + good + `, "tags": "t"}`:                              {"/tags"},
		`{` + good + `, "tags": {}}`:                               {"/tags"},
		`{` + good + `, "tags": ["t", 1]}`:                         {"/tags/1"},
		`{` + good + `, "tags": [null]}`:                           {"/tags/0"},
		`{` + good + `, "tags": ["t", ` + text(129) + `]}`:         {"/tags/1"},
		`{` + good + `, "tags": ` + list(101) + `}`:                {"/tags"},
		`{` + good + `, "integrations": ` + list(101) + `}`:        {"/integrations"},
		`{` + good + `, "integrations": [` + text(129) + `]}`:      {"/integrations/0"},
		`{` + good + `, "scope": "personal"}`:                      {"/scope"},
		`{` + good + `, "source_name": null}`:                      {"/source_name"},
		`{` + good + `, "Tags": []}`:                               {"/Tags"},
		`{` + good + `, "a/b~c": 1}`:                               {"/a~1b~0c"},
	} {
		admin.post("/admin/templates", body).refuses(places...)
	}
	admin.get("/admin/templates").is(200).json(`{"templates": []}`)
	admin.post("/admin/templates", `{`+good+`, "description": `+text(4096)+`, "category": `+text(128)+`, "tags": `+list(100)+`, "integrations": [`+text(128)+`]}`).is(200)
}

func TestCreateKeyRefused(t *testing.T) {
	for path, by := range keysOf(newSite(t)) {
		before := string(by.get(path).is(200).body)
		for _, body := range []string{
			`{"description": 1}`, `{"description": ["d"]}`, `{"description": "\u0000"}`, `{"description": "` + strings.Repeat("d", 4097) + `"}`,
		} {
			by.post(path, body).refuses("/description")
		}
		by.post(path, `{"name": "d"}`).refuses("/name")
		by.get(path).is(200).json(before)
		by.post(path, `{"description": "`+strings.Repeat("ü", 4096)+`"}`).is(201)
	}
}
