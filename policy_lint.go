package svc

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/internal/policy"
)

// Finding is a possible mistake in a bundle.
type Finding struct {
	Code      FindingCode
	Severity  Severity
	Pointer   string   // the place: a JSON pointer into the bundle
	Policy    string   // the policy concerned; "": none
	Statement int      // of that policy; -1: no single one
	Bank      string   // the bank whose policy is concerned; "": none
	Principal Identity // the principal concerned, or an example; zero: none
	Message   string   // a sentence
}

// FindingCode is a kind of finding. Codes are stable.
type FindingCode string

// The codes of findings.
const (
	// Apply would refuse the row.
	FindingRow FindingCode = "row_invalid"
	// A policy does not parse: its holders are denied everything.
	FindingDocument FindingCode = "document_invalid"
	// A row names another row that is not in the bundle.
	FindingReference FindingCode = "reference_missing"
	// The policy that narrows a service account is not in the bundle.
	FindingScoping FindingCode = "scoping_missing"
	// The owner of a service account is not in the bundle.
	FindingOwner FindingCode = "owner_missing"
	// The owner of a service account is inactive, so the account is denied everything.
	FindingInactiveOwner FindingCode = "owner_inactive"
	// The policy that narrows a service account leaves it all that its owner has.
	FindingIdleScoping FindingCode = "scoping_idle"
	// A policy is attached to nothing and narrows no service account.
	FindingUnattached FindingCode = "policy_unattached"
	// A group has no members.
	FindingEmptyGroup FindingCode = "group_empty"
	// An action pattern covers no known action.
	FindingUnknownAction FindingCode = "action_unknown"
	// A statement is redundant: removing it changes no decision.
	FindingNeedless FindingCode = "statement_needless"
	// A redundant allow: everything that it covers is denied to its holders.
	FindingShadowed FindingCode = "statement_shadowed"
	// Only the ids of two policies decide which of their values is in force.
	FindingTie FindingCode = "tie"
)

// Severity is how much a [Finding] matters.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // Apply would refuse it
	SeverityWarning Severity = "warning" // it works, but may be a mistake
)

// Lint finds mistakes, redundant rows and accidental results in a bundle. The bundle is the whole
// state of access, such as [AccessStore].AllAccess returns. known are the actions that the host
// asks about, in addition to those of this service. Nil: the actions are not known, and no pattern
// is reported as unknown.
//
// Each finding is exact. Lint decides what a statement, a tie or the policy of a service account
// changes, for every class of requests that the policies distinguish, and for every holder.
// Inactive principals count as active; principals with a policy that does not parse are skipped. A
// redundant statement is redundant by itself, and all that Lint reports can be removed together. Of
// several statements of which one would do, the first is not reported. Lint does not check the
// single patterns of a statement, several statements that are redundant only together, or the
// overrides of bank policies.
//
// The list is sorted by Pointer and never nil.
func Lint(bundle Bundle, known []string) []Finding {
	l := &linter{bundle: bundle, compiler: policy.NewCompiler()}
	l.rows()
	l.attachments()
	l.owners()
	if known != nil {
		l.actions(append([]string{
			ActionUsersRead, ActionUsersWrite, ActionTemplateAdmin, ActionAuditRead, ActionRecall,
			"bank:memories:list", "bank:memories:get",
		}, known...))
	}
	l.classes()
	slices.SortStableFunc(l.found, func(a, b Finding) int {
		return cmp.Or(
			comparePointers(a.Pointer, b.Pointer), strings.Compare(string(a.Code), string(b.Code)),
			strings.Compare(a.Message, b.Message),
		)
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

// rows finds rows that Apply would refuse.
func (l *linter) rows() {
	c := &checker{compiler: l.compiler, endless: true}
	normal, _ := l.bundle.normalizeWith(c)
	told := map[string]bool{}
	for _, e := range c.errs {
		told[e.Field] = true
		l.refused(e, FindingRow)
	}
	a := newApplication(Bundle{}, normal)
	a.endless = true
	a.checkReferences()
	a.checkChannels()
	for _, e := range a.errs {
		if !told[e.Field] {
			l.refused(e, FindingReference)
		}
	}
}

// refused adds a finding for an error of Apply.
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
	f.Message = e.sentence()
	l.add(f)
}

// attachments finds policies and groups that reach no principal.
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
				Message: "policy " + quote(p.ID) +
					" is attached to no principal and narrows no service account",
			})
		}
	}
	for i, g := range l.bundle.Groups {
		if len(g.Members) == 0 {
			l.add(
				Finding{
					Code: FindingEmptyGroup, Pointer: at("groups", i), Statement: -1,
					Message: "group " + quote(g.ID) + " has no members",
				},
			)
		}
	}
}

