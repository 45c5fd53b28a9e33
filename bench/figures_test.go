package bench_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/sqlstore"
)

// figure is a call of the Service. Its floor is the bare driver with the statements that a recorded
// Service ran for other such calls, so both do the same.
type figure struct {
	name string
	// call returns the id of the row that it writes.
	call func(ctx context.Context, w *world) (id string, err error)
	// undo is the statement with which a call that wrote the row $1 can be played again. "": the
	// call writes nothing.
	undo string
	// before prepares so many calls.
	before func(ctx context.Context, w *world, calls int) error
}

// figures are measured on every engine and size.
var figures = []figure{
	reads("key-lookup", func(ctx context.Context, w *world) error {
		return failure(w.store.Access(ctx, svc.AccessQuery{KeyID: w.anyKey().ID, BankID: "*"}))
	}),
	// In a transaction of the host nothing is cached.
	reads("authenticate", func(ctx context.Context, w *world) error {
		return failure(w.service.WithTx(w.store).Authenticate(ctx, string(w.anyKey().Key)))
	}),
	reads("template-get", func(ctx context.Context, w *world) error {
		return failure(w.service.Templates.Read(ctx, svc.Host, w.anyTemplate()))
	}),
	lists("list-20-of-category", labelled, func(label int) svc.TemplateQuery {
		return svc.TemplateQuery{Category: fmt.Sprint("category-", label)}
	}),
	lists("list-20-of-tag", labelled, func(label int) svc.TemplateQuery {
		return svc.TemplateQuery{Tag: fmt.Sprint("tag-", label)}
	}),
	lists("list-20-of-both", labelled, func(label int) svc.TemplateQuery {
		return svc.TemplateQuery{Category: fmt.Sprint("category-", label), Tag: fmt.Sprint("tag-", label)}
	}),
	lists("list-20-of-rare-category-and-common-tag", labelled, func(label int) svc.TemplateQuery {
		return svc.TemplateQuery{Category: fmt.Sprint("category-", label), Tag: "everything"}
	}),
	lists("list-1000", 1000, func(int) svc.TemplateQuery { return svc.TemplateQuery{} }),
	reads("http-list-20", func(ctx context.Context, w *world) error {
		return listOverHTTP(ctx, w, fmt.Sprint("?category=category-", w.anyLabel()), &discard{})
	}),
	reads("http-list-all", func(ctx context.Context, w *world) error {
		return listOverHTTP(ctx, w, "", &discard{})
	}),
	{
		name: "issue", undo: `DELETE FROM svc_api_keys WHERE id = $1`,
		call: func(ctx context.Context, w *world) (string, error) {
			issued, err := w.service.Keys.Issue(ctx, svc.Host, w.anyUser(), svc.NewAPIKey{})
			return issued.ID, err
		},
	},
	{
		name: "revoke", undo: `UPDATE svc_api_keys SET revoked_at = NULL WHERE id = $1`,
		before: func(ctx context.Context, w *world, calls int) error {
			w.spare = nil
			for range calls {
				issued, err := w.service.Keys.Issue(ctx, svc.Host, w.anyUser(), svc.NewAPIKey{})
				if err != nil {
					return err
				}
				w.spare = append(w.spare, issued.APIKey)
			}
			return nil
		},
		call: func(ctx context.Context, w *world) (string, error) {
			key := w.spare[0]
			w.spare = w.spare[1:]
			return key.ID, w.service.Keys.Revoke(ctx, svc.Host, key.Holder, key.ID)
		},
	},
	{
		// From a source that answers at once.
		name: "install", undo: `DELETE FROM svc_templates WHERE id = $1`,
		call: func(ctx context.Context, w *world) (string, error) {
			w.next++
			id := fmt.Sprintf("installed-%p-%d", w, w.next)
			_, err := w.service.Templates.Install(ctx, svc.Host, svc.Install{TemplateID: "new", SourceName: "shop", AliasID: &id})
			return id, err
		},
	},
}

func reads(name string, read func(ctx context.Context, w *world) error) figure {
	return figure{name: name, call: func(ctx context.Context, w *world) (string, error) { return "", read(ctx, w) }}
}

// lists reads the first templates of a list.
func lists(name string, want int, query func(label int) svc.TemplateQuery) figure {
	return reads(name, func(ctx context.Context, w *world) error {
		n := 0
		for _, err := range first(want, w.service.Templates.List(ctx, svc.Host, query(w.anyLabel()))) {
			if err != nil {
				return err
			}
			n++
		}
		return equal(n, want)
	})
}

func first[R any](limit int, rows iter.Seq2[R, error]) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		n := 0
		for row, err := range rows {
			if n++; !yield(row, err) || n == limit {
				return
			}
		}
	}
}

func listOverHTTP(ctx context.Context, w *world, query string, to *discard) error {
	api := httpapi.New(w.service, httpapi.Options{})
	return ask(ctx, api, httpapi.DefaultPrefix+"/admin/templates"+query, password, to)
}

// ask reads a path of a handler, without a connection.
func ask(ctx context.Context, api http.Handler, path, bearer string, to *discard) error {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+bearer)
	api.ServeHTTP(to, r)
	return equal(to.status, http.StatusOK)
}

// discard takes an answer and keeps none of it.
type discard struct {
	header  http.Header
	status  int
	between func() // called before each piece; nil: no call
}

func (d *discard) Header() http.Header {
	if d.header == nil {
		d.header = http.Header{}
	}
	return d.header
}

func (d *discard) WriteHeader(status int) { d.status = status }

func (d *discard) Write(p []byte) (int, error) {
	if d.between != nil {
		d.between()
	}
	return io.Discard.Write(p)
}

