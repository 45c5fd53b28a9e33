package adminpage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/policy"
)

// explained is an answer as the page shows it.
type explained struct {
	svc.Resolution
	Word               string // Allowed or Denied
	Hint               string // what would lead to another answer; "": nothing
	Person             person // whose policies count
	Figure             figure
	Statements, Others []statement // those that apply, and the rest: maxListed of each
	Apply, Rest        int         // how many there are
	Parameters         []parameter
}

func (e explained) Allowed() bool { return e.Outcome == svc.Allow }

// person is the user whose policies count for a principal that is no user; zero: there is none.
type person struct{ Kind, ID string }

// explain prepares a resolution for the page.
func explain(r svc.Resolution, q asked) *explained {
	e := &explained{Resolution: r, Parameters: parametersOf(r)}
	e.Word = answerWord(e.Allowed())
	if r.ResolvedUserID != nil && q.Kind != "user" {
		e.Person = person{"user", *r.ResolvedUserID}
		if r.PrincipalType == svc.KindServiceAccount {
			e.Person.Kind = "owner"
		}
	}
	why := causeOf(r)
	for _, entry := range r.Trace {
		if givesStrategy(entry) { // it decides nothing
			continue
		}
		s := why.judge(entry)
		if s.State == stateOff {
			e.Others = append(e.Others, s)
		} else {
			e.Statements = append(e.Statements, s)
		}
	}
	e.Hint = why.hint(r, q)
	e.Figure = draw(q, e, why)
	e.Apply, e.Rest = len(e.Statements), len(e.Others)
	e.Statements, _ = head(e.Statements, maxListed)
	e.Others, _ = head(e.Others, maxListed)
	return e
}

// givesStrategy reports whether an entry says where the strategy of the bank comes from.
func givesStrategy(entry svc.TraceEntry) bool {
	return entry.Code == svc.TraceBankDefault || entry.Code == svc.TraceBankOverride
}

// cause is what a decision rests on.
type cause struct {
	kind     string   // its word in the picture
	narrowed []string // the policies that limit the principal and do not allow the request
}

// The kinds of causes.
const (
	byPolicy  = "by policy"
	byPublic  = "by public"
	forbidden = "forbidden"   // a statement denies it, or a policy does not parse
	unknown   = "unknown"     // there is no such principal
	inactive  = "inactive"    // the principal, or its owner, is
	gone      = "closed"      // something else that it needs is gone
	narrowed  = "narrowed"    // its own policies allow it, and one that limits it does not
	unlisted  = "not public"  // the public access in force does not list the action
	silent    = "not allowed" // nothing allows it
)

// causeOf finds what a decision rests on. Where several would do, it is the one that the engine
// names in its reason.
func causeOf(r svc.Resolution) cause {
	has := func(is func(svc.TraceEntry) bool) bool { return slices.ContainsFunc(r.Trace, is) }
	code := func(c svc.TraceCode) bool {
		return has(func(e svc.TraceEntry) bool { return e.Code == c })
	}
	// closed: no policy helps.
	closed := r.Outcome == svc.ImplicitDeny && !strings.HasPrefix(r.Reason, "denied")
	switch {
	case r.Outcome == svc.Allow && code(svc.TracePublicAllowed):
		return cause{kind: byPublic}
	case r.Outcome == svc.Allow:
		return cause{kind: byPolicy}
	case closed && strings.HasSuffix(r.Reason, "is unknown"):
		return cause{kind: unknown}
	case closed && strings.HasSuffix(r.Reason, "is inactive"):
		return cause{kind: inactive}
	case closed:
		return cause{kind: gone}
	case r.Outcome == svc.ExplicitDeny, code(svc.TraceDocumentInvalid):
		return cause{kind: forbidden}
	case code(svc.TracePublicActionNotMatched):
		return cause{kind: unlisted}
	case has(func(e svc.TraceEntry) bool { return allows(e) && !limits(e) }):
		return cause{narrowed, limitingPolicies(r.Trace)}
	}
	return cause{kind: silent}
}

// allows reports whether a statement of a denied request would allow it.
func allows(entry svc.TraceEntry) bool { return entry.Code == svc.TraceAllowOverridden }

// limits reports whether the policy of an entry only limits what others allow.
func limits(entry svc.TraceEntry) bool { return strings.HasPrefix(entry.Via, "scoping:") }

