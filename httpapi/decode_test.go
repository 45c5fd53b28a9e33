package httpapi_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/body"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/inbound"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/internal/wire"
)

func TestBodiesThatAreRefusedEverywhere(t *testing.T) {
	t.Parallel()
	s, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	unchanged := admin.keeps()
	for request := range wholesome("0000000000000000") {
		for _, line := range raw("no objects", nil) {
			t.Run(request+"/"+clip(line[1]), func(t *testing.T) {
				admin.in(t).request(request, line[1]).fails(400, "invalid_request")
				s.as("session-of-plain").in(t).request(request, line[1]).fails(400, "invalid_request")
			})
		}
	}
	unchanged()
}

// keeps returns a check that nothing is made, changed or deleted meanwhile.
func (c caller) keeps() (unchanged func()) {
	before := c.everything(c)
	return func() {
		c.t.Helper()
		expect.Equal(c.t, "what there is", c.everything(c), before)
	}
}

// everything is all there is to list.
func (s *site) everything(admin caller) (all string) {
	for _, path := range []string{"/admin/template-sources", "/admin/templates", "/users/alice/api-keys", "/users/admin/api-keys", "/users/plain/api-keys"} {
		all += string(admin.get(path).is(200).body)
	}
	return all
}

func TestBodySize(t *testing.T) {
	t.Parallel()
	s, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	unchanged := admin.keeps()
	exact := `{"description": "` + strings.Repeat(" ", 1<<20-20) + `" }`
	expect.Equal(t, "exact", len(exact), 1<<20)
	large := strings.Repeat(" ", 2<<20)
	chunked := func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader(large)), -1 }
	for request := range wholesome("0000000000000000") {
		method, target, _ := strings.Cut(request, " ")
		text := func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }
		admin.request(request, large).fails(413, "body_too_large")
		admin.request(request, exact+" ").fails(413, "body_too_large")
		admin.request(request, exact).fails(400, "invalid_request")
		admin.sendWith(method, target, " ", chunked).fails(413, "body_too_large")
		s.as("session-of-plain").request(request, large).is(413)
		s.as("svcu_wrong").request(request, large).is(401)
		admin.sendWith(method, target, large, text).is(413)
	}
	unchanged()
	filled := `{"id": "big", "name": "n", "manifest": {"version": "` + strings.Repeat("v", 1<<20-60) + `"}}`
	admin.post("/admin/templates", filled).is(200)
}

// A handler of the host in front may have read the body, or may limit it.
func TestBodiesThatTheHostHasRead(t *testing.T) {
	is := is.New(t)
	s := newSite(t)
	api := httpapi.New(s.service, httpapi.Options{MaxBody: 1000})
	key, admin, gateway := s.key("alice"), s.key("admin"), s.key("admin")
	send := func(bearer, target, kind, body string, length int64, ahead func(http.Handler) http.Handler) (int, string) {
		w := recorded(ahead(api), "POST", "/ext/svc"+target, bearer, body, func(r *http.Request) {
			r.ContentLength = length
			r.Header.Set("Content-Type", kind)
		})
		return w.Code, w.Body.String()
	}
	reads := func(read func(*http.Request)) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { read(r); next.ServeHTTP(w, r) })
		}
	}
	form := reads(func(r *http.Request) { _ = r.ParseForm() })
	value := reads(func(r *http.Request) { _ = r.FormValue("_method") })
	kept := reads(func(r *http.Request) { // and put back
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	})
	all := reads(func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	const urlencoded, gone = "application/x-www-form-urlencoded", "was read before it reached this handler"
	for _, ahead := range []func(http.Handler) http.Handler{form, value, kept} {
		for _, said := range []bool{true, false} { // its length
			for body, want := range map[string]string{
				"token=" + key: `"active":true`, "x=y&token=" + key + "&z": `"active":true`, "token=x": `{"active":false}`,
				"token=x&token=x": "must be given once", "token=" + key + "&token=": "must be given once", "token=": "is required", "x=y": "is required",
				"token=x" + strings.Repeat("&a", 100): "100 parameters", "token=" + strings.Repeat("x", 1000): "larger than 1000 bytes",
				"token=x" + strings.Repeat("&a=b", 99): "must be given once",
			} {
				length := int64(-1)
				if said {
					length = int64(len(body))
				}
				_, got := send(gateway, "/introspect", urlencoded, body, length, ahead)
				oneEach := strings.HasPrefix(want, "100") && strings.Contains(got, "must be given once") // as a map, each name is one
				expect.Equal(t, body+got, oneEach || strings.Contains(got, want), true)
			}
		}
	}
	_, got := send(gateway, "/introspect", urlencoded, "token="+key, 65, all)
	is.True(strings.Contains(got, gone))
	_, got = send(gateway, "/introspect?inactive=401", "multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n"+key+"\r\n--x--\r\n", 100, value)
	is.True(strings.Contains(got, "unsupported_media_type"))
	for target, body := range map[string]string{
		"/me/api-keys": `{"scoping_policy_id":"recalls"}`, "/users": `{"id":"new"}`, "/decide": `{"queries":[]}`, "/admin/access-bundle": `{"users":[]}`,
	} {
		status, got := send(admin, target, "application/json", body, int64(len(body)), all)
		is.Equal(status, 400)
		is.True(strings.Contains(got, gone))
		status, _ = send(admin, target, "application/json", body, int64(len(body)), form) // leaves JSON alone
		is.True(status < 300)
	}
	limited := func(next http.Handler) http.Handler { return http.MaxBytesHandler(next, 100) }
	for limit, body := range map[string]string{"100": `{"description": "` + strings.Repeat("x", 100) + `"}`, "1000": `{"description": "` + strings.Repeat("x", 1000) + `"}`} {
		ahead := map[string]func(http.Handler) http.Handler{"100": limited, "1000": kept}[limit]
		for _, length := range []int64{int64(len(body)), -1} {
			status, got := send(admin, "/me/api-keys", "application/json", body, length, ahead)
			is.Equal(status, 413)
			is.True(strings.Contains(got, "larger than "+limit+" bytes"))
		}
	}
	_, got = send(gateway, "/introspect", urlencoded, "token="+strings.Repeat("x", 200), -1, func(next http.Handler) http.Handler { return limited(form(next)) })
	is.True(strings.Contains(got, "larger than 100 bytes"))
}

