package main

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/sqlite"
)

// Step 2: the host. It shares one database with svc.

type desk struct {
	store    *sqlite.Store
	service  *svc.Service
	sessions sync.Map // users by token
}

// openDesk opens the database and writes the rules. A rule that changes in step 1 counts from the
// next start. Members of groups stay, because the rules name none.
func openDesk(ctx context.Context, file string) (*desk, error) {
	store, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	// In production add peppers: docs/howto/secrets.md.
	service, err := svc.New(svc.Config{Store: store, Parameters: parameters})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	d := &desk{store: store, service: service}
	if _, err = store.DB().ExecContext(ctx, tables); err == nil {
		err = service.Access.Apply(ctx, svc.Host, rules)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *desk) close() error { return errors.Join(d.service.Close(), d.store.Close()) }

// route answers an error as svc answers its own: with a problem (RFC 9457).
type route func(w http.ResponseWriter, r *http.Request) error

func (serve route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := serve(w, r); err != nil {
		httpapi.WriteError(w, r, err)
	}
}

// handler serves the interface of svc at /ext/svc, and the host's own routes. A caller has an API
// key, or a session in a cookie. Require asks svc before a route runs.
func (d *desk) handler() http.Handler {
	api := httpapi.New(d.service, httpapi.Options{Principal: d.signedIn})
	queue := func(r *http.Request) string { return r.PathValue("queue") }
	may := func(action string, serve route) http.Handler {
		return api.Require(action, queue)(serve)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /queues/{queue}/tickets", may(actionOpen, d.open))
	mux.Handle("GET /queues/{queue}/tickets", may(actionRead, d.list))
	mux.Handle("POST /queues/{queue}/tickets/{id}/answer", may(actionAnswer, d.answer))
	mux.Handle("GET /{$}", api.Protect(route(d.page)))
	mux.HandleFunc("GET /sign-in/{session}", d.signIn)
	return api.Mount(http.MaxBytesHandler(mux, 1<<20))
}
