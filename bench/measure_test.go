package bench_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/extsvc/svc/bench/internal/measure"
)

// compare measures sides in turn and reports the cost of the last one, the Service, as a multiple
// of each other side. It divides the best rounds of both: other load on the machine can only add to
// either.
func compare(b *testing.B, sides ...measure.Side) {
	b.Helper()
	costs := alternate(b, sides, measure.Alike)
	service := costs[len(costs)-1]
	for i, s := range sides {
		b.ReportMetric(costs[i], "µs-"+s.Name)
		if i < len(sides)-1 {
			b.ReportMetric(service/costs[i], "x-"+s.Name)
		}
	}
}

// alternate returns the µs that a call of each side takes in its best round. calls gives the number
// of calls of each side in a round.
func alternate(b *testing.B, sides []measure.Side, calls func(*testing.B, []measure.Side) []int) []float64 {
	b.Helper()
	costs := measure.Alternate(b, sides, calls(b, sides))
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
