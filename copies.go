package svc

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/tasks"
	"github.com/extsvc/svc/internal/token"
)

// Limits of the cache in time and number.
const (
	// trusted is how long cached values are used after the store was last seen. After that, every
	// call reads the store.
	trusted      = 5 * time.Second
	seeTimeout   = 5 * time.Second // for one look at the store
	seePause     = 100 * time.Millisecond
	keptKeys     = 1 << 16 // if the host sets no number
	leastHolders = 1 << 14 // the number of keys, but at least this many
	mostHolders  = 1 << 16
	keptBanks    = 1 << 14
)

// Limits in bytes for cached values that are not kept by row. For rights and banks of a Compiler
// the limit is [policy.MaxKept]. A larger value is not cached: each request reads it.
const (
	maxEverybody = 256 << 20 // all rows of access, and their compiled form
	maxInstalled = 64 << 20  // the sources of all templates
	maxChecks    = 64 << 20  // results of the last comparisons with sources
)

// copies is the cache of a Service: most requests need no store call. A call that changes the store
// drops the changed values before it returns. A follower of the store's changes drops what others
// change.
//
// A cached value carries the generation at which it was read. While it is in the cache, it holds up
// to the generation applied last. When a read shows that the store is further, only values of
// exactly that generation are used until the follower has caught up. So no answer is older than an
// earlier one, and all values in one answer are of one state of the store.
type copies struct {
	holders *cache.Cache[actor, *standing]
	banks   *cache.Cache[string, bankCopy]
	seed    maphash.Seed // of both
	keys    *keyCopies

	everybody *cache.Cache[struct{}, *everybody] // one entry: all rows of access
	installed *cache.Cache[struct{}, *installed] // one entry: all templates that came from sources
	templates *templateCopies

	epoch   time.Time    // seen counts from here
	seen    atomic.Int64 // nanoseconds: when the store was last seen to match the cache; 0: never
	applied atomic.Int64 // every change up to this generation has been dropped
	heard   atomic.Int64 // the latest generation that a read has shown

	wake atomic.Pointer[context.CancelFunc] // ends the follower's wait for a change
}

// standing is what the Service knows of a principal.
type standing struct {
	rights   *policy.Rights
	inactive bool // its own row says so
	// keysRest: nobody may act with its keys. The principal or its owner is inactive, or the
	// service account no longer exists.
	keysRest   bool
	generation int64
}

// standingBytes is the size of a standing without the table of its rights: the struct, the rights,
// and the reason of a denial.
const standingBytes = 512

// nobody is the holder of a key that was never issued.
var nobody = &standing{keysRest: true}

// bankCopy is the cached policy of a bank. Banks without a policy are cached as well.
type bankCopy struct {
	policy     *policy.Bank
	generation int64
}

// newCopies makes a cache for so many keys, and for so many bytes of templates. Holders and banks
// count in the budget of the compiler, with which they share nearly all memory.
func newCopies(keys, templates int, budget *cache.Budget) *copies {
	holders := min(max(keys, leastHolders), mostHolders)
	c := &copies{
		seed:      maphash.MakeSeed(),
		keys:      newKeyCopies(keys, 2*holders), // renumbering the holders forgets all keys
		everybody: cache.New[struct{}, *everybody](1, func(struct{}) uint64 { return 0 }),
		installed: cache.New[struct{}, *installed](1, func(struct{}) uint64 { return 0 }),
		templates: newTemplateCopies(templates),
		epoch:     time.Now(),
	}
	hashOf := func(who actor) uint64 { return c.hash(who.ID) } // see drop
	c.holders = cache.NewWithin(holders, hashOf, budget, func(
		who actor, s *standing,
	) (int64, *cache.Share) {
		return standingBytes + cache.Size(who), s.rights.Share()
	})
	c.banks = cache.NewWithin(keptBanks, c.hash, budget, func(
		id string, b bankCopy,
	) (int64, *cache.Share) {
		return cache.Allocated(len(id)), b.policy.Share()
	})
	return c
}

// hash returns the hash of a holder's id or a bank's id.
func (c *copies) hash(id string) uint64 { return maphash.String(c.seed, id) }

// fresh reports whether the store was seen recently enough to use the cache.
func (c *copies) fresh() bool {
	seen := c.seen.Load()
	return seen != 0 && int64(time.Since(c.epoch))-seen < int64(trusted)
}

// view is a generation, and tells which values found after the view was taken belong to it. These
// are the values read at that generation. When every change up to it has been dropped, older values
// belong to it as well.
type view struct {
	generation int64
	applied    bool
}

func (v view) holds(generation int64) bool {
	return generation == v.generation || v.applied && generation < v.generation
}

