package readcache

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/rate"
	"github.com/extsvc/svc/internal/token"
)

// Key is the cached form of an API key. The zero Key stands for a key that does not exist.
type Key struct {
	Holder     Holder
	Rate       rate.Rate // zero: no limit
	Hash       [sha256.Size]byte
	Pepper     int   // its place in the keyring; -1: no pepper checks the key
	Closed     bool  // revoked, disabled, or its row does not match its seal
	Unsealed   bool  // its row has no seal yet
	Expires    int64 // Unix microseconds; 0: never
	Used       int64 // the minute, since the Unix epoch, of the last recorded use
	Generation int64
}

// Good reports whether a key with the right secret is accepted now.
func (k Key) Good(now time.Time) bool {
	return !k.Closed && (k.Expires == 0 || now.UnixMicro() < k.Expires)
}

// Key returns the cached key and its holder, if both exist and hold.
func (c *Cache) Key(id string) (Key, *Standing, bool) {
	key, holder, _, ok := c.KeyAt(id)
	return key, holder, ok
}

// KeyAt is Key, and returns the generation of its View.
func (c *Cache) KeyAt(id string) (key Key, holder *Standing, at int64, ok bool) {
	v, ok := c.View()
	if !ok {
		return Key{}, nil, 0, false
	}
	key, found := c.keys.find(keyOf(id))
	if !found || !v.Holds(key.Generation) {
		return Key{}, nil, 0, false
	}
	holder, found = c.holders.Get(key.Holder)
	return key, holder, v.Generation, found && v.Holds(holder.Generation)
}

// LoadKey returns a key and its holder: the cached ones, or what read returns. read reads them in
// one snapshot with the bank that most requests of the holder need.
func (c *Cache) LoadKey(
	ctx context.Context, id, bank string,
	read func(ctx context.Context, id string) (Key, *Standing, Bank, error),
) (Key, *Standing, error) {
	if c == nil {
		key, holder, _, err := read(ctx, id)
		return key, holder, err
	}
	type found struct {
		key    Key
		holder *Standing
	}
	f, err := load(ctx, c, c.keys, keyOf(id), func() (found, bool) {
		key, holder, ok := c.Key(id)
		return found{key, holder}, ok
	}, func(fence cache.Fence) (found, error) {
		now, bankFence := c.holders.Now(), c.banks.Fence(bank)
		key, holder, b, err := read(ctx, id)
		if err == nil {
			c.keys.keep(fence, keyOf(id), key)
			c.banks.Put(bankFence, bank, b)
			c.expect(key.Holder)
			c.holders.PutSince(now, key.Holder, holder)
		}
		return found{key, holder}, err
	})
	return f.key, f.holder, err
}

// UseKey records that a key was used in a minute. false: that use is recorded already, or nothing
// is kept.
func (c *Cache) UseKey(id string, minute int64) bool {
	return c != nil && c.keys.Raise(keyOf(id), uint32(minute))
}

// DropKey forgets a key. An id that no issued key can have is ignored.
func (c *Cache) DropKey(id string) {
	if c != nil && len(id) == token.IDLength {
		c.keys.Drop(keyOf(id))
	}
}

