package fairqueue

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"
)

func reads(owner string) Flow { return Flow{Owner: owner, Kind: "reads"} }

func writes(owner string) Flow { return Flow{Owner: owner, Kind: "writes"} }

func mustEnter(t *testing.T, r *Queue, name Flow) (leave func()) {
	t.Helper()
	leave, err := r.Acquire(t.Context(), name, 0, time.Minute)
	is.New(t).NoErr(err)
	return leave
}

// queued enters in the background, and returns when the caller waits or has its turn. It sends its name when its turn has come.
func queued(t *testing.T, r *Queue, name Flow, came chan<- string) {
	t.Helper()
	waits := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.flow(name, 0, time.Now()).waiting)
	}
	before := waits()
	var entered atomic.Bool
	go func() {
		leave, err := r.Acquire(t.Context(), name, 0, 0)
		entered.Store(true)
		if err == nil {
			came <- name.Owner + name.ID
			leave()
		}
	}()
	for waits() == before && !entered.Load() {
		runtime.Gosched()
	}
}

// A flow with many callers delays another one by a turn, one of the same owner too.
func TestTurnsGoRound(t *testing.T) {
	r := New(Rules{Turns: 1})
	leave := mustEnter(t, r, reads("storm"))
	came := make(chan string, 200)
	for range 100 {
		queued(t, r, reads("storm"), came)
	}
	for _, quiet := range []string{"a", "b", "a"} {
		queued(t, r, reads(quiet), came)
	}
	queued(t, r, Flow{Owner: "storm", ID: "-other"}, came)
	leave()
	var order []string
	for range 104 {
		order = append(order, <-came)
	}
	is.New(t).Equal(order[:7], []string{"storm", "a", "b", "storm-other", "a", "storm", "storm"})
}

// An owner that is alone leaves a turn for the first other one. From then on it has its share.
func TestShareOfTurns(t *testing.T) {
	is := is.New(t)
	const alone, share = 7, 2
	r := New(Rules{Turns: alone + 1, Alone: alone, Share: share})
	r.long = time.Hour
	var leave []func()
	for range alone {
		leave = append(leave, mustEnter(t, r, reads("a")))
	}
	is.True(!r.Contended("a"))
	for range share + 1 {
		queued(t, r, reads("a"), make(chan string, 1))
	}
	mustEnter(t, r, reads("b"))()
	is.True(r.Contended("a"))
	for _, l := range leave[:alone-share+1] {
		l()
	}
	r.mu.Lock()
	is.True(len(r.flow(reads("a"), 0, time.Now()).running) <= share)
	r.mu.Unlock()
	for range share {
		mustEnter(t, r, writes("a"))
	}
	_, err := r.Acquire(t.Context(), writes("a"), 0, time.Millisecond)
	is.True(errors.Is(err, ErrLate))
}

// keepBusy makes an owner busy until the end of the test.
func keepBusy(t *testing.T, r *Queue, owner string) {
	t.Helper()
	mustEnter(t, r, reads(owner))()
	ctx := t.Context()
	go func() {
		for ctx.Err() == nil {
			time.Sleep(busy / 4)
			if leave, err := r.Acquire(ctx, reads(owner), 0, 0); err == nil {
				leave()
			}
		}
	}()
}

// Beside a turn that is long, its flow has one more than its share, but not two.
func TestLongTurns(t *testing.T) {
	is := is.New(t)
	const share = 1
	r := New(Rules{Share: share})
	keepBusy(t, r, "other")
	begun := time.Now()
	for range share + 1 {
		mustEnter(t, r, writes("a"))
	}
	is.True(time.Since(begun) >= long)
	_, err := r.Acquire(t.Context(), writes("a"), 0, 2*long)
	is.True(errors.Is(err, ErrLate))
}

// Turns of an owner that overlap have a rate while another owner is busy.
func TestPace(t *testing.T) {
	is := is.New(t)
	const perSecond, storm = 50, 20
	gap := time.Second / perSecond
	r := New(Rules{PerSecond: perSecond})
	for range storm {
		mustEnter(t, r, reads("a"))
	}
	is.True(r.owners["a"].next.Before(time.Now().Add(gap))) // it was alone: nothing is counted against it
	keepBusy(t, r, "other")
	begun := time.Now()
	for range storm {
		mustEnter(t, r, reads("a"))
	}
	is.True(time.Since(begun) >= (storm-1)*gap-burst)
	begun = time.Now()
	var all sync.WaitGroup
	var came atomic.Int64
	for range storm {
		all.Go(func() {
			if _, err := r.Acquire(t.Context(), reads("a"), 0, 0); err == nil {
				came.Add(1)
			}
		})
	}
	for range storm {
		mustEnter(t, r, reads("b"))()
	}
	is.True(came.Load() < storm) // b has passed it
	all.Wait()
	is.Equal(came.Load(), int64(storm))
	is.True(time.Since(begun) >= (storm-1)*gap-burst)
}

