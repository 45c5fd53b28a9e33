package measure

import (
	"runtime"
	"runtime/metrics"
	"time"
)

// Heap returns the reachable bytes, and all bytes ever allocated.
func Heap() (reachable, allocated uint64) {
	runtime.GC()
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

// Peak returns the most bytes of heap objects while call runs, beyond those reachable before. It
// includes garbage that is not collected yet.
func Peak(call func()) uint64 {
	before, _ := Heap()
	done, most := make(chan struct{}), make(chan uint64)
	go func() {
		samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		ticks := time.NewTicker(100 * time.Microsecond)
		defer ticks.Stop()
		peak := before
		for {
			metrics.Read(samples)
			peak = max(peak, samples[0].Value.Uint64())
			select {
			case <-ticks.C:
			case <-done:
				most <- peak
				return
			}
		}
	}()
	call()
	close(done)
	return <-most - before
}
