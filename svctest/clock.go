package svctest

import (
	"sync/atomic"
	"time"
)

// Clock is the clock of a [Server]. It stands at 2026-01-02T03:04:05Z until [Clock.Advance] moves
// it. It is safe for concurrent use.
//
// Only the Service's own times and comparisons use it, such as the expiry of keys. Rows written
// while it stands still have equal times.
type Clock struct{ moved atomic.Int64 }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(c.moved.Load()))
}

// Advance moves the clock forward by a duration.
func (c *Clock) Advance(by time.Duration) { c.moved.Add(int64(by)) }
