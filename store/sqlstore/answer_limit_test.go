package sqlstore

import (
	"context"
	"testing"
	"time"
)

// The timer of a wait counts for that wait alone, and not when the process stood still.
func TestTimerOfAnEarlierWait(t *testing.T) {
	limit := &answerLimit{longest: time.Hour}
	for late, ends := range map[time.Duration]bool{
		-time.Hour:     false, // the next wait has begun
		0:              true,
		2 * stoodStill: false,
	} {
		_, timer, err := limit.hear(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		timer.due = time.Now().Add(-late)
		timer.late()
		if cause := context.Cause(timer.ctx); (cause == errSilent) != ends {
			t.Errorf("%v after the end of the wait: %v", late, cause)
		}
		timer.end()
	}
}
