// Package measure compares ways to do the same thing within one run, so that other load on the
// machine meets all of them alike. It also measures memory.
package measure

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"
)

// Side is one way to do something. A call that fails ends the benchmark.
type Side struct {
	Name   string
	Call   func() error
	Before func(calls int) error // prepares a batch of calls, unmeasured; nil: nothing to prepare
	// Clock returns the amount spent so far of the measured resource. nil: elapsed time.
	Clock func() (time.Duration, error)
}

// batch is the time in ns of the calls of a side that are measured together. It is long enough for
// the clock, and short enough that some batches run undisturbed.
const batch = 5_000_000

// Alternate returns the ns that a call of each side takes in its best round: other load on the
// machine can only add to it. In a round each side makes its number of calls. Each round begins
// with another side.
func Alternate(b *testing.B, sides []Side, calls []int) []float64 {
	b.Helper()
	costs := slices.Repeat([]float64{math.Inf(1)}, len(sides))
	for round := 0; b.Loop(); round++ {
		for i := range sides {
			at := (i + round) % len(sides)
			costs[at] = min(costs[at], sides[at].measure(b, calls[at]))
		}
	}
	b.ReportMetric(0, "ns/op") // of a round: means nothing
	return costs
}

// Alike warms the sides up. It gives all of them the number of calls that makes a batch of the
// fastest.
func Alike(b *testing.B, sides []Side) []int {
	b.Helper()
	return slices.Repeat([]int{calibrate(b, sides)}, len(sides))
}

// Apart warms the sides up and gives each the number of calls that makes its batch. Use it when
// one side takes a thousand times as long as another.
func Apart(b *testing.B, sides []Side) []int {
	b.Helper()
	calls := make([]int, len(sides))
	for i := range sides {
		calls[i] = calibrate(b, sides[i:i+1])
	}
	return calls
}

// calibrate returns the number of calls that makes a batch of the fastest.
func calibrate(b *testing.B, sides []Side) int {
	b.Helper()
	for calls := 1; ; calls *= 4 {
		fastest := math.Inf(1)
		for _, s := range sides {
			fastest = min(fastest, s.measure(b, calls))
		}
		wanted := int(math.Ceil(batch / fastest))
		if wanted <= 4*calls {
			return wanted
		}
	}
}

// measure returns the ns that a call takes. It first collects the garbage of earlier sides.
func (s Side) measure(b *testing.B, calls int) float64 {
	b.Helper()
	if s.Before != nil {
		if err := s.Before(calls); err != nil {
			b.Fatal(s.Name, ": ", err)
		}
	}
	runtime.GC()
	start := s.now(b)
	for range calls {
		if err := s.Call(); err != nil {
			b.Fatal(s.Name, ": ", err)
		}
	}
	return float64((s.now(b) - start).Nanoseconds()) / float64(calls)
}

// epoch is the start of the elapsed time.
var epoch = time.Now()

func (s Side) now(b *testing.B) time.Duration {
	b.Helper()
	if s.Clock == nil {
		return time.Since(epoch)
	}
	spent, err := s.Clock()
	if err != nil {
		b.Fatal(s.Name, ": ", err)
	}
	return spent
}
