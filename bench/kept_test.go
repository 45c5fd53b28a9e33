package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
)

// Templates in memory, all of one size.
var (
	tenThousand     = size{name: "kept", keys: 100, templates: 10_000, known: 10}
	hundredThousand = size{name: "kept-large", keys: 100, templates: 100_000, known: 10, large: true}
)

// BenchmarkKept measures the first read after a change of one template, with all templates in
// memory, by one look-up of a template by the bare driver. It also measures the memory of the
// templates, and of 100 changes.
func BenchmarkKept(b *testing.B) {
	for _, e := range allEngines {
		for _, size := range []size{tenThousand, hundredThousand} {
			b.Run(e.name+"/"+size.name, func(b *testing.B) { siteOf(b, e, size).kept(b) })
		}
	}
}

func (s *site) kept(b *testing.B) {
	before, _ := measure.Heap()
	c := config(s.store)
	c.Templates.Cached = 1 << 40
	service, err := svc.New(c)
	if err != nil {
		b.Fatal(err)
	}
	defer service.Close()
	began := time.Now()
	for etag := ""; etag == ""; time.Sleep(time.Millisecond) {
		if etag, err = service.Templates.ETag(b.Context(), svc.Host); err != nil {
			b.Fatal(err)
		}
	}
	took := time.Since(began)
	loaded, _ := measure.Heap()

	n := 0
	patch := func(int) error {
		n++
		name := fmt.Sprint("Template ", n)
		_, err := service.Templates.Patch(b.Context(), svc.Host, s.anyTemplate(), svc.TemplatePatch{Name: &name})
		return err
	}
	read := func(ctx context.Context) error {
		_, err := service.Templates.Read(ctx, svc.Host, templateID(1)) // made by hand
		return err
	}
	sides := []side{
		{name: "floor", call: func() error {
			_, err := s.bare.get(b.Context(), s.anyTemplate())
			return err
		}},
		{name: "read", before: patch, call: func() error { return read(b.Context()) }},
		{name: "page", before: patch, call: func() error {
			return drained(20, service.Templates.List(b.Context(), svc.Host, svc.TemplateQuery{Limit: 20}))
		}},
		{name: "all", before: patch, call: func() error {
			return drained(s.templates, service.Templates.List(b.Context(), svc.Host, svc.TemplateQuery{}))
		}},
	}
	one := func(*testing.B, []measure.Side) []int { return []int{1, 1, 1, 1} }
	costs := alternate(b, sides, one)
	for i, side := range sides {
		b.ReportMetric(costs[i], "µs-"+side.name)
		b.ReportMetric(costs[i]/costs[0], "x-"+side.name)
	}
	for range 100 {
		if err := patch(1); err != nil {
			b.Fatal(err)
		}
		if err := read(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	changed, _ := measure.Heap()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took.Seconds(), "s-load")
	b.ReportMetric(float64(loaded-before)/(1<<20), "MiB-kept")
	b.ReportMetric((float64(changed)-float64(loaded))/(1<<20), "MiB-changed")
}
