package policies_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
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

const (
	principals  = 10_000
	attachments = 200 // different sets of policies
)

// BenchmarkPrincipals compares decisions for 10,000 principals, in random order, with those for one
// that has as many policies.
func BenchmarkPrincipals(b *testing.B) {
	w := workloadOf(crowdSize)
	one := pass{engine: theOurs.on(b, w), queries: fresh(w.queries)}
	all, err := newRush(newCrowd(principals, attachments), w.queries)
	if err != nil {
		b.Fatal(err)
	}
	for _, o := range w.want {
		if o == allowed {
			one.allowed++
		}
	}
	sides := []measure.Side{{Name: "one", Call: one.run}, {Name: "all", Call: all.run}}
	costs := measure.Alternate(b, sides, measure.Apart(b, sides))
	ns := costs[1] / float64(len(all.requests))
	b.ReportMetric(ns, "ns/op")
	b.ReportMetric(ns/(costs[0]/float64(len(one.queries))), "x-one")
}

// request is a query of one of many principals.
type request struct {
	principal int
	query
}

// rush is requests in random order.
type rush struct {
	engines  []engine // of each principal
	requests []request
	allowed  int
}

// newRush draws 16 times as many requests as there are queries, and checks each decision.
func newRush(c crowd, queries []query) (*rush, error) {
	r, out := rand.New(rand.NewPCG(seed, principals)), &rush{engines: c.engines(newCompiler())}
	for range 16 {
		for _, q := range fresh(queries) {
			out.requests = append(out.requests, request{r.IntN(len(c.subjects)), q})
		}
	}
	r.Shuffle(len(out.requests), func(i, j int) {
		out.requests[i].query, out.requests[j].query = out.requests[j].query, out.requests[i].query
	})
	for _, q := range out.requests {
		want := decide(c.statements[q.principal], q.action, q.bank)
		if err := agrees(out.engines[q.principal], []query{q.query}, []outcome{want}); err != nil {
			return nil, fmt.Errorf("principal %d: %w", q.principal, err)
		}
		if want == allowed {
			out.allowed++
		}
	}
	return out, nil
}

func (r *rush) run() error {
	n := 0
	for i := range r.requests {
		q := &r.requests[i]
		if r.engines[q.principal].Decide(q.action, q.bank) {
			n++
		}
	}
	if n != r.allowed {
		return fmt.Errorf("%d of %d are allowed, not %d", n, len(r.requests), r.allowed)
	}
	return nil
}

// crowdSize is the size of each principal of a crowd. Its policies come from a pool ten times as
// large.
var crowdSize = size{20, 10}

// crowd is many principals, some with the same policies.
type crowd struct {
	subjects   []policy.Subject
	statements [][]statement // of each subject
}

// newCrowd returns so many principals with so many different sets of policies.
func newCrowd(principals, sets int) crowd {
	m := newMaker(crowdSize.policies * crowdSize.statements)
	pool := m.policies(10*crowdSize.policies, crowdSize.statements)
	documents := make([][]byte, len(pool))
	for i, p := range pool {
		documents[i] = document(p)
	}
	var c crowd
	for range sets {
		s, statements := policy.Subject{Kind: policy.User}, []statement(nil)
		for _, n := range m.Perm(len(pool))[:crowdSize.policies] {
			s.Grants = append(s.Grants, grant(m.Rand, n, documents[n]))
			statements = append(statements, pool[n]...)
		}
		c.subjects, c.statements = append(c.subjects, s), append(c.statements, statements)
	}
	for i := range principals - sets {
		s := c.subjects[i]
		s.Grants = slices.Clone(s.Grants) // equal, but not the same slice
		c.subjects, c.statements = append(c.subjects, s), append(c.statements, c.statements[i])
	}
	return c
}

// engines compiles the rights of each principal.
func (c crowd) engines(with compiler) []engine {
	out := make([]engine, len(c.subjects))
	for i, s := range c.subjects {
		out[i] = with.compile(s)
	}
	return out
}

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
