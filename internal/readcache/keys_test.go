package readcache

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/rate"
)

func keyID(n int) string { return fmt.Sprintf("%016d", n) }

func (c *keys) put(n, of int) {
	id := keyOf(keyID(n))
	c.keep(c.Fence(id), id, Key{Holder: Holder{Kind: policy.User, ID: keyID(of)}})
}

func TestKeysAreWhatWasKept(t *testing.T) {
	is := is.New(t)
	cached, id := newKeys(1000, 10), keyOf(keyID(1))
	for _, flag := range []bool{false, true} {
		for _, pepper := range []int{-1, 0, 1, 1<<20 - 2} {
			key := Key{
				Holder: Holder{policy.ServiceAccount, "ci", "narrow"}, Hash: sha256.Sum256([]byte("key")),
				Pepper: pepper, Closed: flag, Unsealed: !flag, Rate: rate.Rate{PerSecond: 0.1, Burst: math.MaxInt},
				Expires: 1 << 61, Used: 1 << 31, Generation: 1 << 62,
			}
			cached.keep(cached.Fence(id), id, key)
			found, ok := cached.find(id)
			is.True(ok)
			is.Equal(found, key)
		}
	}
}

// What is cleared counts no more, and a number that a reader still has refers to no other holder.
func TestClearedHolders(t *testing.T) {
	is := is.New(t)
	cached := newKeys(1000, 10)
	cached.put(1, 1)
	number := cached.holders.number(rated{Holder: Holder{policy.User, keyID(1), ""}})
	full := cached.Bytes()
	cached.Clear()
	is.True(cached.Bytes() <= full-holderBytes)
	cached.put(2, 2)
	_, found := cached.holders.holder(number)
	is.True(!found)
	_, found = cached.find(keyOf(keyID(2)))
	is.True(found)
}

// However many holders there are, a cached key is of its own holder, or it is not there.
func TestKeysOfManyHolders(t *testing.T) {
	is := is.New(t)
	cached := newKeys(1000, 10)
	for n := range 9 {
		cached.put(n, n)
		cached.put(100+n, n)
	}
	for n := range 9 {
		key, found := cached.find(keyOf(keyID(100 + n)))
		is.True(found)
		is.Equal(key.Holder.ID, keyID(n))
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5000 {
				n := rand.IntN(100)
				cached.put(n, n)
				n = rand.IntN(100)
				if key, found := cached.find(keyOf(keyID(n))); found && key.Holder.ID != keyID(n) {
					t.Errorf("%d is said to be of %s", n, key.Holder.ID)
				}
			}
		})
	}
	all.Wait()
	is.True(cached.holders.bytes.Load() < 10*(holderBytes+200)) // those that are forgotten do not count
	cached.put(1, 1)
	_, found := cached.find(keyOf(keyID(1)))
	is.True(found)
}
