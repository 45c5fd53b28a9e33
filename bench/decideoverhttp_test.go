package bench_test

import (
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// decisions are the ways to ask what the principal may do.
func decisions() []pair {
	const query = `{"user_id":"u-000001","action":"bank:recall","bank":"team::one"}`
	body := func(n int) string { return `{"queries":[` + strings.Repeat(query+",", n-1) + query + `]}` }
	return []pair{
		{name: "decide", path: httpapi.DefaultPrefix + "/decide", body: body(1), inARow: 2000},
		{name: "decide-1000", path: httpapi.DefaultPrefix + "/decide", body: body(svc.MaxQuestions), inARow: 20},
		{name: "resolve", path: httpapi.DefaultPrefix + "/debug/resolve?user_id=" + principal.ID + "&bank=team::one", inARow: 1000},
	}
}

// BenchmarkDecideOverHTTP compares decisions and the introspection of a cached key over HTTP with bare handlers that read the same body
// and send the same bytes.
func BenchmarkDecideOverHTTP(b *testing.B) {
	s := siteOf(b, sqliteEngine, read)
	key, err := reader(b.Context(), s)
	if err != nil {
		b.Fatal(err)
	}
	introspect := pair{name: "introspect", path: httpapi.DefaultPrefix + "/introspect", body: "token=" + key, inARow: 2000}
	for _, p := range append(decisions(), introspect) {
		p.run(b, s, "", key)
	}
}
