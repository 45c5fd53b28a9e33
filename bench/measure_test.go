package bench_test

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"
)

// side is one way to do something. A call that fails ends the benchmark.
type side struct {
	name   string
	call   func() error
	before func(calls int) error // prepares a batch of calls, unmeasured; nil: nothing to prepare
}

// batch is how long, in µs, the calls of a side that are measured together take: long enough for the clock, and short enough
// that some batches are disturbed by nothing.
const batch = 5_000

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
// calls, and each round begins with another side.
func alternate(b *testing.B, sides []side) []float64 {
	b.Helper()
	calls := calibrate(b, sides)
	costs := slices.Repeat([]float64{math.Inf(1)}, len(sides))
	for round := 0; b.Loop(); round++ {
		for i := range sides {
			at := (i + round) % len(sides)
			costs[at] = min(costs[at], measure(b, sides[at], calls))
		}
	}
	b.ReportMetric(0, "ns/op") // of a round: means nothing
	return costs
}

// calibrate warms the sides up and returns how many calls make a batch of the fastest.
func calibrate(b *testing.B, sides []side) int {
	b.Helper()
	for calls := 1; ; calls *= 4 {
		fastest := math.Inf(1)
		for _, s := range sides {
			fastest = min(fastest, measure(b, s, calls))
		}
		wanted := int(math.Ceil(batch / fastest))
		if wanted <= 4*calls {
			return wanted
		}
	}
}

// measure returns the µs that a call takes. The garbage of whoever came before is gone.
func measure(b *testing.B, s side, calls int) float64 {
	b.Helper()
	if s.before != nil {
		if err := s.before(calls); err != nil {
			b.Fatal(s.name, ": ", err)
		}
	}
	runtime.GC()
	start := time.Now()
	for range calls {
		if err := s.call(); err != nil {
			b.Fatal(s.name, ": ", err)
		}
	}
	return float64(time.Since(start).Nanoseconds()) / 1000 / float64(calls)
}
