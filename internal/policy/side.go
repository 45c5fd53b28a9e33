package policy

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// side is what one set of policies makes of a request: those that reach the
// subject, or the one that narrows it.
type side struct {
	matches []match // the matching allows, in gathering order
	// The first statement that allows, the first that denies, and what is wrong
	// with the first policy that does not parse, in words; "" when there is none.
	allowed, denied, broken string
}

// match is an allow that matches the request.
type match struct {
	*way
	statement int
	bank      string // its most specific pattern that matches
	sets      *Parameters
	lost      map[string]string // of its entry in the trace; nil when nothing is recorded
}

func examine(ways []way, action, bank string, rec *recorder) *side {
	s := &side{}
	for i := range ways {
		w := &ways[i]
		if w.fault != nil {
			rec.fault(w)
			if s.broken == "" {
				s.broken = fmt.Sprintf("%s is not valid: %v", w.words, w.fault)
			}
			continue
		}
		for n := range w.document.Statements {
			s.add(w, n, action, bank, rec)
		}
	}
	return s
}

func (s *side) add(w *way, n int, action, bank string, rec *recorder) {
	st := &w.document.Statements[n]
	actionPattern, covered := firstAction(st.Actions, action)
	if !covered {
		rec.elsewhere(w, n, CodeActionNotMatched)
		return
	}
	bankPattern, covered := closestBank(st.Banks, bank)
	if !covered {
		rec.elsewhere(w, n, CodeBankNotMatched)
		return
	}
	lost := rec.match(w, n, actionPattern, bankPattern)
	first := &s.denied
	if st.Effect == EffectAllow {
		first = &s.allowed
		s.matches = append(s.matches, match{way: w, statement: n, bank: bankPattern, sets: &st.Parameters, lost: lost})
	}
	if *first == "" {
		*first = fmt.Sprintf("statement %d of %s", n, w.words)
	}
}

// lose tells the trace that another statement's value is in force.
func (m *match) lose(parameter string, to *match) {
	if m.lost != nil {
		m.lost[parameter] = to.policy + "#" + strconv.Itoa(to.statement)
	}
}

// outranks decides which of two statements gives a parameter of which there can
// be but one: user over group, the more specific bank pattern, the higher
// priority, the greater policy id, then the earlier statement.
func (m *match) outranks(other *match) bool {
	return cmp.Or(
		compareBools(m.direct, other.direct),
		cmp.Compare(specificity(m.bank), specificity(other.bank)),
		cmp.Compare(m.priority, other.priority),
		strings.Compare(m.policy, other.policy),
		cmp.Compare(other.statement, m.statement),
	) > 0
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
