package listcache_test

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/listcache"
)

// book is a row. Books stand by name, then id.
type book struct {
	id, name string
	labels   []listcache.Label
	state    int // see TestReadersSeeOneState
}

func (b *book) has(label listcache.Label) bool { return slices.Contains(b.labels, label) }

func compare(a, b *book) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
}

var books = &listcache.Rows[book]{
	ID:      func(b *book) string { return b.id },
	Labels:  func(b *book) []listcache.Label { return b.labels },
	Has:     (*book).has,
	Same:    func(a, b *book) bool { return a == b },
	Size:    func(b *book) int64 { return int64(len(b.name)) },
	Digest:  func(b *book) [32]byte { return sha256.Sum256(fmt.Append(nil, b.id, b.name, b.state, b.labels)) },
	Compare: compare,
}

func ids(l *listcache.List[book], q listcache.Query[book]) (ids []string) {
	for b := range l.Part(q) {
		ids = append(ids, b.id)
	}
	return ids
}

// world is a list, and the same rows in a map.
type world struct {
	*rand.Rand
	list *listcache.List[book]
	rows map[string]*book
}

func newWorld(seed uint64) *world {
	return &world{rand.New(rand.NewPCG(seed, 0)), &listcache.List[book]{Of: books}, map[string]*book{}}
}

func (w *world) label() listcache.Label {
	return listcache.Label{Field: fmt.Sprint("f", w.IntN(2)), Text: fmt.Sprint(w.IntN(3))}
}

func (w *world) labels(most int) (labels []listcache.Label) {
	for range w.IntN(most + 1) {
		labels = append(labels, w.label())
	}
	return labels
}

// change adds, replaces and removes up to so many of as many rows. It removes more often with a
// high share, 0 to 1.
func (w *world) change(most, rows int, share float64) {
	changes := map[string]*book{}
	for range w.IntN(most + 1) {
		id := fmt.Sprint(w.IntN(rows))
		if changes[id] = nil; w.Float64() >= share {
			changes[id] = &book{id: id, name: fmt.Sprint("name", w.IntN(20)), labels: w.labels(4)}
		}
	}
	w.list = w.list.With(changes)
	maps.Copy(w.rows, changes)
	maps.DeleteFunc(w.rows, func(_ string, b *book) bool { return b == nil })
}

// search is Part by a search through all rows in their order.
func search(sorted []*book, q listcache.Query[book]) (ids []string) {
	for _, b := range sorted {
		lacks := func(l listcache.Label) bool { return !b.has(l) }
		if !slices.ContainsFunc(q.Labels, lacks) && (q.After == nil || compare(b, q.After) > 0) {
			ids = append(ids, b.id)
		}
	}
	ids = ids[min(q.Skip, len(ids)):]
	if q.Limit > 0 {
		ids = ids[:min(q.Limit, len(ids))]
	}
	return ids
}

func (w *world) query(rows int) listcache.Query[book] {
	q := listcache.Query[book]{Labels: w.labels(3), Skip: max(0, w.IntN(2*rows)-rows), Limit: w.IntN(rows + 1)}
	if w.IntN(2) == 0 {
		q.After = &book{name: fmt.Sprint("name", w.IntN(25)), id: fmt.Sprint(w.IntN(rows))}
	}
	return q
}

// After any changes, every part of a list is what a search through all rows finds.
func TestListIsASortedSlice(t *testing.T) {
	for seed := range uint64(10) {
		w := newWorld(seed)
		rows := 1 + w.IntN(1000)
		for range 6 {
			w.change(rows, rows, w.Float64())
			earlier, same := w.list, ids(w.list, listcache.Query[book]{})
			w.change(3, rows, 0.5)
			if !slices.Equal(ids(earlier, listcache.Query[book]{}), same) {
				t.Fatalf("seed %d: a change has changed the list before", seed)
			}
			bytes, sorted := int64(0), slices.SortedFunc(maps.Values(w.rows), compare)
			for _, b := range sorted {
				bytes += books.Size(b)
			}
			if w.list.Bytes() != bytes {
				t.Fatalf("seed %d: %d bytes, not %d", seed, w.list.Bytes(), bytes)
			}
			if (&listcache.List[book]{Of: books}).With(w.rows).Tag() != w.list.Tag() {
				t.Fatalf("seed %d: a list with the same rows has another tag", seed)
			}
			for range 20 {
				q := w.query(rows)
				if have, want := ids(w.list, q), search(sorted, q); !slices.Equal(have, want) {
					t.Fatalf("seed %d: %+v: %v, not %v", seed, q, have, want)
				}
				if id := fmt.Sprint(w.IntN(rows)); w.list.Row(id) != w.rows[id] {
					t.Fatalf("seed %d: row %s is another one", seed, id)
				}
			}
		}
		for range w.list.Part(listcache.Query[book]{}) {
			break // a reader may stop
		}
	}
}

// A changed row copies a few pages, and rows that go leave no long list of short pages.
func TestChangesCopyLittle(t *testing.T) {
	is := is.New(t)
	w := newWorld(1)
	all := map[string]*book{}
	for i := range 3000 {
		id := fmt.Sprint(i)
		all[id] = &book{id: id, name: fmt.Sprint("name", i), labels: w.labels(4)}
	}
	l := (&listcache.List[book]{Of: books}).With(all)
	other := l.With(map[string]*book{"7": {id: "7", name: "other"}})
	is.True(other.PagesApartFrom(l) <= 8)
	before := l.Pages()
	for id := range all {
		if len(id) > 2 {
			l = l.With(map[string]*book{id: nil})
		}
	}
	is.True(l.Pages() < before/4)
}

// A part takes memory for its query, and none for its rows.
func TestPartAllocatesLittle(t *testing.T) {
	tag := listcache.Label{Field: "tag", Text: "x"}
	list := map[string]*book{}
	for i := range 1000 {
		id := fmt.Sprintf("%04d", i)
		list[id] = &book{id: id, name: id, labels: []listcache.Label{tag}}
	}
	l, q := (&listcache.List[book]{Of: books}).With(list), listcache.Query[book]{Labels: []listcache.Label{tag}}
	n := 0
	allocations := testing.AllocsPerRun(20, func() {
		for range l.Part(q) {
			n++
		}
	})
	if allocations > 5 || n != 21*1000 {
		t.Errorf("%v allocations for %d rows", allocations, n)
	}
}
