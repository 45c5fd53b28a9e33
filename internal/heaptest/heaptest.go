// Package heaptest measures what tests keep in memory.
package heaptest

import "runtime"

// Live returns how many bytes of the heap are in use.
func Live() int64 {
	for range 100 {
		runtime.Gosched() // goroutines that have given their results hold memory until they end
	}
	runtime.GC()
	runtime.GC() // the first one leaves what pools keep
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
