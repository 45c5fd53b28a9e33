// Package follower marks the calls of a follower: of a loop that awaits changes of a store and
// applies them. A store may answer such a call with what it was notified of. Another call of
// Changes asks for everything committed before it.
package follower

import "context"

type key struct{}

// With returns a context for the calls of a follower.
func With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Is reports whether a call comes from a follower.
func Is(ctx context.Context) bool { return ctx.Value(key{}) != nil }
