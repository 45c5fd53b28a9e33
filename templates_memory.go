package svc

import (
	"cmp"
	"context"
	"crypto/rand"
	"iter"
	"math"
	"slices"
	"sort"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/tasks"
)

const copyPause = 100 * time.Millisecond // after a failed copy

// copyRest sets the pause after copying templates, as a multiple of the time that copying took.
const copyRest = 20

// templateCopies caches the server's templates: one list of all of them, or none.
//
// A goroutine in the background reads a list when a caller wants one. It keeps the list only when
// no template has changed meanwhile. While a call of this process may be changing a template, no
// call uses the list. So a caller that has seen a change, in the answer of any call, never gets an
// answer from an older list.
type templateCopies struct {
	lists   *cache.Cache[struct{}, *templateList] // holds at most one list
	room    int64                                 // bytes; 0: nothing is cached
	writers atomic.Int64                          // calls that may be changing a template
	wanted  chan struct{}                         // holds one value when a list is wanted
}

func newTemplateCopies(room int) *templateCopies {
	return &templateCopies{
		lists:  cache.New[struct{}, *templateList](1, func(struct{}) uint64 { return 0 }),
		room:   int64(room),
		wanted: make(chan struct{}, 1),
	}
}

// dropBefore drops the list, and a list that is being read, unless the list is of this generation
// or a later one.
func (c *templateCopies) dropBefore(generation int64) {
	if list, found := c.lists.Get(struct{}{}); !found || list.generation < generation {
		c.lists.Clear()
	}
}

// want asks the background goroutine to read a list.
func (c *templateCopies) want() {
	select {
	case c.wanted <- struct{}{}:
	default:
	}
}

// shelf reads the server's templates, from the cache when it can.
type shelf struct {
	*base
	listed        *templateCopies
	copyTemplates func() // starts the background goroutine, once
}

// newShelf returns a shelf that caches templates in so many bytes; 0: none.
func newShelf(b *base, room int) *shelf {
	s := &shelf{base: b, listed: newTemplateCopies(room)}
	b.copies.OnReset(s.listed.lists.Clear)
	b.onChange(func(changed Target, generation int64) {
		if changed.Kind == TargetTemplate {
			s.listed.dropBefore(generation)
		}
	})
	return s
}

// shown drops the list when it disagrees with the store. t is the template that the store returned;
// nil: the store has no such template.
func (s *shelf) shown(id string, t *Template) {
	lists := s.listed.lists
	if list, found := lists.Get(struct{}{}); found && !list.tooLarge && !list.has(id, t) {
		lists.Clear()
	}
}

// templateList returns the cached list of all templates while it is valid. Nil: read the store.
func (s *shelf) templateList() *templateList {
	c := s.listed
	if c.room == 0 {
		return nil
	}
	s.copies.Follow()
	// Count the writers before reading the list: a writer drops the list before it leaves the
	// count.
	if c.writers.Load() > 0 {
		return nil
	}
	v, ok := s.copies.View()
	if !ok {
		return nil
	}
	list, found := c.lists.Get(struct{}{})
	if !found {
		s.copyTemplates()
		c.want()
		return nil
	}
	if list.tooLarge || !v.Holds(list.generation) {
		return nil
	}
	return list
}

