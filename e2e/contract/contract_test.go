package contract_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/extsvc/svc/e2e/contract"
)

const (
	row     = `{"name": "a", "url": "u", "scope": "server", "owner": null, "has_auth": true, "description": null, `
	then    = `"created_at": "2026-01-02T03:04:05.000000Z", "updated_at": "2026-01-02T03:04:05.000000Z"}`
	keys    = `[{"id": "3kP0xUaB7cJ5t0Qz", "api_key_prefix": "svcu_3kP0xUaB7cJ5t0Qz", "description": null}]`
	problem = `{"type": "about:blank", "title": "Not Found", "status": 404, "detail": "there is no such template.", "code": "not_found"}`
	refusal = `{"type": "about:blank", "title": "Bad Request", "status": 400, "detail": "no.", "code": "invalid_request",
	  "errors": [{"pointer": "", "detail": "no"}]}`
)

func failed(status, title, code string) string {
	return strings.NewReplacer("404", status, "Not Found", title, "not_found", code).Replace(problem)
}

func listed() contract.Exchange { return exchange("GET", "/me/api-keys", "", 200, keys) }

func exchange(method, target, sent string, status int, body string) contract.Exchange {
	e := contract.Exchange{
		Method: method, Target: "/ext/svc" + target, RequestHeader: http.Header{}, RequestBody: []byte(sent),
		Status: status, Header: http.Header{"Cache-Control": {"no-store"}, "X-Content-Type-Options": {"nosniff"}, "X-Request-Id": {"x"}, "Date": {"x"}}, Body: []byte(body),
	}
	if sent != "" {
		e.RequestHeader.Set("Content-Type", "application/json")
	}
	if status == 401 {
		e.Header.Del("X-Request-Id")
	}
	if status >= 400 {
		e.Header.Set("Content-Type", "application/problem+json")
	} else if body != "" {
		e.Header.Set("Content-Type", "application/json")
	}
	return e
}

const template = `{"id": "x", "name": "X", "description": null, "category": null, "integrations": [], "tags": [], "scope": "server", "owner": null,
  "source_name": null, "source_scope": null, "source_owner": null, "source_revision": null, "installed_at": "2026-01-02T03:04:05.000000Z",
  "updated_at": "2026-01-02T03:04:05.000000Z", "manifest": {"version": "1"}}`

func tagged(method, sent string, status int, body string, conditions ...string) contract.Exchange {
	e := exchange(method, "/admin/templates/x", sent, status, body)
	e.Header.Set("ETag", `"a-b"`)
	if method == "GET" {
		e.Header.Set("Cache-Control", "private, no-cache")
		e.RequestHeader["If-None-Match"] = conditions
	} else {
		e.RequestHeader["If-Match"] = conditions
	}
	return e
}

func without(e contract.Exchange, header string) contract.Exchange {
	e.Header.Del(header)
	return e
}

func page(target, link string) contract.Exchange {
	e := exchange("GET", target, "", 200, `[]`)
	e.Header.Set("Link", link)
	return e
}

