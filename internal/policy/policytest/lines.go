package policytest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/internal/policy"
)

// line is the effect of one statement on a request, or a document that does not parse.
type line struct {
	policy.Entry
	words    string // names the statement; for a document, says what is wrong with it
	direct   bool   // the policy is attached to the user itself
	priority int64
	gives    policy.Parameters
	closest  string // BankPattern with the values of its variables
}

// ref returns the name that other entries use for the statement.
func (n *line) ref() string { return n.PolicyID + "#" + strconv.Itoa(n.Statement) }

// first returns the first line with that code.
func first(lines []*line, code string) *line {
	for _, n := range lines {
		if n.Code == code {
			return n
		}
	}
	return nil
}

func entries(lines []*line) []policy.Entry {
	out := []policy.Entry{}
	for _, n := range lines {
		out = append(out, n.Entry)
	}
	return out
}

// owner returns a line for each statement of each policy that reaches the user, in gathering order.
func (l *rules) owner(s policy.Subject, q Request) []*line {
	var lines []*line
	for _, g := range l.gather(s.Grants) {
		via, words := "user", fmt.Sprintf("policy %q attached to %s", g.PolicyID, holder(s))
		if g.Group != "" {
			via = "group:" + g.Group
			words = fmt.Sprintf("policy %q through group %q", g.PolicyID, g.Group)
		}
		for _, n := range l.document(g.Document, words, q, meaning(s.UserID, g.Group)) {
			n.PolicyID, n.Via, n.direct, n.priority = g.PolicyID, via, g.Group == "", g.Priority
			lines = append(lines, n)
		}
	}
	return lines
}

// scopings returns the lines of each policy that narrows the subject: one line for each statement.
func (l *rules) scopings(s policy.Subject, q Request) [][]*line {
	var sides [][]*line
	for _, scoping := range narrowers(s) {
		words := fmt.Sprintf("scoping policy %q", scoping.ID)
		lines := l.document(scoping.Document, words, q, meaning(s.UserID, ""))
		for _, n := range lines {
			n.PolicyID, n.Via = scoping.ID, "scoping:"+s.ServiceAccountID
		}
		sides = append(sides, lines)
	}
	return sides
}

// narrowers returns the policies that narrow a subject: first those that may set parameters, then
// those that may not.
func narrowers(s policy.Subject) []policy.Named {
	return append(append([]policy.Named{}, s.Scoping...), s.Narrowing...)
}

// holder says in words whose the grants are.
func holder(s policy.Subject) string {
	if s.Kind == policy.ServiceAccount {
		return "its owner"
	}
	return "the user"
}

// gather sorts grants by priority (the greatest first), policy id, the user's own before the
// groups', and group id. A grant that comes twice the same way counts once.
func (l *rules) gather(grants []policy.Grant) []policy.Grant {
	sorted := slices.Clone(grants)
	slices.SortStableFunc(sorted, l.order)
	var out []policy.Grant
	for _, g := range sorted {
		same := func(o policy.Grant) bool { return l.again(g, o) }
		if !slices.ContainsFunc(out, same) {
			out = append(out, g)
		}
	}
	return out
}

func gatheringOrder(a, b policy.Grant) int {
	return cmp.Or(
		-cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(a.PolicyID, b.PolicyID),
		cmp.Compare(a.Group, b.Group), // the user's own has no group, and comes first
	)
}

// sameWay reports whether two grants bring the same policy the same way.
func sameWay(a, b policy.Grant) bool { return a.PolicyID == b.PolicyID && a.Group == b.Group }

// document returns a line for each statement of a document, or one line for its parse error.
func (l *rules) document(
	raw []byte, words string, q Request, variables map[string]string,
) []*line {
	d, err := l.schema.ParseDocument(raw)
	if err != nil {
		return []*line{faultLine(words, err)}
	}
	var lines []*line
	for i, st := range d.Statements {
		n := l.statement(st, q, variables)
		n.Statement = i
		n.words = fmt.Sprintf("statement %d of %s", i, words)
		lines = append(lines, n)
	}
	return lines
}

func faultLine(words string, err error) *line {
	return &line{
		words: fmt.Sprintf("%s is not valid: %v", words, err),
		Entry: policy.Entry{
			Statement: -1, Effect: policy.EffectDeny, Lost: map[string]string{},
			Code: policy.CodeDocumentInvalid, Reason: "the document is not valid: " + err.Error(),
		},
	}
}

// statement returns the effect of a statement on a request.
func (l *rules) statement(st policy.Statement, q Request, variables map[string]string) *line {
	n := &line{Entry: policy.Entry{Effect: st.Effect, Lost: map[string]string{}}}
	actions := covering(st.Actions, q.Action, l.coversAction)
	var written, patterns []string
	for _, p := range st.Banks {
		if expanded, is := substituted(p, variables); is {
			written, patterns = append(written, p), append(patterns, expanded)
		}
	}
	banks := covering(patterns, q.Bank, l.coversBank)
	switch {
	case len(actions) == 0:
		n.Code = policy.CodeActionNotMatched
		n.Reason = fmt.Sprintf("no action pattern covers %q", q.Action)
		return n
	case len(banks) == 0:
		n.Code = policy.CodeBankNotMatched
		n.Reason = fmt.Sprintf("no bank pattern covers %q", q.Bank)
		return n
	}
	n.Matched = true
	n.ActionPattern = &actions[0]
	n.closest = slices.MaxFunc(banks, l.closer)
	n.BankPattern = new(written[slices.Index(patterns, n.closest)])
	if st.Effect == policy.EffectDeny {
		n.Code = policy.CodeDenyMatched
		n.Reason = fmt.Sprintf("denies %q on bank %q", q.Action, q.Bank)
		return n
	}
	n.Code = policy.CodeAllowMatched
	n.Reason = fmt.Sprintf("allows %q on bank %q", q.Action, q.Bank)
	n.gives, n.Sets = st.Parameters, slices.Clone(st.Parameters)
	return n
}

// meaning returns the values of the variables.
func meaning(user, group string) map[string]string {
	return map[string]string{"${user}": user, "${group}": group}
}

// substituted returns a pattern with the values of its variables. It is none when a value cannot
// stand for one segment.
func substituted(pattern string, variables map[string]string) (string, bool) {
	for variable, value := range variables {
		if !strings.Contains(pattern, variable) {
			continue
		}
		bad := value == "" || strings.ContainsRune(value, '*') || strings.Contains(value, "::") ||
			value[0] == ':' || value[len(value)-1] == ':'
		if bad {
			return "", false
		}
	}
	var replace []string
	for variable, value := range variables {
		replace = append(replace, variable, value)
	}
	return strings.NewReplacer(replace...).Replace(pattern), true
}

// covering returns the patterns that cover a string, in their order.
func covering(patterns []string, asked string, covers func(pattern, asked string) bool) []string {
	var out []string
	for _, p := range patterns {
		if covers(p, asked) {
			out = append(out, p)
		}
	}
	return out
}

// closer compares two bank patterns that cover the same bank. A literal is closer than a prefix, a
// longer prefix closer than a shorter one, and "*" is the farthest.
func closer(a, b string) int {
	return cmp.Or(cmp.Compare(closeness(a), closeness(b)), cmp.Compare(len(a), len(b)))
}

func closeness(pattern string) int {
	switch {
	case pattern == "*":
		return 0
	case pattern[len(pattern)-1] == '*':
		return 1
	}
	return 2
}
