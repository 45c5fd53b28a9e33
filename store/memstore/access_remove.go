package memstore

import (
	"slices"

	"github.com/extsvc/svc"
)

// remove deletes the named rows, but no channels from s.channels. It returns the sources and
// templates that go with users, and the templates of others that came from these sources.
func (s *Store) remove(named svc.AccessNames) (gone, unbound []svc.Target) {
	for _, k := range s.kinds(&svc.Bundle{}, &svc.Bundle{}, &named) {
		k.remove(s)
	}
	removed := func(c svc.Channel) bool { return slices.Contains(named.Channels, c) }
	for id, user := range s.users {
		if slices.ContainsFunc(user.Channels, removed) {
			user = cloneUser(user)
			user.Channels = slices.DeleteFunc(user.Channels, removed)
			put(s, s.users, id, user)
		}
	}
	s.changeMembers(nil, s.membershipsOf(named.Users))
	gone = s.removePersonal(named.Users)
	return gone, s.unbind(func(source svc.SourceKey) bool {
		return slices.Contains(named.Users, source.Owner)
	})
}

// removePersonal deletes the personal sources and templates of users, and returns them.
func (s *Store) removePersonal(users []string) (gone []svc.Target) {
	for key := range s.templates {
		if key.Scope == svc.ScopePersonal && slices.Contains(users, key.Owner) {
			drop(s, s.templates, key)
			drop(s, s.versions, key)
			gone = append(gone, key.Target())
		}
	}
	for key := range s.sources {
		if key.Scope == svc.ScopePersonal && slices.Contains(users, key.Owner) {
			drop(s, s.sources, key)
			drop(s, s.files, key)
			gone = append(gone, key.Target())
		}
	}
	return gone
}
