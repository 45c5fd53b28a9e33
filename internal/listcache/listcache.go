// Package listcache keeps all rows of a kind in memory, ordered and indexed, and reads again those
// that change. A [List] is an immutable state of them. A [Cache] has the present one.
package listcache

import (
	"context"
	"errors"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/semaphore"
)

const (
	// few is how many changed rows a caller reads again. More are read in the background.
	few = 32
	// rereads is how often Renew reads rows that have changed in the meantime, before it gives up.
	rereads = 5
	// behind is how many generations a list may lie behind before Ahead matters. A store knows the
	// changes of 1,000 at least.
	behind = 256
)

// Pauses between reads of the background.
const (
	pause = 100 * time.Millisecond // after a failure: the store may be out of reach for long
	// rest is a multiple of the time that a read took. So a process spends at most a twentieth of
	// the time on such reads.
	rest = 20
	// fullRest is rest when the rows do not fit, and will hardly fit soon.
	fullRest = 1000
)

// Store has the rows. Its methods are called concurrently.
type Store[T any] interface {
	// Changes returns the ids of the rows that have changed after the generation since.
	Changes(ctx context.Context, since int64) (Changes, error)
	// Row reads one row. Nil: there is no such row.
	Row(ctx context.Context, id string) (*T, error)
	// Rows reads all rows. They need not be of one state of the store.
	Rows(ctx context.Context) iter.Seq2[*T, error]
}

// Changes says which rows changed between two generations of a store.
type Changes struct {
	Generation int64 // the store's generation now
	Reset      bool  // every row may have changed
	ids        map[string]bool
}

// Add adds the id of a row that changed.
func (c *Changes) Add(id string) {
	if c.ids == nil {
		c.ids = map[string]bool{}
	}
	c.ids[id] = true
}

// Cache has the present list of rows, or none. All methods are safe for concurrent use.
//
// Run reads the first list. Afterwards, a caller that finds the list in doubt asks the store what
// has changed since the list's generation, reads just these rows again, and puts the next list in
// its place.
//
// The list is in doubt while this process may be changing a row, and after each change that the
// list may lack. An answer from a list in doubt comes after that question to the store. So no
// answer is older than one that was given before.
type Cache[T any] struct {
	rows  *Rows[T]
	store Store[T]
	room  int64 // the most bytes of a list

	writers atomic.Int64  // changes that may be under way
	doubts  atomic.Uint64 // grows with each change that a list may lack
	kept    atomic.Pointer[State[T]]
	full    atomic.Bool         // the rows do not fit, as far as known
	wanted  chan struct{}       // holds one value when a caller wants Run to read
	turn    semaphore.Semaphore // is held to read rows again: of concurrent callers one reads

	mu  sync.Mutex    // to write kept and era
	era atomic.Uint64 // grows when every row may have changed
}

// State is a list as of a generation of the store.
type State[T any] struct {
	List       *List[T]
	Generation int64
	doubts     uint64 // those that the state has settled
	era        uint64
}

// at returns the state of a later generation, up to which no row has changed.
func (s *State[T]) at(generation int64, doubts uint64) *State[T] {
	return &State[T]{s.List, generation, doubts, s.era}
}

// New returns a Cache for rows of at most so many bytes.
func New[T any](rows *Rows[T], store Store[T], room int64) *Cache[T] {
	return &Cache[T]{
		rows: rows, store: store, room: room,
		wanted: make(chan struct{}, 1), turn: make(semaphore.Semaphore, 1),
	}
}

// Full reports whether the rows did not fit when they were read last.
func (s *Cache[T]) Full() bool { return s.full.Load() }

// State returns the latest state known. Nil: none.
func (s *Cache[T]) State() *State[T] { return s.kept.Load() }

// Certain reports whether this process knows of no change that a state lacks.
func (s *Cache[T]) Certain(state *State[T]) bool {
	// In this order: a writer casts doubt before it leaves the count.
	return s.writers.Load() == 0 && state.doubts == s.doubts.Load()
}

// Ahead notes that a certain state is also that of a later generation, so that the store still
// knows what changes afterwards.
func (s *Cache[T]) Ahead(state *State[T], generation int64) {
	if generation-state.Generation > behind {
		s.put(state.at(generation, state.doubts))
	}
}

// Want asks Run to read. It never waits.
func (s *Cache[T]) Want() {
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

// Doubt notes that there may be a change that the list lacks.
func (s *Cache[T]) Doubt() { s.doubts.Add(1) }

// Changed notes a change at a generation. A list of that generation, or a later one, shows it.
func (s *Cache[T]) Changed(generation int64) {
	if state := s.kept.Load(); state == nil || state.Generation < generation {
		s.Doubt()
	}
}

// Begin marks the start of a change. Call it before the change, and call end when the outcome is
// known.
func (s *Cache[T]) Begin() (end func()) {
	s.writers.Add(1)
	return func() {
		s.Doubt()
		s.writers.Add(-1)
	}
}

// Clear forgets all rows, and those that are being read.
func (s *Cache[T]) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.era.Add(1)
	s.kept.Store(nil)
	s.Doubt()
}