// limitingPolicies returns the policies that limit a principal and do not allow the request. One of
// them is enough to deny it. Those without statements are not in the trace.
func limitingPolicies(trace []svc.TraceEntry) (ids []string) {
	for _, entry := range trace {
		same := func(e svc.TraceEntry) bool {
			return limits(e) && e.PolicyID == entry.PolicyID && allows(e)
		}
		if limits(entry) && !slices.ContainsFunc(trace, same) &&
			!slices.Contains(ids, entry.PolicyID) {
			ids = append(ids, entry.PolicyID)
		}
	}
	return ids
}

// hint says what would lead to another answer, where the reason does not.
func (c cause) hint(r svc.Resolution, q asked) string {
	switch c.kind {
	case forbidden:
		if r.Outcome == svc.ExplicitDeny {
			return "An explicit deny overrides every allow."
		}
		return "A policy that cannot be read might deny anything. Correct it first."
	case narrowed:
		switch len(c.narrowed) {
		case 0:
			return "The policy that limits it has no statements: it must allow this, too."
		case 1:
			return fmt.Sprintf("The policy %q, which limits it, must allow this, too.",
				c.narrowed[0])
		}
		return fmt.Sprintf("The policies %q and %q, which limit it, must allow this, too.",
			c.narrowed[0], c.narrowed[1])
	case unlisted:
		return overridden(r, q)
	case silent:
		return nearest(r)
	}
	return ""
}

// overridden says which public default an override replaces, if that would allow the request.
func overridden(r svc.Resolution, q asked) string {
	var bank struct {
		Access struct {
			Default   struct{ Actions []string }
			Overrides []struct{ Scope, Value string }
		} `json:"public_access"`
	}
	_ = json.Unmarshal(r.BankPolicy, &bank) // a stored policy that is none gives no public access
	action := cmp.Or(q.Action, action.Recall)
	covers := func(pattern string) bool { return policy.MatchAction(pattern, action) }
	if !slices.ContainsFunc(bank.Access.Default.Actions, covers) {
		return ""
	}
	for i, o := range bank.Access.Overrides {
		if slices.ContainsFunc(r.Trace, func(e svc.TraceEntry) bool {
			return e.Code == svc.TracePublicActionNotMatched && e.Statement == i
		}) {
			return fmt.Sprintf("The override for %s %s replaces the default, which allows %s.",
				o.Scope, o.Value, action)
		}
	}
	return ""
}

// nearest names the statement that comes nearest to an allow.
func nearest(r svc.Resolution) string {
	if r.PrincipalType == svc.KindUnmapped {
		return "" // the reason says what the bank lacks
	}
	for _, near := range []struct {
		code  svc.TraceCode
		words string
	}{
		{svc.TraceBankNotMatched, " allows the action, but on other banks."},
		{svc.TraceActionNotMatched, ", which allows other actions."},
	} {
		for _, entry := range r.Trace {
			if entry.Effect == svc.EffectAllow && entry.Code == near.code && !limits(entry) {
				return fmt.Sprintf("Nearest: statement %d of policy %q%s",
					entry.Statement, entry.PolicyID, near.words)
			}
		}
	}
	return "No attached policy allows this."
}

// The states of a statement in a decision.
const (
	stateDecides = "decides" // the decision rests on it
	stateWould   = "would"   // it would allow the request, which is denied
	stateOff     = "off"     // it does not apply to the request, or does not count
)

// statement is a row of the table of statements.
type statement struct {
	svc.TraceEntry
	State string
	good  bool // where it decides, the request is allowed
}

// judge says what an entry did in a decision with this cause.
func (c cause) judge(entry svc.TraceEntry) statement {
	s := statement{TraceEntry: entry, State: stateOff}
	switch entry.Code {
	case svc.TraceAllowMatched, svc.TracePublicAllowed:
		s.State, s.good = stateDecides, true
	case svc.TraceDenyMatched, svc.TraceDocumentInvalid:
		if c.kind == forbidden {
			s.State = stateDecides
		}
	case svc.TracePublicActionNotMatched:
		s.State = stateDecides
	case svc.TraceAllowOverridden:
		s.State = stateWould
	}
	if c.kind == narrowed && limits(entry) && slices.Contains(c.narrowed, entry.PolicyID) {
		s.State = stateDecides
	}
	return s
}

// Decides reports whether the decision rests on the statement.
func (s statement) Decides() bool { return s.State == stateDecides }

// Class returns the classes of the statement: its state, and what it leads to.
func (s statement) Class() string {
	switch s.State {
	case stateOff:
		return stateOff
	case stateWould:
		return stateWould + " allow"
	}
	return stateDecides + " " + effectOf(s.good)
}

