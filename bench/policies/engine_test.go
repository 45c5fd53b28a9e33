package policies_test

import (
	"fmt"
	"testing"
)

// engine decides for one principal. One goroutine at a time uses it.
type engine interface {
	Decide(action, bank string) bool
}

// contestant makes an engine from a principal's policies.
type contestant struct {
	name string
	make func(w *workload) (engine, error)
}

var (
	theFloor = contestant{"floor", newFloor}
	theOurs  = contestant{"ours", newOurs}
)

// contestants are all measured engines, the floor first.
var contestants = []contestant{
	theFloor,
	theOurs,
	{"service", newService},
	{"cedar", newCedar},
	{"minio", newMinio},
	{"casbin", newCasbin},
	{"casbin-cached", newCasbinCached},
	{"opa-rules", newOPARules},
	{"opa-data", newOPAData},
}

// TestEnginesAgree checks that all engines decide every query as the rules do.
func TestEnginesAgree(t *testing.T) {
	for _, s := range sizes {
		for _, c := range contestants {
			t.Run(s.String()+"/"+c.name, func(t *testing.T) {
				if testing.Short() && s == sizes[len(sizes)-1] {
					t.Skip("the largest size is for the long run")
				}
				c.on(t, workloadOf(s))
			})
		}
	}
}

// on returns the engine after checking that it decides every query as the rules do. It has decided
// everything once by then.
func (c contestant) on(tb testing.TB, w *workload) engine {
	tb.Helper()
	e, err := c.make(w)
	if err != nil {
		tb.Fatal(c.name, ": ", err)
	}
	if err := agrees(e, w.queries, w.want); err != nil {
		tb.Fatal(c.name, ": ", err)
	}
	return e
}

func agrees(e engine, queries []query, want []outcome) error {
	for i, q := range queries {
		if got := e.Decide(q.action, q.bank); got != (want[i] == allowed) {
			return fmt.Errorf("%q on bank %q: allowed is %v", q.action, q.bank, got)
		}
	}
	return nil
}

// TestDisagreementIsFound checks that the check finds one wrong decision.
func TestDisagreementIsFound(t *testing.T) {
	w := workloadOf(sizes[0])
	for _, i := range []int{0, asked / 2, asked - 1} {
		e := theFloor.on(t, w).(*floor)
		e.flip(w.queries[i])
		if agrees(e, w.queries, w.want) == nil {
			t.Errorf("query %d is decided wrongly, and nobody notices", i)
		}
	}
}
