package policy

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"

	"github.com/extsvc/svc/internal/cache"
)

// The variables of bank patterns. Each stands for a whole segment between "::".
const (
	UserVariable  = "${user}"  // the id of the user whose policies are gathered
	GroupVariable = "${group}" // the id of the group through which the policy comes
)

// variable begins a variable. Nothing else in a pattern contains it.
const variable = "${"

var (
	errVariable = errors.New(
		`may hold "${" only in the segments "${user}" and "${group}", between "::"`)
	errActionVariable = errors.New(`must not hold "${": only bank patterns have variables`)
)

// validVariables reports what is wrong with the variables of a bank pattern.
func validVariables(pattern string) error {
	for segment := range strings.SplitSeq(pattern, "::") {
		if strings.Contains(segment, variable) &&
			segment != UserVariable && segment != GroupVariable {
			return errVariable
		}
	}
	return nil
}

// validAction is ValidAction for the patterns of documents.
func validAction(pattern string) error {
	if strings.Contains(pattern, variable) {
		return errActionVariable
	}
	return ValidAction(pattern)
}

// HasVariables reports whether a valid bank pattern has variables.
func HasVariables(pattern string) bool { return strings.Contains(pattern, variable) }

// MayName reports whether a document may use a variable. It is true without need for documents with
// escaped ASCII characters.
func MayName(variable string, document []byte) bool {
	return bytes.Contains(document, []byte(variable)) || bytes.Contains(document, []byte(`\u00`))
}

// binding is what variables stand for. "": nothing.
type binding struct{ user, group string }

// expand returns a bank pattern with the values of its variables. ok is false when it covers
// nothing: a variable has no value, or one that reads as more than a segment.
func (b binding) expand(pattern string) (expanded string, ok bool) {
	if !HasVariables(pattern) {
		return pattern, true
	}
	segments := strings.Split(pattern, "::")
	for i, segment := range segments {
		switch segment {
		case UserVariable:
			segments[i] = b.user
		case GroupVariable:
			segments[i] = b.group
		default:
			continue
		}
		if !isSegment(segments[i]) {
			return "", false
		}
	}
	return strings.Join(segments, "::"), true
}

// isSegment reports whether a value of a variable is one segment, wherever it stands.
func isSegment(value string) bool {
	return value != "" && !strings.Contains(value, "::") && !strings.Contains(value, "*") &&
		!strings.HasPrefix(value, ":") && !strings.HasSuffix(value, ":")
}

// Solve returns the values with which a valid bank pattern with variables covers a bank. "": the
// pattern does not have that variable. ok is false when no values make it cover the bank.
func Solve(pattern, bank string) (user, group string, ok bool) {
	want, have := strings.Split(pattern, "::"), strings.Split(bank, "::")
	last := len(want) - 1 // of a prefix, it is "*" or ":*"
	if begin, is := strings.CutSuffix(want[last], "*"); is && len(have) > last &&
		strings.HasPrefix(strings.Join(have[last:], "::"), begin) {
		want, have = want[:last], have[:last]
	}
	if len(want) != len(have) {
		return "", "", false
	}
	var values binding
	for i, segment := range want {
		value := &values.user
		switch segment {
		case UserVariable:
		case GroupVariable:
			value = &values.group
		default:
			if segment != have[i] {
				return "", "", false
			}
			continue
		}
		if !isSegment(have[i]) || *value != "" && *value != have[i] {
			return "", "", false
		}
		*value = have[i]
	}
	return values.user, values.group, true
}

// names reports whether a bank pattern of the document has a variable.
func (d *Document) names(variable string) bool {
	return slices.ContainsFunc(d.Statements, func(st Statement) bool {
		return slices.ContainsFunc(st.Banks, func(pattern string) bool {
			return strings.Contains(pattern, variable)
		})
	})
}

// bind returns the document with the values of variables.
func (d *Document) bind(to binding) *Document {
	bound := &Document{Statements: slices.Clone(d.Statements)}
	for i := range bound.Statements {
		st := &bound.Statements[i]
		if !slices.ContainsFunc(st.Banks, HasVariables) {
			continue
		}
		banks := st.Banks
		st.Banks, st.written = nil, nil
		for _, pattern := range banks {
			if expanded, ok := to.expand(pattern); ok {
				st.Banks, st.written = append(st.Banks, expanded), append(st.written, pattern)
			}
		}
	}
	return bound
}

// asWritten returns a bank pattern of the statement as its document has it.
func (s *Statement) asWritten(bank string) string {
	if s.written == nil {
		return bank
	}
	return s.written[slices.Index(s.Banks, bank)]
}

// bound returns a parsed document with the values of variables, once for all subjects with the same
// values.
func (c *Compiler) bound(raw []byte, p parsed, to binding) parsed {
	if p.document == nil || !p.user && !p.group {
		return p
	}
	if !p.user {
		to.user = ""
	}
	if !p.group {
		to.group = ""
	}
	h := sha256.New()
	writeBytes(h, raw)
	write(h, to.user, to.group)
	var key digest
	h.Sum(key[:0])
	return c.once(key, func() parsed {
		document := p.document.bind(to)
		return parsed{
			document: document, bytes: p.bytes, share: cache.NewShare(cache.Size(document)),
			user: p.user, group: p.group,
		}
	})
}