// Tag returns the word for the statement's effect. Public access has its own names.
func (s statement) Tag() string {
	if s.Via == "public" {
		return s.Name()
	}
	if s.Decides() && limits(s.TraceEntry) && !s.good {
		return "limit"
	}
	return string(s.Effect)
}

// Number returns the number of the statement, where its tag does not say it.
func (s statement) Number() string {
	if s.Via == "public" {
		return ""
	}
	return s.Name()
}

// Name returns the number of the statement, or what stands in its place.
func (s statement) Name() string {
	switch {
	case s.Code == svc.TraceDocumentInvalid:
		return "document"
	case s.Via == "public" && s.Statement < 0:
		return "public default"
	case s.Via == "public":
		return fmt.Sprint("override ", s.Statement)
	}
	return fmt.Sprint("#", s.Statement)
}

// Title is Name in a picture.
func (s statement) Title() string {
	if s.Via == "public" || s.Code == svc.TraceDocumentInvalid {
		return s.Name()
	}
	return fmt.Sprint("statement ", s.Statement)
}

// Patterns returns the patterns by which the statement matched; "": none.
func (s statement) Patterns() string {
	if s.ActionPattern == nil {
		return ""
	}
	if s.BankPattern == nil {
		return *s.ActionPattern
	}
	return *s.ActionPattern + " on " + *s.BankPattern
}

// Through returns how the policy came to the principal.
func (s statement) Through() string {
	name, below := through(s.TraceEntry)
	return name + ", " + below
}

// parameter is a row of the table of parameters.
type parameter struct {
	Name, Value string
	// By are the statements that set the value in force. Overridden are the values of the others.
	// Both have the first maxShown.
	By, Overridden []string
	More           int // the statements left out of both
}

// parametersOf returns the parameters that a statement sets, in the order of their names, and the
// strategy in force.
func parametersOf(r svc.Resolution) (rows []parameter) {
	inForce, sets := fields(r.Parameters), make([]map[string]string, len(r.Trace))
	for i, entry := range r.Trace {
		if entry.Matched { // others set nothing
			sets[i] = fields(entry.Sets)
		}
	}
	for name := range r.Parameters.All() {
		p := parameter{Name: name, Value: inForce[name]}
		for i, entry := range r.Trace {
			value, set := sets[i][name]
			if !set {
				continue
			}
			_, lost := entry.Lost[name]
			switch {
			case lost && len(p.Overridden) < maxShown:
				lost := fmt.Sprintf("%s (%s, statement %d)",
					shorten(value, maxField), entry.PolicyID, entry.Statement)
				p.Overridden = append(p.Overridden, lost)
			case !lost && p.Value != "" && len(p.By) < maxShown:
				p.By = append(p.By, setBy(entry))
			case lost || p.Value != "":
				p.More++
			}
		}
		if p.Value != "" || p.Overridden != nil {
			rows = append(rows, p)
		}
	}
	return append(rows, strategyOf(r, rows)...)
}

// setBy names the statement of an entry that sets a parameter.
func setBy(entry svc.TraceEntry) string {
	s := statement{TraceEntry: entry}
	if entry.Via == "public" {
		return s.Name() + " of " + entry.PolicyID
	}
	return entry.PolicyID + " " + s.Name()
}

// strategyOf returns the row of the strategy in force: that of a statement, or else of the bank.
func strategyOf(r svc.Resolution, own []parameter) []parameter {
	if r.EffectiveStrategy == nil {
		return nil
	}
	value, _ := json.Marshal(*r.EffectiveStrategy) // a text always encodes
	row := parameter{Name: "effective_strategy", Value: string(value)}
	for _, p := range own {
		if p.Value == row.Value && strings.HasSuffix(p.Name, "strategy") {
			row.By = p.By
		}
	}
	for _, entry := range r.Trace {
		switch entry.Code {
		case svc.TraceBankDefault:
			row.By = []string{"default of " + entry.PolicyID}
		case svc.TraceBankOverride:
			by := fmt.Sprintf("strategy override %d of %s", entry.Statement, entry.PolicyID)
			row.By = []string{by}
		}
	}
	return []parameter{row}
}

// fields returns the parameters that are set, as JSON.
func fields(p svc.Parameters) map[string]string {
	set := map[string]string{}
	for name, value := range p.All() {
		if value != nil {
			text, _ := json.Marshal(value) // texts and numbers always encode
			set[name] = string(text)
		}
	}
	return set
}
