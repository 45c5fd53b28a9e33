package sequencer_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/sequencer"
)

func TestSequencer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, fails := time.Now(), true
		var worked []time.Duration
		reports := []error{}
		s := sequencer.New(time.Second, func(ctx context.Context) error {
			if worked = append(worked, time.Since(start)); fails {
				return errors.New("unreachable")
			}
			return ctx.Err()
		}, func(_ context.Context, err error) { reports = append(reports, err) })
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
		if !slices.Equal(worked, want) || len(reports) != 2 || reports[1] != nil {
			t.Errorf("worked at %v, want %v; reports %v", worked, want, reports)
		}
		s.Run(ctx) // nobody has asked
		if len(worked) != len(want) {
			t.Error("worked without a question")
		}
		(*sequencer.Sequencer)(nil).Wake()
	})
}

// TestReports: work that keeps failing is reported once a minute, and its next success.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var log strings.Builder
		report := background.Reporter(slog.New(slog.NewTextHandler(&log, nil)), "work")
		s := sequencer.New(time.Second, func(context.Context) error {
			if after := time.Since(start); after > 90*time.Second && after <= 100*time.Second {
				return nil
			}
			return errors.New("unreachable")
		}, report)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		s.Run(ctx)
		const fails, works = `level=WARN msg="svc: cannot work, will retry" error=unreachable`, `level=INFO msg="svc: can work again"`
		for after, want := range map[int]string{0: fails, 60: fails, 91: works, 101: fails, 161: fails} {
			at := start.Add(time.Duration(after) * time.Second).Format("time=2006-01-02T15:04:05.000Z07:00 ")
			if !strings.Contains(log.String(), at+want) {
				t.Errorf("no %s%s in\n%s", at, want, &log)
			}
		}
		if n := strings.Count(log.String(), "\n"); n != 5 {
			t.Errorf("%d reports:\n%s", n, &log)
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
