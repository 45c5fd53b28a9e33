//go:build planted

package storetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

// told returns a fault in the answer of Changes.
func told(fault func(since int64, changes *svc.StoreChanges)) func(*store) {
	return func(s *store) {
		s.does["Changes"] = func(ctx context.Context, since int64) (svc.StoreChanges, error) {
			changes, err := s.FullStore.Changes(ctx, since)
			fault(since, &changes)
			return changes, err
		}
	}
}

var changeFaults = map[string]func(*store){
	"concurrent writers get an error": func(s *store) {
		var busy sync.Mutex
		s.does["CreateTemplate"] = func(ctx context.Context, t svc.Template) error {
			if !busy.TryLock() {
				return errors.New("database is locked")
			}
			defer busy.Unlock()
			time.Sleep(time.Millisecond)
			return s.FullStore.CreateTemplate(ctx, t)
		}
	},
}

// longFaults are the faults that only the slow rules catch.
var longFaults = map[string]func(*store){
	"all rows come in one part": func(s *store) {
		s.does["ReadAccess"] = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			var rows svc.Bundle
			changes, err := s.FullStore.ReadAccess(ctx, read, collect(&rows))
			if err == nil {
				err = yield(rows)
			}
			return changes, err
		}
	},
	"only 100 generations are kept": told(func(since int64, changes *svc.StoreChanges) {
		if changes.Generation-since > 100 {
			*changes = svc.StoreChanges{Generation: changes.Generation, Reset: true}
		}
	}),
	"older changes are left out without a Reset": told(func(since int64, changes *svc.StoreChanges) {
		changes.Targets = changes.Targets[max(0, len(changes.Targets)-1000):]
	}),
	"a no-break space is read as a space": func(s *store) {
		s.does["Template"] = func(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
			key.ID = strings.ReplaceAll(key.ID, "\u00a0", " ")
			return s.FullStore.Template(ctx, key)
		}
	},
	"changes and the generation are read in two steps": func(s *store) {
		s.does["Changes"] = func(ctx context.Context, since int64) (svc.StoreChanges, error) {
			changes, err := s.FullStore.Changes(ctx, since)
			if err != nil || changes.Reset {
				return changes, err
			}
			time.Sleep(time.Millisecond)
			later, err := s.FullStore.Changes(ctx, changes.Generation)
			changes.Generation = later.Generation
			return changes, err
		}
	},
	"AwaitChange sees a change only after a second": func(s *store) {
		s.does["AwaitChange"] = func(ctx context.Context, _ int64) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
				return nil
			}
		}
	},
	"AwaitChange returns only after a change": func(s *store) {
		s.does["AwaitChange"] = func(ctx context.Context, since int64) error {
			for range 10 {
				changes, err := s.FullStore.Changes(ctx, since)
				if err != nil || changes.Generation != since {
					return err
				}
				if err := s.FullStore.AwaitChange(ctx, since); err != nil {
					return err
				}
			}
			return errors.New("waited for long enough")
		}
	},
	"AwaitChange ignores the end of its context": func(s *store) {
		s.does["AwaitChange"] = func(ctx context.Context, since int64) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := s.FullStore.AwaitChange(context.WithoutCancel(ctx), since)
			return errors.Join(err, ctx.Err())
		}
	},
	"one change in a thousand is lost": func(s *store) {
		var mu sync.Mutex
		seen := 0
		s.does["Changes"] = func(ctx context.Context, since int64) (svc.StoreChanges, error) {
			changes, err := s.FullStore.Changes(ctx, since)
			mu.Lock()
			defer mu.Unlock()
			if seen += len(changes.Targets); seen > 1000 && len(changes.Targets) > 0 {
				seen = 0
				changes.Targets = changes.Targets[1:]
			}
			return changes, err
		}
	},
}

type atomically = func(ctx context.Context, fn func(ctx context.Context, tx svc.Store) error) error

// joins returns a fault in Atomically.
func joins(fault func(good svc.Store, atomically atomically) atomically) func(*store) {
	return func(s *store) { s.does["Atomically"] = fault(s.FullStore, s.FullStore.Atomically) }
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
	"a transaction lacks the optional roles": around(func(tx svc.Store, fn func(svc.Store) error) error {
		return fn(bare{tx})
	}),
}
