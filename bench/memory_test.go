package bench_test

import (
	"flag"
	"runtime"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
)

// BenchmarkListMemory measures the peak of reachable memory during a list of all templates over
// HTTP, beyond what was reachable before. It looks each time that a piece is sent. The driver's
// memory outside Go's heap does not count.
func BenchmarkListMemory(b *testing.B) {
	eachEngine(b, func(b *testing.B, e engine) {
		for _, size := range []size{small, large} {
			b.Run(size.name, func(b *testing.B) {
				w := newWorld(b, e, size)
				most, pieces, every := uint64(0), 0, max(1, w.templates/1000) // a look costs a collection
				for b.Loop() {
					before, _ := measure.Heap()
					check(listOverHTTP(b.Context(), w, "", &discard{between: func() {
						if pieces++; pieces%every == 0 {
							now, _ := measure.Heap()
							most = max(most, now-min(now, before))
						}
					}}))
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(most)/1024, "KiB-peak")
			})
		}
	})
}

// cachedKeys is the number of keys that a Service caches. They have a hundredth as many holders.
var cachedKeys = flag.Int("cached", 1<<16, "how many keys BenchmarkCachedKeys caches")

// BenchmarkCachedKeys compares a Service that has cached keys with the process before: bytes in
// memory, and the processor time of one garbage collection.
func BenchmarkCachedKeys(b *testing.B) {
	w := newWorld(b, sqliteEngine, size{keys: *cachedKeys, perUser: 100}) // its rows are outside Go's memory
	var bytes float64
	var collection time.Duration
	for b.Loop() {
		before, _ := measure.Heap()
		without := get(measure.Collection())
		caching := config(w.store)
		caching.Memory.Keys = *cachedKeys
		service := get(svc.New(caching))
		for _, key := range w.issued {
			get(service.Authenticate(b.Context(), string(key.Key)))
		}
		after, _ := measure.Heap()
		bytes, collection = float64(after)-float64(before), get(measure.Collection())-without
		check(service.Close())
	}
	runtime.KeepAlive(w)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(bytes/float64(*cachedKeys), "B/key")
	b.ReportMetric(collection.Seconds()*1000, "ms-collection")
}