// view returns the latest generation known. false: the store was last seen too long ago.
func (c *copies) view() (view, bool) {
	heard, applied := c.heard.Load(), c.applied.Load()
	if heard > applied {
		return view{heard, false}, c.fresh()
	}
	return view{applied, true}, c.fresh()
}

// get returns the cached values for a decision, if both exist and hold.
func (c *copies) get(who actor, bank string) (*standing, *policy.Bank, bool) {
	v, ok := c.view()
	if !ok {
		return nil, nil, false
	}
	holder, found := c.holders.Get(who)
	if !found || !v.holds(holder.generation) {
		return nil, nil, false
	}
	b, found := c.banks.Get(bank)
	return holder, b.policy, found && v.holds(b.generation)
}

// again sets d to the earlier decision of the same request, if nothing has changed since. It copies
// neither the principal nor the bank. now is the moment of the banks' policies, for a request that
// needs a new decision.
func (c *copies) again(
	d *policy.Decision, p *Principal, action, bank string, in *policy.Context,
) (now cache.Moment, ok bool) {
	v, ok := c.view()
	now = c.banks.Now()
	if !ok || !v.applied {
		return now, false
	}
	holder, found := c.holders.Find(c.hash(p.ID), func(who *actor) bool {
		return who.ID == p.ID && who.Kind == p.Kind && who.narrowedBy == p.ScopingPolicyID
	})
	known := found && v.holds(holder.generation) &&
		holder.rights.Again(d, action, bank, in, uint64(now))
	// The call that noted the policy had heard of its generation.
	return now, known && c.heard.Load() <= v.generation
}

// key returns the cached key and its holder, if both exist and hold.
func (c *copies) key(id string) (keyCopy, *standing, bool) {
	v, ok := c.view()
	if !ok {
		return keyCopy{}, nil, false
	}
	key, found := c.keys.find(idOf(id))
	if !found || !v.holds(key.generation) {
		return keyCopy{}, nil, false
	}
	holder, found := c.holders.Get(key.holder)
	return key, holder, found && v.holds(holder.generation)
}

// hear records the generation that a read has shown, and wakes the follower when it is behind.
func (c *copies) hear(generation int64) {
	for {
		heard := c.heard.Load()
		if generation <= heard {
			return
		}
		if c.heard.CompareAndSwap(heard, generation) {
			break
		}
	}
	if wake := c.wake.Load(); wake != nil && generation > c.applied.Load() {
		(*wake)()
	}
}

// allOf returns the cached rows of access.
func (c *copies) allOf() (*everybody, bool) {
	v, ok := c.view()
	if !ok {
		return nil, false
	}
	all, found := c.everybody.Get(struct{}{})
	return all, found && all != nil && v.holds(all.Generation)
}

// drop forgets cached values of targets that changed at a generation or earlier.
func (c *copies) drop(targets []Target, generation int64) {
	for _, t := range targets {
		switch t.Kind {
		case TargetTemplate, TargetSource, TargetAPIKey:
		default:
			c.everybody.Clear()
		}
		switch t.Kind {
		case TargetAPIKey:
			if len(t.ID) == token.IDLength {
				c.keys.Drop(idOf(t.ID))
			}
		case TargetTemplate:
			c.installed.Clear()
			c.templates.dropBefore(generation)
		case TargetBankPolicy:
			c.banks.Drop(t.ID)
		case TargetServiceAccount:
			// This drops the account under every narrowing: all actors of one id share a hash.
			c.holders.Drop(actor{Identity: Identity{Kind: KindServiceAccount, ID: t.ID}})
		case TargetUser, TargetGroup, TargetPolicy, TargetAttachment:
			c.holders.Clear() // any holder may have them, or have that user as its owner
		}
	}
}

// forget drops cached values of changed targets. Calls also use it for targets that the store shows
// to be changed by another call, which may not have dropped them yet.
func (s *base) forget(targets ...Target) {
	if s.copies != nil {
		s.copies.drop(targets, math.MaxInt64)
	}
}

// apply drops what has changed, and records up to which generation the cache holds. heard is the
// latest generation shown by reads before the changes were requested: a store that is behind it was
// restored from a backup.
func (c *copies) apply(changes StoreChanges, heard int64) {
	if changes.Reset || changes.Generation < heard {
		c.holders.Clear()
		c.banks.Clear()
		c.everybody.Clear()
		c.installed.Clear()
		c.templates.lists.Clear()
		c.keys.Clear()
		c.heard.CompareAndSwap(heard, min(heard, changes.Generation))
	}
	c.drop(changes.Targets, changes.Generation)
	c.applied.Store(changes.Generation)
}

