package sequencer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extsvc/svc/internal/sequencer"
)

func TestSequencer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, fails := time.Now(), true
		var worked []time.Duration
		failures := 0
		s := sequencer.New(time.Second, func(ctx context.Context) error {
			if worked = append(worked, time.Since(start)); fails {
				return errors.New("unreachable")
			}
			return ctx.Err()
		}, func(context.Context, error) { failures++ })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.Run(ctx); close(ended) }()
		synctest.Wait()
		fails = false
		time.Sleep(100 * time.Millisecond)
		for range 5 { // they share the work
			s.Wake()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2*time.Second + 100*time.Millisecond)
		s.Wake()
		cancel() // the last work is done all the same
		<-ended
		want := []time.Duration{0, 110 * time.Millisecond, time.Second, 2 * time.Second, 2205 * time.Millisecond}
		if !slices.Equal(worked, want) || failures != 1 {
			t.Errorf("worked at %v, want %v; %d failures", worked, want, failures)
		}
		s.Run(ctx) // nobody has asked
		if len(worked) != len(want) {
			t.Error("worked without a question")
		}
		(*sequencer.Sequencer)(nil).Wake()
	})
}

// TestReports: work that keeps failing is reported once a minute, and again after a success.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var reports []time.Duration
		s := sequencer.New(time.Second, func(context.Context) error {
			if after := time.Since(start); after > 90*time.Second && after <= 100*time.Second {
				return nil
			}
			return errors.New("unreachable")
		}, func(context.Context, error) { reports = append(reports, time.Since(start).Truncate(time.Second)) })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		s.Run(ctx)
		want := []time.Duration{0, time.Minute, 101 * time.Second, 161 * time.Second}
		if !slices.Equal(reports, want) {
			t.Errorf("reported at %v, want %v", reports, want)
		}
	})
}

// TestCutOff: the end of Run cuts off work that was asked for, so it is tried once more.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		calls, ended := 0, 0
		sequencer.New(time.Second, func(ctx context.Context) error {
			if calls++; calls == 1 {
				time.AfterFunc(time.Millisecond, cancel)
				<-ctx.Done()
			}
			if ctx.Err() != nil {
				ended++
			}
			return ctx.Err()
		}, func(context.Context, error) { t.Error("a failure") }).Run(ctx)
		if calls != 2 || ended != 1 {
			t.Errorf("%d calls, %d cut off", calls, ended)
		}
	})
}
