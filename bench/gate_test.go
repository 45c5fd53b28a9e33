package bench_test

import (
	"context"
	"sync/atomic"

	"github.com/extsvc/svc"
)

// gate is a store that counts look-ups of keys and can refuse them.
type gate struct {
	svc.Store
	reads  atomic.Int64
	closed atomic.Bool
}

func (g *gate) Access(ctx context.Context, q svc.AccessQuery) (svc.AccessSnapshot, error) {
	g.reads.Add(1)
	if g.closed.Load() {
		return svc.AccessSnapshot{}, svc.ErrUnavailable
	}
	return g.Store.Access(ctx, q)
}
