// Package changefeed marks the calls of a follower: of a loop that awaits changes of a store and
// applies them. A store may answer such a call with what it was notified of, or with what it knew a
// moment ago. Another call of Changes asks for everything committed before it.
package changefeed

import (
	"context"
	"time"
)

// Call is a call of a follower.
type Call struct {
	// AsOf is when the store knew the answer; zero: during the call. The store sets it.
	AsOf time.Time
}

type key struct{}

// With returns a context for one call of a follower.
func With(ctx context.Context) (context.Context, *Call) {
	call := &Call{}
	return context.WithValue(ctx, key{}, call), call
}

// Of returns the call of a follower. Nil: the call is none.
func Of(ctx context.Context) *Call {
	call, _ := ctx.Value(key{}).(*Call)
	return call
}
