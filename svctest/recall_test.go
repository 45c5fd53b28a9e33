package svctest_test

import (
	"net/http"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/svctest"
)

// recall is a route of a host.
func recall(service *svc.Service) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := httpapi.PrincipalFrom(r.Context())
		d, err := service.Decide(r.Context(), who, "bank:recall", r.FormValue("bank"), svc.Context{})
		if err != nil || !d.Allowed() {
			w.WriteHeader(http.StatusForbidden)
		}
	})
}

// staffReads is the policy of a host.
const staffReads = `{
  "groups": [{"id": "staff", "members": ["alice"]}],
  "policies": [{"id": "staff-reads", "document": {"version": "2026-03-24", "statements": [
    {"effect": "allow", "actions": ["bank:recall"], "banks": ["support"]}]}}],
  "attachments": [{"policy_id": "staff-reads", "principal_type": "group", "principal_id": "staff"}]
}`

func TestRecall(t *testing.T) {
	server := svctest.New(t)
	server.Mux.Handle("POST /recall", server.API.Protect(recall(server.Service)))

	if status, answer := server.Alice.Do("POST", "/recall?bank=support", ""); status != http.StatusForbidden {
		t.Errorf("alice, who may nothing: %d %s", status, answer)
	}
	server.Apply(staffReads)
	if status, answer := server.Alice.Do("POST", "/recall?bank=support", ""); status != http.StatusOK {
		t.Errorf("alice, as one of the staff: %d %s", status, answer)
	}
}
