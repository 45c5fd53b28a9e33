package bench_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// figure is one comparison of the Service with the bare driver.
type figure struct {
	name string
	// on returns the sides: the floors, and the Service last.
	on func(ctx context.Context, s *site) comparison
}

// comparison is a figure on one site.
type comparison struct {
	sides []side
	same  func() error // checks that all sides return, or write, the same
	exact bool         // the Service runs exactly the statements of the first floor
	done  func() error // cleans up; nil: nothing to clean
}

// figures are measured on every engine and size.
var figures = []figure{
	{"key-lookup", keyLookup},
	{"authenticate", authenticateKey},
	{"miss", missKey},
	{"verify", verifyKey},
	{"template-get", templateGet},
	{"list-20-of-category", listOf(categoryFilter)},
	{"list-20-of-tag", listOf(tagFilter)},
	{"list-20-of-both", listOf(bothFilters)},
	{"list-20-of-rare-category-and-common-tag", listOf(commonTagFilter)},
	{"list-1000", list1000},
	{"http-list-20", http20},
	{"http-list-all", httpAll},
	{"principal", readPrincipal},
	{"issue", issueKey},
	{"revoke", revokeKey},
	{"install", installTemplate},
}

var allEngines = []engine{sqliteEngine, postgresEngine}

// BenchmarkService compares the Service with the bare driver.
func BenchmarkService(b *testing.B) {
	for _, e := range allEngines {
		for _, size := range []size{small, large} {
			b.Run(e.name+"/"+size.name, func(b *testing.B) {
				s := siteOf(b, e, size)
				for _, f := range figures {
					b.Run(f.name, func(b *testing.B) { f.run(b, s) })
				}
			})
		}
	}
}

func (f figure) run(b *testing.B, s *site) {
	trips, err := f.trips(b, s)
	if err != nil {
		b.Fatal(err)
	}
	c := f.on(b.Context(), s)
	if err := c.same(); err != nil {
		b.Fatal(err)
	}
	compare(b, c.sides...)
	b.ReportMetric(float64(trips), "trips")
	if c.done != nil {
		if err := c.done(); err != nil {
			b.Fatal(err)
		}
	}
}

// trips returns how often a call of the Service goes to the database. For an exact figure it first
// checks that the floor runs the same statements.
func (f figure) trips(tb testing.TB, s *site) (int, error) {
	tb.Helper()
	seen := &observer{}
	c := f.on(tb.Context(), s.observed(tb, seen))
	first, last := c.sides[0], c.sides[len(c.sides)-1]
	var service, floor []string
	for range 2 { // the first run prepares
		var err error
		if service, err = observe(seen, last); err != nil {
			return 0, err
		}
		if floor, err = observe(seen, first); err != nil {
			return 0, err
		}
	}
	if c.done != nil {
		if err := c.done(); err != nil {
			return 0, err
		}
	}
	if c.exact && !slices.Equal(service, floor) {
		return 0, fmt.Errorf("%s: the service runs\n\t%s\nand its floor\n\t%s", f.name, strings.Join(service, "\n\t"), strings.Join(floor, "\n\t"))
	}
	return len(service), nil
}

func observe(seen *observer, s side) ([]string, error) {
	if s.before != nil {
		if err := s.before(1); err != nil {
			return nil, err
		}
	}
	return seen.of(s.call)
}

// TestSameStatements checks that the floors run the statements of the Service and get the same
// rows, so that a ratio compares like with like.
func TestSameStatements(t *testing.T) {
	for _, e := range allEngines {
		t.Run(e.name, func(t *testing.T) {
			s := siteOf(t, e, small)
			for _, f := range figures {
				_, err := f.trips(t, s)
				c := f.on(t.Context(), s)
				err = errors.Join(err, c.same())
				if c.done != nil {
					err = errors.Join(err, c.done())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// equal fails unless the Service and the floor have the same result.
func equal(service, floor any) error {
	if !reflect.DeepEqual(service, floor) {
		return fmt.Errorf("the service has\n\t%.2000s\nand its floor\n\t%.2000s", fmt.Sprint(service), fmt.Sprint(floor))
	}
	return nil
}
