package policies_test

import (
	"testing"

	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/internal/policy"
)

// BenchmarkCompile measures the time to compile a subject's rights: of the first subject with these
// policies, and of another with equal ones.
func BenchmarkCompile(b *testing.B) {
	for _, s := range sizes {
		subject := workloadOf(s).subject
		b.Run(s.String()+"/first", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer() // a compiler takes much memory
				compiler := newCompiler()
				b.StartTimer()
				compiler.compile(subject)
			}
		})
		b.Run(s.String()+"/equal", func(b *testing.B) {
			b.ReportAllocs()
			compiler := newCompiler()
			first := compiler.compile(subject)
			for b.Loop() {
				compiler.compile(subject)
			}
			first.Decide("", "") // keeps it in memory until here
		})
	}
}

// BenchmarkFirst compares the first decision of each pair of an action and a bank with later ones.
func BenchmarkFirst(b *testing.B) {
	for _, s := range sizes {
		b.Run(s.String(), func(b *testing.B) {
			w := workloadOf(s)
			pairs := fresh(w.pairs())
			cold := &colds{subject: w.subject, pairs: pairs}
			warm := theOurs.on(b, w)
			sides := []measure.Side{
				{Name: "first", Before: cold.compile, Call: cold.ask},
				{Name: "later", Call: func() error { return ask(warm, pairs) }},
			}
			costs := measure.Alternate(b, sides, measure.Apart(b, sides))
			b.ReportMetric(costs[0]/float64(len(pairs)), "ns/op")
			b.ReportMetric(costs[0]/costs[1], "x-later")
		})
	}
}

// colds are engines without a decision so far.
type colds struct {
	subject policy.Subject
	pairs   []query
	engines []engine
}

func (c *colds) compile(calls int) error {
	c.engines = nil
	for range calls {
		c.engines = append(c.engines, newCompiler().compile(c.subject))
	}
	return nil
}

// ask asks one of them for every pair.
func (c *colds) ask() error {
	e := c.engines[0]
	c.engines = c.engines[1:]
	return ask(e, c.pairs)
}

func ask(e engine, queries []query) error {
	for i := range queries {
		e.Decide(queries[i].action, queries[i].bank)
	}
	return nil
}