// wholesome are good bodies by their requests, one an endpoint.
func wholesome(key string) map[string]string {
	all := map[string]string{}
	for _, line := range raw("good bodies", names{"key": key}) {
		target, body, _ := strings.Cut(line[1], " ")
		all[line[0]+" "+target] = body
	}
	return all
}

// forWholesome is a site on which every wholesome body is accepted.
func forWholesome(t *testing.T) (*site, caller, map[string]string) {
	s, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	s.clock.tick()
	admin.patch("/admin/templates/chat", `{"tags": ["edited"]}`).is(200)
	return s, admin, wholesome(admin.post("/users/alice/api-keys", "").is(201).text("id"))
}

func (c caller) request(request, body string) answer {
	c.t.Helper()
	method, target, _ := strings.Cut(request, " ")
	return c.send(method, target, body)
}

func TestWholesomeBodies(t *testing.T) {
	t.Parallel()
	for i := range len(wholesome("")) {
		_, admin, bodies := forWholesome(t) // each by itself
		request := slices.Sorted(maps.Keys(bodies))[i]
		a := admin.request(request, " \t\r\n"+bodies[request]+"\n")
		expect.Equal(t, string(a.body), a.status <= 201, true)
	}
}

// Cut off anywhere, or with one byte made something that no JSON text holds, no good body is taken.
func TestDocumentsCutOffOrDamagedAnywhere(t *testing.T) {
	t.Parallel()
	_, admin, bodies := forWholesome(t)
	unchanged := admin.keeps()
	for request, body := range bodies {
		for i := 0; i < len(body); i += longtest.Times(5, 1) {
			if i > 0 {
				admin.request(request, body[:i]).fails(400, "invalid_request")
			}
			for _, damage := range []string{"\xff", "\x00", "\xc0", "\xed\xa0\x80"} {
				admin.request(request, body[:i]+damage+body[i+1:]).fails(400, "invalid_request")
				admin.request(request, body[:i]+damage+body[i:]).fails(400, "invalid_request")
			}
		}
	}
	unchanged()
}