// put keeps a state unless a later one is kept. It returns the state, or nil when Clear has been
// called since its rows were read.
func (s *Cache[T]) put(state *State[T]) *State[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state.era != s.era.Load() {
		return nil
	}
	now := s.kept.Load()
	if now == nil || state.Generation > now.Generation ||
		state.Generation == now.Generation && state.doubts > now.doubts {
		s.kept.Store(state)
	}
	return state
}

// Renew returns the list as the store has it during the call, and keeps it. It makes one call of
// the store, and when few rows have changed since state, two more calls or a few. Nil: more rows
// have changed, which Run will read, or the rows no longer fit, or the store fails.
func (s *Cache[T]) Renew(ctx context.Context, state *State[T]) *State[T] {
	next := s.renew(ctx, state, few)
	if next == nil {
		s.Want()
	}
	return next
}

func (s *Cache[T]) renew(ctx context.Context, state *State[T], most int) *State[T] {
	doubts := s.doubts.Load() // before the question: later ones stay
	changes, ok := s.changes(ctx, state)
	if !ok || len(changes.ids) > most {
		return nil
	}
	if len(changes.ids) == 0 {
		return s.put(state.at(changes.Generation, doubts))
	}
	release, err := s.turn.Acquire(ctx)
	if err != nil {
		return nil
	}
	defer release()
	if now := s.kept.Load(); now != nil && now.Generation >= changes.Generation {
		return now // another caller has renewed it
	}
	return s.reread(ctx, state, changes)
}

// reread is renew after changes. Its rows are of one state of the store when none of the kind has
// changed while they were read.
func (s *Cache[T]) reread(ctx context.Context, state *State[T], changes Changes) *State[T] {
	rows, ok := map[string]*T{}, true
	for range rereads {
		for id := range changes.ids {
			row, err := s.store.Row(ctx, id)
			if err != nil {
				return nil
			}
			rows[id] = row
		}
		next, doubts := state.at(changes.Generation, 0), s.doubts.Load()
		if changes, ok = s.changes(ctx, next); !ok {
			return nil
		}
		if len(changes.ids) > 0 {
			continue
		}
		next = &State[T]{state.List.With(rows), changes.Generation, doubts, state.era}
		if next.List.Bytes() > s.room {
			s.kept.CompareAndSwap(state, nil)
			return nil
		}
		return s.put(next)
	}
	return nil
}

// changes returns what has changed since a state. false: the store fails or does not know.
func (s *Cache[T]) changes(ctx context.Context, state *State[T]) (Changes, bool) {
	changes, err := s.store.Changes(ctx, state.Generation)
	if err == nil && changes.Reset {
		s.kept.CompareAndSwap(state, nil)
	}
	return changes, err == nil && !changes.Reset
}

// Run reads what callers want until ctx ends: all rows, or those that have changed when they are
// many. It rests in between, so that it does not read without end. It logs no error: the same fault
// meets the callers, who read the store.
func (s *Cache[T]) Run(ctx context.Context) {
	for ctx.Err() == nil {
		background.Wait(ctx, s.wanted)
		began, times, era := time.Now(), time.Duration(rest), s.era.Load()
		state, err := s.kept.Load(), error(nil)
		if state == nil {
			state, err = s.read(ctx)
		}
		switch {
		case err == nil && state == nil:
			s.full.Store(true)
			times = fullRest
		case err == nil && s.renew(ctx, state, math.MaxInt) != nil:
		case s.era.Load() != era: // as when a process starts
			s.Want()
			continue
		default:
			background.Wait(ctx, time.After(pause))
		}
		background.Wait(ctx, time.After(times*time.Since(began)))
		s.full.Store(false)
	}
}

var errCleared = errors.New("all rows may have changed")

// read reads all rows, until Clear is called. Nil: they do not fit. The state is that of one
// generation only when renew has read again what has changed in the meantime.
func (s *Cache[T]) read(ctx context.Context) (*State[T], error) {
	era := s.era.Load()
	// MaxInt64 is a generation that no store has: the answer names the present one, and no changes.
	before, err := s.store.Changes(ctx, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	rows, room := map[string]*T{}, s.room
	for row, err := range s.store.Rows(ctx) {
		if err == nil && s.era.Load() != era {
			err = errCleared
		}
		if err != nil {
			return nil, err
		}
		if room -= s.rows.Size(row); room < 0 {
			return nil, nil
		}
		rows[s.rows.ID(row)] = row
	}
	list := (&List[T]{Of: s.rows}).With(rows)
	return &State[T]{list, before.Generation, 0, era}, nil
}
