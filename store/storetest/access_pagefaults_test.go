package storetest

import (
	"context"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

var accessPageFaults = map[string]func(*store){
	"Page is ignored":               readFault(func(read *svc.AccessRead) { read.Page = nil }),
	"a page has one row too few":    pageFault(func(page *svc.AccessPage) { page.Limit = max(1, page.Limit-1) }),
	"a page ignores After":          pageFault(func(page *svc.AccessPage) { page.After = strings.TrimRight(page.After, "b") }),
	"a page ignores Skip":           pageFault(func(page *svc.AccessPage) { page.Skip = 0 }),
	"a page ignores its user":       pageFault(func(page *svc.AccessPage) { page.User = "" }),
	"a page ignores its group":      pageFault(func(page *svc.AccessPage) { page.Group = "" }),
	"a page ignores its policy":     pageFault(func(page *svc.AccessPage) { page.Policy = "" }),
	"a page ignores its text":       pageFault(func(page *svc.AccessPage) { page.Text = "" }),
	"a text is trimmed":             pageFault(func(page *svc.AccessPage) { page.Text = strings.TrimSpace(page.Text) }),
	"a text is cut":                 pageFault(func(page *svc.AccessPage) { page.Text = page.Text[:min(40, len(page.Text))] }),
	"a text is Unicode's lower one": pageFault(func(page *svc.AccessPage) { page.Text = strings.ToLower(page.Text) }),
	"a text with a wildcard":        pageFault(func(page *svc.AccessPage) { page.Text = strings.TrimRight(page.Text, "%_") }),
	"a user is a group, and a group a user": pageFault(func(page *svc.AccessPage) {
		if page.Kind == svc.TargetAttachment {
			page.User, page.Group = page.Group, page.User
		}
	}),
	"a page with Bare has names": readFault(func(read *svc.AccessRead) { read.Bare = read.Bare && read.Page == nil }),
	"a page has the generation 0": func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			changes, err := s.FullStore.ReadAccess(ctx, read, yield)
			if read.Page != nil {
				changes.Generation = 0
			}
			return changes, err
		}
	},
	"a page of users has channels": pagePartFault(func(page svc.AccessPage, part *svc.Bundle) {
		for i := range part.Users {
			if page.Kind == svc.TargetUser {
				part.Users[i].Channels = []svc.Channel{}
			}
		}
	}),
	"a page of channels has names": pagePartFault(func(page svc.AccessPage, part *svc.Bundle) {
		for i := range part.Users {
			if page.Kind == svc.TargetChannel {
				part.Users[i].DisplayName = "name"
			}
		}
	}),
	"a page of members is one of all groups": pagePartFault(func(page svc.AccessPage, part *svc.Bundle) {
		if page.Kind == svc.TargetMember {
			part.Groups = append(part.Groups, svc.Group{ID: "another"})
		}
	}),
	"a page is sorted by text": pagePartFault(func(page svc.AccessPage, part *svc.Bundle) {
		slices.SortFunc(part.Users, func(a, b svc.User) int { return strings.Compare(strings.ToLower(a.ID), strings.ToLower(b.ID)) })
		slices.SortFunc(part.Policies, func(a, b svc.Policy) int { return strings.Compare(strings.ToLower(a.ID), strings.ToLower(b.ID)) })
	}),
}

// largePageFaults break rules that -short skips.
var largePageFaults = map[string]func(*store){
	"a page is one part": func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
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
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			if read.Page == nil || read.Page.Text == "" {
				return s.FullStore.ReadAccess(ctx, read, yield)
			}
			next := svc.AccessPage{Kind: svc.TargetUser, After: read.Page.After, Limit: 1000}
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

// pageFault returns a fault in the pages that are read.
func pageFault(fault func(*svc.AccessPage)) func(*store) {
	return readFault(func(read *svc.AccessRead) {
		if read.Page != nil {
			page := *read.Page
			fault(&page)
			read.Page = &page
		}
	})
}

// pagePartFault returns a fault in the parts of a page.
func pagePartFault(fault func(svc.AccessPage, *svc.Bundle)) func(*store) {
	return func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			return s.FullStore.ReadAccess(ctx, read, func(part svc.Bundle) error {
				if read.Page != nil {
					fault(*read.Page, &part)
				}
				return yield(part)
			})
		}
	}
}
