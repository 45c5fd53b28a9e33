package policy

import (
	"cmp"
	"strconv"
	"strings"
)

// side is the result of one set of policies for a request: the grants of the subject, or one policy
// that narrows them.
type side struct {
	merged
	allowed, denied place       // the first statements that allow and deny; zero: none
	broken          *attachedBy // the first policy that does not parse; nil: all parse
	limits          bool        // the side gives no parameters: see Subject.Narrowing
}

// newSide returns the side of ways before any statement matches.
func (t *table) newSide(ways []attachedBy) *side {
	return &side{
		merged: merged{schema: t.schema}, broken: broken(ways), limits: limits(ways),
	}
}

// limits reports whether the ways belong to Subject.Narrowing.
func limits(ways []attachedBy) bool { return len(ways) > 0 && ways[0].limits }

// place is a statement of a policy that reaches the subject.
type place struct {
	*attachedBy
	statement int
}

func (p place) String() string {
	return "statement " + strconv.Itoa(p.statement) + " of " + p.words()
}

// written returns the statement itself.
func (p place) written() *Statement { return &p.document.Statements[p.statement] }

// match is a statement that matches the request.
type match struct {
	place
	bank string // the most specific bank pattern that matches
	sets Parameters
	lost map[string]string // Lost of its trace entry; nil when nothing is recorded
}

func (s *side) denies() bool   { return s.denied.attachedBy != nil }
func (s *side) isBroken() bool { return s.broken != nil }
func (s *side) isSilent() bool { return s.allowed.attachedBy == nil }

// examine checks each statement against a request.
func (t *table) examine(ways []attachedBy, action, bank string, rec *recorder) *side {
	s := t.newSide(ways)
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
func broken(ways []attachedBy) *attachedBy {
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
		rec.elsewhere(at.attachedBy, at.statement, CodeActionNotMatched)
		return
	}
	bankPattern, covered := closestBank(st.Banks, bank)
	if !covered {
		rec.elsewhere(at.attachedBy, at.statement, CodeBankNotMatched)
		return
	}
	lost := rec.match(at.attachedBy, at.statement, actionPattern, bankPattern)
	s.add(&match{at, bankPattern, st.Parameters, lost})
}

// add adds a matching statement.
func (s *side) add(m *match) {
	first := &s.denied
	if m.written().Effect == EffectAllow {
		first = &s.allowed
		s.merged.add(m)
	}
	if first.attachedBy == nil {
		*first = m.place
	}
}

// gathered compares matches by gathering order.
func (m *match) gathered(other *match) int {
	return cmp.Or(
		cmp.Compare(other.priority, m.priority),
		strings.Compare(m.policy, other.policy),
		compareBools(other.direct, m.direct),
		strings.Compare(m.granted, other.granted),
		cmp.Compare(m.statement, other.statement),
	)
}

// lose records in the trace that another statement's value is in force. The first loss recorded
// stays.
func (m *match) lose(parameter string, to *match) {
	if m.lost != nil && m.lost[parameter] == "" {
		m.lost[parameter] = to.policy + "#" + strconv.Itoa(to.statement)
	}
}

// outranks decides which of two statements gives a parameter with one value in force. The order:
// user over group, the more specific bank pattern, the higher priority, the greater policy id, the
// earlier statement.
func (m *match) outranks(other *match) bool {
	return cmp.Or(
		m.closeness(other),
		strings.Compare(m.policy, other.policy),
		cmp.Compare(other.statement, m.statement),
	) > 0
}

// closeness is the part of that order that an administrator chooses.
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
