package listcache

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"iter"
	"slices"
	"sort"
	"strconv"
	"sync"
)

// Label is a property that many rows may have, such as a tag. Its field is neither "" nor "#".
type Label struct{ Field, Text string }

// idOf is the label of the row with an id. All rows have the zero Label.
func idOf(id string) Label { return Label{"#", id} }

func (l Label) compare(other Label) int {
	return cmp.Or(cmp.Compare(l.Field, other.Field), cmp.Compare(l.Text, other.Text))
}

// Rows says how a List reads its rows.
type Rows[T any] struct {
	ID      func(row *T) string            // unique in a list
	Labels  func(row *T) []Label           // a label may appear twice
	Has     func(row *T, label Label) bool // whether Labels has it
	Size    func(row *T) int64             // in bytes
	Same    func(a, b *T) bool             // of two rows with the same id
	Digest  func(row *T) [sha256.Size]byte // differs for rows that are not the same
	Compare func(a, b *T) int              // the order of a list; 0 for equal ids only
}

// List holds rows in their order. Its zero value with Of set is empty. It never changes: a change
// makes another list, which shares the memory of all other rows and nearly all of the index. The
// caller must not change a row that it has put into a list or got from it.
//
// A list is one sorted index: an entry for each row and label, in pages of about the same length.
// To change a row is to copy the pages that have its entries.
type List[T any] struct {
	Of    *Rows[T]
	pages [][]entry[T] // none is empty; lists share them, so they never change
	bytes int64

	tagged sync.Once
	tag    string
}

type entry[T any] struct {
	Label
	row *T
}

// pageLength is the most entries of a page. With 100,000 rows of 4 labels, a changed row copies
// some 2,000 pages' addresses and 5 pages.
const pageLength = 256

// Bytes returns the size of all rows.
func (l *List[T]) Bytes() int64 { return l.bytes }

// Tag returns an entity tag, quotes included. It follows from the rows, so lists with the same rows
// have it in every process. A generation would not do: after a restore from a backup, it comes
// again with other rows.
func (l *List[T]) Tag() string {
	l.tagged.Do(func() {
		all := sha256.New()
		for row := range l.Part(Query[T]{}) {
			digest := l.Of.Digest(row)
			all.Write(digest[:])
		}
		const bits = 160 // base32 has 5 for a character
		l.tag = strconv.Quote(base32.StdEncoding.EncodeToString(all.Sum(nil)[:bits/8]))
	})
	return l.tag
}

// Row returns the row with an id. Nil: the list has no such row.
func (l *List[T]) Row(id string) *T {
	label := idOf(id)
	p := l.seek(func(e *entry[T]) bool { return e.compare(label) < 0 })
	if p.page == len(l.pages) || l.pages[p.page][p.at].Label != label {
		return nil
	}
	return l.pages[p.page][p.at].row
}

// edit adds an entry or removes it.
type edit[T any] struct {
	entry[T]
	adds bool
}

// With returns a list with other rows. A row replaces the row with the same id, unless it is the
// same. A nil row removes the row with that id. When no row differs, it returns l.
func (l *List[T]) With(rows map[string]*T) *List[T] {
	next := &List[T]{Of: l.Of, bytes: l.bytes}
	var edits []edit[T]
	for id, row := range rows {
		old := l.Row(id)
		if old != nil && row != nil && l.Of.Same(old, row) {
			continue
		}
		if old != nil {
			edits, next.bytes = l.edits(edits, old, false), next.bytes-l.Of.Size(old)
		}
		if row != nil {
			edits, next.bytes = l.edits(edits, row, true), next.bytes+l.Of.Size(row)
		}
	}
	if len(edits) == 0 {
		return l
	}
	slices.SortFunc(edits, func(a, b edit[T]) int { return l.compare(&a.entry, &b.entry) })
	next.pages = make([][]entry[T], 0, len(l.pages)+1+len(edits)/pageLength)
	done := 0 // pages of l
	for len(edits) > 0 {
		at, n := l.pageOf(&edits[0].entry), len(edits)
		if at+1 < len(l.pages) {
			n = sort.Search(n, func(i int) bool {
				return l.compare(&edits[i].entry, &l.pages[at+1][0]) >= 0
			})
		}
		var page []entry[T]
		if at < len(l.pages) {
			page = l.pages[at]
		}
		next.pages = append(next.pages, l.pages[done:at]...)
		next.add(l.merge(page, edits[:n]))
		edits, done = edits[n:], min(at+1, len(l.pages))
	}
	next.pages = append(next.pages, l.pages[done:]...)
	return next
}

// edits appends the edits that add or remove a row.
func (l *List[T]) edits(edits []edit[T], row *T, adds bool) []edit[T] {
	edits = append(edits, edit[T]{entry[T]{Label{}, row}, adds},
		edit[T]{entry[T]{idOf(l.Of.ID(row)), row}, adds})
	for _, label := range l.Of.Labels(row) {
		edits = append(edits, edit[T]{entry[T]{label, row}, adds})
	}
	return edits
}

