// Package measure compares ways to do the same thing within one run, so that what else the machine does meets all of them
// alike, and tells what is in memory.
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
	// Clock tells what was spent so far, of what a call takes; nil: the time that passes.
	Clock func() (time.Duration, error)
}

// batch is how long, in ns, the calls of a side that are measured together take: long enough for the clock, and short enough
// that some batches are disturbed by nothing.
const batch = 5_000_000

// Alternate returns what a call of each side takes, in ns, in its best round: whatever else the machine does can only add to
// it. In a round each side has its number of calls, and each round begins with another side.
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

// Alike warms the sides up and gives all of them the number of calls that makes a batch of the fastest.
func Alike(b *testing.B, sides []Side) []int {
	b.Helper()
	return slices.Repeat([]int{calibrate(b, sides)}, len(sides))
}

// Apart warms the sides up and gives each of them the number of calls that makes a batch of its own: for sides of which one
// takes a thousand times as long as another.
func Apart(b *testing.B, sides []Side) []int {
	b.Helper()
	calls := make([]int, len(sides))
	for i := range sides {
		calls[i] = calibrate(b, sides[i:i+1])
	}
	return calls
}

// calibrate returns how many calls make a batch of the fastest.
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

// measure returns the ns that a call takes. The garbage of whoever came before is gone.
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

// epoch is what the time that passes counts from.
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
