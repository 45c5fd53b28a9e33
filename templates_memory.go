package svc

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"
	"sort"
	"sync"
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

// shelf reads the server's templates, from memory where it may.
type shelf struct {
	*base
	copyTemplates func() // starts copying templates, once
}

// shown forgets the list when the store has shown a template to be otherwise; nil: not to be there.
func (s *shelf) shown(id string, t *Template) {
	if s.copies == nil {
		return
	}
	lists := s.copies.templates.lists
	if list, found := lists.Get(struct{}{}); found && !list.tooLarge && !list.has(id, t) {
		lists.Clear()
	}
}

// templateList returns the copies of all templates, if they are there and hold. nil: the store has to be asked.
func (s *shelf) templateList() *templateList {
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
func (s *shelf) copiedTemplate(ctx context.Context, l *templateList, id string) (Template, error) {
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
func (s *shelf) changesTemplates() (done func()) {
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
func (s *shelf) keepTemplates(ctx context.Context) {
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
func (s *shelf) putTemplates(ctx context.Context) error {
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
func (s *shelf) rowsWithin(ctx context.Context, room int64) (rows []Template, left int64, err error) {
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

// templateBytes is what a template takes in a list beside its texts: itself, where it came from, its places.
const templateBytes = 768

// templateList is the server's templates as they were at one generation. But for bases, which follow when they are asked for, it does
// not change, and whoever reads it shares it.
type templateList struct {
	generation int64
	tooLarge   bool       // and so it is empty
	rows       []Template // by name, then id; without bases
	byID       map[string]int32
	whole      []atomic.Pointer[Template] // the rows with their bases; nil: to be read

	// The numbers of rows, growing.
	all               []int32
	byCategory, byTag map[string][]int32

	renderings sync.Map     // *rendering by its name
	room       atomic.Int64 // bytes that are left for bases and renderings
}

// rendering is a list as somebody writes it.
type rendering struct {
	once sync.Once
	text []byte // nil: there is no room for it
}

func newTemplateList(rows []Template, room, generation int64) *templateList {
	l := &templateList{
		generation: generation, rows: rows, byID: make(map[string]int32, len(rows)), whole: make([]atomic.Pointer[Template], len(rows)),
		all: make([]int32, len(rows)), byCategory: map[string][]int32{}, byTag: map[string][]int32{},
	}
	l.room.Store(room)
	for i := range rows {
		row, number := &rows[i], int32(i)
		if l.all[i], l.byID[row.ID] = number, number; row.Origin == nil {
			l.whole[i].Store(row)
		}
		if row.Category != nil {
			l.byCategory[*row.Category] = append(l.byCategory[*row.Category], number)
		}
		for at, tag := range row.Tags {
			if !slices.Contains(row.Tags[:at], tag) {
				l.byTag[tag] = append(l.byTag[tag], number)
			}
		}
	}
	return l
}

// after yields the rows behind a name and id that a filter lets through.
func (l *templateList) after(ctx context.Context, filter TemplateFilter, name, id string) iter.Seq2[Template, error] {
	return func(yield func(Template, error) bool) {
		first := sort.Search(len(l.rows), func(i int) bool {
			return cmp.Or(cmp.Compare(l.rows[i].Name, name), cmp.Compare(l.rows[i].ID, id)) > 0
		})
		numbers := l.numbers(filter)
		from, _ := slices.BinarySearch(numbers, int32(first))
		for i, number := range numbers[from:] {
			if err := ctx.Err(); i%listChunk == 0 && err != nil {
				yield(Template{}, fault("list templates", err))
				return
			}
			if row := &l.rows[number]; filter.lets(row) && !yield(*row, nil) {
				return
			}
		}
	}
}

// at returns the row in a place of those that a filter lets through.
func (l *templateList) at(filter TemplateFilter, place int) (Template, error) {
	for _, number := range l.numbers(filter) {
		if row := &l.rows[number]; filter.lets(row) {
			if place == 0 {
				return *row, nil
			}
			place--
		}
	}
	return Template{}, noTemplate()
}

// numbers are those of few rows, among which are all that a filter lets through.
func (l *templateList) numbers(filter TemplateFilter) []int32 {
	numbers := l.all
	if filter.Category != "" {
		numbers = l.byCategory[filter.Category]
	}
	if tagged := l.byTag[filter.Tag]; filter.Tag != "" && len(tagged) < len(numbers) {
		numbers = tagged
	}
	return numbers
}

func (f TemplateFilter) lets(t *Template) bool {
	return (f.Category == "" || t.Category != nil && *t.Category == f.Category) && (f.Tag == "" || slices.Contains(t.Tags, f.Tag))
}

// has reports whether a template, as the store has just returned it with its base, is in the list just so; nil: whether there is none.
func (l *templateList) has(id string, t *Template) bool {
	number, there := l.byID[id]
	if !there || t == nil {
		return !there && t == nil
	}
	row := &l.rows[number]
	return row.InstalledAt.Equal(t.InstalledAt) && row.UpdatedAt.Equal(t.UpdatedAt) && row.Version == t.Version &&
		row.Content.same(t.Content) && (row.Origin == nil) == (t.Origin == nil) && (t.Origin == nil || row.Origin.URL == t.Origin.URL)
}

// complete adds the base of a template that the list has, if there is room.
func (l *templateList) complete(t Template) {
	number, origin := l.byID[t.ID], *t.Origin
	if t.Content = l.rows[number].Content; origin.Base.same(t.Content) {
		origin.Base = t.Content // in the same memory
	} else if !l.take(origin.Base.size()) {
		return
	}
	t.Origin = &origin
	l.whole[number].Store(&t)
}

// rendered returns the list as render writes it, the first time, and nil where there is no room for that.
func (l *templateList) rendered(as any, render func([]Template) []byte) []byte {
	known, found := l.renderings.Load(as)
	if !found {
		known, _ = l.renderings.LoadOrStore(as, &rendering{})
	}
	r := known.(*rendering)
	r.once.Do(func() {
		if text := render(l.rows); l.take(int64(cap(text))) {
			r.text = text
		}
	})
	return r.text
}

// take reports whether there is room for some more bytes, which they have then.
func (l *templateList) take(bytes int64) bool {
	if l.room.Add(-bytes) >= 0 {
		return true
	}
	l.room.Add(bytes)
	return false
}

// size is about how many bytes the texts of a content take.
func (c Content) size() int64 {
	n := len(c.Name) + len(c.Manifest)
	for _, text := range []*string{c.Description, c.Category} {
		if text != nil {
			n += 16 + len(*text)
		}
	}
	for _, list := range [][]string{c.Integrations, c.Tags} {
		for _, text := range list {
			n += 16 + len(text)
		}
	}
	return int64(n)
}