// recorded returns the same database with a Service whose steps r records.
func (w *world) recorded(tb testing.TB, r *recorder) *world {
	tb.Helper()
	write, read := w.connect(w.place, r)
	other := *w
	other.store = sqlstore.New(write, read, w.dialect)
	other.service = get(svc.New(config(other.store)))
	tb.Cleanup(func() { check(errors.Join(other.service.Close(), read.Close(), write.Close())) })
	return &other
}

// floor plays recorded calls of a figure.
type floor struct {
	figure
	w        *world // recorded
	r        *recorder
	p        *player
	calls    [][]step // to play
	ids      []string // of the rows that they write
	next     int
	steps    int // of one call
	recorded int // calls to record at once, for a figure that writes nothing
}

func newFloor(tb testing.TB, f figure, w *world) *floor {
	tb.Helper()
	r := &recorder{}
	fl := &floor{figure: f, w: w.recorded(tb, r), r: r, p: newPlayer(w), recorded: 50}
	tb.Cleanup(func() { check(fl.p.close()) })
	ctx := context.Background()
	if err := errors.Join(fl.record(ctx, 1), fl.record(ctx, fl.recorded)); err != nil { // the first prepares
		tb.Fatal(f.name, ": ", err)
	}
	return fl
}

func (f *floor) record(ctx context.Context, calls int) error {
	f.calls, f.ids, f.next, f.steps = nil, nil, 0, math.MaxInt
	if f.figure.before != nil {
		if err := f.figure.before(ctx, f.w, calls); err != nil {
			return err
		}
	}
	for range calls {
		var id string
		steps, err := f.r.of(func() (err error) {
			id, err = f.call(ctx, f.w)
			return err
		})
		if err := errors.Join(err, f.p.prepare(ctx, steps)); err != nil {
			return err
		}
		f.calls, f.ids, f.steps = append(f.calls, steps), append(f.ids, id), min(f.steps, len(steps))
	}
	if f.undo == "" { // the Service also looks for changes by itself: leave that out
		f.calls = slices.DeleteFunc(f.calls, func(steps []step) bool { return len(steps) > f.steps })
		return nil
	}
	return f.undone(ctx)
}

// undone undoes the recorded calls, and checks that each of them had written its row.
func (f *floor) undone(ctx context.Context) error {
	for _, id := range f.ids {
		result, err := f.w.write.ExecContext(ctx, f.undo, id)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			return fmt.Errorf("undo of %q: %d rows, %v", id, n, err)
		}
	}
	return nil
}

func (f *floor) play(ctx context.Context) error {
	steps := f.calls[f.next%len(f.calls)]
	f.next++
	return f.p.play(ctx, steps)
}

func (f *floor) sides(ctx context.Context, w *world) []measure.Side {
	floor := measure.Side{Name: "floor", Call: func() error { return f.play(ctx) }}
	service := measure.Side{Name: "service", Call: func() error { return failure(f.call(ctx, w)) }}
	if f.undo != "" {
		floor.Before = func(calls int) error { return f.record(ctx, calls) }
	}
	if f.figure.before != nil {
		service.Before = func(calls int) error { return f.figure.before(ctx, w, calls) }
	}
	return []measure.Side{floor, service}
}

// BenchmarkService compares the Service with the bare driver.
func BenchmarkService(b *testing.B) {
	eachEngine(b, func(b *testing.B, e engine) {
		for _, size := range []size{small, large} {
			b.Run(size.name, func(b *testing.B) {
				w := newWorld(b, e, size)
				for _, f := range figures {
					b.Run(f.name, func(b *testing.B) {
						fl := newFloor(b, f, w)
						compare(b, fl.sides(b.Context(), w)...)
						b.ReportMetric(float64(fl.steps), "trips")
					})
				}
			})
		}
	})
}

// BenchmarkGrowth compares the large database with the small one, for the Service and for the bare
// driver. The time to find rows in an index grows with its depth and with its uncached pages, as
// the bare driver's key-lookup shows.
func BenchmarkGrowth(b *testing.B) {
	eachEngine(b, func(b *testing.B, e engine) {
		skipLarge(b, true)
		little, much := newWorld(b, e, small), newWorld(b, e, large)
		for _, f := range figures {
			if f.name == "http-list-all" {
				continue // grows with the list
			}
			b.Run(f.name, func(b *testing.B) {
				l, m := newFloor(b, f, little).sides(b.Context(), little), newFloor(b, f, much).sides(b.Context(), much)
				costs := alternate(b, slices.Concat(l, m), measure.Alike)
				b.ReportMetric(costs[2]/costs[0], "x-floor-grows")
				b.ReportMetric(costs[3]/costs[1], "x-service-grows")
				b.ReportMetric(costs[3], "µs-large")
			})
		}
	})
}

// TestFloors checks that the floors do what the Service does: each recorded call asks the database
// for something, and one that writes has the same row when it is played as when it was recorded.
func TestFloors(t *testing.T) {
	for _, e := range []engine{sqliteEngine, postgresEngine} {
		t.Run(e.name, func(t *testing.T) {
			w := newWorld(t, e, size{name: "tiny", keys: 100, templates: 1000})
			for _, f := range figures {
				fl := newFloor(t, f, w)
				err := fl.record(t.Context(), 3)
				if fl.steps == 0 {
					t.Error(f.name, ": the Service asks for nothing")
				}
				for range fl.calls {
					err = errors.Join(err, fl.play(t.Context()))
				}
				if f.undo != "" {
					err = errors.Join(err, fl.undone(t.Context()))
				}
				if err != nil {
					t.Error(f.name, ": ", err)
				}
			}
		})
	}
}

// equal fails unless both are the same.
func equal[V comparable](got, want V) error {
	if got != want {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}
