package svc

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc/internal/cache"
)

// idOf is the id of a key, as copies are kept by it. An id that a key issued here can have is of just that length.
func idOf(id string) cache.Key {
	b := []byte(id)
	return cache.Key{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// keyCopy is what is known of an API key: nothing, when there is none.
type keyCopy struct {
	holder     actor
	hash       [sha256.Size]byte
	pepper     int   // its place in the keyring; noPepper: none under which keys are checked
	closed     bool  // revoked, disabled, or not as it was sealed
	unsealed   bool  // it is to be sealed
	expires    int64 // Unix microseconds; 0: never
	used       int64 // the minute, of the Unix epoch, of the last use that was noted
	generation int64
}

// copyOf is what there is to know of a key that was read.
func (r *keyring) copyOf(k *APIKey) keyCopy {
	key := keyCopy{
		holder: actor{k.Holder, k.ScopingPolicyID}, pepper: r.place(k.Pepper), closed: k.Disabled || !k.RevokedAt.IsZero(),
		unsealed: len(k.Seal) == 0,
	}
	copy(key.hash[:], k.Hash)
	if !k.ExpiresAt.IsZero() {
		key.expires = k.ExpiresAt.UnixMicro()
	}
	if !k.LastUsedAt.IsZero() {
		key.used = minuteOf(k.LastUsedAt)
	}
	return key
}

// good reports whether a key that is right is accepted now.
func (k keyCopy) good(now time.Time) bool {
	return !k.closed && (k.expires == 0 || now.UnixMicro() < k.expires)
}

// keyCopies are the copies of keys, which may be a million: so they are records without pointers, which refer to holders by number.
type keyCopies struct {
	*cache.Records
	holders actors
}

// newKeyCopies makes room for the copies of so many keys, of so many holders.
func newKeyCopies(keys, holders int) *keyCopies {
	return &keyCopies{Records: cache.NewRecords(keys), holders: actors{room: holders}}
}

// find returns the copy of a key. false: there is none.
func (c *keyCopies) find(id cache.Key) (keyCopy, bool) {
	value, used, ok := c.Get(id)
	if !ok {
		return keyCopy{}, false
	}
	key, holder := unpack(&value)
	key.used = int64(used)
	key.holder, ok = c.holders.actor(holder)
	return key, ok
}

// keep keeps a copy that was read behind a fence, unless it has become stale since.
func (c *keyCopies) keep(fence cache.Fence, id cache.Key, key keyCopy) {
	c.Put(fence, id, key.pack(c.holders.number(key.holder)), uint32(max(0, key.used)))
}

// use notes that a key was used in a minute. false: that is noted already.
func (c *keyCopies) use(id cache.Key, minute int64) bool { return c.Raise(id, uint32(minute)) }

// A record is the hash, when the key expires, the generation, and a word of what is left: two flags, the pepper's place, from 1 on, in
// 20 bits, and the number of the holder in 42.
const (
	hashWords = sha256.Size / 8
	pepperAt  = 2
	holderAt  = pepperAt + 20

	closedFlag, unsealedFlag = 1, 2
)

func (k keyCopy) pack(holder uint64) (v cache.Value) {
	for i := range hashWords {
		v[i] = binary.LittleEndian.Uint64(k.hash[8*i:])
	}
	rest := holder<<holderAt | uint64(k.pepper+1)<<pepperAt
	if k.closed {
		rest |= closedFlag
	}
	if k.unsealed {
		rest |= unsealedFlag
	}
	v[hashWords], v[hashWords+1], v[hashWords+2] = uint64(k.expires), uint64(k.generation), rest
	return v
}

func unpack(v *cache.Value) (key keyCopy, holder uint64) {
	for i := range hashWords {
		binary.LittleEndian.PutUint64(key.hash[8*i:], v[i])
	}
	rest := v[hashWords+2]
	key.expires, key.generation = int64(v[hashWords]), int64(v[hashWords+1])
	key.pepper = int(rest>>pepperAt&(1<<(holderAt-pepperAt)-1)) - 1
	key.closed, key.unsealed = rest&closedFlag != 0, rest&unsealedFlag != 0
	return key, rest >> holderAt
}

// actors numbers them. When there are too many all are forgotten, and with them, in effect, the copies that refer to them: no number is
// given twice.
type actors struct {
	room int
	list atomic.Pointer[numbered] // nil: there are none

	mu      sync.Mutex
	numbers map[actor]uint64
}

// numbered are actors: that of who[i] has the number first+i. They do not change.
type numbered struct {
	first uint64
	who   []actor
}

func (a *actors) actor(number uint64) (actor, bool) {
	list := a.list.Load()
	if list == nil || number < list.first || number-list.first >= uint64(len(list.who)) {
		return actor{}, false
	}
	return list.who[number-list.first], true
}

func (a *actors) number(who actor) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if number, ok := a.numbers[who]; ok {
		return number
	}
	var list numbered
	if now := a.list.Load(); now != nil {
		list = *now
	}
	number := list.first + uint64(len(list.who))
	if a.numbers == nil || len(list.who) == a.room {
		list, a.numbers = numbered{first: number}, map[actor]uint64{}
	}
	list.who = append(list.who, who) // behind what readers of the list before look at
	a.numbers[who] = number
	a.list.Store(&list)
	return number
}
