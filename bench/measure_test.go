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

// compare measures sides in turn and reports what the last one, the service, costs in terms of each of the others: the least
// of all rounds in terms of the least, because whatever else the machine does can only add to either.
func compare(b *testing.B, sides ...side) {
	b.Helper()
	costs := alternate(b, sides)
	service := costs[len(costs)-1]
	for i, s := range sides {
		b.ReportMetric(costs[i], "µs-"+s.name)
		if i < len(sides)-1 {
			b.ReportMetric(service/costs[i], "x-"+s.name)
		}
	}
}

// alternate returns what a call of each side takes, in µs, in its best round. In a round each side has the same number of
// calls.
func alternate(b *testing.B, sides []side) []float64 {
	b.Helper()
	var measured []measure.Side
	for _, s := range sides {
		measured = append(measured, measure.Side{Name: s.name, Call: s.call, Before: s.before})
	}
	costs := measure.Alternate(b, measured, measure.Alike(b, measured))
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
