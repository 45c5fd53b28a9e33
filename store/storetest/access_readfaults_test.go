//go:build planted

package storetest

import (
	"context"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

type yield = func(svc.Bundle) error

var readAccessFaults = map[string]func(*store){
	"all rows are sorted without regard to case": partFault(func(part *svc.Bundle) {
		slices.SortFunc(part.Users, func(a, b svc.User) int { return strings.Compare(strings.ToLower(a.ID), strings.ToLower(b.ID)) })
	}),
	"an empty store yields a system user": func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			parts := 0
			changes, err := s.FullStore.ReadAccess(ctx, read, func(part svc.Bundle) error {
				parts++
				return yield(part)
			})
			if err == nil && parts == 0 {
				err = yield(svc.Bundle{Users: users("system")})
			}
			return changes, err
		}
	},
	"only the first part is read": func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			parts := 0
			return s.FullStore.ReadAccess(ctx, read, func(part svc.Bundle) error {
				if parts++; parts > 1 {
					return nil
				}
				return yield(part)
			})
		}
	},
	"a transaction reads what was there before": func(s *store) {
		s.atomically = func(ctx context.Context, fn func(context.Context, svc.Store) error) error {
			return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
				inner := &store{}
				broken(func(of *store) {
					of.readAccess = func(context.Context, svc.AccessRead, yield) (svc.StoreChanges, error) {
						return svc.StoreChanges{}, nil
					}
					inner = of
				})(tx)
				return fn(ctx, inner)
			})
		}
	},
}

// partFault returns a fault in the parts of every read.
func partFault(fault func(*svc.Bundle)) func(*store) {
	return func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			return s.FullStore.ReadAccess(ctx, read, func(part svc.Bundle) error {
				fault(&part)
				return yield(part)
			})
		}
	}
}

// readFault returns a fault in what is read.
func readFault(fault func(*svc.AccessRead)) func(*store) {
	return func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			fault(&read)
			return s.FullStore.ReadAccess(ctx, read, yield)
		}
	}
}
