package storetest

import (
	"context"

	"github.com/extsvc/svc"
)

var removeAccessFaults = map[string]func(*store){
	"removed users stay":            changeFault(func(w *svc.AccessWrite) { w.Remove.Users = nil }),
	"removed groups stay":           changeFault(func(w *svc.AccessWrite) { w.Remove.Groups = nil }),
	"removed accounts stay":         changeFault(func(w *svc.AccessWrite) { w.Remove.ServiceAccounts = nil }),
	"removed policies stay":         changeFault(func(w *svc.AccessWrite) { w.Remove.Policies = nil }),
	"removed attachments stay":      changeFault(func(w *svc.AccessWrite) { w.Remove.Attachments = nil }),
	"removed bank policies stay":    changeFault(func(w *svc.AccessWrite) { w.Remove.BankPolicies = nil }),
	"removed channels stay":         changeFault(func(w *svc.AccessWrite) { w.Remove.Channels = nil }),
	"users are removed with groups": changeFault(func(w *svc.AccessWrite) { w.Remove.Users = append(w.Remove.Users, w.Remove.Groups...) }),
	"progress counts rows that stay": changeFault(func(w *svc.AccessWrite) {
		if report := w.Progress; report != nil {
			w.Progress = func(done int) { report(done - len(w.Remove.BankPolicies)) }
		}
	}),
	"an attachment is removed from the other kind of principal": changeFault(func(w *svc.AccessWrite) {
		for i, key := range w.Remove.Attachments {
			if key.Principal.ID == "hers" {
				w.Remove.Attachments[i].Principal.Type = svc.GrantedToGroup
			}
		}
	}),
	"a removed user leaves its memberships": func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
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
	"rows are removed after others are written": func(s *store) {
		s.changeAccess = inTwo(s, func(w svc.AccessWrite) (first, then svc.AccessWrite) {
			first, then = w, svc.AccessWrite{Remove: w.Remove, Gone: w.Gone}
			first.Remove, first.Gone = svc.AccessNames{}, nil
			return first, then
		})
	},
	"a removal is a mutation of its own": func(s *store) {
		s.changeAccess = inTwo(s, func(w svc.AccessWrite) (first, then svc.AccessWrite) {
			first, then = svc.AccessWrite{Remove: w.Remove, Gone: w.Gone}, w
			then.Remove, then.Gone = svc.AccessNames{}, nil
			return first, then
		})
	},
	"Gone is never called": changeFault(func(w *svc.AccessWrite) { w.Gone = nil }),
	"Gone is called for each kind": changeFault(func(w *svc.AccessWrite) {
		if report := w.Gone; report != nil {
			w.Gone = func(gone []svc.Target) { report(gone); report(nil) }
		}
	}),
	"what went is not reported": func(s *store) {
		s.changes = func(ctx context.Context, since int64) (svc.StoreChanges, error) {
			changes, err := s.FullStore.Changes(ctx, since)
			kept := changes.Targets[:0:0]
			for _, t := range changes.Targets {
				if t.Scope != svc.ScopePersonal {
					kept = append(kept, t)
				}
			}
			changes.Targets = kept
			return changes, err
		}
	},
	"personal templates of a removed user stay": func(s *store) {
		s.template = func(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
			template, err := s.FullStore.Template(ctx, key)
			if key.Owner == "rowless" {
				err = nil
			}
			return template, err
		}
	},
	"templates of all scopes go with a user": func(s *store) {
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
			removed := false
			err := s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
				write, err := change(current)
				removed = len(write.Remove.Users) > 0
				return write, err
			})
			if removed {
				_ = s.FullStore.DeleteTemplate(ctx, templateKey("a"), nil)
			}
			return err
		}
	},
	"versions of templates stay": func(s *store) {
		s.templateVersions = func(context.Context, svc.TemplateKey, int64, int) ([]svc.TemplateVersion, error) {
			return []svc.TemplateVersion{{Number: 1}}, nil
		}
	},
	"a transaction removes at once": func(s *store) {
		s.atomically = func(ctx context.Context, fn func(context.Context, svc.Store) error) error {
			var removed []svc.AccessNames
			err := s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
				return fn(ctx, broken(changeFault(func(w *svc.AccessWrite) {
					if w.Remove.Users != nil {
						removed = append(removed, w.Remove)
					}
				}))(tx))
			})
			for _, named := range removed {
				_ = removeIn(ctx, s.FullStore, named)
			}
			return err
		}
	},
	"a transaction removes at its end": func(s *store) {
		s.atomically = func(ctx context.Context, fn func(context.Context, svc.Store) error) error {
			return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
				var late []svc.AccessNames
				err := fn(ctx, broken(changeFault(func(w *svc.AccessWrite) {
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

// inTwo returns a ChangeAccess that writes in two mutations what change returns, if it removes.
func inTwo(s *store, split func(svc.AccessWrite) (first, then svc.AccessWrite)) func(context.Context, svc.AccessNames, func(svc.Bundle) (svc.AccessWrite, error)) error {
	return func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
		var then svc.AccessWrite
		err := s.FullStore.ChangeAccess(ctx, named, func(current svc.Bundle) (svc.AccessWrite, error) {
			write, err := change(current)
			if write.Remove.Users != nil {
				write, then = split(write)
			}
			return write, err
		})
		if err != nil || then.Empty() {
			return err
		}
		return s.FullStore.ChangeAccess(ctx, named, func(svc.Bundle) (svc.AccessWrite, error) { return then, nil })
	}
}
