package svc

import "context"

// ChangeStore tells what has changed, in this process or another, for whoever keeps copies.
//
// Every mutation counts the store's generation up by one and leaves the targets that it changed, in one transaction, so a
// reader that asks again and again misses none, whatever it has slept through.
type ChangeStore interface {
	// Changes returns what was committed after generation since, and the generation that this leads to. The store
	// remembers at least the last 1,000 generations: when since is older, or greater than the store's own (which was
	// restored from a backup, then), the answer is a Reset.
	Changes(ctx context.Context, since int64) (Changes, error)
	// AwaitChange returns nil as soon as the store may have another generation than since, after a second at
	// the latest. It is a wake-up and proves nothing: ask Changes. It fails when ctx ends.
	AwaitChange(ctx context.Context, since int64) error
}

// Changes is what happened between two generations.
type Changes struct {
	Generation int64    // the store's, now
	Reset      bool     // the store cannot tell what changed: everything may have
	Targets    []Target // in the order of their commits; one that changed twice is there twice
}
