package svc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/internal/policy"
)

// Finding is something about a bundle that somebody may want to know.
type Finding struct {
	Code      FindingCode
	Severity  Severity
	Pointer   string   // where: a JSON pointer into the bundle
	Policy    string   // the policy it is about; "": none
	Statement int      // of that policy; -1: no single one
	Bank      string   // the bank whose policy it is about; "": none
	Principal Identity // whom it is about, or is an example of whom it is about; zero: nobody
	Message   string   // a sentence
}

// FindingCode is a kind of finding. Codes are stable.
type FindingCode string

// The codes of findings.
const (
	FindingRow           FindingCode = "row_invalid"        // Apply would refuse it
	FindingDocument      FindingCode = "document_invalid"   // a policy that does not parse: whoever has it is denied everything
	FindingReference     FindingCode = "reference_missing"  // it names what is not in the bundle
	FindingScoping       FindingCode = "scoping_missing"    // the policy that narrows a service account is not in the bundle
	FindingOwner         FindingCode = "owner_missing"      // the owner of a service account is not in the bundle
	FindingInactiveOwner FindingCode = "owner_inactive"     // the owner of a service account is inactive, so that this is denied everything
	FindingIdleScoping   FindingCode = "scoping_idle"       // what narrows a service account leaves it all that its owner has
	FindingUnattached    FindingCode = "policy_unattached"  // a policy that is attached to nobody and narrows nobody
	FindingEmptyGroup    FindingCode = "group_empty"        // a group without members
	FindingUnknownAction FindingCode = "action_unknown"     // an action pattern that covers no known action
	FindingNeedless      FindingCode = "statement_needless" // a statement without which everything would be decided the same
	FindingShadowed      FindingCode = "statement_shadowed" // such a one, that allows: all that it covers is denied to whoever has it
	FindingTie           FindingCode = "tie"                // only the ids of two policies decide which of their values is in force
)

// Severity is how much a [Finding] matters.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // Apply would refuse it
	SeverityWarning Severity = "warning" // it works, and is perhaps not meant
)

// Lint looks for what is wrong, idle or left to chance in a bundle that is all there is, such as what [AccessStore].AllAccess returns.
// known are the actions that the host asks about, beside those of this service; nil: they are not known, and no pattern is called unknown.
//
// Each finding is exact: what a statement, a tie or the policy of a service account changes was decided for every class of requests
// that the policies tell apart, and everybody who has them; who is inactive counts as if active, and who has a policy that does not parse is passed over. A needless statement is so by itself,
// and all that are found can go together; of several of which one would do, the first is not told. The patterns of a statement are not
// looked at one by one, nor several statements that are needless only together, nor the overrides of the policies of banks.
//
// The list is sorted by Pointer and never nil.
func Lint(bundle Bundle, known []string) []Finding {
	l := &linter{bundle: bundle, compiler: policy.NewCompiler()}
	l.rows()
	l.attachments()
	l.owners()
	if known != nil {
		l.actions(append([]string{
			ActionUsersRead, ActionUsersWrite, ActionTemplateAdmin, ActionAuditRead, ActionRecall, "bank:memories:list", "bank:memories:get",
		}, known...))
	}
	l.classes()
	slices.SortStableFunc(l.found, func(a, b Finding) int {
		return cmp.Or(comparePointers(a.Pointer, b.Pointer), strings.Compare(string(a.Code), string(b.Code)), strings.Compare(a.Message, b.Message))
	})
	return append([]Finding{}, l.found...)
}

type linter struct {
	bundle   Bundle // as it was given
	compiler *policy.Compiler
	found    []Finding
}

func (l *linter) add(f Finding) {
	f.Severity = SeverityWarning
	switch f.Code {
	case FindingRow, FindingDocument, FindingReference, FindingScoping, FindingOwner:
		f.Severity = SeverityError
	}
	l.found = append(l.found, f)
}

// rows finds what Apply would refuse.
func (l *linter) rows() {
	normal, err := l.bundle.normalizeWith(&checker{compiler: l.compiler, endless: true})
	told := map[string]bool{}
	for _, e := range flat(err) {
		told[e.Field] = true
		l.refused(e, FindingRow)
	}
	a := newApplication(Bundle{}, normal)
	a.endless = true
	a.checkReferences()
	a.checkChannels()
	for _, e := range flat(a.err()) {
		if !told[e.Field] {
			l.refused(e, FindingReference)
		}
	}
}