// With Always, each turn counts, also of an owner that is alone. Nothing is kept of an owner that is gone.
func TestPaceOfOne(t *testing.T) {
	is := is.New(t)
	const perSecond, turns = 50, 10
	r := New(Rules{PerSecond: perSecond, Always: true})
	begun := time.Now()
	for range turns {
		mustEnter(t, r, reads("a"))()
	}
	is.True(time.Since(begun) >= (turns-1)*time.Second/perSecond-burst)
	time.Sleep(time.Second / perSecond)
	mustEnter(t, r, reads("b"))()
	is.Equal(len(r.owners), 1) // b
}

// Only a caller whose owner has another one, beside another owner, waits for its time.
func TestEarly(t *testing.T) {
	r, now := New(Rules{PerSecond: 1}), time.Now()
	for _, crowded := range []bool{false, true} {
		for running := range 2 {
			early := r.early(&owner{name: "a", next: now.Add(time.Second), running: running}, now)
			is.New(t).Equal(early, crowded && running > 0)
		}
		mustEnter(t, r, reads("a"))()
		mustEnter(t, r, reads("b"))()
	}
}

// Another owner is busy when it was there before, or between.
func TestCrowded(t *testing.T) {
	is := is.New(t)
	r := New(Rules{})
	mustEnter(t, r, reads("a"))()
	mustEnter(t, r, reads("a"))()
	is.True(!r.Contended("a") && r.Contended("b"))
	mustEnter(t, r, reads("b"))()
	mustEnter(t, r, reads("b"))()
	is.True(r.Contended("a") && r.Contended("b"))
}

// An owner is busy for less than a second after it was there.
func TestCrowdedForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		r := New(Rules{})
		mustEnter(t, r, reads("a"))()
		time.Sleep(busy - time.Nanosecond)
		is.True(r.Contended("b"))
		time.Sleep(time.Nanosecond)
		is.True(!r.Contended("b"))
	})
}

// Pause takes a turn, and goes on without one after Patience.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		r := New(Rules{Turns: 1})
		first := r.Wait(t.Context(), reads("a"))
		begun := time.Now()
		second := r.Wait(t.Context(), reads("b"))
		is.Equal(time.Since(begun), Patience)
		second()
		is.Equal(r.free, 0) // the first has the turn
		first()
		is.Equal(r.free, 1)
	})
}

// A caller that comes when the time of its flow has come does not put it off.
func TestPaceIsKept(t *testing.T) {
	is := is.New(t)
	r := New(Rules{PerSecond: 1})
	keepBusy(t, r, "other")
	mustEnter(t, r, reads("a"))
	came := make(chan string, 2)
	queued(t, r, reads("a"), came)
	r.mu.Lock()
	l := r.flow(reads("a"), 0, time.Now())
	l.of.next = time.Now()
	r.mu.Unlock()
	go func() { _, _ = r.Acquire(t.Context(), reads("a"), 0, 0) }()
	for {
		r.mu.Lock()
		waiting, given := len(l.waiting), len(l.running) == 2
		r.mu.Unlock()
		is.True(waiting < 2)
		if given {
			return
		}
		runtime.Gosched()
	}
}

// Readers do not wait behind writers of their owner, which may wait for a lock.
func TestReadersPassWriters(t *testing.T) {
	r := New(Rules{Share: 1})
	r.long = time.Hour
	keepBusy(t, r, "other")
	mustEnter(t, r, writes("a"))
	queued(t, r, writes("a"), make(chan string, 1))
	mustEnter(t, r, reads("a"))()
}

func TestLimitOfALine(t *testing.T) {
	is := is.New(t)
	r := New(Rules{})
	leave, err := r.Acquire(t.Context(), reads("a"), 1, 0)
	is.NoErr(err)
	_, err = r.Acquire(t.Context(), reads("a"), 1, time.Millisecond)
	is.True(errors.Is(err, ErrLate))
	leave()
	leave, err = r.Acquire(t.Context(), reads("a"), 1, 0)
	is.NoErr(err)
	leave()
}

// A caller that waits for its share gets a turn when the other owner is no longer busy, although nobody leaves.
func TestBusyOwnersRest(t *testing.T) {
	is := is.New(t)
	r := New(Rules{Share: 1})
	r.long = time.Hour
	mustEnter(t, r, reads("other"))()
	mustEnter(t, r, reads("a"))
	came := make(chan string, 2)
	queued(t, r, reads("a"), came)
	begun := time.Now()
	is.Equal(<-came, "a")
	is.True(time.Since(begun) >= busy/2) // else it did not wait
}

// Callers that leave the queue take no turn with them. No turn is lost or used twice.
func TestTurnsAreKept(t *testing.T) {
	const turns = 3
	r := New(Rules{Turns: turns, PerSecond: 10_000})
	var running atomic.Int64
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 200 {
				ctx, end := context.WithTimeout(t.Context(), time.Duration(random.IntN(2000))*time.Microsecond)
				name := Flow{Owner: string(rune('a' + i%5)), ID: string(rune('a' + i%2))}
				leave, err := r.Acquire(ctx, name, 1+i%3, time.Duration(random.IntN(2000))*time.Microsecond)
				if err == nil {
					if n := running.Add(1); n > turns {
						t.Errorf("%d turns at once", n)
					}
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
	r.mu.Lock()
	defer r.mu.Unlock()
	is.Equal(r.free, turns)
	is.Equal(len(r.owners)+len(r.flows)+len(r.order), 0)
}
