package svc_test

import (
	"math/rand/v2"
	"testing"

	"github.com/extsvc/svc"
)

// As many keys are remembered as the host says, or some more.
func TestCached(t *testing.T) {
	for cached, bounds := range map[int]struct{ least, most int }{0: {1000, 1000}, 64: {1, 448}} {
		h, store := watched(t, func(c *svc.Config) { c.Keys.Cached = cached })
		keys := make([]svc.IssuedKey, 1000)
		for i := range keys {
			keys[i] = issue(t, h, alice)
		}
		remembered := func() (n int) {
			rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			for _, key := range keys {
				before := store.reads.Load()
				if !h.good(key) {
					t.Fatal("a good key is refused")
				}
				if store.reads.Load() == before {
					n++
				}
			}
			return n
		}
		eventually(t, func() bool { return remembered() >= bounds.least })
		if n := remembered(); n > bounds.most {
			t.Errorf("of %d keys %d are remembered", len(keys), n)
		}
	}
}