// flat returns the errors that were joined.
func flat(err error) []*Error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*Error
		for _, one := range joined.Unwrap() {
			all = append(all, flat(one)...)
		}
		return all
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return []*Error{e}
	}
	return nil
}

// refused tells what is wrong at a place.
func (l *linter) refused(e *Error, code FindingCode) {
	f := Finding{Code: code, Pointer: e.Field, Statement: -1}
	tokens := strings.Split(e.Field, "/")[1:]
	i, _ := strconv.Atoi(tokens[1])
	switch tokens[0] {
	case "policies":
		f.Policy = l.bundle.Policies[i].ID
	case "bank_policies":
		f.Bank = l.bundle.BankPolicies[i].BankID
	case "attachments":
		f.Policy = l.bundle.Attachments[i].PolicyID
	case "users":
		f.Principal = Identity{KindUser, l.bundle.Users[i].ID}
	case "service_accounts":
		f.Principal = Identity{KindServiceAccount, l.bundle.ServiceAccounts[i].ID}
	}
	switch refers := code == FindingReference; {
	case len(tokens) > 2 && tokens[2] == "document":
		f.Code = FindingDocument
		if len(tokens) > 4 && tokens[3] == "statements" {
			f.Statement, _ = strconv.Atoi(tokens[4])
		}
	case refers && tokens[2] == "owner_user_id":
		f.Code = FindingOwner
	case refers && tokens[2] == "scoping_policy_id":
		f.Code, f.Policy = FindingScoping, l.bundle.ServiceAccounts[i].ScopingPolicyID
	case refers && tokens[2] == "channels":
		f.Code = FindingRow
	}
	f.Message = strings.ReplaceAll(strings.TrimPrefix(e.Field, "/"), "/", ".") + " " + e.Message
	l.add(f)
}

// attachments finds policies and groups that come to nobody.
func (l *linter) attachments() {
	used := map[string]bool{}
	for _, a := range l.bundle.Attachments {
		used[a.PolicyID] = true
	}
	for _, a := range l.bundle.ServiceAccounts {
		used[a.ScopingPolicyID] = true
	}
	for i, p := range l.bundle.Policies {
		if !used[p.ID] {
			l.add(Finding{
				Code: FindingUnattached, Pointer: at("policies", i), Policy: p.ID, Statement: -1,
				Message: "policy " + quote(p.ID) + " is attached to nobody and narrows no service account",
			})
		}
	}
	for i, g := range l.bundle.Groups {
		if len(g.Members) == 0 {
			l.add(Finding{Code: FindingEmptyGroup, Pointer: at("groups", i), Statement: -1, Message: "group " + quote(g.ID) + " has no members"})
		}
	}
}

// owners finds service accounts whose owners are inactive.
func (l *linter) owners() {
	users := index(l.bundle.Users, User.key)
	for i, a := range l.bundle.ServiceAccounts {
		if users[a.OwnerUserID].Inactive {
			l.add(Finding{
				Code: FindingInactiveOwner, Pointer: at("service_accounts", i) + "/owner_user_id", Statement: -1, Principal: Identity{KindServiceAccount, a.ID},
				Message: "service account " + quote(a.ID) + " is denied everything, because its owner " + quote(a.OwnerUserID) + " is inactive",
			})
		}
	}
}

// at is the pointer to a row.
func at(list string, i int) string { return "/" + list + "/" + strconv.Itoa(i) }

// comparePointers orders numbers by their value.
func comparePointers(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "/"), strings.Split(b, "/"), func(a, b string) int {
		m, errA := strconv.Atoi(a)
		n, errB := strconv.Atoi(b)
		if errA == nil && errB == nil {
			return cmp.Compare(m, n)
		}
		return strings.Compare(a, b)
	})
}

