package policy

import (
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
	Before, After Parameters // nil where denied, and where nothing changes
}

// MaxDifferences is the most differences that a Diff lists.
const MaxDifferences = 1000

// maxListed is the most bytes that the patterns and parameters of listed differences take together
// in JSON.
const maxListed = 1 << 20

// Diff holds the differences between two censuses, up to MaxDifferences.
type Diff struct {
	Parties    []PartyDiff    // by their first member
	Public     []PublicDiff   // by bank, then context
	Strategies []StrategyDiff // by bank, then context
	Omitted    int            // the number of differences that no list has

	listed, bytes int
}

// room reports whether the Diff may list one more difference. Otherwise it counts it as omitted.
func (d *Diff) room(one *Difference) bool {
	bytes := d.bytes + len(one.Action) + len(one.Bank) + one.Before.weight() + one.After.weight()
	if d.listed == MaxDifferences || bytes > maxListed && d.listed > 0 {
		d.Omitted++
		return false
	}
	d.listed, d.bytes = d.listed+1, bytes
	return true
}

func (d *Diff) addPublic(p PublicDiff) {
	list := slices.Clone(p.Differences) // contexts may share it
	p.Differences = slices.DeleteFunc(list, func(one Difference) bool { return !d.room(&one) })
	if len(p.Differences) > 0 {
		d.Public = append(d.Public, p)
	}
}

func (d *Diff) addStrategy(s StrategyDiff) {
	if d.room(&Difference{}) {
		d.Strategies = append(d.Strategies, s)
	}
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
	for _, p := range pairs(before, after) {
		spend(c.call, partySteps)
		if ended(c.call) {
			return d
		}
		if p.before != nil && p.after != nil && p.before.key == p.after.key &&
			slices.Equal(before.Shut, after.Shut) {
			continue
		}
		list := d.differences(c.view(p.before, before.Shut), c.view(p.after, after.Shut))
		if len(list) > 0 {
			d.Parties = append(d.Parties, PartyDiff{p.members, list})
		}
	}
	c.banks(&d, before.Banks, after.Banks)
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

// partySteps is about what it takes to read the policies of a party.
const partySteps = 1000

// differences returns how the answers of two views differ, as far as the Diff has room for it.
func (d *Diff) differences(before, after view) []Difference {
	way, views := compared(before, after)
	var found differing
	var regions []region
	way.regions(views, func(r *row, action int32) int32 {
		if r.stances[0][action] == r.stances[1][action] && r.shut[0] == r.shut[1] {
			return 0
		}
		return r.change(action, &found)
	}, func(one region) bool {
		if d.listed+len(regions) < MaxDifferences {
			regions = append(regions, one)
		} else {
			d.Omitted++
		}
		return true
	})
	way.sort(regions)
	list := make([]Difference, 0, len(regions))
	for _, r := range regions {
		one := found.difference(r.what, way.actions.names[r.action], way.banks.names[r.bank])
		if d.room(&one) {
			list = append(list, one)
		}
	}
	return list
}

// compared returns a tour of every class where two views may differ, and the two views prepared for
// that tour.
func compared(one, other view) (*traversal, []view) {
	g := newGrid(one.call, slices.Concat(one.shut, other.shut), one.table, other.table)
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
	found.call = r.views[0].call
	return found.id(outcome == Allow, then == Allow, parameters, more)
}

// differing numbers the differences found.
type differing struct {
	registry[*Difference]
	key  []byte
	call Call
}

// id returns the number of a difference. 0: there is none.
func (f *differing) id(before, after bool, parameters, more Parameters) int32 {
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
		spend(f.call, keptSteps*len(f.key))
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
