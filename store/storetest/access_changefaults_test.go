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
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
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
	"ChangeAccess passes all members of a named group": func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
			named.MembersOf = slices.Concat(named.MembersOf, named.Groups)
			return s.FullStore.ChangeAccess(ctx, named, change)
		}
	},
	"ChangeAccess passes a member that is not named": currentFault(func(named svc.AccessNames, current *svc.Bundle) {
		for i, g := range current.Groups {
			if len(named.Members) > 0 && len(g.Members) == 0 {
				current.Groups[i].Members = []string{"b"}
			}
		}
	}),
	"ChangeAccess passes no groups for members alone": currentFault(func(named svc.AccessNames, current *svc.Bundle) {
		current.Groups = slices.DeleteFunc(current.Groups, func(g svc.Group) bool {
			return !slices.Contains(named.Groups, g.ID) && !slices.Contains(named.MembersOf, g.ID)
		})
	}),
	"ChangeAccess passes no groups of users": namesFault(func(named *svc.AccessNames) { named.GroupsOf = nil }),
	"ChangeAccess passes groups of users with all members": namesFault(func(named *svc.AccessNames) {
		if len(named.GroupsOf) > 0 {
			named.MembersOf = append(named.MembersOf, "hers")
		}
	}),
	"ChangeAccess passes no accounts of users":         namesFault(func(named *svc.AccessNames) { named.AccountsOf = nil }),
	"ChangeAccess passes no attachments to principals": namesFault(func(named *svc.AccessNames) { named.AttachmentsTo = nil }),
	"ChangeAccess passes no uses of policies":          namesFault(func(named *svc.AccessNames) { named.UsesOf = nil }),
	"ChangeAccess passes accounts named twice two times": currentFault(func(named svc.AccessNames, current *svc.Bundle) {
		for _, account := range current.ServiceAccounts {
			if len(named.UsesOf) > 0 && account.ScopingPolicyID != "" {
				current.ServiceAccounts = append(current.ServiceAccounts, account)
			}
		}
	}),
	"progress is never reported": changeFault(func(w *svc.AccessWrite) { w.Progress = nil }),
	"progress counts more than there is": changeFault(func(w *svc.AccessWrite) {
		if report := w.Progress; report != nil {
			w.Progress = func(done int) { report(done + 1) }
		}
	}),
	"progress is reported twice": changeFault(func(w *svc.AccessWrite) {
		if report := w.Progress; report != nil {
			w.Progress = func(done int) { report(done); report(done) }
		}
	}),
	"a leave is lost": changeFault(func(w *svc.AccessWrite) { w.Leave = nil }),
	"a join is lost": changeFault(func(w *svc.AccessWrite) {
		if len(w.Groups) == 0 {
			w.Join = nil
		}
	}),
	"a change without rows is not written": changeFault(func(w *svc.AccessWrite) {
		if w.Bundle.Empty() {
			*w = svc.AccessWrite{}
		}
	}),
	"Members of written groups are written as well": changeFault(func(w *svc.AccessWrite) {
		for _, g := range w.Groups {
			for _, member := range g.Members {
				w.Join = append(w.Join, svc.Membership{Group: g.ID, User: member})
			}
		}
	}),
	"written groups lose their members": changeAllFault(func(all svc.Bundle, w *svc.AccessWrite) {
		for _, was := range all.Groups {
			if slices.ContainsFunc(w.Groups, func(g svc.Group) bool { return g.ID == was.ID }) {
				for _, member := range was.Members {
					if m := (svc.Membership{Group: was.ID, User: member}); !slices.Contains(w.Join, m) {
						w.Leave = append(w.Leave, m)
					}
				}
			}
		}
	}),
	"channels are only added": changeAllFault(func(all svc.Bundle, w *svc.AccessWrite) {
		w.Users = slices.Clone(w.Users)
		for _, was := range all.Users {
			for i, u := range w.Users {
				if u.ID == was.ID && len(w.Users) == 1 {
					w.Users[i].Channels = slices.Concat(u.Channels, was.Channels)
				}
			}
		}
	}),
	"renamed targets are recorded as others": changeFault(func(w *svc.AccessWrite) {
		w.Targets, w.Renamed = slices.Concat(w.Targets, w.Renamed), nil
	}),
	"renamed targets are lost":      changeFault(func(w *svc.AccessWrite) { w.Renamed = nil }),
	"targets are those of the rows": changeFault(func(w *svc.AccessWrite) { w.Targets = w.Bundle.Targets() }),
	"ChangeAccess passes nil for no members": currentFault(func(named svc.AccessNames, current *svc.Bundle) {
		for i := range current.Groups {
			if len(current.Groups[i].Members) == 0 {
				current.Groups[i].Members = nil
			}
			slices.Reverse(current.Groups[i].Members)
		}
	}),
	"a group without members gets one": changeFault(func(w *svc.AccessWrite) {
		for _, g := range w.Groups {
			if len(g.Members) == 0 && len(w.Users) > 0 {
				w.Join = append(w.Join, svc.Membership{Group: g.ID, User: w.Users[0].ID})
			}
		}
	}),
	"banks are files in a directory": changeFault(func(b *svc.AccessWrite) {
		b.BankPolicies = slices.Clone(b.BankPolicies)
		for i := range b.BankPolicies {
			b.BankPolicies[i].BankID = path.Base(b.BankPolicies[i].BankID)
		}
	}),
	"attachments are written once": changeFault(func(b *svc.AccessWrite) {
		b.Attachments = slices.DeleteFunc(slices.Clone(b.Attachments), func(a svc.Attachment) bool { return a.Priority == 6 })
	}),
	"groups of a bundle lose their members": changeFault(func(w *svc.AccessWrite) {
		if len(w.Groups) > 0 {
			w.Join = nil
		}
	}),
	"users that are written first lose their channels": changeFault(func(b *svc.AccessWrite) {
		if len(b.Users) == 2 {
			b.Users = slices.Clone(b.Users)
			b.Users[0].Channels = nil
		}
	}),
	"users that are not written are deleted": changeFault(func(b *svc.AccessWrite) {
		if len(b.Users) == 1 && b.Users[0].ID == "dave" {
			b.Users = append(slices.Clone(b.Users), svc.User{ID: "alice"})
		}
	}),
	"a failed change of access is written": func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
			var failed error
			err := s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
				var write svc.AccessWrite
				write, failed = change(current)
				return write, nil
			})
			return cmp.Or(failed, err)
		}
	},
	"a panic of a change of access is swallowed": func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) (err error) {
			defer func() {
				if seen := recover(); seen != nil {
					err = fmt.Errorf("panic: %v", seen)
				}
			}()
			return s.FullStore.ChangeAccess(ctx, named, change)
		}
	},
	"an empty change of access writes what was read": func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
			return s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
				write, err := change(current)
				if write.Empty() {
					write = current.Write()
				}
				return write, err
			})
		}
	},
	"changes of access overwrite each other": func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
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
}

// namesFault returns a fault in the names of what change receives.
func namesFault(fault func(*svc.AccessNames)) func(*store) {
	return func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
			fault(&named)
			return s.FullStore.ChangeAccess(ctx, named, change)
		}
	}
}

// currentFault returns a fault in the bundle that change receives.
func currentFault(fault func(svc.AccessNames, *svc.Bundle)) func(*store) {
	return func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
			return s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
				fault(named, &current)
				return change(current)
			})
		}
	}
}

// changeFault returns a fault in what change returns.
func changeFault(fault func(*svc.AccessWrite)) func(*store) {
	return func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
			return s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
				write, err := change(current)
				fault(&write)
				return write, err
			})
		}
	}
}

// changeAllFault returns a fault in what change returns, which knows all rows.
func changeAllFault(fault func(all svc.Bundle, w *svc.AccessWrite)) func(*store) {
	return func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
			var all svc.Bundle
			if _, err := s.FullStore.ReadAccess(ctx, svc.AccessRead{}, collect(&all)); err != nil {
				return err
			}
			return s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
				write, err := change(current)
				fault(all, &write)
				return write, err
			})
		}
	}
}
