package cache

import "sync/atomic"

// An Array makes this many elements in one step.
const chunkLength = 16

// Array has a fixed number of elements, which are made when they are first needed: an Array that is
// hardly used takes little memory. Elements are made once and stay. Use [NewArray]. All methods are
// safe for concurrent use.
type Array[T any] struct {
	chunks []atomic.Pointer[[chunkLength]T]
	mask   uint64
}

// NewArray returns an Array of size elements, a power of two.
func NewArray[T any](size int) Array[T] {
	return Array[T]{
		chunks: make([]atomic.Pointer[[chunkLength]T], (size+chunkLength-1)/chunkLength),
		mask:   uint64(size - 1),
	}
}

// Len returns the number of elements.
func (a *Array[T]) Len() int { return int(a.mask + 1) }

// Find returns the element at a position modulo the length. Nil: it was not made yet.
func (a *Array[T]) Find(at uint64) *T {
	at &= a.mask
	chunk := a.chunks[at/chunkLength].Load()
	if chunk == nil {
		return nil
	}
	return &chunk[at%chunkLength]
}

// Make returns the element at a position modulo the length, the zero value if it is new.
func (a *Array[T]) Make(at uint64) *T {
	if found := a.Find(at); found != nil {
		return found
	}
	a.chunks[(at&a.mask)/chunkLength].CompareAndSwap(nil, new([chunkLength]T))
	return a.Find(at)
}