// actions finds patterns that cover no known action.
func (l *linter) actions(known []string) {
	check := func(f Finding, patterns []string) {
		for i, p := range patterns {
			if !slices.ContainsFunc(known, func(action string) bool { return policy.MatchAction(p, action) }) {
				f := f
				f.Code, f.Pointer = FindingUnknownAction, f.Pointer+"/actions/"+strconv.Itoa(i)
				f.Message = "the action pattern " + quote(p) + " covers no known action"
				l.add(f)
			}
		}
	}
	for i, p := range l.bundle.Policies {
		if document, err := policy.ParseDocument(p.Document); err == nil {
			for n, st := range document.Statements {
				check(Finding{Pointer: statementAt(i, n), Policy: p.ID, Statement: n}, st.Actions)
			}
		}
	}
	for i, b := range l.bundle.BankPolicies {
		document, err := policy.ParseBankDocument(b.Document)
		if err != nil || document.PublicAccess == nil {
			continue
		}
		f := Finding{Pointer: at("bank_policies", i) + "/document/public_access", Bank: b.BankID, Statement: -1}
		if document.PublicAccess.Default != nil {
			f := f
			f.Pointer += "/default"
			check(f, document.PublicAccess.Default.Actions)
		}
		for n, o := range document.PublicAccess.Overrides {
			f := f
			f.Pointer += "/overrides/" + strconv.Itoa(n)
			check(f, o.Actions)
		}
	}
}

func statementAt(policy, statement int) string {
	return at("policies", policy) + "/document/statements/" + strconv.Itoa(statement)
}

// classes finds what only a look at every class of requests can tell.
func (l *linter) classes() {
	r := l.everybodyActive()
	found := l.compiler.Lint(r.census(nil))
	policies, accounts := positions(l.bundle.Policies, Policy.key), positions(l.bundle.ServiceAccounts, ServiceAccount.key)
	for _, n := range found.Needless {
		f := Finding{Code: FindingNeedless, Pointer: statementAt(policies[n.Policy], n.Statement), Policy: n.Policy, Statement: n.Statement}
		f.Message = fmt.Sprintf("statement %d of policy %q changes nothing: without it all is decided the same", n.Statement, n.Policy)
		if n.Shadowed {
			f.Code = FindingShadowed
			f.Message = fmt.Sprintf("statement %d of policy %q allows nothing: all that it covers is denied to whoever has it", n.Statement, n.Policy)
		}
		l.add(f)
	}
	for _, t := range found.Ties {
		l.add(Finding{
			Code: FindingTie, Pointer: statementAt(policies[t.Policy], t.Statement) + "/" + t.Parameter, Policy: t.Policy, Statement: t.Statement,
			Principal: Identity{KindUser, t.Member.ID},
			Message: fmt.Sprintf("%s for %q on bank %q is that of statement %d of policy %q, and not this one, only because of the policies' ids, for user %q",
				t.Parameter, t.Action, t.Bank, t.WinnerStatement, t.Winner, t.Member.ID),
		})
	}
	for _, m := range found.Unscoped {
		account, _ := find(r.ServiceAccounts, m.ID, ServiceAccount.key)
		l.add(Finding{
			Code: FindingIdleScoping, Pointer: at("service_accounts", accounts[m.ID]) + "/scoping_policy_id", Policy: account.ScopingPolicyID, Statement: -1,
			Principal: Identity{KindServiceAccount, m.ID},
			Message:   fmt.Sprintf("the scoping policy %q leaves service account %q all that its owner has", account.ScopingPolicyID, m.ID),
		})
	}
}

// everybodyActive returns the bundle's rows as if nobody were inactive; of two with one id the first.
func (l *linter) everybodyActive() *roster {
	users, accounts := slices.Clone(l.bundle.Users), slices.Clone(l.bundle.ServiceAccounts)
	for i := range users {
		users[i].Inactive = false
	}
	for i := range accounts {
		accounts[i].Inactive = false
	}
	b := l.bundle
	b.Users, b.ServiceAccounts = users, accounts
	return newRoster(AccessRows{}).under(b)
}

// positions returns where each row stands; of two with one key the first.
func positions[R any](rows []R, key func(R) string) map[string]int {
	at := map[string]int{}
	for i, row := range slices.Backward(rows) {
		at[key(row)] = i
	}
	return at
}