func TestGoodExchanges(t *testing.T) {
	head := listed()
	head.Method, head.Body = "HEAD", nil
	wait := exchange("GET", "/me/api-keys", "", 429, failed("429", "Too Many Requests", "rate_limited"))
	wait.Header.Set("Retry-After", "17")
	nobody := exchange("GET", "/nothing", "", 401, failed("401", "Unauthorized", "unauthenticated"))
	nobody.Header.Set("WWW-Authenticate", `Bearer realm="svc"`)
	full := strings.Replace(keys, `null}`, `"",
	  "created_at": "2026-01-02T03:04:05.678901Z", "expires_at": null, "disabled": false, "last_used_at": null, "scoping_policy_id": null, "rate": null}`, 1)
	for name, e := range map[string]contract.Exchange{
		"a list": listed(), "an empty one": exchange("GET", "/me/api-keys", "", 200, `[]`), "HEAD": head, "a wait": wait, "nobody": nobody,
		"a full one": exchange("GET", "/me/api-keys?view=full", "", 200, full), "nothing": exchange("DELETE", "/me/api-keys/x", "", 204, ""),
		"not found": exchange("GET", "/admin/templates/x", "", 404, problem), "no such path": exchange("BREW", "/nothing", "", 404, problem),
		"the host's":  {Method: "GET", Target: "/", Status: 200, Body: []byte("x")},
		"by net/http": {Method: "GET", Target: "/ext/svc/me/api-keys", RequestHeader: http.Header{"Expect": {"x"}}, Status: 417},
		"itself":      {Method: "GET", Target: "/ext/svc/openapi.json", Status: 200},
		"its other":   {Method: "GET", Target: "/ext/svc/openapi-3.0.json", Status: 200},
		"not changed": tagged("GET", "", 304, "", `"a-b"`), "changed": tagged("GET", "", 200, template, `"x", W/"y"`, `"a-c"`),
		"any": tagged("GET", "", 304, "", "*"), "as seen": tagged("PATCH", `{}`, 200, template, `"a-b"`),
		"a page":      page("/me/api-keys?limit=7&cursor=WyJhIiwiYiJd", `<?cursor=WyJhIiwiYiJd&limit=7>; rel="next"`),
		"no page":     exchange("GET", "/me/api-keys?limit=&cursor=", "", 200, `[]`),
		"escaped":     exchange("GET", "/%61dmin/templates/%2e%20x", "", 404, problem),
		"a truth":     exchange("POST", "/admin/templates/x/update?force=tRUE", "{}", 404, problem),
		"a wrong one": exchange("POST", "/me/api-keys?view=some", `{"color": "red"}`, 400, refusal),
	} {
		if err := contract.Check(e); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each of these answers has one thing that the document does not have.
func TestBadAnswers(t *testing.T) {
	with := func(change func(e *contract.Exchange)) contract.Exchange {
		e := listed()
		change(&e)
		return e
	}
	body := func(old, new string) contract.Exchange {
		return with(func(e *contract.Exchange) { e.Body = []byte(strings.Replace(keys, old, new, 1)) })
	}
	header := func(name string, values ...string) contract.Exchange {
		return with(func(e *contract.Exchange) {
			if e.Header[name] = values; len(values) == 0 {
				delete(e.Header, name)
			}
		})
	}
	created := exchange("POST", "/me/api-keys", "", 201, `{"id": "x", "api_key": "y", "description": null, "api_key_prefix": "z"}`)
	for name, e := range map[string]contract.Exchange{
		"a key too many": body(`null`, `null, "hash": "x"`), "a key too few": body(`, "description": null`, ``),
		"null": body(`"3kP0xUaB7cJ5t0Qz"`, `null`), "a number": body(`null`, `1`), "an object": body(keys, `{"keys": []}`),
		"no JSON": body(keys, `[`), "two values": body(keys, `[] []`), "bad UTF-8": body("null", "\"\xff\""), "no body": body(keys, ``),
		"a slash in an id": body(`"3kP0xUaB7cJ5t0Qz"`, `"a/b"`), "half of a view": created,
		"a status": with(func(e *contract.Exchange) { e.Status = 202 }), "a status of others": with(func(e *contract.Exchange) { e.Status = 409 }),
		"a type": header("Content-Type", "application/json; charset=utf-8"), "no type": header("Content-Type"),
		"a header": header("X-Powered-By", "x"), "a redirect": header("Location", "/"), "no header": header("Cache-Control"),
		"another value": header("Cache-Control", "private"), "two values of one": header("Cache-Control", "no-store", "no-store"),
		"a body of none":          exchange("DELETE", "/me/api-keys/x", "", 204, `{}`),
		"another code":            exchange("GET", "/admin/templates/x", "", 404, strings.Replace(problem, "not_found", "forbidden", 1)),
		"another status":          exchange("GET", "/admin/templates/x", "", 404, strings.Replace(problem, "404", "400", 1)),
		"errors beyond 400":       exchange("GET", "/admin/templates/x", "", 404, strings.Replace(problem, `"not_found"`, `"not_found", "errors": []`, 1)),
		"a 400 without":           exchange("GET", "/admin/templates/x", "", 400, failed("400", "Bad Request", "invalid_request")),
		"both places":             exchange("GET", "/admin/templates/x", "", 400, strings.Replace(refusal, `"pointer": ""`, `"pointer": "", "parameter": "x"`, 1)),
		"no challenge":            exchange("GET", "/me/api-keys", "", 401, failed("401", "Unauthorized", "unauthenticated")),
		"an unknown path":         exchange("GET", "/nothing", "", 200, `[]`),
		"another method":          exchange("PUT", "/me/api-keys", "", 204, ``),
		"a time":                  exchange("GET", "/admin/template-sources", "", 200, `[`+row+strings.Replace(then, "05.000000", "05", 1)+`]`),
		"untagged":                without(tagged("GET", "", 200, template), "ETag"),
		"not changed, and a body": tagged("GET", "", 304, template), "not changed, and no tag": without(tagged("GET", "", 304, ""), "ETag"),
		"a private one": tagged("PATCH", `{}`, 304, ""), "no page of this": page("/admin/template-sources", `<?limit=1>; rel="next"`),
		"a link elsewhere": page("/me/api-keys", `</me/api-keys?limit=1>; rel="next"`), "the last page": page("/me/api-keys", `<?limit=1>; rel="last"`),
		"half a full source": exchange("GET", "/admin/template-sources?view=full", "", 200, `[`+row+strings.Replace(then, "}", `, "serial": 1}`, 1)+`]`),
		"a list and a problem": exchange("GET", "/admin/source-templates", "", 200, `{"sources": [{"source_name": "a", "templates": [], "bad": [],
		  "stale": false, "fetched_at": "2026-01-02T03:04:05.000000Z", "problem": "none"}]}`),
		"an update to nothing": exchange("POST", "/admin/templates/check-updates", "", 200, `{"checked": 1, "sources": [], "templates": [{"template_id": "a",
		  "has_update": true, "current_revision": "sha256:`+strings.Repeat("0", 64)+`", "latest_revision": null, "source_name": "a", "source_scope": "server",
		  "problem": null}]}`),
		"no such day": exchange("GET", "/admin/template-sources", "", 200, `[`+row+strings.Replace(then, "01-02", "02-30", 1)+`]`),
	} {
		if contract.Check(e) == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}

// A request may break the document, but the server must refuse it.
func TestBadRequests(t *testing.T) {
	const update = `{"has_update": false, "current_revision": null, "latest_revision": null, "source_name": null, "source_scope": null}`
	const created = `{"id": "x", "api_key": "y", "description": null}`
	const reach = `{"action": "a", "bank": "b", "users": [], "service_accounts": [], "public": {"default": true, "overrides": []},
	  "statements": [], "revision": "1"}`
	untyped := exchange("POST", "/me/api-keys", `{}`, 201, created)
	untyped.RequestHeader.Set("Content-Type", "text/plain")
	for name, e := range map[string]contract.Exchange{
		"an id":       exchange("GET", "/admin/templates/a%2Fb/check-update", "", 200, update),
		"a long id":   exchange("GET", "/admin/templates/"+strings.Repeat("x", 129)+"/check-update", "", 200, update),
		"dots":        exchange("GET", "/admin/templates/%2e./check-update", "", 200, update),
		"a view":      exchange("GET", "/me/api-keys?view=fuller", "", 200, keys),
		"two views":   exchange("GET", "/me/api-keys?view=full&view=full", "", 200, keys),
		"an escape":   exchange("GET", "/me/api-keys?view=%zz", "", 200, keys),
		"no tag":      tagged("GET", "", 200, template, "a-b"),
		"no tags":     tagged("GET", "", 200, template, ""),
		"all and one": tagged("PATCH", "{}", 200, template, "*", `"a-b"`),
		"a limit":     exchange("GET", "/me/api-keys?limit=0", "", 200, keys),
		"a cursor":    exchange("GET", "/me/api-keys?cursor=%2F", "", 200, keys),
		"an unknown":  exchange("GET", "/me/api-keys?veiw=full", "", 200, keys),
		"a loud one":  exchange("GET", "/me/api-keys?View=full", "", 200, keys),
		"of a header": exchange("GET", "/me/api-keys?Idempotency-Key=x", "", 200, keys),
		"a semicolon": exchange("GET", "/me/api-keys?a;b", "", 200, keys),
		"no bank":     exchange("GET", "/debug/who-can?bank=", "", 200, reach),
		"a key":       exchange("POST", "/me/api-keys", `{"color": "red"}`, 201, created),
		"a type":      exchange("POST", "/me/api-keys", `{"description": 1}`, 201, created),
		"not JSON":    exchange("POST", "/me/api-keys", `{`, 201, created),
		"of no type":  untyped,
		"a body":      exchange("DELETE", "/me/api-keys", `{}`, 204, ""),
		"no body":     exchange("POST", "/admin/template-sources", ``, 201, row+then),
		"in a bundle": exchange("POST", "/debug/simulate", `{"bundle": {"users": [{"ID": "x"}]}, "query": {"bank": "b", "user_id": "x"}}`, 503,
			failed("503", "Service Unavailable", "unavailable")),
		"without bank": exchange("POST", "/debug/simulate", `{"bundle": {}, "query": {"user_id": "x"}}`, 500, failed("500", "Internal Server Error", "internal")),
	} {
		if e.Status == 503 {
			e.Header.Set("Retry-After", "1")
		}
		if err := contract.Check(e); err == nil || !strings.Contains(err.Error(), "though the request is not in the document") {
			t.Errorf("%s: %v", name, err)
		}
		if e.Status < 400 {
			e.Status, e.Body = 400, []byte(refusal)
			e.Header.Del("ETag")
			e.Header.Set("Cache-Control", "no-store")
			e.Header.Set("Content-Type", "application/problem+json")
			if err := contract.Check(e); err != nil {
				t.Errorf("%s, refused: %v", name, err)
			}
		}
	}
}

// told is a test that records errors.
type told struct {
	testing.TB
	errors []string
}

func (t *told) Helper() {}

func (t *told) Error(args ...any) { t.errors = append(t.errors, args[0].(error).Error()) }

func TestTransport(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/ext/svc/cut" {
			w.Header().Set("Content-Length", "100")
		}
		_, _ = w.Write(append(body, "an answer"...))
	}))
	defer server.Close()
	listener := &told{TB: t}
	client := http.Client{Transport: contract.Transport(listener, server.Client().Transport)}
	ask := func(path string) (string, error) {
		response := must(client.Post(server.URL+path, "text/plain", strings.NewReader("a question, ")))
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	for _, c := range []struct {
		path   string
		cut    bool
		errors int
	}{{"/own", false, 0}, {"/ext/svc/cut", true, 0}, {"/ext/svc/me/api-keys", false, 1}, {"/ext/svc", false, 2}} {
		body, err := ask(c.path)
		if body != "a question, an answer" || (err != nil) != c.cut || len(listener.errors) != c.errors {
			t.Errorf("%s: %q, %v, errors %q", c.path, body, err, listener.errors)
		}
	}
}

func TestUnseen(t *testing.T) {
	c := contract.Ours()
	before := c.Unseen()
	must(0, c.Check(listed()))
	must(0, c.Check(exchange("GET", "/admin/templates/x", "", 404, problem)))
	_ = c.Check(exchange("GET", "/admin/templates", "", 404, problem))
	after := strings.Join(c.Unseen(), "\n")
	still := strings.Contains(after, "GET /me/api-keys 200\n") || strings.Contains(after, "GET /admin/templates/{template_id} 404 not_found")
	if len(before)-len(c.Unseen()) != 2 || still {
		t.Errorf("%d before, unseen now:\n%s", len(before), after)
	}
	for _, promise := range []string{
		"GET /admin/templates 200", "POST /admin/templates/{template_id}/update 409 edited_locally", "elsewhere 405 method_not_allowed", "GET /me/api-keys 200 Link",
	} {
		if !strings.Contains(after, promise) {
			t.Errorf("%s is not promised", promise)
		}
	}
}
