package readcache

import (
	"context"

	"github.com/extsvc/svc/internal/cache"
)

// One keeps one value that was read from the store. A nil One keeps nothing.
type One[T any] struct {
	in    *Cache
	cache *cache.Cache[struct{}, *one[T]]
	most  int64
	size  func(T) int64
}

// one is a value as it was at a generation.
type one[T any] struct {
	value      T
	generation int64
	bytes      int64
}

// NewOne returns a place for one value of at most so many bytes, which holds as the values of in
// do. A larger value is not kept. With a nil in it returns nil.
func NewOne[T any](in *Cache, most int64, size func(T) int64) *One[T] {
	if in == nil {
		return nil
	}
	kept := cache.New[struct{}, *one[T]](1, func(struct{}) uint64 { return 0 })
	o := &One[T]{in, kept, most, size}
	in.OnReset(o.Clear)
	return o
}

// Clear forgets the value, and one that is being read.
func (o *One[T]) Clear() {
	if o != nil {
		o.cache.Clear()
	}
}

// Bytes returns the size of the value that is kept, also of one that no longer holds.
func (o *One[T]) Bytes() int64 {
	if o == nil {
		return 0
	}
	if kept, found := o.cache.Get(struct{}{}); found {
		return kept.bytes
	}
	return 0
}

func (o *One[T]) get() (value T, ok bool) {
	v, ok := o.in.View()
	if !ok {
		return value, false
	}
	kept, found := o.cache.Get(struct{}{})
	if !found || !v.Holds(kept.generation) {
		return value, false
	}
	return kept.value, true
}

// Load returns the cached value, or what read returns. Of concurrent callers one reads. read gets
// the latest generation known, and returns the generation of its value.
func (o *One[T]) Load(
	ctx context.Context, read func(known int64) (value T, generation int64, err error),
) (T, error) {
	if o == nil {
		value, _, err := read(0)
		return value, err
	}
	if value, ok := o.get(); ok {
		return value, nil
	}
	return load(ctx, o.in, o.cache, struct{}{}, o.get, func(fence cache.Fence) (T, error) {
		v, _ := o.in.View()
		value, generation, err := read(v.Generation)
		if err == nil {
			if bytes := o.size(value); bytes <= o.most {
				o.cache.Put(fence, struct{}{}, &one[T]{value, generation, bytes})
			}
		}
		return value, err
	})
}
