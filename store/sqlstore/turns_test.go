package sqlstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

const many = 1000 // turns, for lines without a limit of their own

func reads(store string) lineName { return lineName{store: store} }

// mustEnter waits for a turn.
func mustEnter(t *testing.T, r *round, name lineName) (leave func()) {
	t.Helper()
	leave, err := r.enter(t.Context(), name, many, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return leave
}

// queued enters in the background, and returns when the caller waits. It sends its name when its turn has come.
func queued(t *testing.T, r *round, name lineName, came chan<- string) {
	t.Helper()
	waits := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.line(name, many).waiting)
	}
	before := waits()
	go func() {
		if leave, err := r.enter(t.Context(), name, many, 0); err == nil {
			came <- name.store
			leave()
		}
	}()
	for waits() == before {
		runtime.Gosched()
	}
}

// A Store with many callers delays another one by a turn.
func TestTurnsGoRound(t *testing.T) {
	is := is.New(t)
	r := newRound(1)
	leave := mustEnter(t, r, reads("storm"))
	came := make(chan string, 200)
	for range 100 {
		queued(t, r, reads("storm"), came)
	}
	for _, quiet := range []string{"a", "b", "a"} {
		queued(t, r, reads(quiet), came)
	}
	leave()
	var order []string
	for range 103 {
		order = append(order, <-came)
	}
	is.Equal(order[:6], []string{"storm", "a", "b", "storm", "a", "storm"})
}

// A Store that is alone has all turns. While another one is busy it has half of the processors.
func TestShareOfTurns(t *testing.T) {
	is := is.New(t)
	turns := 4 * runtime.GOMAXPROCS(0)
	r := newRound(turns)
	var leave []func()
	for range turns {
		leave = append(leave, mustEnter(t, r, reads("a")))
	}
	came := make(chan string, 1)
	queued(t, r, reads("b"), came)
	for range r.share + 1 {
		queued(t, r, reads("a"), make(chan string, 1))
	}
	leave[0]()
	is.Equal(<-came, "b")
	is.True(r.crowded("a"))
	for _, l := range leave[1 : turns-r.share+1] {
		l()
	}
	r.mu.Lock()
	is.True(len(r.line(reads("a"), many).running) <= r.share)
	r.mu.Unlock()
	is.True(!newRound(2).crowded("a"))
	writes := lineName{"a", true}
	for range r.share {
		mustEnter(t, r, writes)
	}
	_, err := r.enter(t.Context(), writes, many, time.Millisecond)
	is.True(errors.Is(err, svc.ErrUnavailable))
}

// Beside a turn that is long, its line has one more than its share, but not two.
func TestLongTurns(t *testing.T) {
	is := is.New(t)
	r := newRound(many)
	stop := make(chan struct{})
	defer close(stop)
	go func() { // keeps busy
		for {
			select {
			case <-stop:
				return
			case <-time.After(busy / 4):
				if leave, err := r.enter(context.Background(), reads("other"), many, 0); err == nil {
					leave()
				}
			}
		}
	}()
	mustEnter(t, r, reads("other"))()
	writes := lineName{"a", true}
	begun := time.Now()
	for range r.share + 1 {
		mustEnter(t, r, writes)
	}
	is.True(time.Since(begun) >= long)
	_, err := r.enter(t.Context(), writes, many, 2*long)
	is.True(errors.Is(err, svc.ErrUnavailable))
}

// Readers do not wait behind writers of their Store, which may wait for a lock.
func TestReadersPassWriters(t *testing.T) {
	r := newRound(4)
	mustEnter(t, r, reads("other"))()
	for range r.share {
		mustEnter(t, r, lineName{"a", true})
	}
	queued(t, r, lineName{"a", true}, make(chan string, 1))
	mustEnter(t, r, reads("a"))()
}

// A line has no more turns than its Store has connections.
func TestLimitOfALine(t *testing.T) {
	is := is.New(t)
	r := newRound(4)
	leave, err := r.enter(t.Context(), reads("a"), 1, 0)
	is.NoErr(err)
	_, err = r.enter(t.Context(), reads("a"), 1, time.Millisecond)
	is.True(errors.Is(err, svc.ErrUnavailable))
	leave()
	leave, err = r.enter(t.Context(), reads("a"), 1, 0)
	is.NoErr(err)
	leave()
}

// A caller that waits for its share gets a turn when the other Store is no longer busy, although nobody leaves. Later callers do not
// overtake it.
func TestBusyStoresRest(t *testing.T) {
	is := is.New(t)
	r := newRound(2)
	r.share = 1
	mustEnter(t, r, reads("other"))()
	mustEnter(t, r, reads("a"))
	came := make(chan string, 2)
	queued(t, r, reads("a"), came)
	begun := time.Now()
	is.Equal(<-came, "a")
	is.True(time.Since(begun) < 3*busy)
}

// Callers that leave the queue take no turn with them. No turn is lost or used twice.
func TestTurnsAreKept(t *testing.T) {
	const turns = 3
	r := newRound(turns)
	var running, most atomic.Int64
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 200 {
				ctx, end := context.WithTimeout(t.Context(), time.Duration(random.IntN(2000))*time.Microsecond)
				name := lineName{string(rune('a' + i%5)), i%2 == 0}
				leave, err := r.enter(ctx, name, 1+i%3, time.Duration(random.IntN(2000))*time.Microsecond)
				if err == nil {
					most.Store(max(most.Load(), running.Add(1)))
					time.Sleep(time.Duration(random.IntN(50)) * time.Microsecond)
					running.Add(-1)
					leave()
				}
				end()
			}
		})
	}
	all.Wait()
	is := is.New(t)
	is.True(most.Load() <= turns)
	r.mu.Lock()
	defer r.mu.Unlock()
	is.Equal(r.free, turns)
	is.Equal(len(r.lines)+len(r.order), 0)
}
