package measure

import (
	"runtime"
	"runtime/metrics"
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
