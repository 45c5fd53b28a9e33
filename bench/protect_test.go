package bench_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
)

// holderOfOne is a user who has one key.
var holderOfOne = svc.Identity{Kind: svc.KindUser, ID: "somebody"}

// BenchmarkHandlers compares handlers with bare ones that send the same answers. It measures the
// time of a handler's call, and a server's processor time for a request, on one connection and with
// other connections at once.
func BenchmarkHandlers(b *testing.B) {
	s := ownSite(b, sqliteEngine, "handlers")
	issued, err := s.service.Keys.Issue(b.Context(), svc.Host, holderOfOne, svc.NewAPIKey{})
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range pairs {
		p.run(b, s, "", string(issued.Key))
	}
}

// run compares the pair in each way: with a Service of that variant in this process, and with one
// in a separate process.
func (p pair) run(b *testing.B, s *site, variant, key string) {
	b.Run(p.name+"/called", func(b *testing.B) { p.called(b, s, variant, key) })
	for _, connections := range []int{1, 16} {
		b.Run(fmt.Sprint(p.name, "/connections-", connections), func(b *testing.B) { p.asked(b, s.place, variant, key, connections) })
	}
}

// same checks that both sides give the same answer, except for the name of the request. Without the
// key only the bare side answers.
func (p pair) same(ctx context.Context, handler http.Handler, key string) error {
	bare, service, refused := httptest.NewRecorder(), httptest.NewRecorder(), httptest.NewRecorder()
	handler.ServeHTTP(bare, p.request(ctx, p.bare(), key))
	handler.ServeHTTP(service, p.request(ctx, p.path, key))
	handler.ServeHTTP(refused, p.request(ctx, p.path, key+"x"))
	const name = "X-Request-Id"
	err := equal(len(service.Header().Get(name)), len(bare.Header().Get(name)))
	service.Header().Del(name)
	bare.Header().Del(name)
	return errors.Join(err, equal(service.Code, p.status()), equal(bare.Code, p.status()), equal(service.Body.String(), bare.Body.String()),
		equal(service.Header(), bare.Header()), equal(refused.Code, http.StatusUnauthorized))
}

// called calls the handlers with one request and one writer.
func (p pair) called(b *testing.B, s *site, variant, key string) {
	handler := handlers(s.variant(b, variant))
	handler.ServeHTTP(&discard{}, p.request(b.Context(), p.path, key))
	time.Sleep(quiet) // until the Service has read what it caches, and answers with its ETag
	err := p.same(b.Context(), handler, key)
	trips, failed := p.trips(b, s, variant, key)
	if err := errors.Join(err, failed); err != nil {
		b.Fatal(err)
	}
	calling := func(name, path string) measure.Side {
		r := p.request(b.Context(), path, key)
		w, body := &discard{}, strings.NewReader(p.body)
		r.Body = io.NopCloser(body)
		return measure.Side{Name: name, Call: func() error {
			body.Reset(p.body)
			w.status = 0
			clear(w.header)
			handler.ServeHTTP(w, r)
			if w.status != p.status() && w.status != 0 {
				return fmt.Errorf("status %d", w.status)
			}
			return nil
		}}
	}
	sides := []measure.Side{calling("bare", p.bare()), calling("service", p.path)}
	p.report(b, measure.Alternate(b, sides, measure.Apart(b, sides)))
	allocations := func(s measure.Side) float64 { return testing.AllocsPerRun(10, func() { _ = s.Call() }) }
	b.ReportMetric(allocations(sides[1])-allocations(sides[0]), "allocs-more")
	b.ReportMetric(float64(trips), "trips")
}

// trips returns how often the Service goes to the database for a request. It takes the least of
// some, because the Service also looks for changes by itself.
func (p pair) trips(b *testing.B, s *site, variant, key string) (int, error) {
	seen := &observer{}
	handler := handlers(s.observed(b, seen).variant(b, variant))
	least := math.MaxInt
	for range 10 {
		trips, err := seen.of(func() error {
			handler.ServeHTTP(&discard{}, p.request(b.Context(), p.path, key))
			return nil
		})
		if err != nil {
			return 0, err
		}
		least = min(least, len(trips))
		time.Sleep(quiet / 10)
	}
	return least, nil
}

// report reports the cost of a request on both sides, in ns.
func (pair) report(b *testing.B, costs []float64) {
	b.ReportMetric(costs[0]/1000, "µs-bare")
	b.ReportMetric(costs[1]/1000, "µs-service")
	b.ReportMetric(costs[1]/costs[0], "x-bare")
}

// asked sends requests to a separate server.
func (p pair) asked(b *testing.B, place, variant, key string, connections int) {
	server, err := startServer(place, variant)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := server.asker(p.request(b.Context(), p.path, key), p.status()); err != nil {
		b.Fatal(err)
	}
	server.settle(b) // until the Service has read what it caches
	asking := func(name, path string) measure.Side {
		askers := make([]*asker, connections)
		for i := range askers {
			if askers[i], err = server.asker(p.request(b.Context(), path, key), p.status()); err != nil {
				b.Fatal(err)
			}
		}
		return measure.Side{Name: name, Clock: server.spent, Call: func() error {
			return together(connections, func(i int) error { return askers[i].ask(max(1, p.inARow/connections)) })
		}}
	}
	sides := []measure.Side{asking("bare", p.bare()), asking("service", p.path)}
	costs := measure.Alternate(b, sides, []int{1, 1})
	requests := float64(connections * max(1, p.inARow/connections))
	p.report(b, []float64{costs[0] / requests, costs[1] / requests})
	if err := server.end(); err != nil {
		b.Fatal(err)
	}
}
