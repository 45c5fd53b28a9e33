package hostilehttp

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"

	"github.com/extsvc/svc/httpapi"
)

// maker makes random requests. Most of them have at most one fault.
type maker struct{ *rand.Rand }

// ids holds few ids, so that concurrent clients use the same ones.
var ids = []string{
	"a", "b", "chat", "acme", "mine", "alice", "plain", "ü", "u%CC%88", "a%20b", "user:a@b",
	"%2e%2e",
	"%00", "%ff", "a%2Fb", "%E2%80%AE", "%zz", "", "check-updates", strings.Repeat("x", 129),
}

// bodies holds valid bodies of all endpoints. Most go to an endpoint of another.
var bodies = []string{
	"", "{}", `{"url": "fs://any/acme"}`,
	`{"url": "fs://any/b", "alias": "b", "auth_token": "t", "description": "d"}`,
	`{"version": 1}`, `{"overlap_seconds": 60}`,
	`{"id": "a", "name": "n", "manifest": {"version": "1", "n": -1.50e+2}}`,
	`{"id": "b", "name": "ü", "description": null, "category": "c", "integrations": ["i"], ` +
		`"tags": ["t", "t"], "manifest": {"version": "1", "x": "\ud83d\ude00"}}`,
	`{"name": "x", "description": "d", "category": null, "integrations": [], "tags": ["t"]}`,
	`{"manifest": {"version": "2", "deep": [[[{"a": {}}]]]}}`,
	`{"source_name": "acme", "source_scope": "server", "alias_id": "mine"}`,
	`{"description": "d", "expires_at": "2100-12-31T23:59:59Z"}`,
	`{"description": "d", "expires_at": null, "disabled": true}`,
	`{"bundle": {"users": [{"id": "a"}]}, "query": {"bank": "b", "user_id": "a"}}`,
}

var queries = []string{
	"", "", "?limit=2", "?limit=1&cursor=WyIvYWRtaW4vdGVtcGxhdGVzIiwiYSIsImIiXQ", "?view=full", "?tag=t&category=c",
	"?bank=b&user_id=alice", "?bank=b&sender=telegram:1001&topic=x",
	"?q=chat", "?force=true", "?force=1&force=0", "?bank=",
}

var tags = []string{"*", `"x"`, `W/"x", "y"`, "x", `"`, ",", "\xff", strings.Repeat(`"x",`, 101)}

// pieces holds fragments that spoil puts into bodies and queries.
var pieces = []string{
	"\x00", "\xff", "\xed\xa0\x80", `\ud800`, `\u0000`, `"`, `\`, "{", "}", "[", "]", ",", ":",
	"null", "true", "1e400", "-0", "01", "9223372036854775808",
	"\u2028", "\u202e", "\ufeff", " ", "\n", "%", "&", "=", ";", "+", "é",
	`"id":`, `"name":`, `{"a":`, strings.Repeat("[", 70), strings.Repeat("x", 5000),
	"svcu_0123456789abcdef0123456789abcdefghijklmnopqrstuvwxyz",
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW", "get"}

var contentTypes = []string{
	"", "text/plain", "application/json; charset=utf-16",
	"application/merge-patch+json", "a/b;c=\"",
}

func pick[T any](m *maker, from []T) T { return from[m.IntN(len(from))] }

// one returns true once in n times.
func (m *maker) one(n int) bool { return m.IntN(n) == 0 }

func (m *maker) request(base string, bearers []string) request {
	route := pick(m, httpapi.Routes())
	r := request{
		method: route.Method,
		body:   m.bodyFor(route),
		header: http.Header{"Content-Type": {"application/json"}},
	}
	if m.one(20) {
		r.method = pick(m, methods)
	}
	if m.one(50) {
		r.header.Set("Content-Type", pick(m, contentTypes))
	}
	if bearer := pick(m, bearers); bearer != "" {
		r.header.Set("Authorization", "Bearer "+bearer)
	}
	if m.one(5) {
		r.header.Set(pick(m, []string{"If-Match", "If-None-Match"}), pick(m, tags))
	}
	r.url = base + m.path(route.Path) + m.query()
	if _, err := url.Parse(r.url); err != nil { // no client can send it
		r.url = base + route.Path
	}
	return r
}

func (m *maker) path(pattern string) string {
	segments := strings.Split(pattern, "/")
	for i, segment := range segments {
		if strings.HasPrefix(segment, "{") || i > 0 && m.one(200) {
			segments[i] = pick(m, ids)
		}
	}
	return strings.Join(segments, "/")
}

func (m *maker) query() string {
	query := pick(m, queries)
	if query != "" && m.one(3) {
		return "?" + url.PathEscape(m.spoil(query[1:]))
	}
	return query
}

// bodyFor returns a body for a route. It is often not valid there.
func (m *maker) bodyFor(route httpapi.Route) string {
	if route.Method == http.MethodGet || route.Method == http.MethodDelete {
		return ""
	}
	body := pick(m, bodies)
	for body != "" && m.one(3) {
		body = m.spoil(body)
	}
	return body
}

// spoil cuts, doubles or replaces a part of a text, or inserts a piece.
func (m *maker) spoil(text string) string {
	from := m.IntN(len(text) + 1)
	to := min(len(text), from+m.IntN(8))
	switch m.IntN(5) {
	case 0:
		return text[:from]
	case 1:
		return text[:from] + text[to:]
	case 2:
		return text[:to] + text[from:]
	case 3:
		return text[:from] + pick(m, pieces) + text[to:]
	}
	return text[:from] + pick(m, pieces) + text[from:]
}
