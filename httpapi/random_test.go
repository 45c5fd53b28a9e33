package httpapi_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/barrage"
)

func TestRandomRequests(t *testing.T) {
	s, admin := stocked(t)
	barrage.Run(t, s.server.Client(), s.server.URL+s.prefix, "session-of-admin", "session-of-admin", "session-of-templater", "session-of-plain", "session-of-robot+sa", admin.bearer, "svcu_wrong", "")
	s.unbroken()
	admin = s.as("session-of-admin")
	if all := s.everything(admin); strings.Contains(all, "\ufffd") {
		t.Errorf("a replaced character is stored: %s", all)
	}
	for _, id := range admin.get("/admin/templates").is(200).texts("id") {
		admin.get("/admin/templates/" + url.PathEscape(id)).is(200)
	}
}
