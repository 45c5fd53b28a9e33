package svc

import (
	"context"

	"github.com/extsvc/svc/internal/cache"
)

// installed are the templates of the server that came from sources. It is not changed.
type installed struct {
	count      int
	bySource   map[SourceKey][]Installation // each by id
	generation int64
}

// installed returns the server's templates that came from sources: a copy where it can be trusted, else the store's.
func (s *Service) installed(ctx context.Context) (*installed, error) {
	if s.copies == nil {
		return s.readInstalled(ctx, 0)
	}
	if all, ok := s.copies.installedOf(); ok {
		return all, nil
	}
	s.followStore()
	fence := s.copies.installed.Fence(struct{}{})
	defer turn(ctx, s.copies.installed, fence, struct{}{})()
	if all, ok := s.copies.installedOf(); ok {
		return all, nil
	}
	v, _ := s.copies.view()
	all, err := s.readInstalled(ctx, v.generation)
	if err == nil && cache.Size(all.bySource) <= maxInstalled {
		s.copies.installed.Put(fence, struct{}{}, all)
	}
	return all, err
}

// installedOf returns the copy of what is installed.
func (c *copies) installedOf() (*installed, bool) {
	v, ok := c.view()
	if !ok {
		return nil, false
	}
	all, found := c.installed.Get(struct{}{})
	return all, found && v.holds(all.generation)
}

func (s *Service) readInstalled(ctx context.Context, generation int64) (*installed, error) {
	all := &installed{bySource: map[SourceKey][]Installation{}, generation: generation}
	page := InstallationPage{Scope: ScopeServer, Limit: installedChunk}
	for i, err := range list(ctx, "list installations", page.Limit,
		func() error { return nil },
		func() ([]Installation, error) { return s.store.Installations(ctx, page) },
		func(last Installation) { page.After = last.ID }) {
		if err != nil {
			return nil, err
		}
		all.count++
		all.bySource[i.Origin.Source] = append(all.bySource[i.Origin.Source], i)
	}
	return all, nil
}

const installedChunk = 1024

// byEntry are installations by the id of what they came from.
func byEntry(list []Installation) map[string][]Installation {
	by := make(map[string][]Installation, len(list))
	for _, i := range list {
		by[i.Origin.ID] = append(by[i.Origin.ID], i)
	}
	return by
}
