package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/extsvc/svc/parameter"
)

// Lint lists what is redundant or left to chance in the policies of a census. It leaves out parties
// that are closed, or have a policy that does not parse.
type Lint struct {
	Needless []Needless // by policy and statement
	Ties     []Tie      // as the parties have them
	// Unscoped lists, sorted, the members whose narrowing policies take away nothing of what they,
	// or their owners, have without them.
	Unscoped []Member
}

// Needless is a redundant statement: removing it changes no decision for anybody. The statements of
// a Lint can be removed one by one or all together. When one of several statements must stay, the
// first stays and is not listed.
type Needless struct {
	Policy    string
	Statement int
	Shadowed  bool // an allow; everybody who has it is denied all that it allows
}

// Tie is two statements that set a parameter differently for the same requests. One of them wins
// only because of its policy's id.
type Tie struct {
	Parameter       string
	Policy          string
	Statement       int
	Winner          string // the policy that wins
	WinnerStatement int
	Member          Member // the first user with this tie
	Action, Bank    string // one of the requests with this tie
}

// Lint examines every class of requests of every party. When the Compiler's call ends, its result
// is wrong: check Err.
func (c *Compiler) Lint(census *Census) Lint {
	l := linter{shut: census.Shut, spare: map[cited]bool{}, tied: map[Tie]bool{}}
	for i := range census.Parties {
		if p := l.look(c, &census.Parties[i]); p != nil {
			l.weigh(p)
			l.ties(p)
			t := p.view.table
			wider := &table{schema: t.schema, holder: t.holder, sides: t.sides[:1]}
			if len(t.sides) > 1 && !p.narrows(wider) {
				l.Unscoped = append(l.Unscoped, p.Members...)
			}
		}
	}
	l.settle(c, census)
	slices.SortFunc(l.Unscoped, Member.Compare)
	return l.Lint
}

type linter struct {
	Lint
	shut  []string
	spare map[cited]bool // by statement: every party examined so far can do without it
	tied  map[Tie]bool   // the ties found, without the member and the request
}

// cited is a statement of a policy.
type cited struct {
	policy    string
	statement int
}

func (a cited) compare(b cited) int {
	return cmp.Or(strings.Compare(a.policy, b.policy), cmp.Compare(a.statement, b.statement))
}

// linted is a party under examination.
type linted struct {
	*Party
	*classGrid
	view   view
	places map[cited][]int32 // the seats of a statement, one for each way that it reaches the party
	gone   bitset            // the statements found needless
}

// look prepares a party. It returns nil for a party that is closed or has a policy that does not
// parse.
func (l *linter) look(c *Compiler, party *Party) *linted {
	if ended(c.call) {
		return nil
	}
	v := c.view(party, l.shut)
	if v.table == nil || v.table.broken() {
		return nil
	}
	p := &linted{
		Party:     party,
		classGrid: newGrid(v.call, v.shut, v.table, nil),
		view:      v,
		places:    map[cited][]int32{},
	}
	spend(c.call, partySteps+statementSteps*len(p.seats))
	p.gone = p.set(nil)
	for i, s := range p.seats {
		at := cited{s.policy, s.statement}
		p.places[at] = append(p.places[at], int32(i))
	}
	return p
}

// set returns a set of statements.
func (p *linted) set(places []int32) bitset {
	b := bitsets(1, len(p.seats))[0]
	for _, i := range places {
		b.set(i)
	}
	return b
}

// weigh finds the statements that a party needs.
func (l *linter) weigh(p *linted) {
	for at, places := range p.places {
		if ended(p.view.call) {
			return
		}
		if spare, known := l.spare[at]; spare || !known {
			l.spare[at] = !p.differs(p.set(places))
		}
	}
}

