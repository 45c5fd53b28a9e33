package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"
)

// Two goroutines prepare a query at once, so one of them is too late. Its connection already runs
// another caller's long statement: nothing waits for that.
func TestPrepareWaitsForNobody(t *testing.T) {
	is := is.New(t)
	server := &slowServer{entered: make(chan struct{}), released: make(chan struct{})}
	db := sql.OpenDB(server)
	db.SetMaxOpenConns(2)
	defer db.Close()
	p := newPool(db, nil, "")

	prepared := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := p.prepare(t.Context(), "query")
			prepared <- err
		}()
		<-server.entered
	}
	p.mu.Lock() // between the end of their preparations and what they do next
	close(server.released)
	busy, done := sync.WaitGroup{}, make(chan struct{})
	defer close(done)
	for range 2 {
		busy.Add(1)
		conn, err := db.Conn(t.Context())
		is.NoErr(err)
		go conn.Raw(func(any) error { // a statement that runs
			busy.Done()
			<-done
			return nil
		})
	}
	busy.Wait()
	p.mu.Unlock()

	deadline := time.After(time.Minute)
	for range 2 {
		select {
		case err := <-prepared:
			is.NoErr(err)
		case <-deadline:
			t.Fatal("somebody waits for a connection that is busy")
		}
	}
	is.True(p.statement("query") != nil)
}

// The followers of a Store wait for no call of its own or of others, whichever of its calls take turns.
func TestFollowersWaitForNoCall(t *testing.T) {
	db, turns := sql.OpenDB(&slowServer{}), NewFairQueue(1)
	defer db.Close()
	for name, take := range map[string]func(s *Store, turns *FairQueue, name string){
		"all": (*Store).TakeTurns, "writes": (*Store).TakeTurnsToWrite,
	} {
		s := New(db, db, Dialect{})
		take(s, turns, "store")
		asking := s.questions().pool
		if asking.shared && asking.fair() != turns.questions {
			t.Errorf("%s: a question waits with the calls", name)
		}
	}
}

// A transaction that does not begin is tried once more.
func TestBeginIsTriedAgain(t *testing.T) {
	for refusals, ok := range []bool{true, true, false} {
		db := sql.OpenDB(&refusing{refusals: refusals})
		defer db.Close()
		_, err := newQueue(newPool(db, nil, "")).begin(t.Context())
		is.New(t).Equal(err == nil, ok)
	}
}

// refusing refuses so many transactions.
type refusing struct {
	slowServer
	refusals int
}

func (r *refusing) Connect(context.Context) (driver.Conn, error) { return r, nil }

func (r *refusing) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	if r.refusals--; r.refusals >= 0 {
		return nil, errors.New("refused")
	}
	return begun{}, nil
}

type begun struct{ driver.Tx }

func (begun) Rollback() error { return nil }

// slowServer announces each preparation, and ends it when the test lets it.
type slowServer struct{ entered, released chan struct{} }

func (s *slowServer) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s *slowServer) Driver() driver.Driver                        { return nil }
func (s *slowServer) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }
func (s *slowServer) Close() error                                 { return nil }

func (s *slowServer) Prepare(string) (driver.Stmt, error) {
	s.entered <- struct{}{}
	<-s.released
	return preparedStatement{}, nil
}

type preparedStatement struct{ driver.Stmt }

func (preparedStatement) Close() error { return nil }

// The timer of a wait counts for that wait alone, and not when the process stood still.
func TestTimerOfAnEarlierWait(t *testing.T) {
	limit := &answerLimit{longest: time.Hour}
	for late, ends := range map[time.Duration]bool{
		-time.Hour:     false, // the next wait has begun
		0:              true,
		2 * stoodStill: false,
	} {
		_, timer, err := limit.hear(t.Context())
		is.New(t).NoErr(err)
		timer.due = time.Now().Add(-late)
		timer.late()
		if cause := context.Cause(timer.ctx); (cause == errSilent) != ends {
			t.Errorf("%v after the end of the wait: %v", late, cause)
		}
		timer.end()
	}
}
