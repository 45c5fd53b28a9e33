//go:build planted

package storetest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

var accessFaults = map[string]func(*store){
	"an unknown user is an error": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if query.Identity.Kind == svc.KindUser && snapshot.User == nil {
			return svc.ErrNotFound
		}
		return nil
	}),
	"the holder of a key is the user with that id": func(s *store) {
		s.does["Access"] = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			of, err := s.FullStore.Access(ctx, query)
			if err != nil || of.Key == nil {
				return of, err
			}
			snapshot, err := s.FullStore.Access(ctx, svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindUser, ID: of.Key.Holder.ID}, BankID: query.BankID})
			snapshot.Key = of.Key
			return snapshot, err
		}
	},
	"an empty store yields a system user": func(s *store) {
		s.does["ReadAccess"] = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
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
		s.does["ReadAccess"] = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			parts := 0
			return s.FullStore.ReadAccess(ctx, read, func(part svc.Bundle) error {
				if parts++; parts > 1 {
					return nil
				}
				return yield(part)
			})
		}
	},
	"ChangeAccess passes rows that are not named": currentFault(func(named svc.AccessNames, current *svc.Bundle) {
		current.Users = append(current.Users, svc.User{ID: "stowaway"})
	}),
	"an empty change of access writes what was read": changeFault(func(current svc.Bundle, write *svc.AccessWrite) {
		if write.Empty() {
			*write = current.Write()
		}
	}),
	"changes of access overwrite each other": func(s *store) {
		s.does["ChangeAccess"] = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
			var read svc.Bundle
			err := s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
				read = current
				return svc.AccessWrite{}, nil
			})
			if err != nil {
				return err
			}
			write, err := change(read)
			if err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
			return s.FullStore.ChangeAccess(ctx, named, func(svc.Bundle) (svc.AccessWrite, error) { return write, nil })
		}
	},
	"a removed user leaves its memberships": func(s *store) {
		s.does["ChangeAccess"] = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
			var again []svc.Membership
			err := s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
				write, err := change(current)
				if len(write.Users) > 0 && write.Remove.Users == nil && len(write.Groups) > 0 {
					again = append(again, svc.Membership{Group: "i", User: "b"})
				}
				return write, err
			})
			if err != nil || again == nil {
				return err
			}
			return s.FullStore.ChangeAccess(ctx, named, func(svc.Bundle) (svc.AccessWrite, error) {
				return svc.AccessWrite{Join: again}, nil
			})
		}
	},
	"versions of templates stay": func(s *store) {
		s.does["TemplateVersions"] = func(context.Context, svc.TemplateKey, int64, int) ([]svc.TemplateVersion, error) {
			return []svc.TemplateVersion{{Number: 1}}, nil
		}
	},
	"a transaction removes at its end": func(s *store) {
		s.does["Atomically"] = func(ctx context.Context, fn func(context.Context, svc.Store) error) error {
			return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
				var late []svc.AccessNames
				err := fn(ctx, broken(changeFault(func(_ svc.Bundle, w *svc.AccessWrite) {
					late = append(late, w.Remove)
					w.Remove = svc.AccessNames{}
				}))(tx))
				for _, named := range late {
					_ = removeIn(ctx, tx, named)
				}
				return err
			})
		}
	},
}

func snapshotFault(fault func(svc.AccessQuery, *svc.AccessSnapshot) error) func(*store) {
	return func(s *store) {
		s.does["Access"] = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			snapshot, err := s.FullStore.Access(ctx, query)
			return snapshot, cmp.Or(err, fault(query, &snapshot))
		}
	}
}

type yield = func(svc.Bundle) error

// largePageFaults break rules that -short skips.
var largePageFaults = map[string]func(*store){
	"a page is one part": func(s *store) {
		s.does["ReadAccess"] = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			if read.Page == nil {
				return s.FullStore.ReadAccess(ctx, read, yield)
			}
			var whole svc.Bundle
			changes, err := s.FullStore.ReadAccess(ctx, read, collect(&whole))
			if err != nil || whole.Empty() {
				return changes, err
			}
			return changes, yield(whole)
		}
	},
	"a text finds only the next thousand users": func(s *store) {
		s.does["ReadAccess"] = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			if read.Page == nil || read.Page.Text == "" {
				return s.FullStore.ReadAccess(ctx, read, yield)
			}
			next := svc.AccessPage{Kind: event.TargetUser, After: read.Page.After, Limit: 1000}
			var near svc.Bundle
			if _, err := s.FullStore.ReadAccess(ctx, svc.AccessRead{Page: &next}, collect(&near)); err != nil {
				return svc.StoreChanges{}, err
			}
			return s.FullStore.ReadAccess(ctx, read, func(part svc.Bundle) error {
				part.Users = slices.DeleteFunc(part.Users, func(u svc.User) bool {
					return !slices.ContainsFunc(near.Users, func(n svc.User) bool { return n.ID == u.ID })
				})
				return yield(part)
			})
		}
	},
}

// currentFault returns a fault in the bundle that change receives.
func currentFault(fault func(svc.AccessNames, *svc.Bundle)) func(*store) {
	return func(s *store) {
		s.does["ChangeAccess"] = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
			return s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
				fault(named, &current)
				return change(current)
			})
		}
	}
}

func changeFault(fault func(current svc.Bundle, write *svc.AccessWrite)) func(*store) {
	return func(s *store) {
		s.does["ChangeAccess"] = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
			return s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
				write, err := change(current)
				fault(current, &write)
				return write, err
			})
		}
	}
}
