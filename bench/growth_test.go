package bench_test

import (
	"testing"

	"github.com/extsvc/svc/bench/internal/measure"
)

// BenchmarkGrowth compares the large database with the small one, for the Service and for the bare
// driver. The time to find rows in an index grows with the depth of the index and with its uncached
// pages, as the bare driver's key-lookup shows.
func BenchmarkGrowth(b *testing.B) {
	for _, e := range allEngines {
		b.Run(e.name, func(b *testing.B) {
			little, much := siteOf(b, e, small), siteOf(b, e, large)
			for _, f := range figures {
				if f.name == "http-list-all" {
					continue // grows with the list
				}
				b.Run(f.name, func(b *testing.B) { f.grow(b, little, much) })
			}
		})
	}
}

func (f figure) grow(b *testing.B, little, much *site) {
	l, m := f.on(b.Context(), little), f.on(b.Context(), much)
	last := len(l.sides) - 1
	costs := alternate(b, []side{l.sides[0], m.sides[0], l.sides[last], m.sides[last]}, measure.Alike)
	b.ReportMetric(costs[1]/costs[0], "x-floor-grows")
	b.ReportMetric(costs[3]/costs[2], "x-service-grows")
	b.ReportMetric(costs[3], "µs-large")
	for _, c := range []comparison{l, m} {
		if c.done != nil {
			if err := c.done(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
