package policy

import (
	"bytes"
	"slices"
)

// Change is how the answer to a request changes.
type Change string

// The changes.
const (
	NewlyAllowed    Change = "newly_allowed"
	NewlyDenied     Change = "newly_denied"
	OtherParameters Change = "other_parameters" // allowed before and after
	Unchanged       Change = "unchanged"        // an exception within a changed region
)

// Difference says how the answer changes for the requests that its patterns cover, unless a closer
// difference of its list covers them. Closer has the meaning of [Capability]. Requests that no
// difference covers are unchanged. Before and After of one list share memory.
type Difference struct {
	Action, Bank  string // patterns; read as strings, they are a request with this change
	Change        Change
	Before, After Parameters // zero where denied, and where nothing changes
}

// Diff holds all differences between two censuses.
type Diff struct {
	Parties    []PartyDiff    // by their first member
	Public     []PublicDiff   // by bank, then context
	Strategies []StrategyDiff // by bank, then context
}

// PartyDiff holds the changes for principals with equal policies, both before and after.
type PartyDiff struct {
	Members     []Member // sorted
	Differences []Difference
}

// Diff compares two censuses, class by class. A principal in only one census is denied everything
// in the other. A change from one denial to another does not count. When the Compiler's call ends,
// the rest is left out.
func (c *Compiler) Diff(before, after *Census) Diff {
	var d Diff
	changed := changedPolicies(before, after)
	for _, p := range pairs(before, after) {
		if ended(c.call) {
			return d
		}
		if p.before != nil && p.after != nil && p.before.key == p.after.key &&
			!p.before.hasAny(changed) && slices.Equal(before.Shut, after.Shut) {
			continue
		}
		list := differences(c.view(p.before, before.Shut), c.view(p.after, after.Shut))
		if len(list) > 0 {
			d.Parties = append(d.Parties, PartyDiff{p.members, list})
		}
	}
	d.banks(c.call, before.Banks, after.Banks)
	return d
}

// pair is a party before and after the change. Either may be nil.
type pair struct {
	before, after *Party
	members       []Member
}

// pairs groups the members of both censuses by party, in order.
func pairs(before, after *Census) []*pair {
	type parties struct{ before, after *Party }
	of := map[Member]parties{}
	for i := range before.Parties {
		for _, m := range before.Parties[i].Members {
			of[m] = parties{before: &before.Parties[i]}
		}
	}
	for i := range after.Parties {
		for _, m := range after.Parties[i].Members {
			of[m] = parties{of[m].before, &after.Parties[i]}
		}
	}
	grouped := map[parties]*pair{}
	var all []*pair
	for m, p := range of {
		if grouped[p] == nil {
			grouped[p] = &pair{before: p.before, after: p.after}
			all = append(all, grouped[p])
		}
		grouped[p].members = append(grouped[p].members, m)
	}
	for _, p := range all {
		slices.SortFunc(p.members, Member.Compare)
	}
	slices.SortFunc(all, func(a, b *pair) int { return a.members[0].Compare(b.members[0]) })
	return all
}

// changedPolicies returns the ids of policies with different documents.
func changedPolicies(before, after *Census) map[string]bool {
	changed, documents := map[string]bool{}, after.documents()
	for id, document := range before.documents() {
		if other, there := documents[id]; there && !bytes.Equal(document, other) {
			changed[id] = true
		}
	}
	return changed
}

func (p *Party) hasAny(policies map[string]bool) bool {
	has := func(n Named) bool { return policies[n.ID] }
	return len(policies) > 0 && slices.ContainsFunc(p.Subject.policies(), has)
}

// differences returns how the answers of two views differ.
func differences(before, after view) []Difference {
	way, views := compared(before, after)
	var found differing
	regions := way.regions(views, func(r *row, action int32) int32 {
		if r.stances[0][action] == r.stances[1][action] && r.shut[0] == r.shut[1] {
			return 0
		}
		return r.change(action, &found)
	})
	list := make([]Difference, 0, len(regions))
	for _, r := range regions {
		action, bank := way.actions.names[r.action], way.banks.names[r.bank]
		list = append(list, found.difference(r.what, action, bank))
	}
	return list
}

// compared returns a tour of every class where two views may differ, and the two views prepared for
// that tour.
func compared(one, other view) (*tour, []view) {
	g := newGrid(slices.Concat(one.shut, other.shut), one.table, other.table)
	one.as, other.as, other.apart = first, second, g.apart
	if g.apart != nil && slices.Equal(one.shut, other.shut) {
		return g.reach(g.apart), []view{one, other}
	}
	return g.whole(), []view{one, other}
}

// change returns the number of the difference between two views. 0: there is none.
func (r *row) change(action int32, found *differing) int32 {
	outcome, parameters := r.rule(0, action)
	then, more := r.rule(1, action)
	return found.id(outcome == Allow, then == Allow, &parameters, &more)
}

// differing numbers the differences found.
type differing struct {
	registry[*Difference]
	key []byte
}

// id returns the number of a difference. 0: there is none.
func (f *differing) id(before, after bool, parameters, more *Parameters) int32 {
	var change Change
	switch {
	case before && !after:
		change = NewlyDenied
	case after && !before:
		change = NewlyAllowed
	case !parameters.equal(more):
		change = OtherParameters
	default:
		return 0
	}
	f.key = append(parameters.append(append(f.key[:0], change...)), ' ')
	f.key = more.append(f.key)
	return f.registry.id(f.key, func() *Difference {
		return &Difference{Change: change, Before: parameters.clone(), After: more.clone()}
	})
}

func (f *differing) difference(number int32, action, bank string) Difference {
	d := Difference{Change: Unchanged}
	if number != 0 {
		d = *f.values[number-1]
	}
	d.Action, d.Bank = action, bank
	return d
}
