package bench_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
)

// holderOfOne is a user who has one key.
var holderOfOne = svc.Identity{Kind: svc.KindUser, ID: "somebody"}

// BenchmarkHandlers compares handlers with bare ones that send the same answers: what the call of a handler takes, and what the
// process of a server takes of the processor for a request, when it comes on one connection, and when others come at once.
func BenchmarkHandlers(b *testing.B) {
	s := ownSite(b, sqliteEngine, "handlers")
	issued, err := s.service.IssueAPIKey(b.Context(), svc.Host, holderOfOne, svc.NewAPIKey{})
	if err != nil {
		b.Fatal(err)
	}
	key := string(issued.Key)
	for _, p := range pairs {
		b.Run(p.name+"/called", func(b *testing.B) { p.called(b, s, key) })
		for _, connections := range []int{1, 16} {
			b.Run(fmt.Sprint(p.name, "/connections-", connections), func(b *testing.B) { p.asked(b, s.place, key, connections) })
		}
	}
}

// same checks that both sides answer alike, and without the key only the bare one.
func (p pair) same(ctx context.Context, handler http.Handler, key string) error {
	bare, service, refused := httptest.NewRecorder(), httptest.NewRecorder(), httptest.NewRecorder()
	handler.ServeHTTP(bare, request(ctx, p.bare, key))
	handler.ServeHTTP(service, request(ctx, p.service, key))
	handler.ServeHTTP(refused, request(ctx, p.service, key+"x"))
	return errors.Join(equal(service.Code, http.StatusOK), equal(service.Body.String(), bare.Body.String()),
		equal(service.Header(), bare.Header()), equal(refused.Code, http.StatusUnauthorized))
}

// called calls the handlers with one request and one writer.
func (p pair) called(b *testing.B, s *site, key string) {
	handler, err := handlers(b.Context(), s.service, key)
	if err == nil {
		err = p.same(b.Context(), handler, key)
	}
	trips, failed := p.trips(b, s, key)
	if err := errors.Join(err, failed); err != nil {
		b.Fatal(err)
	}
	calling := func(name, path string) measure.Side {
		r := request(b.Context(), path, key)
		w := &discard{}
		return measure.Side{Name: name, Call: func() error {
			w.status = 0
			handler.ServeHTTP(w, r)
			if w.status > http.StatusOK {
				return fmt.Errorf("status %d", w.status)
			}
			return nil
		}}
	}
	sides := []measure.Side{calling("bare", p.bare), calling("service", p.service)}
	p.report(b, measure.Alternate(b, sides, measure.Apart(b, sides)))
	allocations := func(s measure.Side) float64 { return testing.AllocsPerRun(100, func() { _ = s.Call() }) }
	b.ReportMetric(allocations(sides[1])-allocations(sides[0]), "allocs-more")
	b.ReportMetric(float64(trips), "trips")
}

// trips returns how often the service goes to the database for a request: the least of some, because it looks for changes on its own.
func (p pair) trips(b *testing.B, s *site, key string) (int, error) {
	seen := &observer{}
	handler, err := handlers(b.Context(), s.observed(b, seen).service, key)
	if err != nil {
		return 0, err
	}
	least := math.MaxInt
	for range 10 {
		trips, err := seen.of(func() error {
			handler.ServeHTTP(&discard{}, request(b.Context(), p.service, key))
			return nil
		})
		if err != nil {
			return 0, err
		}
		least = min(least, len(trips))
		time.Sleep(time.Millisecond)
	}
	return least, nil
}

// report reports what a request costs, in ns, on both sides.
func (pair) report(b *testing.B, costs []float64) {
	b.ReportMetric(costs[0]/1000, "µs-bare")
	b.ReportMetric(costs[1]/1000, "µs-service")
	b.ReportMetric(costs[1]/costs[0], "x-bare")
}

const inARow = 2000 // requests are measured together

// asked asks a server of its own.
func (p pair) asked(b *testing.B, path, key string, connections int) {
	server, err := startServer(path, key)
	if err != nil {
		b.Fatal(err)
	}
	asking := func(name, path string) measure.Side {
		askers := make([]*asker, connections)
		for i := range askers {
			if askers[i], err = server.asker(path, key); err != nil {
				b.Fatal(err)
			}
		}
		return measure.Side{Name: name, Clock: server.spent, Call: func() error {
			return together(connections, func(i int) error { return askers[i].ask(inARow / connections) })
		}}
	}
	sides := []measure.Side{asking("bare", p.bare), asking("service", p.service)}
	costs := measure.Alternate(b, sides, []int{1, 1})
	p.report(b, []float64{costs[0] / inARow, costs[1] / inARow})
	if err := server.end(); err != nil {
		b.Fatal(err)
	}
}
