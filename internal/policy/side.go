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
	trace   []Entry // never nil
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
	lost      map[string]string // of its trace entry
}

func judge(ways []way, r Request) *side {
	s := &side{trace: []Entry{}}
	for i := range ways {
		w := &ways[i]
		if w.fault != nil {
			s.trace = append(s.trace, faultEntry(w.policy, w.via, w.fault))
			s.broken = cmp.Or(s.broken, fmt.Sprintf("%s is not valid: %v", w.words, w.fault))
			continue
		}
		for n := range w.document.Statements {
			s.add(w, n, r)
		}
	}
	return s
}

func (s *side) add(w *way, n int, r Request) {
	e := w.examine(n, r)
	s.trace = append(s.trace, e)
	if !e.Matched {
		return
	}
	words := fmt.Sprintf("statement %d of %s", n, w.words)
	if e.Effect == EffectDeny {
		s.denied = cmp.Or(s.denied, words)
		return
	}
	s.allowed = cmp.Or(s.allowed, words)
	s.matches = append(s.matches, match{
		way:       w,
		statement: n,
		bank:      *e.BankPattern,
		sets:      &w.document.Statements[n].Parameters,
		lost:      e.Lost,
	})
}

// ref names the statement as other entries refer to it.
func (m *match) ref() string {
	return m.policy + "#" + strconv.Itoa(m.statement)
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
