package storetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

type yield = func(svc.Bundle) error

var readAccessFaults = map[string]func(*store){
	"all rows are sorted without regard to case": partFault(func(part *svc.Bundle) {
		slices.SortFunc(part.Users, func(a, b svc.User) int { return strings.Compare(strings.ToLower(a.ID), strings.ToLower(b.ID)) })
	}),
	"all attachments are sorted by policy": partFault(func(part *svc.Bundle) {
		slices.SortFunc(part.Attachments, func(a, b svc.Attachment) int { return strings.Compare(a.PolicyID, b.PolicyID) })
	}),
	"users without channels have a nil list": partFault(func(part *svc.Bundle) {
		for i, user := range part.Users {
			if len(user.Channels) == 0 {
				part.Users[i].Channels = nil
			}
		}
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
	"all rows are read table by table": func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			changes, err := s.FullStore.ReadAccess(ctx, read, func(part svc.Bundle) error {
				part.BankPolicies = nil
				return yield(part)
			})
			if err != nil {
				return changes, err
			}
			time.Sleep(time.Millisecond)
			_, err = s.FullStore.ReadAccess(ctx, read, func(part svc.Bundle) error {
				return yield(svc.Bundle{BankPolicies: part.BankPolicies})
			})
			return changes, err
		}
		s.changeAccess = slowChange(s)
	},
	"changes and their rows are read in two steps": func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			if read.Since == 0 {
				return s.FullStore.ReadAccess(ctx, read, yield)
			}
			all, err := s.FullStore.Changes(ctx, read.Since)
			if err != nil {
				return all, err
			}
			changes, named := all.OfAccess()
			time.Sleep(time.Millisecond)
			read.Since = 0
			if !changes.Reset {
				read.Named = &named
			}
			_, err = s.FullStore.ReadAccess(ctx, read, yield)
			return changes, err
		}
		s.changeAccess = slowChange(s)
	},
	"Bare is ignored": readFault(func(read *svc.AccessRead) { read.Bare = false }),
	"every read is Bare": readFault(func(read *svc.AccessRead) {
		read.Bare = true
	}),
	"Named is ignored": readFault(func(read *svc.AccessRead) { read.Named = nil }),
	"Since is ignored": readFault(func(read *svc.AccessRead) { read.Since = 0 }),
	"groups named without members are read with all": readFault(func(read *svc.AccessRead) {
		if read.Named != nil {
			named := *read.Named
			named.MembersOf = slices.Concat(named.MembersOf, named.Groups)
			read.Named = &named
		}
	}),
	"renamed targets are reported as others": answerFault(func(changes *svc.StoreChanges) {
		changes.Targets, changes.Renamed = slices.Concat(changes.Targets, changes.Renamed), nil
	}),
	"a Reset has targets": answerFault(func(changes *svc.StoreChanges) {
		if changes.Reset {
			changes.Targets = []svc.Target{{Kind: svc.TargetAccess}}
		}
	}),
	"a read since has the targets of all kinds": func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			changes, err := s.FullStore.ReadAccess(ctx, read, yield)
			if all, _ := s.FullStore.Changes(ctx, read.Since); read.Since > 0 && !changes.Reset {
				changes.Targets = all.Targets
			}
			return changes, err
		}
	},
	"members without a Holder are read as none": func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			return s.FullStore.ReadAccess(ctx, read, func(part svc.Bundle) error {
				for i := range part.Groups {
					if read.Since > 0 && len(part.Groups[i].Members) > 2 {
						part.Groups[i].Members = nil
					}
				}
				return yield(part)
			})
		}
	},
	"a failed yield goes on": func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			var failed error
			changes, err := s.FullStore.ReadAccess(ctx, read, func(part svc.Bundle) error {
				if err := yield(part); err != nil {
					failed = err
				}
				return nil
			})
			if err == nil {
				err = failed
			}
			return changes, err
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

// slowChange waits before each change of access.
func slowChange(s *store) func(context.Context, svc.AccessNames, func(svc.Bundle) (svc.AccessWrite, error)) error {
	return func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
		time.Sleep(time.Millisecond)
		return s.FullStore.ChangeAccess(ctx, named, change)
	}
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

// answerFault returns a fault in what is returned of a read.
func answerFault(fault func(*svc.StoreChanges)) func(*store) {
	return func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			changes, err := s.FullStore.ReadAccess(ctx, read, yield)
			fault(&changes)
			return changes, err
		}
	}
}
