package httpapi_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/extsvc/svc/httpapi"
)

// accessLog writes a line for each request. Package observe/promsvc has an Observer for Prometheus.
type accessLog struct{}

func (accessLog) Observe(_ context.Context, o httpapi.Observation) {
	fmt.Printf("%q: %d %q, by %s\n", o.Route, o.Status, o.Code, o.Caller.ID)
	if o.Err != nil || o.Took > 5*time.Second {
		fmt.Println(o.RequestID, o.Tenant, o.Began, o.Bytes, o.Err)
	}
}

// An Observer sees each request, once it is answered.
func ExampleObserver() {
	service, key := exampleService()
	defer service.Close()
	var observer httpapi.Observer = accessLog{}
	api := httpapi.New(service, httpapi.Options{Observer: observer})
	for _, path := range []string{"/ext/svc/me", "/ext/svc/admin/templates", "/ext/svc/nothing"} {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Authorization", "Bearer "+string(key))
		api.ServeHTTP(httptest.NewRecorder(), r)
	}
	// Output:
	// "GET /ext/svc/me": 200 "", by alice
	// "GET /ext/svc/admin/templates": 403 "forbidden", by alice
	// "": 404 "not_found", by alice
}
