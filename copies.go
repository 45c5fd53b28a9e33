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

// How long copies are trusted, and how many are kept.
const (
	// trusted is how long after the store was last seen its copies are used: then every call reads through.
	trusted      = 5 * time.Second
	seeTimeout   = 5 * time.Second // for one look at the store
	seePause     = 100 * time.Millisecond
	keptKeys     = 1 << 16 // if the host does not say how many
	leastHolders = 1 << 14 // they are as many as the keys, but at least so many
	mostHolders  = 1 << 16
	keptBanks    = 1 << 14
)

// How many bytes the copies take at most that are not kept by row, and the rights and banks of a Compiler: [policy.MaxKept]. What is larger is
// read for each request.
const (
	maxEverybody = 256 << 20 // all rows of access, and what is compiled from them
	maxInstalled = 64 << 20  // where all templates came from
	maxChecks    = 64 << 20  // what came of the last comparisons with sources
)

// copies are what a Service keeps of the store, so that most requests need no call of it. What this process changes is dropped
// before the call that changed it returns; a follower of the store's changes drops what others do.
//
// A copy that was read at one generation, and is there still, holds up to the generation that was applied last. When a read has
// shown that the store is further, only copies of that very generation are used until the follower has caught up: so no
// answer is older than one before it, and those that go into one answer are of one state of the store.
type copies struct {
	holders *cache.Cache[actor, *standing]
	banks   *cache.Cache[string, bankCopy]
	seed    maphash.Seed // of both
	keys    *keyCopies

	everybody *cache.Cache[struct{}, *everybody] // one, of all rows of access
	installed *cache.Cache[struct{}, *installed] // one, of all templates that came from sources
	templates *templateCopies

	epoch   time.Time    // what seen counts from
	seen    atomic.Int64 // nanoseconds: the store was as the copies are then, or later; 0 never
	applied atomic.Int64 // the generation whose changes have all been dropped
	heard   atomic.Int64 // the latest generation that a read has shown

	wake atomic.Pointer[context.CancelFunc] // ends the follower's wait for a change
}

// standing is what is known of a principal.
type standing struct {
	rights     *policy.Rights
	inactive   bool // its own row says so
	keysRest   bool // nobody may act with its keys: it, or its owner, is inactive, or a service account that is gone
	generation int64
}

// standingBytes is what a standing takes beside the table of its rights: itself, the rights, and the reason why they are closed.
const standingBytes = 512

// nobody is whom a key that was never issued belongs to.
var nobody = &standing{keysRest: true}

// bankCopy is the policy of a bank. It is kept for banks that have none, too.
type bankCopy struct {
	policy     *policy.Bank
	generation int64
}

// newCopies makes room for the copies of so many keys, and for so many bytes of templates. Holders and banks count in the budget of what
// the compiler keeps, with which they share nearly all.
func newCopies(keys, templates int, budget *cache.Budget) *copies {
	holders := min(max(keys, leastHolders), mostHolders)
	c := &copies{
		seed:      maphash.MakeSeed(),
		keys:      newKeyCopies(keys, 2*holders), // numbering them anew forgets all keys
		everybody: cache.New[struct{}, *everybody](1, func(struct{}) uint64 { return 0 }),
		installed: cache.New[struct{}, *installed](1, func(struct{}) uint64 { return 0 }),
		templates: newTemplateCopies(templates),
		epoch:     time.Now(),
	}
	hashOf := func(who actor) uint64 { return c.hash(who.ID) } // see drop
	c.holders = cache.NewWithin(holders, hashOf, budget, func(who actor, s *standing) (int64, *cache.Share) {
		return standingBytes + cache.Size(who), s.rights.Share()
	})
	c.banks = cache.NewWithin(keptBanks, c.hash, budget, func(id string, b bankCopy) (int64, *cache.Share) {
		return cache.Allocated(len(id)), b.policy.Share()
	})
	return c
}

// hash is that of a holder's id, and of a bank's.
func (c *copies) hash(id string) uint64 { return maphash.String(c.seed, id) }

// fresh reports whether the store was seen lately enough for copies to be used.
func (c *copies) fresh() bool {
	seen := c.seen.Load()
	return seen != 0 && int64(time.Since(c.epoch))-seen < int64(trusted)
}