// copiedTemplate returns a template of the list, with its base. It reads the store for a base that
// the list does not have.
func (s *shelf) copiedTemplate(
	ctx context.Context, l *templateList, id string,
) (Template, error) {
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

// changesTemplates marks the start of a change to templates of the server. Call it before the
// change, and call done when the outcome is known, even a refusal.
func (s *shelf) changesTemplates() (done func()) {
	c := s.listed
	c.writers.Add(1)
	return func() {
		c.lists.Clear()
		c.writers.Add(-1)
	}
}

// keepTemplates reads the lists that callers want until ctx ends.
func (s *shelf) keepTemplates(ctx context.Context) {
	for ctx.Err() == nil {
		tasks.Wait(ctx, s.listed.wanted)
		if _, found := s.listed.lists.Get(struct{}{}); found || ctx.Err() != nil {
			continue // a caller wanted the list while it was read
		}
		began := time.Now()
		if err := s.putTemplates(ctx); err != nil {
			tasks.Wait(ctx, time.After(copyPause))
		}
		tasks.Wait(ctx, time.After(copyRest*time.Since(began)))
	}
}

// putTemplates reads the list, and keeps it if no template changed meanwhile. For a list that is
// too large it keeps that fact.
func (s *shelf) putTemplates(ctx context.Context) error {
	c := s.listed
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
	isTemplate := func(t Target) bool { return t.Kind == TargetTemplate }
	if err != nil || after.Reset || slices.ContainsFunc(after.Targets, isTemplate) {
		return err
	}
	list := &templateList{generation: after.Generation, tooLarge: true}
	if room >= 0 {
		list = newTemplateList(rows, room, after.Generation)
	}
	s.copies.Hear(after.Generation)
	c.lists.Put(fence, struct{}{}, list)
	return nil
}

// rowsWithin reads all templates and returns the bytes left of room. When the templates need more
// than room, it returns no rows and a negative left.
func (s *shelf) rowsWithin(
	ctx context.Context, room int64,
) (rows []Template, left int64, err error) {
	for row, err := range s.storedTemplates(ctx, TemplateQuery{}) {
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

// templateBytes estimates the size of a template in a list without its texts: its struct, its
// origin and its index entries.
const templateBytes = 768

// templateList holds the server's templates as they were at one generation. Readers share it, and
// it does not change, except that bases are added on demand.
type templateList struct {
	generation int64
	etag       string     // no other list has it
	tooLarge   bool       // the templates do not fit into the room, so the list is empty
	rows       []Template // by name, then id; without bases
	byID       map[string]int32
	whole      []atomic.Pointer[Template] // the rows with their bases; nil: not read yet

	// The numbers of rows, in ascending order.
	all               []int32
	byCategory, byTag map[string][]int32

	room atomic.Int64 // bytes left for bases
}

// tag returns the list's entity tag. "": there is no list.
func (l *templateList) tag() string {
	if l == nil {
		return ""
	}
	return l.etag
}

func newTemplateList(rows []Template, room, generation int64) *templateList {
	l := &templateList{
		generation: generation, etag: strconv.Quote(rand.Text()), rows: rows, byID: make(map[string]int32, len(rows)),
		whole: make([]atomic.Pointer[Template], len(rows)), all: make([]int32, len(rows)),
		byCategory: map[string][]int32{}, byTag: map[string][]int32{},
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

// part yields the rows that a query asks for.
func (l *templateList) part(ctx context.Context, query TemplateQuery) iter.Seq2[Template, error] {
	return upTo(query.Limit, func(yield func(Template, error) bool) {
		first := sort.Search(len(l.rows), func(i int) bool {
			return cmp.Or(cmp.Compare(l.rows[i].Name, query.AfterName),
				cmp.Compare(l.rows[i].ID, query.AfterID)) > 0
		})
		numbers := l.numbers(query)
		from, _ := slices.BinarySearch(numbers, int32(first))
		skip := query.Skip
		for i, number := range numbers[from:] {
			if err := ctx.Err(); i%listChunk == 0 && err != nil {
				yield(Template{}, fault("list templates", err))
				return
			}
			row := &l.rows[number]
			if !labelled(row.Content, query.Category, query.Tag) {
				continue
			}
			if skip--; skip < 0 && !yield(*row, nil) {
				return
			}
		}
	})
}

// numbers returns the numbers of few rows. They include all rows that match a query.
func (l *templateList) numbers(query TemplateQuery) []int32 {
	numbers := l.all
	if query.Category != "" {
		numbers = l.byCategory[query.Category]
	}
	if tagged := l.byTag[query.Tag]; query.Tag != "" && len(tagged) < len(numbers) {
		numbers = tagged
	}
	return numbers
}

// has reports whether the list agrees with the store about a template. t is the template that the
// store has just returned, with its base; nil: the store has no such template.
func (l *templateList) has(id string, t *Template) bool {
	number, there := l.byID[id]
	if !there || t == nil {
		return !there && t == nil
	}
	row := &l.rows[number]
	return row.InstalledAt.Equal(t.InstalledAt) && row.UpdatedAt.Equal(t.UpdatedAt) &&
		row.Version == t.Version && row.Content.same(t.Content) &&
		(row.Origin == nil) == (t.Origin == nil) &&
		(t.Origin == nil || row.Origin.URL == t.Origin.URL)
}

// complete adds the base of a template to the list, if the list has room for it.
func (l *templateList) complete(t Template) {
	number, origin := l.byID[t.ID], *t.Origin
	if t.Content = l.rows[number].Content; origin.Base.same(t.Content) {
		origin.Base = t.Content // shares memory
	} else if !l.take(origin.Base.size()) {
		return
	}
	t.Origin = &origin
	l.whole[number].Store(&t)
}

// take reserves bytes of the room, and reports whether it could.
func (l *templateList) take(bytes int64) bool {
	if l.room.Add(-bytes) >= 0 {
		return true
	}
	l.room.Add(bytes)
	return false
}

// size estimates the bytes that the texts of a content take.
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
