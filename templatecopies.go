package svc

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/tasks"
)

// copyRest is how many times as long as copying templates took it is not done again.
const copyRest = 20

// templateCopies are the copies of the server's templates: one list of all of them, or none.
//
// A list is read in the background, when one was wanted, and kept only when nothing has changed meanwhile. None is used while a call of
// this process may be changing a template: so nobody who has seen a change, in the answer of that call or of another, is
// answered from a list that is older.
type templateCopies struct {
	lists   *cache.Cache[struct{}, *templateList] // one
	room    int64                                 // bytes; 0: nothing is copied
	writers atomic.Int64                          // calls that may be changing a template
	wanted  chan struct{}                         // holds one when a list is wanted
}

func newTemplateCopies(room int) *templateCopies {
	return &templateCopies{
		lists: cache.New[struct{}, *templateList](1, func(struct{}) uint64 { return 0 }), room: int64(room), wanted: make(chan struct{}, 1),
	}
}

// dropBefore forgets the list, and one that is being read, unless it was read at a generation or later.
func (c *templateCopies) dropBefore(generation int64) {
	if list, found := c.lists.Get(struct{}{}); !found || list.generation < generation {
		c.lists.Clear()
	}
}

// want has a list read in the background.
func (c *templateCopies) want() {
	select {
	case c.wanted <- struct{}{}:
	default:
	}
}

// shown forgets the list when the store has shown a template to be otherwise; nil: not to be there.
func (s *Service) shown(id string, t *Template) {
	if s.copies == nil {
		return
	}
	lists := s.copies.templates.lists
	if list, found := lists.Get(struct{}{}); found && !list.tooLarge && !list.has(id, t) {
		lists.Clear()
	}
}

// templateList returns the copies of all templates, if they are there and hold. nil: the store has to be asked.
func (s *Service) templateList() *templateList {
	if s.copies == nil || s.copies.templates.room == 0 {
		return nil
	}
	s.followStore()
	c := s.copies.templates
	if c.writers.Load() > 0 { // before the list is looked for: a call that has ended has dropped it
		return nil
	}
	v, ok := s.copies.view()
	if !ok {
		return nil
	}
	list, found := c.lists.Get(struct{}{})
	if !found {
		s.copyTemplates()
		c.want()
		return nil
	}
	if list.tooLarge || !v.holds(list.generation) {
		return nil
	}
	return list
}

// copiedTemplate returns a template as the list has it, its base included.
func (s *Service) copiedTemplate(ctx context.Context, l *templateList, id string) (Template, error) {
	number, there := l.byID[id]
	if !there {
		return Template{}, noTemplate()
	}
	if whole := l.whole[number].Load(); whole != nil {
		return *whole, nil
	}
	t, err := s.storedTemplate(ctx, id)
	if err == nil && t.Origin != nil && l.has(id, &t) {
		l.complete(t)
	}
	return t, err
}

// changesTemplates is called by whoever is about to change templates of the server, or to be refused it, who calls done when it knows.
func (s *Service) changesTemplates() (done func()) {
	if s.copies == nil {
		return func() {}
	}
	c := s.copies.templates
	c.writers.Add(1)
	return func() {
		c.lists.Clear()
		c.writers.Add(-1)
	}
}

// keepTemplates reads lists that are wanted until ctx ends.
func (s *Service) keepTemplates(ctx context.Context) {
	for ctx.Err() == nil {
		tasks.Wait(ctx, s.copies.templates.wanted)
		if _, found := s.copies.templates.lists.Get(struct{}{}); found || ctx.Err() != nil {
			continue // it was wanted while it was read
		}
		began := time.Now()
		if err := s.putTemplates(ctx); err != nil {
			tasks.Wait(ctx, time.After(seePause))
		}
		tasks.Wait(ctx, time.After(copyRest*time.Since(began)))
	}
}

// putTemplates reads the list, and keeps it if it is of one generation, or that it would be too large.
func (s *Service) putTemplates(ctx context.Context) error {
	c := s.copies.templates
	fence := c.lists.Fence(struct{}{})
	before, err := s.changes(ctx, math.MaxInt64)
	if err != nil {
		return err
	}
	rows, room, err := s.rowsWithin(ctx, c.room)
	if err != nil {
		return err
	}
	after, err := s.changes(ctx, before.Generation)
	if err != nil || after.Reset || slices.ContainsFunc(after.Targets, func(t Target) bool { return t.Kind == TargetTemplate }) {
		return err
	}
	list := &templateList{generation: after.Generation, tooLarge: true}
	if room >= 0 {
		list = newTemplateList(rows, room, after.Generation)
	}
	s.copies.hear(after.Generation)
	c.lists.Put(fence, struct{}{}, list)
	return nil
}

// rowsWithin reads all templates that room is there for, and returns what is left of it, which is negative when there are more.
func (s *Service) rowsWithin(ctx context.Context, room int64) (rows []Template, left int64, err error) {
	for row, err := range s.storedTemplates(ctx, TemplateFilter{}, "", "") {
		if err != nil {
			return nil, 0, err
		}
		if room -= row.Content.size() + templateBytes; room < 0 {
			return nil, room, nil
		}
		rows = append(rows, row)
	}
	return slices.Clip(rows), room, nil
}
