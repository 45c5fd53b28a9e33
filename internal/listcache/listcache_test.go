package listcache_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/listcache"
)

// library is a store of books. It reads all books in two chunks.
type library struct {
	mu      sync.Mutex
	books   map[string]*book
	changes [][]string // of each generation

	down, silent, late bool // planted: it fails, reports no change, returns rows of a moment ago
	before             map[string]*book
	calls, rows, reads atomic.Int64
}

func newLibrary(rows int) *library {
	l := &library{books: map[string]*book{}, before: map[string]*book{}}
	for i := range rows {
		l.books[fmt.Sprint(i)] = &book{id: fmt.Sprint(i), name: "name", labels: []listcache.Label{{Field: "n", Text: "0"}}}
	}
	return l
}

var errDown = errors.New("planted")

// write sets the state of books in one commit. A negative state removes them.
func (l *library) write(state int, ids ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.before[id] = l.books[id]
		l.books[id] = &book{id: id, name: "name", labels: []listcache.Label{{Field: "n", Text: fmt.Sprint(state)}}, state: state}
		if state < 0 {
			delete(l.books, id)
		}
	}
	l.changes = append(l.changes, ids)
}

func (l *library) Changes(_ context.Context, since int64) (c listcache.Changes, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer runtime.Gosched()
	l.calls.Add(1)
	c.Generation = int64(len(l.changes))
	if l.down {
		return c, errDown
	}
	if c.Reset = since > c.Generation; c.Reset || l.silent {
		return c, nil
	}
	for _, id := range slices.Concat(l.changes[since:]...) {
		c.Add(id)
	}
	return c, nil
}

func (l *library) Row(_ context.Context, id string) (*book, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer runtime.Gosched()
	l.rows.Add(1)
	if l.late {
		return l.before[id], nil
	}
	return l.books[id], nil
}

func (l *library) Rows(context.Context) iter.Seq2[*book, error] {
	return func(yield func(*book, error) bool) {
		l.reads.Add(1)
		l.mu.Lock()
		ids := slices.Collect(maps.Keys(l.books))
		l.mu.Unlock()
		for i, id := range ids {
			l.mu.Lock()
			b := l.books[id]
			l.mu.Unlock()
			if b != nil && !yield(b, nil) {
				return
			}
			if i%10 == 0 {
				runtime.Gosched()
			}
		}
	}
}

// current is what a caller does: the state that is certain, or one that the store confirms.
func current(s *listcache.Cache[book]) *listcache.State[book] {
	state := s.State()
	switch {
	case state == nil:
		s.Want()
	case !s.Certain(state):
		return s.Renew(context.Background(), state)
	}
	return state
}

// play lets two writers and three readers work, and returns what is wrong.
func play(l *library, writes int) (problem string) {
	s := listcache.New(books, listcache.Store[book](l), math.MaxInt64)
	ctx, stop := context.WithCancel(context.Background())
	var all, writers sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() { s.Run(ctx) })
	for current(s) == nil {
		time.Sleep(time.Millisecond)
	}
	var written [2]atomic.Int64
	pairs := [2][]string{{"0", "5"}, {"1", "6"}}
	for i := range pairs {
		writers.Go(func() {
			for n := range writes {
				end := s.Begin()
				l.write(n, pairs[i]...)
				runtime.Gosched()
				end()
				written[i].Store(int64(n))
				time.Sleep(time.Duration(rand.IntN(50)) * time.Microsecond)
			}
		})
	}
	all.Go(func() { writers.Wait(); stop() })
	problems := make(chan string, 3)
	for range 3 {
		all.Go(func() {
			for ctx.Err() == nil {
				least := [2]int64{written[0].Load(), written[1].Load()}
				state := current(s)
				if state == nil {
					continue
				}
				states := map[string]int{}
				for b := range state.List.Part(listcache.Query[book]{}) {
					states[b.id] = b.state
				}
				for i, pair := range pairs {
					if a, b := states[pair[0]], states[pair[1]]; a != b || int64(a) < least[i] {
						problems <- fmt.Sprintf("states %d and %d after %d", a, b, least[i])
						stop()
						return
					}
				}
			}
		})
	}
	writers.Wait()
	select {
	case problem = <-problems:
	default:
	}
	return problem
}