// follow applies the changes of the store until ctx ends.
func (s *base) follow(ctx context.Context) {
	generation := int64(math.MaxInt64) // unknown to the store: the first answer is a reset
	for ctx.Err() == nil {
		asked, heard := int64(time.Since(s.copies.epoch)), s.copies.heard.Load()
		changes, err := s.changes(ctx, generation)
		if err != nil {
			tasks.Wait(ctx, time.After(seePause))
			continue
		}
		s.copies.apply(changes, heard)
		s.copies.seen.Store(asked)
		generation = changes.Generation
		s.awaitChange(ctx, generation)
	}
}

// changes asks the store for changes, with a timeout: an unreachable store may never answer.
func (s *base) changes(ctx context.Context, since int64) (StoreChanges, error) {
	ctx, cancel := context.WithTimeout(ctx, seeTimeout)
	defer cancel()
	return s.store.Changes(ctx, since)
}

// awaitChange returns when there may be changes, or a read has shown a later generation.
func (s *base) awaitChange(ctx context.Context, since int64) {
	waiting, wake := context.WithCancel(ctx)
	defer wake()
	s.copies.wake.Store(&wake)
	if err := s.store.AwaitChange(waiting, since); err != nil && waiting.Err() == nil {
		tasks.Wait(ctx, time.After(seePause))
	}
}

// turns is the part of a cache that gives turns to load a value.
type turns[K any] interface {
	Turn(fence cache.Fence, key K) (done func(), wait <-chan struct{})
}

// turn returns when the caller may load a key's value, or when another caller has ended loading it.
// The caller calls done after loading.
func turn[K any](ctx context.Context, loads turns[K], fence cache.Fence, key K) (done func()) {
	done, others := loads.Turn(fence, key)
	if done != nil {
		return done
	}
	tasks.Wait(ctx, others)
	return func() {}
}

// idOf returns the cache key of an API key's id. Every id that an issued key can have is of that
// length.
func idOf(id string) cache.Key {
	b := []byte(id)
	return cache.Key{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// keyCopy is the cached form of an API key. The zero keyCopy stands for a key that does not exist.
type keyCopy struct {
	holder     actor
	hash       [sha256.Size]byte
	pepper     int   // its place in the keyring; noPepper: no pepper checks the key
	closed     bool  // revoked, disabled, or its row does not match its seal
	unsealed   bool  // its row has no seal yet
	expires    int64 // Unix microseconds; 0: never
	used       int64 // the minute, since the Unix epoch, of the last recorded use
	generation int64
}

// copyOf returns the cached form of a key.
func (r *keyring) copyOf(k *APIKey) keyCopy {
	key := keyCopy{
		holder: actor{k.Holder, k.ScopingPolicyID}, pepper: r.place(k.Pepper),
		closed: k.Disabled || !k.RevokedAt.IsZero(), unsealed: len(k.Seal) == 0,
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

// good reports whether a key with the right secret is accepted now.
func (k keyCopy) good(now time.Time) bool {
	return !k.closed && (k.expires == 0 || now.UnixMicro() < k.expires)
}

// keyCopies caches keys, up to millions: as records without pointers, which refer to holders by
// number.
type keyCopies struct {
	*cache.Records
	holders actors
}

// newKeyCopies makes a cache for so many keys of so many holders.
func newKeyCopies(keys, holders int) *keyCopies {
	return &keyCopies{Records: cache.NewRecords(keys), holders: actors{room: holders}}
}

// find returns the cached key. false: it is not cached.
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

// keep caches a key that was read behind a fence, unless it has become stale since.
func (c *keyCopies) keep(fence cache.Fence, id cache.Key, key keyCopy) {
	c.Put(fence, id, key.pack(c.holders.number(key.holder)), uint32(max(0, key.used)))
}

// use records that a key was used in a minute. false: that use is recorded already.
func (c *keyCopies) use(id cache.Key, minute int64) bool { return c.Raise(id, uint32(minute)) }

// A record holds the hash, the expiry, the generation, and a word with the rest: two flags, the
// pepper's place (from 1) in 20 bits, and the number of the holder in 42.
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

// actors gives each actor a number. When there are too many, it forgets all of them, and so makes
// the cached keys that refer to them unusable: no number is given twice.
type actors struct {
	room int
	list atomic.Pointer[numbered] // nil: no actors

	mu      sync.Mutex
	numbers map[actor]uint64
}

// numbered is an immutable list of actors: who[i] has the number first+i.
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
	list.who = append(list.who, who) // beyond what readers of the earlier list look at
	a.numbers[who] = number
	a.list.Store(&list)
	return number
}
