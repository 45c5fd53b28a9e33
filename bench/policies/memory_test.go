package policies_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/extsvc/svc/bench/internal/measure"
)

const (
	askers   = 50        // principals that ask for every pair
	invented = 1_000_000 // unknown actions and banks
)

// BenchmarkMemory measures what stays in memory: of principals, of decisions, and of queries about
// unknown names.
func BenchmarkMemory(b *testing.B) {
	b.Run("principals/shared", func(b *testing.B) { principalMemory(b, newCrowd(principals, attachments)) })
	b.Run("principals/distinct", func(b *testing.B) { principalMemory(b, newCrowd(attachments, attachments)) })
	for _, s := range sizes {
		b.Run("pairs/"+s.String(), func(b *testing.B) { pairMemory(b, workloadOf(s)) })
		b.Run("invented/"+s.String(), func(b *testing.B) { inventedMemory(b, workloadOf(s)) })
	}
}

func principalMemory(b *testing.B, c crowd) {
	grown := grows(b, newCompiler, func(with compiler) any { return c.engines(with) })
	b.ReportMetric(grown/float64(len(c.subjects)), "B/principal")
}

func pairMemory(b *testing.B, w *workload) {
	pairs := w.pairs()
	begin := func() *colds {
		c := &colds{subject: w.subject}
		_ = c.compile(askers)
		return c
	}
	grown := grows(b, begin, func(c *colds) any {
		for _, e := range c.engines {
			_ = ask(e, fresh(pairs))
		}
		return nil
	})
	b.ReportMetric(grown/float64(askers*len(pairs)), "B/pair")
}

func inventedMemory(b *testing.B, w *workload) {
	begin := func() engine {
		e := newCompiler().compile(w.subject)
		_ = ask(e, fresh(w.queries))
		return e
	}
	grown := grows(b, begin, func(e engine) any {
		for i := range invented {
			e.Decide(fmt.Sprintf("bank:invented-%d", i), fmt.Sprintf("project-%d::invented-%d", i%20, i))
		}
		return nil
	})
	b.ReportMetric(grown/1024, "KiB")
}

// grows returns the most bytes by which the memory in use grows while work runs with the result of
// begin. Both that and the result of work stay in use.
func grows[T any](b *testing.B, begin func() T, work func(T) any) float64 {
	b.Helper()
	most := 0.0
	for b.Loop() {
		with := begin()
		before, _ := measure.Heap()
		made := work(with)
		after, _ := measure.Heap()
		most = max(most, float64(after)-float64(before))
		runtime.KeepAlive(with)
		runtime.KeepAlive(made)
	}
	b.ReportMetric(0, "ns/op")
	return most
}
