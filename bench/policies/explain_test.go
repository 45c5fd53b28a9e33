package policies_test

import (
	"testing"

	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/internal/policy"
)

// BenchmarkExplain explains the decisions of the first queries.
func BenchmarkExplain(b *testing.B) {
	for _, s := range sizes {
		b.Run(s.String(), func(b *testing.B) {
			w := workloadOf(s)
			rights, queries := newCompiler().Compile(w.subject), w.queries[:len(mix)]
			explain := func() error {
				for _, q := range queries {
					rights.Explain(policy.Request{Action: q.action, Bank: q.bank})
				}
				return nil
			}
			sides := []measure.Side{{Name: "explain", Call: explain}}
			b.ReportMetric(measure.Alternate(b, sides, measure.Alike(b, sides))[0]/float64(len(queries)), "ns/op")
		})
	}
}
