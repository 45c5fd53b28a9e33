package policies_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/extsvc/svc/bench/internal/measure"
)

// engine decides for one principal. One goroutine at a time uses it.
type engine interface {
	Decide(action, bank string) bool
}

// contestant makes an engine from a principal's policies.
type contestant struct {
	name string
	make func(w *workload) engine
}

var (
	theFloor = contestant{"floor", newFloor}
	theOurs  = contestant{"ours", newOurs}
)

// contestants are all measured engines, the floor first.
var contestants = []contestant{
	theFloor,
	theOurs,
	{"service", newService},
	{"cedar", newCedar},
	{"minio", newMinio},
	{"casbin", newCasbin},
	{"casbin-cached", newCasbinCached},
	{"opa-rules", newOPARules},
	{"opa-data", newOPAData},
}

// TestEnginesAgree checks that all engines decide every query as the rules do.
func TestEnginesAgree(t *testing.T) {
	for _, s := range sizes {
		for _, c := range contestants {
			t.Run(s.String()+"/"+c.name, func(t *testing.T) {
				if testing.Short() && s == sizes[len(sizes)-1] {
					t.Skip("the largest size is for the long run")
				}
				c.on(t, workloadOf(s))
			})
		}
	}
}

// on returns the engine after checking that it decides every query as the rules do. It has decided
// everything once by then.
func (c contestant) on(tb testing.TB, w *workload) engine {
	tb.Helper()
	e := c.make(w)
	if err := agrees(e, w.queries, w.want); err != nil {
		tb.Fatal(c.name, ": ", err)
	}
	return e
}

func agrees(e engine, queries []query, want []outcome) error {
	for i, q := range queries {
		if got := e.Decide(q.action, q.bank); got != (want[i] == allowed) {
			return fmt.Errorf("%q on bank %q: allowed is %v", q.action, q.bank, got)
		}
	}
	return nil
}

// TestDisagreementIsFound checks that the check finds one wrong decision.
func TestDisagreementIsFound(t *testing.T) {
	w := workloadOf(sizes[0])
	for _, i := range []int{0, asked / 2, asked - 1} {
		e := theFloor.on(t, w).(*floor)
		e.flip(w.queries[i])
		if agrees(e, w.queries, w.want) == nil {
			t.Errorf("query %d is decided wrongly, and nobody notices", i)
		}
	}
}

// BenchmarkDecide compares every engine with the floor and with ours.
func BenchmarkDecide(b *testing.B) {
	for _, s := range sizes {
		for _, c := range contestants[1:] {
			b.Run(s.String()+"/"+c.name, func(b *testing.B) { c.decide(b, workloadOf(s)) })
		}
	}
}

func (c contestant) decide(b *testing.B, w *workload) {
	sides := []contestant{theFloor, theOurs, c}
	if c.name == theOurs.name {
		sides = sides[:2]
	}
	passes := passesOf(b, w, sides)
	costs := alternate(b, passes)
	own := len(costs) - 1
	b.ReportMetric(costs[own], "ns/op")
	b.ReportMetric(costs[own]/costs[0], "x-floor")
	if own > 1 {
		b.ReportMetric(costs[own]/costs[1], "x-ours")
	}
	b.ReportMetric(passes[own].allocations(), "allocs")
}

// BenchmarkFlat compares the largest size with the smallest, for ours and for the floor.
func BenchmarkFlat(b *testing.B) {
	small, large := workloadOf(sizes[0]), workloadOf(sizes[len(sizes)-1])
	both := []contestant{theFloor, theOurs}
	costs := alternate(b, append(passesOf(b, small, both), passesOf(b, large, both)...))
	b.ReportMetric(costs[3]/costs[1], "x-grows")
	b.ReportMetric(costs[2]/costs[0], "x-floor-grows")
}

// pass asks an engine all queries.
type pass struct {
	name    string
	engine  engine
	queries []query
	allowed int // the number of allowed queries
}

// longPass limits the queries of one pass to those that an engine answers in that time, but
// fewQueries at least.
const (
	longPass   = 20 * time.Millisecond
	fewQueries = 256
)

func passesOf(b *testing.B, w *workload, of []contestant) []pass {
	b.Helper()
	var out []pass
	for _, c := range of {
		p := pass{name: c.name, engine: c.on(b, w), queries: fresh(w.queries)}
		start := time.Now()
		for i, q := range p.queries {
			if i >= fewQueries && i%len(mix) == 0 && time.Since(start) > longPass {
				p.queries = p.queries[:i]
				break
			}
			p.engine.Decide(q.action, q.bank)
		}
		for _, o := range w.want[:len(p.queries)] {
			if o == allowed {
				p.allowed++
			}
		}
		out = append(out, p)
	}
	return out
}

func (p pass) run() error {
	n := 0
	for i := range p.queries {
		if p.engine.Decide(p.queries[i].action, p.queries[i].bank) {
			n++
		}
	}
	if n != p.allowed {
		return fmt.Errorf("%d of %d are allowed, not %d", n, len(p.queries), p.allowed)
	}
	return nil
}

// alternate returns the ns that a decision takes in each pass, in its best round.
func alternate(b *testing.B, passes []pass) []float64 {
	b.Helper()
	var sides []measure.Side
	for _, p := range passes {
		sides = append(sides, measure.Side{Name: p.name, Call: p.run})
	}
	costs := measure.Alternate(b, sides, measure.Apart(b, sides))
	for i := range costs {
		costs[i] /= float64(len(passes[i].queries))
	}
	return costs
}

func (p pass) allocations() float64 {
	var err error
	n := testing.AllocsPerRun(1, func() { err = p.run() })
	if err != nil {
		panic(err)
	}
	return n / float64(len(p.queries))
}

func get[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