func (l *List[T]) compare(a, b *entry[T]) int {
	if c := a.Label.compare(b.Label); c != 0 {
		return c
	}
	return l.Of.Compare(a.row, b.row)
}

// pageOf returns the number of the page that has an entry, or would have it.
func (l *List[T]) pageOf(e *entry[T]) int {
	return max(0, sort.Search(len(l.pages), func(i int) bool {
		return l.compare(&l.pages[i][0], e) > 0
	})-1)
}

// merge returns the entries of a page after edits. Of the edits of one entry, one that adds it
// wins.
func (l *List[T]) merge(page []entry[T], edits []edit[T]) []entry[T] {
	merged := make([]entry[T], 0, len(page)+len(edits))
	for len(edits) > 0 {
		e := &edits[0]
		at := sort.Search(len(page), func(i int) bool { return l.compare(&page[i], &e.entry) >= 0 })
		merged, page = append(merged, page[:at]...), page[at:]
		if len(page) > 0 && l.compare(&page[0], &e.entry) == 0 {
			page = page[1:]
		}
		var added *entry[T]
		for ; len(edits) > 0 && l.compare(&edits[0].entry, &e.entry) == 0; edits = edits[1:] {
			if edits[0].adds {
				added = &edits[0].entry
			}
		}
		if added != nil {
			merged = append(merged, *added)
		}
	}
	return append(merged, page...)
}

// add appends entries as pages of about the same length. A short page joins the page before it, so
// that removed rows leave no long list of short pages.
func (l *List[T]) add(entries []entry[T]) {
	if last := len(l.pages) - 1; last >= 0 && len(l.pages[last])+len(entries) <= pageLength/2 {
		l.pages[last] = slices.Concat(l.pages[last], entries)
		return
	}
	for pieces := (len(entries) + pageLength - 1) / pageLength; pieces > 0; pieces-- {
		n := len(entries) / pieces
		l.pages, entries = append(l.pages, slices.Clone(entries[:n])), entries[n:]
	}
}

// position is the place of an entry. Behind the last entry, page is the number of pages.
type position struct{ page, at int }

// seek returns the position of the first entry that is not before the place sought.
func (l *List[T]) seek(before func(e *entry[T]) bool) position {
	page := sort.Search(len(l.pages), func(i int) bool { return !before(&l.pages[i][0]) })
	if page == 0 {
		return position{}
	}
	last := l.pages[page-1]
	at := sort.Search(len(last), func(i int) bool { return !before(&last[i]) })
	if at == len(last) {
		return position{page, 0}
	}
	return position{page - 1, at}
}

// Query asks for a part of a list. The zero Query asks for all rows.
type Query[T any] struct {
	Labels []Label // a row must have all of them
	After  *T      // the part starts after this row, in the list or not; nil: at the start
	Skip   int     // the number of matching rows to leave out first
	Limit  int     // the most rows; 0: all
}

// Part yields the rows that a query asks for. Of several labels it goes through the rows of the
// label with the fewest.
func (l *List[T]) Part(q Query[T]) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		var label Label
		from, to := l.span(label, q.After)
		for i, other := range q.Labels {
			start, end := l.span(other, q.After)
			if i == 0 || start.to(end) < from.to(to) {
				label, from, to = other, start, end
			}
		}
		skip, left := q.Skip, q.Limit
		for page := from.page; page < len(l.pages) && page <= to.page; page++ {
			entries := l.pages[page]
			if page == to.page {
				entries = entries[:to.at]
			}
			if page == from.page {
				entries = entries[min(from.at, len(entries)):]
			}
			if len(q.Labels) < 2 { // every entry matches
				skipped := min(skip, len(entries))
				entries, skip = entries[skipped:], skip-skipped
			}
			for i := range entries {
				if !l.has(entries[i].row, q.Labels, label) {
					continue
				}
				if skip > 0 {
					skip--
					continue
				}
				if left--; !yield(entries[i].row) || left == 0 {
					return
				}
			}
		}
	}
}

// has reports whether a row, which has one of the labels, has the others as well.
func (l *List[T]) has(row *T, labels []Label, one Label) bool {
	for _, label := range labels {
		if label != one && !l.Of.Has(row, label) {
			return false
		}
	}
	return true
}

// span returns where the entries of a label begin, after a row unless it is nil, and where they
// end.
func (l *List[T]) span(label Label, after *T) (from, to position) {
	from = l.seek(func(e *entry[T]) bool {
		c := e.compare(label)
		return c < 0 || c == 0 && after != nil && l.Of.Compare(e.row, after) <= 0
	})
	return from, l.seek(func(e *entry[T]) bool { return e.compare(label) <= 0 })
}

// to returns about how many entries are between two positions.
func (p position) to(end position) int { return (end.page-p.page)*pageLength + end.at - p.at }
