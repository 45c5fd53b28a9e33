// Package heaptest measures the memory that tests take.
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

// Allocated returns how many bytes a function allocates, in use or not.
func Allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
