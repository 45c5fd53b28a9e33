package svc

import "context"

// TransactionStore joins calls of a store into one.
type TransactionStore interface {
	// Atomically calls fn with a Store whose calls are one transaction: when Atomically returns nil all is there that they have
	// written, and nothing of it when fn fails or panics, or ctx has ended by its end. What tx reads includes what it has written.
	//
	// fn uses the context and the Store that it is given, both from one goroutine and no others, does nothing else that takes
	// time, may be called again, and returns the error of a call that was to write and has failed. Its error is returned as it is, or
	// wrapped. AwaitChange and ClaimEvents of tx fail.
	Atomically(ctx context.Context, fn func(ctx context.Context, tx Store) error) error
}