// settle finds the statements that all parties together can do without. Of several that replace
// each other, it lists the later ones.
func (l *linter) settle(c *Compiler, census *Census) {
	holders := map[cited][]*linted{}
	for i := range census.Parties {
		if p := l.look(c, &census.Parties[i]); p != nil {
			for at := range p.places {
				if l.spare[at] {
					holders[at] = append(holders[at], p)
				}
			}
		}
	}
	var all []cited
	for at := range holders {
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b cited) int { return b.compare(a) })
	for _, at := range all {
		if ended(c.call) {
			return
		}
		if !slices.ContainsFunc(holders[at], func(p *linted) bool { return p.needs(at) }) {
			shadowed := true
			for _, p := range holders[at] {
				shadowed = shadowed && p.shadows(at)
				p.gone.add(p.set(p.places[at]))
			}
			l.Needless = append(l.Needless, Needless{at.policy, at.statement, shadowed})
		}
	}
	slices.Reverse(l.Needless)
}

// needs reports whether a party needs a statement once the statements found needless are removed.
func (p *linted) needs(at cited) bool {
	if !p.gone.meets(p.gone) {
		return false // weigh found that the party can do without this statement only
	}
	both := p.set(p.places[at])
	both.add(p.gone)
	return p.differs(both)
}

// differs reports whether any decision changes without some statements.
func (p *linted) differs(without bitset) bool {
	return p.compare(without, func(before, after Outcome, parameters, left Parameters) bool {
		return before != after || !parameters.equal(left)
	})
}

// shadows reports whether a statement is an allow and all that it matches is denied.
func (p *linted) shadows(at cited) bool {
	places := p.set(p.places[at])
	undenied := func(before, _ Outcome, _, _ Parameters) bool { return before != ExplicitDeny }
	return p.seats[p.places[at][0]].written().Effect == EffectAllow && !p.compare(places, undenied)
}

// compare compares the decisions with and without some statements, wherever one of them matches. It
// reports whether so holds for any of these decisions.
func (p *linted) compare(
	without bitset,
	so func(before, after Outcome, parameters, left Parameters) bool,
) (found bool) {
	v := p.view
	v.without, v.apart = without, without
	way := p.reach(without)
	way.walk([]view{p.view, v}, func(r *row) bool {
		for _, action := range way.chosen {
			if r.stances[0][action] == r.stances[1][action] || !r.fresh[action] {
				continue
			}
			before, parameters := r.rule(0, action)
			after, left := r.rule(1, action)
			found = found || so(before, after, parameters, left)
		}
		return !found
	})
	return found
}

// narrows reports whether any decision differs from that of a wider table.
func (p *linted) narrows(wider *table) (narrows bool) {
	way, views := compared(p.view, view{table: wider, shut: p.view.shut, call: p.view.call})
	way.walk(views, func(r *row) bool {
		for _, action := range way.chosen {
			if r.fresh[action] {
				outcome, parameters := r.rule(0, action)
				wide, all := r.rule(1, action)
				narrows = narrows || outcome != wide || !parameters.equal(all)
			}
		}
		return !narrows
	})
	return narrows
}

// ties adds the ties of a party that decide something.
func (l *linter) ties(p *linted) {
	if p.Members[0].Kind != User {
		return
	}
	v := p.view
	v.traced = true
	p.whole().walk([]view{v}, func(r *row) bool {
		for _, action := range p.order {
			if outcome, _ := r.rule(0, action); outcome != Allow || !r.fresh[action] {
				continue
			}
			for _, t := range r.stances[0][action].sides[0].ties() {
				if !l.tied[t] {
					l.tied[t] = true
					t.Member = slices.MinFunc(p.Members, Member.Compare)
					t.Action, t.Bank = p.actions.names[action], p.banks.names[r.bank]
					l.Ties = append(l.Ties, t)
				}
			}
		}
		return true
	})
}

// ties returns the ties among the matches, without the member and the request.
func (m *merged) ties() []Tie {
	var found []Tie
	for i, w := range m.winners {
		p := &m.schema.list[i]
		if w == nil || p.Merge != parameter.Closest {
			continue
		}
		for _, c := range m.matches {
			v := c.sets.at(i)
			if v != nil && !sameValue(v, w.sets[i]) && c.policy != w.policy && c.closeness(w) == 0 {
				found = append(found, Tie{
					Parameter: p.Name,
					Policy:    c.policy, Statement: c.statement,
					Winner: w.policy, WinnerStatement: w.statement,
				})
			}
		}
	}
	return found
}
