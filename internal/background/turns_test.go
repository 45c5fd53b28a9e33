package background_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/background"
)

// One call at a time runs. Those that wait fail with it, unless only its own caller has left.
func TestTurns(t *testing.T) {
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		outcome error // of the first call
		leaves  bool  // the first caller has left
		want    error // of the others
		calls   int
	}{
		"success":           {nil, false, nil, 4},
		"failure":           {failed, false, failed, 1},
		"a caller has left": {failed, true, nil, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				is := is.New(t)
				turns, calls := background.NewTurns(), 0
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				end, results := make(chan struct{}), make(chan error, 3)
				go func() {
					_ = turns.Do(ctx, func() error { calls++; <-end; return test.outcome })
				}()
				synctest.Wait()
				for range 3 {
					go func() { results <- turns.Do(t.Context(), func() error { calls++; return nil }) }()
				}
				gone, goes := context.WithCancel(t.Context())
				goes()
				is.Equal(turns.Do(gone, func() error { return nil }), context.Canceled)
				synctest.Wait()
				is.Equal(calls, 1)
				if test.leaves {
					leave()
				}
				close(end)
				for range 3 {
					is.Equal(<-results, test.want)
				}
				is.Equal(calls, test.calls)
				is.NoErr(turns.Do(t.Context(), func() error { return nil })) // a failure is not kept
			})
		})
	}
}
