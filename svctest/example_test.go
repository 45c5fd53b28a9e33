package svctest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/extsvc/svc/svctest"
)

const notes = "/ext/svc/admin/templates/notes"

// testTemplates is a test of a host, there called TestTemplates(t *testing.T). It installs and
// updates a template.
func testTemplates(t testing.TB) {
	server := svctest.New(t)
	acme := server.Source("acme", svctest.Template{ID: "notes", Category: "work"})

	status, _ := server.Alice.Do("POST", notes+"/install", `{"source_name": "acme"}`)
	fmt.Println("alice may not:", status)
	status, _ = server.Admin.Do("POST", notes+"/install", `{"source_name": "acme"}`)
	fmt.Println("admin may:", status)

	acme.Put(svctest.Template{ID: "notes", Category: "work", Manifest: `{"version": "2"}`})
	_, answer := server.Admin.Do("POST", notes+"/update", "")
	fmt.Println("updated:", strings.Contains(answer, `{"version":"2"}`))

	acme.Fail(500)
	status, _ = server.Admin.Do("GET", notes+"/check-update", "")
	fmt.Println("the source is ill:", status)

	for _, request := range acme.Requests() {
		fmt.Println("acme:", request)
	}
	for _, event := range server.Events() {
		fmt.Println("event:", event.Action, event.Target.ID)
	}
}

func Example() {
	outside(testTemplates)
	// Output:
	// alice may not: 403
	// admin may: 200
	// updated: true
	// the source is ill: 502
	// acme: GET /templates.json 200
	// acme: GET /templates.json 200
	// acme: GET /templates.json 500
	// event: source.registered acme
	// event: template.installed notes
	// event: template.updated notes
	// event: source.failing acme
}
