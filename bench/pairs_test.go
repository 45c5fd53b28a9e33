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

// pair is a request that the Service and a bare handler answer. The bare handler sends the same
// bytes with the same headers.
type pair struct {
	name   string
	path   string // of the Service, with its query
	etag   string // of the caller's copy; "": none
	body   string // of a POST; "": the request is a GET
	inARow int    // requests measured together
}

var pairs = []pair{
	{name: "protect", path: "/protected/route", inARow: 2000},
	{name: "own-keys", path: httpapi.DefaultPrefix + "/me/api-keys", inARow: 2000},
}

// bare returns the path of the bare handler.
func (p pair) bare() string { return replayed + p.path }

// bodyType returns the Content-Type of the body: the only form is that of a token.
func (p pair) bodyType() string {
	if strings.HasPrefix(p.body, "token=") {
		return "application/x-www-form-urlencoded"
	}
	return "application/json"
}

// replayed begins the paths of bare handlers.
const replayed = "/bare"

// handlers returns one handler for both sides of all pairs.
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

// replay is all bare handlers. It requests an answer once and then repeats it from memory.
type replay struct {
	of      http.Handler
	answers sync.Map // by request: *httptest.ResponseRecorder
}

func (p *replay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	known, has := p.answers.Load(r.RequestURI + r.Header.Get("If-None-Match"))
	if !has {
		known = httptest.NewRecorder()
		first := r.Clone(r.Context())
		first.RequestURI = strings.TrimPrefix(r.RequestURI, replayed)
		first.URL.Path = strings.TrimPrefix(r.URL.Path, replayed)
		p.of.ServeHTTP(known.(http.ResponseWriter), first)
		p.answers.Store(r.RequestURI+r.Header.Get("If-None-Match"), known)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	answer := known.(*httptest.ResponseRecorder)
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

func (p pair) request(ctx context.Context, path, key string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if p.body != "" {
		r = httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(p.body))
		r.Header.Set("Content-Type", p.bodyType())
	}
	r.Header.Set("Authorization", "Bearer "+key)
	if p.etag != "" {
		r.Header.Set("If-None-Match", p.etag)
	}
	return r
}

// status is the status of both answers.
func (p pair) status() int {
	if p.etag != "" {
		return http.StatusNotModified
	}
	return http.StatusOK
}
