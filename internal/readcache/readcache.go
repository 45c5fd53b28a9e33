// Package readcache keeps what was read from a store, and knows up to which generation it holds.
// A nil *Cache keeps nothing, for work in a host's transaction.
package readcache

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/policy"
)

// Limits in number.
const (
	leastHolders = 1 << 14 // as many holders as keys, but at least this many
	mostHolders  = 1 << 16
	keptBanks    = 1 << 14
)

// Cache is a cache of keys, their holders and banks: most requests need no store call. A call that
// changes the store drops the changed values before it returns. A follower of the store's changes
// drops what others change.
//
// Where a look at the store is cheap, each use of the cache begins with one, and so includes every
// earlier commit of any process.
//
// A cached value carries the generation at which it was read. While it is in the cache, it holds up
// to the generation applied last. When a read shows that the store is further, only values of
// exactly that generation are used until the changes are applied. So no answer is older than an
// earlier one, and all values in one answer are of one state of the store.
//
// All methods are safe for concurrent use.
type Cache struct {
	generations
	holders  *cache.Cache[Holder, *Standing]
	accounts atomic.Bool // a service account may be among the holders
	banks    *cache.Cache[string, Bank]
	senders  *cache.Cache[Sender, *mapped]
	seed     maphash.Seed // of all three
	keys     *keys

	reads  atomic.Uint64 // of values that were not cached
	begin  func()        // starts the follower, once
	clears []func()
}

// Holder is a user, a service account or the public, and the policy that narrows it in a request.
type Holder struct {
	Kind       policy.Kind
	ID         string
	NarrowedBy string // "": none
}

// public is the holder without any own rights.
var public = Holder{Kind: policy.Unmapped}

// Standing is what is known of a holder.
type Standing struct {
	Rights   *policy.Rights
	Inactive bool // its own row says so
	// User is the user with a row whose rights count: the holder, or its owner. "": none.
	User string
	// Owner is the owner of a service account, Scoping the policy that always narrows it, also when
	// that row is missing; "": none.
	Owner, Scoping string
	Groups         []string // those of User, in no order
	// KeysRest: nobody may act with its keys. The holder or its owner is inactive, or the service
	// account no longer exists.
	KeysRest   bool
	Generation int64
}

// standingBytes is the size of a Standing without the table of its rights and its groups: the
// struct, the rights, and the reason of a denial.
const standingBytes = 512

// Bank is the policy of a bank. Banks without a policy are cached as well.
type Bank struct {
	Policy     *policy.Bank
	Generation int64
}

// New returns a cache for so many keys. Holders, banks and senders count in budget, which they
// share with the rights that a Compiler keeps.
//
// At its first use the cache calls start, once, with the function that follows the feed until its
// ctx ends.
func New(
	keys int, budget *cache.Budget, feed Feed, start func(follow func(context.Context)),
) *Cache {
	holders := min(max(keys, leastHolders), mostHolders)
	c := &Cache{
		generations: generations{feed: feed, epoch: time.Now(), since: beginning},
		seed:        maphash.MakeSeed(),
		keys:        newKeys(keys, 2*holders), // renumbering the holders forgets all keys
	}
	c.begin = sync.OnceFunc(func() { start(c.follow) })
	hashOf := func(who Holder) uint64 { return c.hash(who.ID) } // see Again and Drop
	c.holders = cache.NewWithin(holders, hashOf, budget, func(
		who Holder, s *Standing,
	) (int64, *cache.Share) {
		return standingBytes + cache.Size(who) + cache.Size(s.Groups), s.Rights.Share()
	})
	c.banks = cache.NewWithin(keptBanks, c.hash, budget, func(
		id string, b Bank,
	) (int64, *cache.Share) {
		return cache.Allocated(len(id)), b.Policy.Share()
	})
	c.senders = cache.NewWithin(keptBanks, func(s Sender) uint64 { return c.hash(s.ID) }, budget,
		func(s Sender, m *mapped) (int64, *cache.Share) {
			return cache.Size(s) + cache.Size(m.holder) + cache.Size(m.user) + mappedBytes, nil
		})
	c.clears = []func(){c.holders.Clear, c.banks.Clear, c.senders.Clear, c.keys.Clear}
	return c
}

// hash returns the hash of the id of a holder, bank or sender.
func (c *Cache) hash(id string) uint64 { return maphash.String(c.seed, id) }

// OnReset adds a cache to clear when every row may have changed. Call it before the first use.
func (c *Cache) OnReset(clear func()) {
	if c != nil {
		c.clears = append(c.clears, clear)
	}
}

// Follow starts to follow the store, if nothing has yet.
func (c *Cache) Follow() {
	if c != nil {
		c.begin()
	}
}

// Renew is CatchUp where a View does not see the store by itself.
func (c *Cache) Renew(ctx context.Context) error {
	if c == nil || c.current() && !c.blind.Load() {
		return nil
	}
	return c.CatchUp(ctx)
}

// Bytes estimates the memory of the keys. Other values count in the budget.
func (c *Cache) Bytes() int64 {
	if c == nil {
		return 0
	}
	return c.keys.Bytes()
}

// Reset forgets everything that was read.
func (c *Cache) Reset() {
	for _, clear := range c.clears {
		clear()
	}
}

