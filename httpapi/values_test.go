package httpapi_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
)

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
