package httpapi_test

import (
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/limits"
)

// What is wrong with a request has an end. Rows are looked at once the caller is known to have the right.
func TestErrorsHaveAnEnd(t *testing.T) {
	s := newSite(t)
	list := func(row string, n int) string { return strings.TrimSuffix(strings.Repeat(row+",", n), ",") }
	rows := func(groups string) string {
		return `{"bundle": {"groups": [` + groups + `]}, "query": {"bank": "b", "user_id": "a"}}`
	}
	bad := rows(list(`{"id": "a/b", "members": ["\u0000", "\u0000"]}`, 3000))
	s.as("session-of-plain").post("/debug/simulate", bad).fails(403, "forbidden")
	s.admin().post("/debug/simulate", rows(list(`{"id": "g"}`, 10_000))).is(400)
	for _, a := range []answer{
		s.admin().post("/debug/simulate", bad),
		s.admin().post("/decide", `{"queries": [`+list(`{}`, limits.Questions)+`]}`),
		s.admin().post("/decide", `{"queries": [`+list(`{"bank":"\n","action":"/"}`, limits.Questions)+`]}`),
	} {
		expect.Equal(t, a.request, len(a.is(400).places()), limits.Errors+1)
		expect.Equal(t, a.request, strings.Contains(string(a.body), "there may be more errors"), true)
	}
}