// view is a generation, and which copies are of it when they are found after the view was taken: those that were read at it, and
// when all that had changed by then is dropped, those that were read before.
type view struct {
	generation int64
	applied    bool
}

func (v view) holds(generation int64) bool {
	return generation == v.generation || v.applied && generation < v.generation
}

// view returns the latest generation that is known of. false: that is too long ago.
func (c *copies) view() (view, bool) {
	heard, applied := c.heard.Load(), c.applied.Load()
	if heard > applied {
		return view{heard, false}, c.fresh()
	}
	return view{applied, true}, c.fresh()
}

// get returns the copies for a decision, when both are there and hold.
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

// again sets d to what was decided of a request, when nothing has changed since; nothing of who asks and where is copied on the way. now is
// the moment of the banks' policies, for what has to be decided anew.
func (c *copies) again(d *policy.Decision, p *Principal, action, bank string, in *policy.Context) (now cache.Moment, ok bool) {
	v, ok := c.view()
	now = c.banks.Now()
	if !ok || !v.applied {
		return now, false
	}
	holder, found := c.holders.Find(c.hash(p.ID), func(who *actor) bool {
		return who.ID == p.ID && who.Kind == p.Kind && who.narrowedBy == p.ScopingPolicyID
	})
	known := found && v.holds(holder.generation) && holder.rights.Again(d, action, bank, in, uint64(now))
	return now, known && c.heard.Load() <= v.generation // who has noted the policy had heard of its generation
}

// key returns the copies of a key and of its holder, when both are there and hold.
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

// hear notes the generation that a read has shown. What is known of older ones has to be looked at again, soon.
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

// allOf returns the copy of all rows of access.
func (c *copies) allOf() (*everybody, bool) {
	v, ok := c.view()
	if !ok {
		return nil, false
	}
	all, found := c.everybody.Get(struct{}{})
	return all, found && all != nil && v.holds(all.Generation)
}

// drop forgets what targets are copied into that were changed at a generation, or before.
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
			c.holders.Drop(actor{Identity: Identity{Kind: KindServiceAccount, ID: t.ID}}) // and all of that id, narrowed by whatever: they share a hash
		case TargetUser, TargetGroup, TargetPolicy, TargetAttachment: // whoever has them, or is owned by them
			c.holders.Clear()
		}
	}
}

// forget drops what is copied of targets that were changed, or that the store has shown to be as another call has changed them: that
// call may not have come to dropping them yet.
func (s *base) forget(targets ...Target) {
	if s.copies != nil {
		s.copies.drop(targets, math.MaxInt64)
	}
}

// apply drops what has changed, and says up to when the copies hold. heard is the latest generation that reads had shown when the
// changes were asked for: a store that is behind it was restored from a backup.
func (c *copies) apply(changes Changes, heard int64) {
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
	generation := int64(math.MaxInt64) // is not the store's: the first answer is a reset
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

// changes looks at the store, which may have become unreachable in a way that never answers.
func (s *base) changes(ctx context.Context, since int64) (Changes, error) {
	ctx, cancel := context.WithTimeout(ctx, seeTimeout)
	defer cancel()
	return s.store.Changes(ctx, since)
}

// awaitChange returns when there may be changes, or somebody has heard of one.
func (s *base) awaitChange(ctx context.Context, since int64) {
	waiting, wake := context.WithCancel(ctx)
	defer wake()
	s.copies.wake.Store(&wake)
	if err := s.store.AwaitChange(waiting, since); err != nil && waiting.Err() == nil {
		tasks.Wait(ctx, time.After(seePause))
	}
}

// turns are those of a cache.
type turns[K any] interface {
	Turn(fence cache.Fence, key K) (done func(), wait <-chan struct{})
}

// turn returns when it is the caller's turn to load a key's value, or whoever's it was has ended. done is called after the loading.
func turn[K any](ctx context.Context, loads turns[K], fence cache.Fence, key K) (done func()) {
	done, others := loads.Turn(fence, key)
	if done != nil {
		return done
	}
	tasks.Wait(ctx, others)
	return func() {}
}

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