// keyOf returns the cache key of an API key's id. Every id that an issued key can have is of that
// length.
func keyOf(id string) cache.Key {
	b := []byte(id)
	return cache.Key{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// keys caches keys, up to millions: as records without pointers, which refer to holders by number.
type keys struct {
	*cache.Records
	holders holders
}

// newKeys makes a cache for so many keys of so many holders.
func newKeys(capacity, most int) *keys {
	return &keys{Records: cache.NewRecords(capacity), holders: holders{room: most}}
}

// Clear forgets all keys and holders.
func (c *keys) Clear() {
	c.Records.Clear()
	c.holders.clear()
}

// Bytes returns the memory of the keys and of the holders that they refer to.
func (c *keys) Bytes() int64 { return c.Records.Bytes() + c.holders.bytes.Load() }

// find returns the cached key. false: it is not cached.
func (c *keys) find(id cache.Key) (Key, bool) {
	value, used, ok := c.Get(id)
	if !ok {
		return Key{}, false
	}
	key, number := unpack(&value)
	key.Used = int64(used)
	who, ok := c.holders.holder(number)
	key.Holder, key.Rate = who.Holder, who.rate
	return key, ok
}

// keep caches a key that was read behind a fence, unless it has become stale since.
func (c *keys) keep(fence cache.Fence, id cache.Key, key Key) {
	number := c.holders.number(rated{key.Holder, key.Rate})
	c.Put(fence, id, key.pack(number), uint32(max(0, key.Used)))
}

// A record holds the hash, the expiry, the generation, and a word with the rest: two flags, the
// pepper's place (from 1) in 20 bits, and the number of the holder in 42.
const (
	hashWords = sha256.Size / 8
	pepperAt  = 2
	holderAt  = pepperAt + 20

	closedFlag, unsealedFlag = 1, 2
)

func (k Key) pack(holder uint64) (v cache.Value) {
	for i := range hashWords {
		v[i] = binary.LittleEndian.Uint64(k.Hash[8*i:])
	}
	rest := holder<<holderAt | uint64(k.Pepper+1)<<pepperAt
	if k.Closed {
		rest |= closedFlag
	}
	if k.Unsealed {
		rest |= unsealedFlag
	}
	v[hashWords], v[hashWords+1], v[hashWords+2] = uint64(k.Expires), uint64(k.Generation), rest
	return v
}

func unpack(v *cache.Value) (key Key, holder uint64) {
	for i := range hashWords {
		binary.LittleEndian.PutUint64(key.Hash[8*i:], v[i])
	}
	rest := v[hashWords+2]
	key.Expires, key.Generation = int64(v[hashWords]), int64(v[hashWords+1])
	key.Pepper = int(rest>>pepperAt&(1<<(holderAt-pepperAt)-1)) - 1
	key.Closed, key.Unsealed = rest&closedFlag != 0, rest&unsealedFlag != 0
	return key, rest >> holderAt
}

// rated is a holder with the rate of some of its keys. A rate costs the records of keys nothing:
// the number that stands for their holder stands for both.
type rated struct {
	Holder
	rate rate.Rate
}

// holders gives each holder a number. When there are too many, it forgets all of them, and so makes
// the cached keys that refer to them unusable: no number is given twice.
type holders struct {
	room  int
	list  atomic.Pointer[numbered] // nil: no holders
	bytes atomic.Int64

	mu      sync.Mutex
	numbers map[rated]uint64
}

// holderBytes is the memory of a holder in the list and in the map, with what they keep free.
const holderBytes = 4 * int64(unsafe.Sizeof(rated{}))

// numbered is an immutable list of holders: who[i] has the number first+i.
type numbered struct {
	first uint64
	who   []rated
}

func (h *holders) holder(number uint64) (rated, bool) {
	list := h.list.Load()
	if list == nil || number < list.first || number-list.first >= uint64(len(list.who)) {
		return rated{}, false
	}
	return list.who[number-list.first], true
}

func (h *holders) number(who rated) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if number, ok := h.numbers[who]; ok {
		return number
	}
	var list numbered
	if now := h.list.Load(); now != nil {
		list = *now
	}
	number := list.first + uint64(len(list.who))
	if h.numbers == nil || len(list.who) == h.room {
		list, h.numbers = numbered{first: number}, map[rated]uint64{}
		h.bytes.Store(0)
	}
	list.who = append(list.who, who) // beyond what readers of the earlier list look at
	h.numbers[who] = number
	h.list.Store(&list)
	h.bytes.Add(holderBytes + cache.Size(who))
	return number
}

// clear forgets all holders, but gives no number again.
func (h *holders) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.numbers = nil
	if now := h.list.Load(); now != nil {
		h.list.Store(&numbered{first: now.first + uint64(len(now.who))})
	}
	h.bytes.Store(0)
}
