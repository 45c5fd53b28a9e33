package bench_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/extsvc/svc/bench/internal/measure"
)

// side is one way to do something. A call that fails ends the benchmark.
type side struct {
	name   string
	call   func() error
	before func(calls int) error // prepares a batch of calls, unmeasured; nil: nothing to prepare
}

// compare measures sides in turn and reports the cost of the last one, the Service, as a multiple
// of each other side. It divides the best rounds of both: other load on the machine can only add to
// either.
func compare(b *testing.B, sides ...side) {
	b.Helper()
	report(b, sides, alternate(b, sides, measure.Alike))
}

// compareApart is compare for sides of which one takes many times as long as another.
func compareApart(b *testing.B, sides ...side) {
	b.Helper()
	report(b, sides, alternate(b, sides, measure.Apart))
}

func report(b *testing.B, sides []side, costs []float64) {
	b.Helper()
	service := costs[len(costs)-1]
	for i, s := range sides {
		b.ReportMetric(costs[i], "µs-"+s.name)
		if i < len(sides)-1 {
			b.ReportMetric(service/costs[i], "x-"+s.name)
		}
	}
}

// alternate returns the µs that a call of each side takes in its best round. calls gives the number
// of calls of each side in a round.
func alternate(b *testing.B, sides []side, calls func(*testing.B, []measure.Side) []int) []float64 {
	b.Helper()
	var measured []measure.Side
	for _, s := range sides {
		measured = append(measured, measure.Side{Name: s.name, Call: s.call, Before: s.before})
	}
	costs := measure.Alternate(b, measured, calls(b, measured))
	for i := range costs {
		costs[i] /= 1000
	}
	return costs
}

// together calls do from as many goroutines at once, each with its number.
func together(goroutines int, do func(i int) error) error {
	var all sync.WaitGroup
	failures := make([]error, goroutines)
	for i := range goroutines {
		all.Go(func() { failures[i] = do(i) })
	}
	all.Wait()
	return errors.Join(failures...)
}
