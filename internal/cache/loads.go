package cache

import "sync"

// Fence is a moment in the life of a [Cache], or of [Records]. What is loaded after it may be put with it.
type Fence struct{ era, version uint32 }

// loads are those that are under way.
type loads[K comparable] struct {
	mu      sync.Mutex
	loading map[load[K]]chan struct{}
}

// load is the loading of a key behind a fence.
type load[K comparable] struct {
	key K
	Fence
}

func newLoads[K comparable]() loads[K] { return loads[K]{loading: map[load[K]]chan struct{}{}} }

// Turn is for whoever found nothing, so that what many want at once is loaded once. The one whose turn it is gets done, which it
// calls when it has put what it loaded, or has failed. The others get a channel that is closed by then, and look again. A load
// that was begun behind another fence is not waited for.
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
