package shelf_test

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/extsvc/svc/internal/shelf"
	"github.com/matryer/is"
)

// book is a row. Rows are listed without their texts.
type book struct {
	title, text string
	labels      []shelf.Label
}

var books = &shelf.Rows[book]{
	ID:      func(b *book) string { return b.title },
	Labels:  func(b *book) []shelf.Label { return b.labels },
	Size:    func(b *book) int64 { return int64(len(b.title)) },
	Compare: func(a, b *book) int { return cmp.Compare(a.title, b.title) },
}

// rows yields books, and then an error unless it is nil.
func rows(list []book, err error) iter.Seq2[book, error] {
	return func(yield func(book, error) bool) {
		for _, b := range list {
			if !yield(b, nil) {
				return
			}
		}
		if err != nil {
			yield(book{}, err)
		}
	}
}

func read(t *testing.T, room int64, list ...book) *shelf.List[book] {
	t.Helper()
	l, err := shelf.Read(books, room, rows(list, nil))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func titles(l *shelf.List[book], q shelf.Query[book]) (titles []string) {
	for b := range l.Part(q) {
		titles = append(titles, b.title)
	}
	return titles
}

func TestRead(t *testing.T) {
	is := is.New(t)
	list := []book{{title: "a"}, {title: "bb"}, {title: "ccc"}}
	is.Equal(titles(read(t, 6, list...), shelf.Query[book]{}), []string{"a", "bb", "ccc"})
	is.True(read(t, 5, list...) == nil)
	is.Equal(titles(read(t, 0), shelf.Query[book]{}), nil)
	failure := errors.New("planted")
	l, err := shelf.Read(books, 100, rows(list, failure))
	is.True(l == nil && err == failure)
	l, err = shelf.Read(books, 5, rows(list, failure))
	is.True(l == nil && err == nil) // it reads no further
}

func TestRowAndWhole(t *testing.T) {
	is := is.New(t)
	l := read(t, 10, book{title: "a"}, book{title: "b"}, book{title: "c"})
	is.Equal(l.Row("b").title, "b")
	is.True(l.Row("d") == nil)
	is.True(l.Whole("b") == nil)
	is.True(l.Whole("d") == nil)
	complete := func(title string, bytes int64) {
		l.Complete(&book{title: title, text: "text of " + title}, bytes)
	}
	complete("d", 1)
	complete("b", 4)
	is.Equal(l.Whole("b").text, "text of b")
	is.Equal(l.Row("b").text, "") // as it was listed
	complete("b", 4)              // which takes no room
	complete("a", 4)
	is.True(l.Whole("a") == nil) // 3 are left
	complete("c", 3)
	is.Equal(l.Whole("c").text, "text of c")
	complete("a", 0)
	is.Equal(l.Whole("a").text, "text of a")
}

// Of many who complete one row, one is kept and takes room.
func TestCompleteAtOnce(t *testing.T) {
	l := read(t, 4, book{title: "a"}, book{title: "b"})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				l.Complete(&book{title: "a", text: "whole"}, 1)
			}
		})
	}
	all.Wait()
	l.Complete(&book{title: "b", text: "whole"}, 1)
	if l.Whole("a") == nil || l.Whole("b") == nil {
		t.Error("room was taken for what is not kept")
	}
}

// Every part of a list is what a search through all rows finds.
func TestPart(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	label := func() shelf.Label {
		return shelf.Label{Field: fmt.Sprint(random.IntN(2)), Text: fmt.Sprint(random.IntN(3))}
	}
	labels := func(most int) (labels []shelf.Label) {
		for range random.IntN(most + 1) {
			labels = append(labels, label())
		}
		return labels
	}
	for range 200 {
		var list []book
		for i := range random.IntN(40) {
			list = append(list, book{title: fmt.Sprintf("%02d", 2*i), labels: labels(4)})
		}
		l := read(t, 1<<20, list...)
		for range 50 {
			q := shelf.Query[book]{
				Labels: labels(3), Skip: max(0, random.IntN(60)-30), Limit: random.IntN(20),
			}
			if random.IntN(2) == 0 {
				q.After = &book{title: fmt.Sprintf("%02d", random.IntN(90))}
			}
			if have, want := titles(l, q), search(list, q); !slices.Equal(have, want) {
				t.Fatalf("%+v of %+v: %v, not %v", q, list, have, want)
			}
		}
	}
	for range read(t, 10, book{title: "a"}, book{title: "b"}).Part(shelf.Query[book]{}) {
		break // a reader may stop
	}
}

func search(list []book, q shelf.Query[book]) (titles []string) {
	for _, b := range list {
		lacks := func(l shelf.Label) bool { return !slices.Contains(b.labels, l) }
		if slices.ContainsFunc(q.Labels, lacks) || q.After != nil && b.title <= q.After.title {
			continue
		}
		titles = append(titles, b.title)
	}
	titles = titles[min(q.Skip, len(titles)):]
	if q.Limit > 0 {
		titles = titles[:min(q.Limit, len(titles))]
	}
	return titles
}

// A part takes memory for its query, and none for its rows.
func TestPartAllocatesLittle(t *testing.T) {
	tag := shelf.Label{Field: "tag", Text: "x"}
	var list []book
	for i := range 1000 {
		list = append(list, book{title: fmt.Sprintf("%04d", i), labels: []shelf.Label{tag}})
	}
	l, q := read(t, 1<<20, list...), shelf.Query[book]{Labels: []shelf.Label{tag}}
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
