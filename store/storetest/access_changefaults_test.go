//go:build planted

package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/extsvc/svc"
)

var changeAccessFaults = map[string]func(*store){
	"ChangeAccess passes rows that are not named": currentFault(func(named svc.AccessNames, current *svc.Bundle) {
		current.Users = append(current.Users, svc.User{ID: "stowaway"})
	}),
	"progress is reported twice": changeFault(func(w *svc.AccessWrite) {
		if report := w.Progress; report != nil {
			w.Progress = func(done int) { report(done); report(done) }
		}
	}),
	"a leave is lost": changeFault(func(w *svc.AccessWrite) { w.Leave = nil }),
	"a change without rows is not written": changeFault(func(w *svc.AccessWrite) {
		if w.Bundle.Empty() {
			*w = svc.AccessWrite{}
		}
	}),
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
	"groups of a bundle lose their members": changeFault(func(w *svc.AccessWrite) {
		if len(w.Groups) > 0 {
			w.Join = nil
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
