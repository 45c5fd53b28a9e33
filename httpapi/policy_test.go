package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/extsvc/svc/limits"
)

// Rows are looked at once the caller is known to have the right, and what is wrong with them has an end.
func TestSimulateEndsItsErrors(t *testing.T) {
	s := newSite(t)
	bad := strings.Repeat(`{"id": "a/b", "members": ["\u0000", "\u0000"]},`, 3000)
	body := func(groups string) string {
		return `{"bundle": {"groups": [` + strings.TrimSuffix(groups, ",") + `]}, "query": {"bank": "b", "user_id": "a"}}`
	}
	s.as("session-of-plain").post("/debug/simulate", body(bad)).fails(403, "forbidden")
	a := s.admin().post("/debug/simulate", body(bad)).is(400)
	if n := strings.Count(string(a.body), `"pointer"`); n != limits.Errors+1 || !strings.Contains(string(a.body), "there may be more errors") {
		t.Errorf("%d errors, %d bytes", n, len(a.body))
	}
	s.admin().post("/debug/simulate", body(strings.Repeat(`{"id": "g"},`, 10_000))).is(400)
}

func TestDecideLimits(t *testing.T) {
	s := newSite(t)
	queries := make([]map[string]string, limits.Questions)
	for i := range queries {
		queries[i] = map[string]string{"bank": "support", "action": "bank:recall", "user_id": []string{"alice", "plain"}[i%2]}
	}
	answered := s.admin().post("/decide", string(must(json.Marshal(map[string]any{"queries": queries})))).is(200)
	decisions := answered.value()["decisions"].([]any)
	for i := range queries {
		if got := decisions[i].(map[string]any); got["allowed"] != (i%2 == 0) || len(decisions) != len(queries) {
			t.Errorf("query %d of %d: %v", i, len(decisions), got)
		}
	}
	body := func(query string, n int) string {
		return `{"queries": [` + strings.TrimSuffix(strings.Repeat(query+",", n), ",") + `]}`
	}
	for _, query := range []string{`{}`, `{"bank":"\n","action":"/"}`} {
		a := s.admin().post("/decide", body(query, limits.Questions)).is(400)
		if n := strings.Count(string(a.body), `"pointer"`); n != limits.Errors+1 || !strings.Contains(string(a.body), "there may be more errors") {
			t.Errorf("%d errors, %d bytes", n, len(a.body))
		}
	}
}
