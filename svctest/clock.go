package svctest

import (
	"sync/atomic"
	"time"
)

// Clock is the clock of a [Server]. It shows 2026-01-02T03:04:05Z until it is moved. It is safe for concurrent use.
//
// Only what the service stamps and judges goes by it: the expiry of keys, for one. Rows that were written while it stood
// still have the same time.
type Clock struct{ moved atomic.Int64 }

// Now returns what it shows.
func (c *Clock) Now() time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(c.moved.Load()))
}

// Advance moves it.
func (c *Clock) Advance(by time.Duration) { c.moved.Add(int64(by)) }
