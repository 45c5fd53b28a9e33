//go:build planted

package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/extsvc/svc"
)

type atomically = func(ctx context.Context, fn func(ctx context.Context, tx svc.Store) error) error

// joins returns a fault in Atomically.
func joins(fault func(good svc.Store, atomically atomically) atomically) func(*store) {
	return func(s *store) { s.atomically = fault(s.FullStore, s.FullStore.Atomically) }
}

// around returns a fault in the function of a transaction: in its argument or its error.
func around(fault func(tx svc.Store, fn func(svc.Store) error) error) func(*store) {
	return joins(func(_ svc.Store, atomically atomically) atomically {
		return func(ctx context.Context, fn func(ctx context.Context, tx svc.Store) error) error {
			return atomically(ctx, func(ctx context.Context, tx svc.Store) error {
				return fault(tx, func(tx svc.Store) error { return fn(ctx, tx) })
			})
		}
	})
}

var errSwallowed = errors.New("swallowed")

var transactionFaults = map[string]func(*store){
	"Atomically starts no transaction": joins(func(good svc.Store, _ atomically) atomically {
		return func(ctx context.Context, fn func(ctx context.Context, tx svc.Store) error) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return fn(ctx, good)
		}
	}),
	"a transaction commits even when its function fails": joins(func(_ svc.Store, atomically atomically) atomically {
		return func(ctx context.Context, fn func(ctx context.Context, tx svc.Store) error) error {
			var failed error
			err := atomically(context.WithoutCancel(ctx), func(ctx context.Context, tx svc.Store) error {
				failed = fn(ctx, tx)
				return nil
			})
			return errors.Join(failed, err, ctx.Err())
		}
	}),
	"the function's error is lost": around(func(tx svc.Store, fn func(svc.Store) error) error {
		if fn(tx) != nil {
			return errSwallowed
		}
		return nil
	}),
	"calls in a transaction do not see its writes": around(func(tx svc.Store, fn func(svc.Store) error) error {
		return fn(broken(func(s *store) {
			s.template = func(context.Context, svc.TemplateKey) (svc.Template, error) { return svc.Template{}, svc.ErrNotFound }
		})(tx))
	}),
	"a transaction lacks the optional roles": around(func(tx svc.Store, fn func(svc.Store) error) error {
		return fn(bare{tx})
	}),
	"events are claimed in a transaction": around(func(tx svc.Store, fn func(svc.Store) error) error {
		return fn(broken(func(s *store) {
			s.claimEvents = func(context.Context, time.Time, time.Time, int) ([]svc.Event, error) { return nil, nil }
		})(tx))
	}),
	"a transaction awaits changes": around(func(tx svc.Store, fn func(svc.Store) error) error {
		return fn(broken(func(s *store) {
			s.awaitChange = func(context.Context, int64) error { return nil }
		})(tx))
	}),
	"a transaction raises the generation": around(func(tx svc.Store, fn func(svc.Store) error) error {
		_, err := tx.KeepValue(context.Background(), "transaction", nil)
		return errors.Join(err, fn(tx))
	}),
}
