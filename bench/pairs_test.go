package bench_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// pair is a request that the service answers, and a bare handler as well, which sends the same bytes with the same headers.
type pair struct {
	name   string
	path   string // of the service, with its query
	etag   string // of what the caller has already; "" nothing
	inARow int    // requests are measured together
}

var pairs = []pair{
	{name: "protect", path: "/protected/route", inARow: 2000},
	{name: "own-keys", path: httpapi.DefaultPrefix + "/me/api-keys", inARow: 2000},
}

// bare is the path of the bare handler.
func (p pair) bare() string { return replayed + p.path }

// replayed is what the paths of bare handlers begin with.
const replayed = "/bare"

// handlers returns the handler of both sides of all pairs.
func handlers(service *svc.Service) http.Handler {
	api := httpapi.New(service, httpapi.Options{})
	mux := http.NewServeMux()
	mux.Handle("/protected/route", api.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"of":"the host"}`)
	})))
	mux.Handle(httpapi.DefaultPrefix+"/", api)
	mux.Handle(replayed+"/", &replay{of: mux})
	return mux
}

// replay is all bare handlers: it asks for an answer once, and has it at hand from then on.
type replay struct {
	of      http.Handler
	answers sync.Map // by the request: *httptest.ResponseRecorder
}

func (p *replay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	known, has := p.answers.Load(r.RequestURI + r.Header.Get("If-None-Match"))
	if !has {
		known = httptest.NewRecorder()
		first := httptest.NewRequestWithContext(r.Context(), r.Method, strings.TrimPrefix(r.RequestURI, replayed), nil)
		first.Header = r.Header
		p.of.ServeHTTP(known.(http.ResponseWriter), first)
		p.answers.Store(r.RequestURI+r.Header.Get("If-None-Match"), known)
	}
	answer := known.(*httptest.ResponseRecorder)
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

func (p pair) request(ctx context.Context, path, key string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+key)
	if p.etag != "" {
		r.Header.Set("If-None-Match", p.etag)
	}
	return r
}

// status is that of both answers.
func (p pair) status() int {
	if p.etag != "" {
		return http.StatusNotModified
	}
	return http.StatusOK
}
