package svc

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

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
