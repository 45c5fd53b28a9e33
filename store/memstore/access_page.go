package memstore

import (
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/text"
)

// page returns copies of the rows of one chunk of a list. Without a Kind, it has rows of all kinds.
func (s *Store) page(page *svc.AccessPage) (b svc.Bundle) {
	for _, k := range s.kinds(&b, &b, &svc.AccessNames{}) {
		k.page(page)
	}
	switch page.Kind {
	case event.TargetChannel:
		after := svc.Target{ID: page.After}.Channel()
		channels := cut(s.users[page.User].Channels, page, after, compareChannels)
		for some := range slices.Chunk(channels, partSize) {
			b.Users = append(b.Users, cloneUser(svc.User{ID: page.User, Channels: some}))
		}
	case event.TargetMember:
		members := cut(s.groups[page.Group].Members, page, page.After, strings.Compare)
		if len(members) > 0 {
			b.Groups = []svc.Group{cloneGroup(svc.Group{ID: page.Group, Members: members})}
		}
	}
	return b
}

// or reports whether a filter is "" or the value.
func or(filter, value string) bool { return filter == "" || filter == value }

// isTo reports whether an attachment is to what a page names.
func isTo(a svc.Attachment, page *svc.AccessPage) bool {
	to := func(kind, id string) bool {
		return id == "" || a.Principal == svc.GrantedTo{Type: kind, ID: id}
	}
	return or(page.Policy, a.PolicyID) &&
		to(svc.GrantedToUser, page.User) && to(svc.GrantedToGroup, page.Group)
}

func hasMember(g svc.Group, page *svc.AccessPage) bool {
	return page.User == "" || slices.Contains(g.Members, page.User)
}

// hasText reports whether the text of a page finds a user.
func hasText(user svc.User, page *svc.AccessPage) bool {
	return page.Text == "" || begins(user.ID, page.Text) || begins(user.DisplayName, page.Text) ||
		user.Email != nil && begins(*user.Email, page.Text)
}

// begins is strings.HasPrefix for which upper and lower case are the same.
func begins(s, prefix string) bool { return strings.HasPrefix(text.Fold(s), text.Fold(prefix)) }

// cut returns those of the sorted keys that are on the page.
func cut[K any](keys []K, page *svc.AccessPage, after K, compare func(a, b K) int) []K {
	from, _ := slices.BinarySearchFunc(keys, after, func(key, after K) int {
		if compare(key, after) > 0 {
			return 1
		}
		return -1
	})
	keys = keys[min(from+page.Skip, len(keys)):]
	return keys[:min(page.Limit, len(keys))]
}
