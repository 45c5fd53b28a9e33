package svc

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/extsvc/svc/internal/policy"
)

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
