package bench_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// pair is a request that is answered by a bare handler, and one that gets the same answer by way of the service.
type pair struct {
	name          string
	bare, service string // paths
}

var pairs = []pair{
	{"protect", "/bare/route", "/protected/route"},
	{"own-keys", "/bare/keys", httpapi.DefaultPrefix + "/me/api-keys"},
}

// handlers returns the handler of both sides of all pairs, which gets requests with that key.
func handlers(ctx context.Context, service *svc.Service, key string) (http.Handler, error) {
	api := httpapi.New(service, httpapi.Options{})
	route := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"of":"the host"}`)
	})
	list := httptest.NewRecorder()
	api.ServeHTTP(list, request(ctx, pairs[1].service, key))
	if list.Code != http.StatusOK {
		return nil, fmt.Errorf("the list of keys: status %d", list.Code)
	}
	keys := list.Body.Bytes()
	mux := http.NewServeMux()
	mux.Handle(pairs[0].bare, route)
	mux.Handle(pairs[0].service, api.Protect(route))
	mux.Handle(pairs[1].bare, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range list.Header() {
			w.Header()[name] = values
		}
		_, _ = w.Write(keys)
	}))
	mux.Handle(httpapi.DefaultPrefix+"/", api)
	return mux, nil
}

func request(ctx context.Context, path, key string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+key)
	return r
}