// owners finds service accounts whose owners are inactive.
func (l *linter) owners() {
	users := index(l.bundle.Users, User.key)
	for i, a := range l.bundle.ServiceAccounts {
		if users[a.OwnerUserID].Inactive {
			l.add(Finding{
				Code: FindingInactiveOwner, Pointer: at("service_accounts", i) + "/owner_user_id",
				Statement: -1, Principal: Identity{KindServiceAccount, a.ID},
				Message: "service account " + quote(a.ID) + " is denied everything: its owner " +
					quote(a.OwnerUserID) + " is inactive",
			})
		}
	}
}

// at returns the pointer to a row.
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
			if !slices.ContainsFunc(known, func(action string) bool {
				return policy.MatchAction(p, action)
			}) {
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
		f := Finding{
			Pointer: at("bank_policies", i) + "/document/public_access", Bank: b.BankID,
			Statement: -1,
		}
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

// classes finds what only a check of every class of requests can show.
func (l *linter) classes() {
	r := l.everybodyActive()
	found := l.compiler.Lint(r.census(nil))
	policies := positions(l.bundle.Policies, Policy.key)
	accounts := positions(l.bundle.ServiceAccounts, ServiceAccount.key)
	for _, n := range found.Needless {
		f := Finding{
			Code: FindingNeedless, Pointer: statementAt(policies[n.Policy], n.Statement),
			Policy: n.Policy, Statement: n.Statement,
		}
		f.Message = fmt.Sprintf(
			"statement %d of policy %q is redundant: removing it changes no decision",
			n.Statement, n.Policy,
		)
		if n.Shadowed {
			f.Code = FindingShadowed
			f.Message = fmt.Sprintf(
				"statement %d of policy %q allows nothing: "+
					"all that it covers is denied to every principal that has it",
				n.Statement, n.Policy,
			)
		}
		l.add(f)
	}
	for _, t := range found.Ties {
		l.add(Finding{
			Code: FindingTie, Policy: t.Policy, Statement: t.Statement,
			Pointer:   statementAt(policies[t.Policy], t.Statement) + "/" + t.Parameter,
			Principal: Identity{KindUser, t.Member.ID},
			Message: fmt.Sprintf("for user %q, %s of %q on bank %q comes from statement %d "+
				"of policy %q instead of this one only because of the policies' ids",
				t.Member.ID, t.Parameter, t.Action, t.Bank, t.WinnerStatement, t.Winner),
		})
	}
	for _, m := range found.Unscoped {
		account, _ := find(r.ServiceAccounts, m.ID, ServiceAccount.key)
		l.add(Finding{
			Code: FindingIdleScoping, Policy: account.ScopingPolicyID, Statement: -1,
			Pointer:   at("service_accounts", accounts[m.ID]) + "/scoping_policy_id",
			Principal: Identity{KindServiceAccount, m.ID},
			Message: fmt.Sprintf("the scoping policy %q takes nothing away "+
				"from service account %q", account.ScopingPolicyID, m.ID),
		})
	}
}

// everybodyActive returns the bundle's rows with every principal active. Of two rows with one id,
// the first counts.
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
	return noRows.under(b)
}

// positions returns the index of each row. Of two rows with one key, the first counts.
func positions[R any](rows []R, key func(R) string) map[string]int {
	at := map[string]int{}
	for i, row := range slices.Backward(rows) {
		at[key(row)] = i
	}
	return at
}
