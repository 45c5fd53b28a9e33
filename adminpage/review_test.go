package adminpage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

// A list that a source makes long costs as much as its length: with a comparison of each text with each, these two would take minutes.
func TestLongLists(t *testing.T) {
	const n = 40_000
	from, to := make([]string, n), make([]string, n)
	for i := range n {
		from[i], to[i] = fmt.Sprintf("from %05d", i), fmt.Sprintf("to %05d", i)
	}
	to[n/2] = from[n/2]
	pieces := elements(from, to)
	if len(pieces) != 2*n-1 || pieces[0] != (piece{"del", "from 00000"}) || !slices.Contains(pieces, piece{"", from[n/2]}) {
		t.Errorf("%d pieces", len(pieces))
	}
	if pieces := elements(from, from); pieces != nil {
		t.Errorf("%d pieces of equal lists", len(pieces))
	}
}

// The page of a browser that has left is not made.
func TestReviewEndsWithItsRequest(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	leave()
	change := svc.ContentChange{Path: "/manifest/a", Base: json.RawMessage(`"` + strings.Repeat("a ", 10) + `"`)}
	var view reviewView
	if err := view.compare(ctx, svc.TemplateDiff{Changes: []svc.ContentChange{change}}); !errors.Is(err, context.Canceled) || view.Changes != nil {
		t.Errorf("%v, %d changes", err, len(view.Changes))
	}
}
