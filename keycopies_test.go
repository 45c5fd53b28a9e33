package svc_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/extsvc/svc"
	"github.com/matryer/is"
)

func keyID(n int) string { return fmt.Sprintf("%016d", n) }

func TestCopiesAreWhatWasKept(t *testing.T) {
	is := is.New(t)
	copies := svc.NewKeyCopies(10)
	for _, flag := range []bool{false, true} {
		for _, pepper := range []int{-1, 0, 1, 1<<20 - 2} {
			kept, found := copies.Again(pepper, flag, !flag)
			is.Equal(found, kept)
		}
	}
}

// However many holders there are, a key's copy is of its own holder, or it is not there.
func TestCopiesOfManyHolders(t *testing.T) {
	is := is.New(t)
	copies := svc.NewKeyCopies(10)
	for n := range 9 {
		copies.Keep(keyID(n), keyID(n))
		copies.Keep(keyID(100+n), keyID(n))
	}
	for n := range 9 {
		holder, found := copies.Holder(keyID(100 + n))
		is.True(found)
		is.Equal(holder, keyID(n))
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5000 {
				n := rand.IntN(100)
				copies.Keep(keyID(n), keyID(n))
				n = rand.IntN(100)
				if holder, found := copies.Holder(keyID(n)); found && holder != keyID(n) {
					t.Errorf("%d is said to be of %s", n, holder)
				}
			}
		})
	}
	all.Wait()
	copies.Keep(keyID(1), keyID(1))
	_, found := copies.Holder(keyID(1))
	is.True(found)
}

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
