package policy

import (
	"cmp"
	"strconv"
	"strings"
)

// side is what one set of policies makes of a request: those that reach the
// subject, or one that narrows it.
type side struct {
	merged
	allowed, denied place // the first statement that allows, and that denies; zero: there is none
	broken          *way  // the first policy that does not parse; nil: there is none
	limits          bool  // it gives nothing: see Subject.Narrowing
}

// newSide returns the side of some ways, before any statement matches.
func newSide(ways []way) *side { return &side{broken: broken(ways), limits: limits(ways)} }

// limits reports whether ways are of a policy of Subject.Narrowing.
func limits(ways []way) bool { return len(ways) > 0 && ways[0].limits }

// place is a statement of a policy that reaches the subject.
type place struct {
	*way
	statement int
}

func (p place) String() string { return "statement " + strconv.Itoa(p.statement) + " of " + p.words }

// written is the statement itself.
func (p place) written() *Statement { return &p.document.Statements[p.statement] }

// match is a statement that matches the request.
type match struct {
	place
	bank string // its most specific pattern that matches
	sets *Parameters
	lost map[string]string // of its entry in the trace; nil when nothing is recorded
}

func (s *side) denies() bool   { return s.denied.way != nil }
func (s *side) isBroken() bool { return s.broken != nil }
func (s *side) isSilent() bool { return s.allowed.way == nil }

// examine looks at each statement.
func examine(ways []way, action, bank string, rec *recorder) *side {
	s := newSide(ways)
	for i := range ways {
		w := &ways[i]
		if w.fault != nil {
			rec.fault(w)
			continue
		}
		for n := range w.document.Statements {
			s.look(place{w, n}, action, bank, rec)
		}
	}
	s.settle()
	return s
}

// broken returns the first policy that does not parse.
func broken(ways []way) *way {
	for i := range ways {
		if ways[i].fault != nil {
			return &ways[i]
		}
	}
	return nil
}

func (s *side) look(at place, action, bank string, rec *recorder) {
	st := at.written()
	actionPattern, covered := firstAction(st.Actions, action)
	if !covered {
		rec.elsewhere(at.way, at.statement, CodeActionNotMatched)
		return
	}
	bankPattern, covered := closestBank(st.Banks, bank)
	if !covered {
		rec.elsewhere(at.way, at.statement, CodeBankNotMatched)
		return
	}
	s.add(&match{at, bankPattern, &st.Parameters, rec.match(at.way, at.statement, actionPattern, bankPattern)})
}

// add adds a statement that matches.
func (s *side) add(m *match) {
	first := &s.denied
	if m.written().Effect == EffectAllow {
		first = &s.allowed
		s.merged.add(m)
	}
	if first.way == nil {
		*first = m.place
	}
}

// gathered orders matches by when they are gathered.
func (m *match) gathered(other *match) int {
	return cmp.Or(
		cmp.Compare(other.priority, m.priority),
		strings.Compare(m.policy, other.policy),
		compareBools(other.direct, m.direct),
		strings.Compare(m.via, other.via),
		cmp.Compare(m.statement, other.statement),
	)
}

// lose tells the trace that another statement's value is in force. What a statement lost to first stays.
func (m *match) lose(parameter string, to *match) {
	if m.lost != nil && m.lost[parameter] == "" {
		m.lost[parameter] = to.policy + "#" + strconv.Itoa(to.statement)
	}
}

// outranks decides which of two statements gives a parameter of which there can
// be but one: user over group, the more specific bank pattern, the higher
// priority, the greater policy id, then the earlier statement.
func (m *match) outranks(other *match) bool {
	return cmp.Or(
		m.closeness(other),
		strings.Compare(m.policy, other.policy),
		cmp.Compare(other.statement, m.statement),
	) > 0
}

// closeness is the part of the order that somebody has chosen.
func (m *match) closeness(other *match) int {
	return cmp.Or(
		compareBools(m.direct, other.direct),
		cmp.Compare(specificity(m.bank), specificity(other.bank)),
		cmp.Compare(m.priority, other.priority),
	)
}

// compareBools orders true over false.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