// Standing returns the cached values for a decision, if both exist and hold.
func (c *Cache) Standing(who Holder, bank string) (*Standing, *policy.Bank, bool) {
	v, ok := c.View()
	if !ok {
		return nil, nil, false
	}
	holder, found := c.holders.Get(who)
	if !found || !v.Holds(holder.Generation) {
		return nil, nil, false
	}
	b, found := c.banks.Get(bank)
	return holder, b.Policy, found && v.Holds(b.Generation)
}

// Again sets d to the earlier decision of the same request, if nothing has changed since. is
// reports whether a holder with that id is the one of the request, so that nothing is copied. now
// is the moment of the banks' policies, for a request that needs a new decision; 0 keeps nothing.
func (c *Cache) Again(
	d *policy.Decision, id string, is func(*Holder) bool,
	action, bank string, in *policy.Context,
) (now cache.Moment, ok bool) {
	if c == nil {
		return 0, false
	}
	v, ok := c.View()
	now = c.banks.Now()
	if !ok || !v.applied {
		return now, false
	}
	holder, found := c.holders.Find(c.hash(id), is)
	known := found && v.Holds(holder.Generation) &&
		holder.Rights.Again(d, action, bank, in, uint64(now))
	// The call that noted the policy had heard of its generation.
	return now, known && c.heard.Load() <= v.Generation
}

// expect notes that a holder may be cached. Call it before reading a holder, or before PutSince.
func (c *Cache) expect(who Holder) {
	if who.Kind == policy.ServiceAccount && !c.accounts.Load() {
		c.accounts.Store(true)
	}
}

// ReadStanding reads a holder and a bank in one snapshot of the store.
type ReadStanding func(ctx context.Context, who Holder, bank string) (*Standing, Bank, error)

// LoadStanding returns the inputs of a decision: the cached ones, or what read returns.
func (c *Cache) LoadStanding(
	ctx context.Context, who Holder, bank string, read ReadStanding,
) (*Standing, *policy.Bank, error) {
	if c == nil {
		s, b, err := read(ctx, who, bank)
		return s, b.Policy, err
	}
	c.expect(who)
	c.prepare(ctx)
	_, known := c.holders.Get(who)
	if _, _, ok := c.Standing(who, bank); known && !ok { // perhaps only the bank is missing
		fence := c.banks.Fence(bank)
		if _, b, err := read(ctx, public, bank); err == nil {
			c.banks.Put(fence, bank, b)
		}
	}
	type found struct {
		holder *Standing
		bank   *policy.Bank
	}
	f, err := load(ctx, c, c.holders, who, func() (found, bool) {
		s, b, ok := c.Standing(who, bank)
		return found{s, b}, ok
	}, func(fence cache.Fence) (found, error) {
		bankFence := c.banks.Fence(bank)
		s, b, err := read(ctx, who, bank)
		if err == nil {
			c.holders.Put(fence, who, s)
			c.banks.Put(bankFence, bank, b)
		}
		return found{s, b.Policy}, err
	})
	return f.holder, f.bank, err
}

// Sender names a sender of a provider.
type Sender struct{ Provider, ID string }

// mapped is the holder that a sender belonged to at a generation.
type mapped struct {
	holder     Holder
	user       string // the user with that sender, active or not; "": none
	generation int64
}

const mappedBytes = 64 // of a mapped, without its texts

// LoadSender returns the holder that a sender belongs to: the cached one, or what read returns.
// user is the user with that sender, active or not; "": none.
func (c *Cache) LoadSender(
	ctx context.Context, sender Sender,
	read func() (holder Holder, user string, generation int64, err error),
) (Holder, error) {
	if c == nil {
		holder, _, _, err := read()
		return holder, err
	}
	get := func() (Holder, bool) {
		v, fresh := c.View()
		m, found := c.senders.Get(sender)
		if !fresh || !found || !v.Holds(m.generation) {
			return Holder{}, false
		}
		return m.holder, true
	}
	if holder, ok := get(); ok {
		return holder, nil
	}
	return load(ctx, c, c.senders, sender, get, func(fence cache.Fence) (Holder, error) {
		holder, user, generation, err := read()
		if err == nil {
			c.senders.Put(fence, sender, &mapped{holder, user, generation})
		}
		return holder, err
	})
}

// prepare applies changes that reads have shown: until then, few cached values hold. When it fails,
// the read after it says why.
func (c *Cache) prepare(ctx context.Context) {
	c.begin()
	if c.behind() {
		_ = c.CatchUp(ctx)
	}
}

// turns is a cache that gives turns to load a value.
type turns[K any] interface {
	Fence(key K) cache.Fence
	Turn(fence cache.Fence, key K) (done func(), wait <-chan struct{})
}

// load returns the value that get finds, or else what read returns. Of concurrent callers for one
// key, one reads, and the others wait and look again. read puts the value behind the fence.
func load[K, T any](
	ctx context.Context, c *Cache, in turns[K], key K, get func() (T, bool),
	read func(fence cache.Fence) (T, error),
) (T, error) {
	c.prepare(ctx)
	fence := in.Fence(key)
	if done, others := in.Turn(fence, key); done != nil {
		defer done()
	} else {
		background.Wait(ctx, others)
	}
	if value, ok := get(); ok {
		return value, nil
	}
	c.reads.Add(1)
	return read(fence)
}
