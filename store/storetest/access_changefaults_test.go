package storetest

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/extsvc/svc"
)

var changeAccessFaults = map[string]func(*store){
	"ChangeAccess does not pass the holders of channels": func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.Bundle, error)) error {
			named.Channels = nil
			return s.FullStore.ChangeAccess(ctx, named, change)
		}
	},
	"ChangeAccess passes rows named twice two times": currentFault(func(named svc.AccessNames, current *svc.Bundle) {
		for i := range named.Policies {
			if slices.Contains(named.Policies[:i], named.Policies[i]) {
				current.Policies = append(current.Policies, newPolicy(named.Policies[i]))
			}
		}
	}),
	"ChangeAccess passes rows that are not named": currentFault(func(named svc.AccessNames, current *svc.Bundle) {
		current.Users = append(current.Users, svc.User{ID: "stowaway"})
	}),
	"ChangeAccess passes nil for no members": currentFault(func(named svc.AccessNames, current *svc.Bundle) {
		for i := range current.Groups {
			if len(current.Groups[i].Members) == 0 {
				current.Groups[i].Members = nil
			}
			slices.Reverse(current.Groups[i].Members)
		}
	}),
	"a group without members gets one": writeFault(func(s *store, ctx context.Context, b *svc.Bundle) {
		for i := range b.Groups {
			if len(b.Groups[i].Members) == 0 {
				b.Groups[i].Members = []string{"alice"}
			}
		}
	}),
	"banks are files in a directory": writeFault(func(s *store, ctx context.Context, b *svc.Bundle) {
		b.BankPolicies = slices.Clone(b.BankPolicies)
		for i := range b.BankPolicies {
			b.BankPolicies[i].BankID = path.Base(b.BankPolicies[i].BankID)
		}
	}),
	"attachments are written once": writeFault(func(s *store, ctx context.Context, b *svc.Bundle) {
		b.Attachments = slices.DeleteFunc(slices.Clone(b.Attachments), func(a svc.Attachment) bool { return a.Priority == 6 })
	}),
	"groups of a bundle lose their members": writeFault(func(s *store, ctx context.Context, b *svc.Bundle) {
		b.Groups = slices.Clone(b.Groups)
		for i := range b.Groups {
			b.Groups[i].Members = nil
		}
	}),
	"users that are written first lose their channels": writeFault(func(s *store, ctx context.Context, b *svc.Bundle) {
		if len(b.Users) == 2 {
			b.Users = slices.Clone(b.Users)
			b.Users[0].Channels = nil
		}
	}),
	"users that are not written are deleted": writeFault(func(s *store, ctx context.Context, b *svc.Bundle) {
		if len(b.Users) == 1 && b.Users[0].ID == "dave" {
			b.Users = append(slices.Clone(b.Users), svc.User{ID: "alice"})
		}
	}),
	"a failed change of access is written": func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.Bundle, error)) error {
			var failed error
			err := s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.Bundle, error) {
				var bundle svc.Bundle
				bundle, failed = change(current)
				return bundle, nil
			})
			return cmp.Or(failed, err)
		}
	},
	"a panic of a change of access is swallowed": func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.Bundle, error)) (err error) {
			defer func() {
				if seen := recover(); seen != nil {
					err = fmt.Errorf("panic: %v", seen)
				}
			}()
			return s.FullStore.ChangeAccess(ctx, named, change)
		}
	},
	"an empty change of access writes what was read": func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.Bundle, error)) error {
			return s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.Bundle, error) {
				bundle, err := change(current)
				if len(bundle.Users)+len(bundle.Groups)+len(bundle.Policies)+len(bundle.Attachments)+len(bundle.BankPolicies)+len(bundle.ServiceAccounts) == 0 {
					bundle = current
				}
				return bundle, err
			})
		}
	},
	"changes of access overwrite each other": func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.Bundle, error)) error {
			var read svc.Bundle
			err := s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.Bundle, error) {
				read = current
				return svc.Bundle{}, nil
			})
			if err != nil {
				return err
			}
			bundle, err := change(read)
			if err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
			return s.FullStore.ChangeAccess(ctx, named, func(svc.Bundle) (svc.Bundle, error) { return bundle, nil })
		}
	},
}

// currentFault returns a fault in the bundle that change receives.
func currentFault(fault func(svc.AccessNames, *svc.Bundle)) func(*store) {
	return func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.Bundle, error)) error {
			return s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.Bundle, error) {
				fault(named, &current)
				return change(current)
			})
		}
	}
}

// writeFault returns a fault in the bundle that change returns.
func writeFault(fault func(*store, context.Context, *svc.Bundle)) func(*store) {
	return func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.Bundle, error)) error {
			return s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.Bundle, error) {
				bundle, err := change(current)
				fault(s, ctx, &bundle)
				return bundle, err
			})
		}
	}
}
