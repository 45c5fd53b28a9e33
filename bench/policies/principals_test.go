package policies_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/extsvc/svc/bench/internal/measure"
)

const (
	principals  = 10_000
	attachments = 200 // different sets of policies
)

// BenchmarkPrincipals compares decisions for 10,000 principals, in random order, with those for one
// that has as many policies.
func BenchmarkPrincipals(b *testing.B) {
	w := workloadOf(crowdSize)
	one := pass{engine: theOurs.on(b, w), queries: fresh(w.queries)}
	all, err := newRush(newCrowd(principals, attachments), w.queries)
	if err != nil {
		b.Fatal(err)
	}
	for _, o := range w.want {
		if o == allowed {
			one.allowed++
		}
	}
	sides := []measure.Side{{Name: "one", Call: one.run}, {Name: "all", Call: all.run}}
	costs := measure.Alternate(b, sides, measure.Apart(b, sides))
	ns := costs[1] / float64(len(all.requests))
	b.ReportMetric(ns, "ns/op")
	b.ReportMetric(ns/(costs[0]/float64(len(one.queries))), "x-one")
}

// request is a query of one of many principals.
type request struct {
	principal int
	query
}

// rush is requests in random order.
type rush struct {
	engines  []engine // of each principal
	requests []request
	allowed  int
}

// newRush draws 16 times as many requests as there are queries, and checks each decision.
func newRush(c crowd, queries []query) (*rush, error) {
	r, out := rand.New(rand.NewPCG(seed, principals)), &rush{engines: c.engines(newCompiler())}
	for range 16 {
		for _, q := range fresh(queries) {
			out.requests = append(out.requests, request{r.IntN(len(c.subjects)), q})
		}
	}
	r.Shuffle(len(out.requests), func(i, j int) {
		out.requests[i].query, out.requests[j].query = out.requests[j].query, out.requests[i].query
	})
	for _, q := range out.requests {
		want := decide(c.statements[q.principal], q.action, q.bank)
		if err := agrees(out.engines[q.principal], []query{q.query}, []outcome{want}); err != nil {
			return nil, fmt.Errorf("principal %d: %w", q.principal, err)
		}
		if want == allowed {
			out.allowed++
		}
	}
	return out, nil
}

func (r *rush) run() error {
	n := 0
	for i := range r.requests {
		q := &r.requests[i]
		if r.engines[q.principal].Decide(q.action, q.bank) {
			n++
		}
	}
	if n != r.allowed {
		return fmt.Errorf("%d of %d are allowed, not %d", n, len(r.requests), r.allowed)
	}
	return nil
}
