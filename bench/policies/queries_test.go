package policies_test

import (
	"fmt"
	"slices"
	"strings"
)

// asked is the number of pairs of an action and a bank in the queries.
const asked = 4096

// query is one such pair.
type query struct{ action, bank string }

// mix holds the outcomes of each sixteen queries, in some order.
var mix = slices.Concat(
	slices.Repeat([]outcome{allowed}, 8),
	slices.Repeat([]outcome{denied}, 3),
	slices.Repeat([]outcome{unmatched}, 5),
)

// drawer draws queries that the statements match, and others.
type drawer struct {
	*maker
	statements []statement
}

// queries draws the queries with their outcomes.
func (d *drawer) queries() (queries []query, want []outcome) {
	for len(want) < asked {
		want = append(want, mix...)
		block := want[len(want)-len(mix):]
		d.Shuffle(len(block), func(i, j int) { block[i], block[j] = block[j], block[i] })
		for _, o := range block {
			queries = append(queries, d.query(o))
		}
	}
	return queries, want
}

// query draws until the rules give the wanted outcome.
func (d *drawer) query(want outcome) query {
	for {
		if q := d.any(); decide(d.statements, q.action, q.bank) == want {
			return q
		}
	}
}

// any draws an action and a bank: both of one statement, or of any, or of none.
func (d *drawer) any() query {
	if d.IntN(3) > 0 {
		s := d.statements[d.IntN(len(d.statements))]
		return query{d.actionOf(s), d.bankOf(s)}
	}
	q := query{d.action(), d.bank()}
	if d.IntN(3) == 0 {
		q.action = d.one("bank:", "tool-0:", "stranger:") + d.unseen()
	}
	if d.IntN(2) == 0 {
		q.bank = d.one(d.project()+"::", "stranger-", "stranger::") + d.unseen()
	}
	return q
}

func (d *drawer) actionOf(s statement) string {
	pattern := d.one(spell(s.Actions)...)
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return prefix + d.one("list", "get", "run", d.unseen())
	}
	return pattern
}

func (d *drawer) bankOf(s statement) string {
	pattern := d.one(s.Banks...)
	if pattern == "*" {
		return d.one(d.bank(), "stranger-"+d.unseen())
	}
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return prefix + d.one("notes", "team::notes", d.unseen())
	}
	return pattern
}

// unseen returns a name in no policy.
func (d *drawer) unseen() string { return fmt.Sprintf("unseen-%d", d.IntN(256)) }