func TestAnswersAreOfOneStateAndNeverOld(t *testing.T) {
	if problem := play(newLibrary(30), 500); problem != "" {
		t.Error(problem)
	}
	for fault, plant := range map[string]func(*library){
		"a change that is not reported": func(l *library) { l.silent = true },
		"a row from before a change":    func(l *library) { l.late = true },
	} {
		l := newLibrary(30)
		plant(l)
		if play(l, 500) == "" {
			t.Error("not found:", fault)
		}
	}
}

// running starts a Shelf in a bubble with its own clock, and waits until it has read.
func running(t *testing.T, l *library, room int64) *listcache.Cache[book] {
	s := listcache.New(books, listcache.Store[book](l), room)
	ctx, stop := context.WithCancel(t.Context())
	go s.Run(ctx)
	t.Cleanup(stop)
	s.Want()
	synctest.Wait()
	return s
}

// A changed row is read alone, however many there are, and a change of many in the background.
func TestChangedRowsAreReadAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		l := newLibrary(5000)
		s := running(t, l, math.MaxInt64)
		is.Equal(s.State().List.Bytes(), int64(4*5000))
		tag, calls := s.State().List.Tag(), l.calls.Load()
		l.write(7, "42")
		s.Changed(int64(len(l.changes)))
		state := current(s)
		is.Equal(state.List.Row("42").state, 7)
		is.True(state.List.Tag() != tag)
		is.Equal(current(s), state) // certain
		is.Equal([]int64{l.rows.Load(), l.reads.Load(), l.calls.Load() - calls}, []int64{1, 1, 2})

		s.Doubt()
		is.Equal(current(s).List.Tag(), state.List.Tag()) // nothing has changed
		l.write(-1, "42", "43")
		s.Doubt()
		is.Equal(current(s).List.Row("42"), nil)
		is.Equal(len(ids(current(s).List, listcache.Query[book]{})), 4998)

		var many []string
		for i := range 100 {
			many = append(many, fmt.Sprint(i))
		}
		l.write(8, many...)
		s.Doubt()
		is.Equal(current(s), nil)
		time.Sleep(time.Minute)
		is.Equal(current(s).List.Row("99").state, 8)
		is.Equal(l.reads.Load(), int64(1))
	})
}

// What does not fit is not read again and again, and is read once it may fit.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		l := newLibrary(100)
		s := running(t, l, 4*99)
		is.Equal(current(s), nil)
		is.Equal(l.reads.Load(), int64(1))
		time.Sleep(time.Minute)
		l.write(-1, "1")
		is.Equal(current(s), nil)
		synctest.Wait()
		is.Equal(len(ids(current(s).List, listcache.Query[book]{})), 99)
		l.write(1, "new")
		s.Doubt()
		is.Equal(current(s), nil) // it has outgrown the room
		is.Equal(s.State(), nil)
	})
}

// After Clear, nothing is kept that was read before, and no doubt is lost.
func TestClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		l := newLibrary(10)
		s := running(t, l, math.MaxInt64)
		old := s.State()
		s.Clear()
		is.Equal(s.State(), nil)
		is.Equal(s.Renew(t.Context(), old), nil)
		is.Equal(s.State(), nil)
		time.Sleep(time.Minute)
		is.True(s.State() != nil) // Renew has asked for it
		is.True(!s.Certain(old))

		l.down = true
		s.Doubt()
		is.Equal(current(s), nil)
		l.down, l.changes = false, nil // as after a restore, with another generation
		l.write(1, "1")
		time.Sleep(time.Minute)
		is.Equal(current(s).List.Row("1").state, 1)

		s.Ahead(s.State(), 1000)
		is.Equal(s.State().Generation, int64(1000))
		l.changes = nil
		s.Doubt()
		is.Equal(current(s), nil) // a Reset
		is.Equal(s.State(), nil)
	})
}