// A body that is taken as something says the same when it is written again, and no character of it was replaced.
func FuzzBodies(f *testing.F) {
	for _, body := range wholesome("0000000000000000") {
		f.Add([]byte(body))
	}
	for value := range goodValues {
		f.Add([]byte(`{"id": "a", "name": "n", "manifest": {"version": "1", "x": ` + value + `}}`))
	}
	for _, value := range badValues {
		f.Add([]byte(`{"manifest": ` + value + `}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for name, read := range bodyReaders {
			first, err := read(body)
			if err != nil {
				code := svc.ErrorCode(err)
				expect.Equal(t, name+string(body), code == svc.CodeInvalid || code == "body_too_large", true)
				continue
			}
			written := must(strictjson.Marshal(first))
			again := must(strictjson.Marshal(must(read(written))))
			expect.Equal(t, name+string(body), string(again), string(written))
			const replacement = "\ufffd"
			meant := bytes.Contains(body, []byte(replacement)) || bytes.Contains(bytes.ToLower(body), []byte(`\ufffd`))
			if !meant && bytes.Contains(written, []byte(replacement)) {
				t.Fatalf("%s: a character of %q was replaced: %q", name, body, written)
			}
		}
	})
}

// bodyReaders read a document as the body of each kind there is, by name.
var bodyReaders = map[string]func(body []byte) (any, error){
	"struct{}": bodyOf[struct{}], "CreateTemplate": bodyOf[wire.CreateTemplate], "PatchTemplate": bodyOf[wire.PatchTemplate], "InstallTemplate": bodyOf[wire.InstallTemplate],
	"RollbackTemplate": bodyOf[wire.RollbackTemplate], "RegisterSource": bodyOf[wire.RegisterSource], "PatchSource": bodyOf[wire.PatchSource], "CreateAPIKey": bodyOf[wire.CreateAPIKey],
	"PatchAPIKey": bodyOf[wire.PatchAPIKey], "RotateAPIKey": bodyOf[wire.RotateAPIKey], "Simulation": bodyOf[wire.Simulation],
}

func bodyOf[T any](text []byte) (any, error) {
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	read, err := body.Read(httptest.NewRecorder(), r, httpapi.DefaultMaxBody, body.JSON)
	if err != nil {
		return nil, err
	}
	return inbound.JSON[T](read, httpapi.MaxBundleRows)
}

// goodValues are kept as they were written, white space aside. internal/strictjson has all others.
var goodValues = map[string]string{
	"-0.0": "-0.0", "1E-7": "1E-7", "1e400": "1e400", "9007199254740993": "9007199254740993", "1." + strings.Repeat("0", 300): "1." + strings.Repeat("0", 300),
	"-1e-" + strings.Repeat("9", 40): "-1e-" + strings.Repeat("9", 40), "null": "null", ` "\uD83D\uDE00\/" `: `"\uD83D\uDE00\/"`, " [ ] ": "[]", `{}`: `{}`,
	"\t\r\n {\t\r\n \"b\"\t\r\n :\t\r\n 1\t\r\n ,\t\r\n \"a\"\t\r\n :\t\r\n [\t\r\n 1\t\r\n ,\t\r\n 2\t\r\n ]\t\r\n }\t\r\n ": `{"b":1,"a":[1,2]}`,
	`{"a":1,"A":2,"10":3,"9":4,"":5,"a ":6}`: `{"a":1,"A":2,"10":3,"9":4,"":5,"a ":6}`, `{"__proto__":{"constructor":1}}`: `{"__proto__":{"constructor":1}}`,
	"{\"\u00fc\":1,\"u\u0308\":2,\"s\":1,\"\u017f\":2}": "{\"\u00fc\":1,\"u\u0308\":2,\"s\":1,\"\u017f\":2}",
}

// badValues are refused wherever they stand. internal/strictjson has all others.
var badValues = []string{
	"01", "NaN", `"a`, `"\ud800"`, "\"\xff\"", "\"a\x00\"", ``, `[1,]`, `{"a":1`, `/* c */ 1`, `{"a":1,"\u0061":2}`, `{}{}`,
}

// What is JSON is kept as it was written, however it came here; what is not is refused wherever it stands.
func TestValuesAreKeptAsWrittenOrRefused(t *testing.T) {
	t.Parallel()
	s, admin := stocked(t)
	for value, kept := range goodValues {
		t.Run("good "+value, func(t *testing.T) { s.keeps(admin.in(t), value, `{"version":"1","x":`+kept+`}`) })
	}
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	unchanged := admin.keeps()
	for _, value := range badValues {
		t.Run("bad "+value, func(t *testing.T) {
			for request := range wholesome("0000000000000000") {
				admin.in(t).request(request, `{"description": `+value+`}`).fails(400, "invalid_request")
			}
			admin.in(t).post("/admin/templates", `{"id": "a", "name": "n", "manifest": {"version": "1", "x": `+value+`}}`).fails(400, "invalid_request")
			admin.in(t).patch("/admin/templates/chat", `{"manifest": {"version": "1", "x": {"y": `+value+`}}}`).fails(400, "invalid_request")
		})
	}
	unchanged()
}

// keeps wants a value in a manifest to be the same whether the template was created, patched or installed.
func (s *site) keeps(admin caller, value, want string) {
	admin.t.Helper()
	written := `{"version": "1", "x": ` + value + `}`
	check := func(how string) {
		admin.t.Helper()
		var have struct{ Manifest json.RawMessage }
		if err := json.Unmarshal(admin.get("/admin/templates/odd").is(200).body, &have); err != nil || string(have.Manifest) != want {
			admin.t.Errorf("%s: kept %q, want %q: %v", how, have.Manifest, want, err)
		}
		expect.Holds(admin.t, strings.Count(string(admin.get("/admin/templates").is(200).body), want) == 1, how)
	}
	admin.post("/admin/templates", `{"id": "odd", "name": "n", "manifest": `+written+`}`).is(200)
	check("created")
	admin.patch("/admin/templates/odd", `{"manifest": {"version": "2"}}`).is(200)
	admin.patch("/admin/templates/odd", `{"manifest": `+written+`}`).is(200)
	check("patched")
	if versions := admin.get("/admin/templates/odd/history").is(200).body; strings.Count(string(versions), want) != 1 {
		admin.t.Errorf("the history has it changed: %s", versions)
	}
	admin.delete("/admin/templates/odd").is(204)
	s.market.offer("odd", "n", want)
	defer s.market.withdraw("odd")
	admin.post("/admin/templates/odd/install", `{"source_name": "acme"}`).is(200)
	check("installed")
	if a := admin.get("/admin/templates/odd/check-update").is(200); a.value()["has_update"] != false {
		admin.t.Errorf("it is not equal to itself: %s", a.body)
	}
	admin.delete("/admin/templates/odd").is(204)
}

// badIDs are escaped path segments that are no id, however they are spelled.
var badIDs = []string{
	"a%2Fb", "%2F", "a%5Cb", `a\b`, "%00", "a%00", "a%0Ab", "%7F", "%C2%85", ".", "..", "%2e", "%2E%2e", ".%2e",
	"%ff", "a%c3", "%ed%a0%80", "%c0%af",
	"%E2%80%AE", "a%E2%80%8Fb", "%D8%9C", "%E2%81%A6a%E2%81%A9", "%E2%80%8B", "%EF%BB%BFa", "%C2%AD",
	strings.Repeat("a", 129), strings.Repeat("%C3%BC", 129),
}

// idPaths are the paths of all routes with each of their ids in turn made a bad one, and the name of that parameter.
func idPaths(do func(route httpapi.Route, target, parameter string)) {
	fill := strings.NewReplacer("{mine}", "of-plain", "{key}", "0000000000000000")
	for _, route := range httpapi.Routes() {
		parts := strings.Split(route.Path, "/")
		if row, there := accessMatrix[route.Method+" "+route.Path]; there {
			path, _, _ := strings.Cut(fill.Replace(row.target), "?")
			parts = strings.Split(path, "/")
		}
		for i, part := range strings.Split(route.Path, "/") {
			if !strings.HasPrefix(part, "{") {
				continue
			}
			parameter := strings.Trim(part, "{}")
			foreign := slices.Contains([]string{"bank_id", "provider", "sender_id"}, parameter) // they may have slashes
			for _, id := range badIDs {
				if foreign && (strings.ContainsAny(id, `.\`) || slices.Contains([]string{"a%2Fb", "%2F", "a%5Cb", "%2e", "%2E%2e"}, id)) {
					continue
				}
				spoiled := slices.Clone(parts)
				spoiled[i] = id
				do(route, strings.Join(spoiled, "/"), parameter)
			}
		}
	}
}

// Ids that are none name their parameter, on each route; outside of the administration of access before rights.
func TestIDsInPaths(t *testing.T) {
	t.Parallel()
	s := withRows(t)
	callers := []caller{s.admin(), s.as("session-of-plain")}
	example := strings.NewReplacer("{template_id}", "chat", "{name}", "acme", "{user_id}", "alice", "{key_id}", "0000000000000000")
	tried := 0
	idPaths(func(route httpapi.Route, target, parameter string) {
		tried++
		name := route.Method + " " + route.Path
		half := route.Method + " " + strings.TrimPrefix(strings.TrimPrefix(route.Path, "/admin"), "/me")
		target = example.Replace(target)
		row, ofAccess := accessMatrix[name]
		body := cmp.Or(row.body, bodies[half])
		for i, by := range callers {
			if i == 0 || !ofAccess {
				by.send(route.Method, target, body).refuses(parameter)
			}
		}
		s.as("").send(route.Method, target, body).is(401)
	})
	expect.Holds(t, tried >= 2000, tried)
	callers[0].delete("/users/a%2Fb/api-keys/a%2Fb").refuses("user_id", "key_id")
}
