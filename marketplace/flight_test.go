package marketplace_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

// until waits until a condition holds.
func until(t *testing.T, so func() bool) {
	t.Helper()
	for began := time.Now(); !so(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Error("not in 10 seconds")
			return
		}
	}
}

func TestFiftyAtOnce(t *testing.T) {
	for name, cache := range map[string]int{"kept": 0, "not kept": -1} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			const calls = 50
			s, client, from := newShelf(t, marketplace.Config{Cache: cache})
			s.before = func(*http.Request) { until(t, func() bool { return client.Waiting() == calls }) }
			errs := make(chan error)
			for range calls {
				go func() {
					content, err := client.Template(t.Context(), from, "a")
					if err == nil && string(content.Manifest) != `{"version":"1"}` {
						err = errors.New("another manifest")
					}
					errs <- err
				}()
			}
			for range calls {
				is.NoErr(<-errs)
			}
			is.Equal(s.requests(), []string{"/templates.json 200", "/m.json 200"})
			is.Equal(client.Waiting(), 0)
		})
	}
}

// busy is a memory that waits for a signal before it keeps a file.
type busy struct {
	memory
	keeping, let chan struct{}
}

func (b *busy) KeepFile(context.Context, string, []byte) {
	b.keeping <- struct{}{}
	<-b.let
}

// A call without a memory, as in a transaction of a host, does not wait for one: the memory could
// wait for that transaction.
func TestOthersMemoriesAreNotWaitedFor(t *testing.T) {
	is := is.New(t)
	_, client, from := newShelf(t, marketplace.Config{})
	remembering, memory := from, &busy{keeping: make(chan struct{}), let: make(chan struct{})}
	remembering.Memory = memory
	done := make(chan error)
	go func() {
		_, err := client.Catalog(t.Context(), remembering, 0)
		done <- err
	}()
	<-memory.keeping
	_, err := client.Catalog(t.Context(), from, 0)
	is.NoErr(err)
	close(memory.let)
	is.NoErr(<-done)
}

// Two calls that must not see each other's answers share no request.
func TestOthersAreNotWaitedFor(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	s.put("/templates.json", oneEntry, nil)
	asked, goOn := make(chan struct{}), make(chan struct{})
	s.before = func(*http.Request) { asked <- struct{}{}; <-goOn }
	errs := make(chan error)
	for _, token := range []svc.Secret{"one", "two"} {
		mine := from
		mine.Token = token
		go func() {
			_, err := client.Template(t.Context(), mine, "a")
			errs <- err
		}()
	}
	<-asked
	<-asked
	close(goOn)
	is.NoErr(<-errs)
	is.NoErr(<-errs)
	is.Equal(len(s.requests()), 2)
}

func TestWhoAskedFirstLeaves(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	s.put("/templates.json", oneEntry, nil)
	asked, goOn := make(chan struct{}, 2), make(chan struct{})
	s.before = func(*http.Request) { asked <- struct{}{}; <-goOn }
	call := func(ctx context.Context) chan error {
		err := make(chan error, 1)
		go func() {
			_, e := client.Template(ctx, from, "a")
			err <- e
		}()
		return err
	}
	leaving, leave := context.WithCancel(t.Context())
	first := call(leaving)
	<-asked
	hurried, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	second := call(hurried)
	until(t, func() bool { return client.Waiting() == 2 })
	leave()
	is.True(errors.Is(<-first, context.Canceled))
	is.Equal(client.Waiting(), 1)
	third := call(t.Context())
	until(t, func() bool { return client.Waiting() == 2 })
	close(goOn)
	is.NoErr(<-second)
	is.NoErr(<-third)
	is.Equal(s.requests(), []string{"/templates.json 200"})
}

// A request ends when no caller waits for it. The next caller starts another request.
func TestAllLeave(t *testing.T) {
	is := is.New(t)
	asked, ended := make(chan struct{}, 1), make(chan struct{})
	var good atomic.Bool
	client, from := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !good.Load() {
			asked <- struct{}{}
			<-r.Context().Done()
			close(ended)
			return
		}
		_, _ = w.Write([]byte(oneEntry))
	}, marketplace.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	for range 3 {
		go func() {
			_, err := client.Template(ctx, from, "a")
			errs <- err
		}()
	}
	<-asked
	until(t, func() bool { return client.Waiting() == 3 })
	cancel()
	for range 3 {
		is.True(errors.Is(<-errs, context.Canceled))
	}
	<-ended
	good.Store(true)
	version(t, client, from)
}

// A caller with a short deadline gets its timeout, and the others get their answer.
func TestWaitingIsBoundedByOnesOwnContext(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	s.put("/templates.json", oneEntry, nil)
	goOn := make(chan struct{})
	s.before = func(*http.Request) { <-goOn }
	patient := make(chan error)
	go func() {
		_, err := client.Template(t.Context(), from, "a")
		patient <- err
	}()
	until(t, func() bool { return client.Waiting() == 1 })
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := client.Template(short, from, "a")
	wantError(t, err, svc.CodeSourceTimeout, "did not arrive in time")
	close(goOn)
	is.NoErr(<-patient)
}

// Callers share a failure as well; the next call asks again.
func TestFailureIsNotKept(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	s.put("/templates.json", "{", nil)
	_, err := client.Template(t.Context(), from, "a")
	wantError(t, err, svc.CodeSourceFailed, "its catalogue")
	s.put("/templates.json", oneEntry, nil)
	version(t, client, from)
	is.Equal(len(s.requests()), 2)
}

// No answer of a source ends the process.
func TestFlightThatPanics(t *testing.T) {
	err := marketplace.FlightThatPanics()
	if err == nil || !strings.Contains(err.Error(), "cannot be read: panic: broken") {
		t.Errorf("got %v", err)
	}
}
