package cache

import "sync"

// Fence marks a moment in the life of a [Cache] or of [Records]. Values loaded after that moment
// may be put with it.
type Fence struct {
	stamp
	sweep uint32
}

// stamp marks a moment in the life of a set or shard.
type stamp struct{ era, version uint32 }

// loads are the loads under way.
type loads[K comparable] struct {
	mu      sync.Mutex
	loading map[load[K]]chan struct{}
}

// load names the load of a key behind a fence.
type load[K comparable] struct {
	key K
	Fence
}

func newLoads[K comparable]() loads[K] { return loads[K]{loading: map[load[K]]chan struct{}{}} }

// Turn makes concurrent readers load a missing value once. The first caller gets done, which it
// must call after it has put the value or has failed. The others get a channel that is closed then,
// and look again. A load behind another fence does not block.
func (ls *loads[K]) Turn(fence Fence, key K) (done func(), wait <-chan struct{}) {
	l := load[K]{key, fence}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if wait, ok := ls.loading[l]; ok {
		return nil, wait
	}
	ended := make(chan struct{})
	ls.loading[l] = ended
	return func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		delete(ls.loading, l)
		close(ended)
	}, nil
}
