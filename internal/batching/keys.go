package batching

import "time"

// Keys is a batch of API keys, of type K, with their events. The types are those of package svc,
// which uses this one.
type Keys[K, E any] struct {
	Take    func() []Key[K, E] // returns the keys; called once, when the transaction has a connection
	Most    int                // keys of a holder that are not revoked
	ValidAt time.Time          // leaves out of that number the keys that have expired then; zero: none
	Audit   bool               // the events are queued
}

// Key is a key of a batch.
type Key[K, E any] struct {
	Key    K
	Event  E
	Since  int64  // a generation from before its caller was judged; 0: none, it is the host
	Caller string // the id of its caller's key; "": none
}
