package sqlstore

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"
)

// mustEnter waits for a turn.
func mustEnter(t *testing.T, r *Round, who string) (leave func()) {
	t.Helper()
	leave, err := r.enter(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	return leave
}

// queued enters in the background, and returns when the caller waits. It sends its number when its turn has come.
func queued(t *testing.T, r *Round, who string, came chan<- string) {
	t.Helper()
	waits := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.waiting[who])
	}
	before := waits()
	go func() {
		leave, err := r.enter(t.Context(), who)
		if err == nil {
			came <- who
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
	r := NewRound(1)
	leave := mustEnter(t, r, "storm")
	came := make(chan string, 200)
	for range 100 {
		queued(t, r, "storm", came)
	}
	for _, quiet := range []string{"a", "b", "a"} {
		queued(t, r, quiet, came)
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
	turns := 4 * runtime.NumCPU()
	r := NewRound(turns)
	var leave []func()
	for range turns {
		leave = append(leave, mustEnter(t, r, "a"))
	}
	came := make(chan string, 1)
	queued(t, r, "b", came)
	for range r.share + 1 {
		queued(t, r, "a", make(chan string, 1))
	}
	leave[0]()
	is.Equal(<-came, "b")
	is.True(r.Crowded("a"))
	for _, l := range leave[1 : turns-r.share+1] {
		l()
	}
	r.mu.Lock()
	is.True(r.running["a"] <= r.share)
	r.mu.Unlock()
	is.True(!NewRound(2).Crowded("a"))
}

// Callers that leave the queue take no turn with them. No turn is lost or used twice.
func TestTurnsAreKept(t *testing.T) {
	const turns = 3
	r := NewRound(turns)
	var running, most atomic.Int64
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 200 {
				ctx, end := context.WithTimeout(t.Context(), time.Duration(random.IntN(2000))*time.Microsecond)
				leave, err := r.enter(ctx, string(rune('a'+i%5)))
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
	is.Equal(r.free, turns)
	is.Equal(len(r.running)+len(r.waiting)+len(r.order), 0)
}
