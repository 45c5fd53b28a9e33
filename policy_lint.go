package svc

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/accessindex"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/text"
)

// Finding is a possible mistake in a bundle. With a Policy and a Principal, it is about the policy
// as that principal has it.
type Finding struct {
	Code     FindingCode
	Severity Severity
	// Pointer is the place: a JSON pointer (RFC 6901) into the bundle and its [Bundle.JSON], such
	// as "/policies/0/document/statements/1".
	Pointer   string
	Policy    string   // the id of the policy concerned; "": none
	Statement int      // an index into the statements of Policy, from 0; -1: no single one
	Bank      string   // the id of the bank whose policy is concerned; "": none
	Principal Identity // the one concerned, or an example; zero: none
	Message   string   // for a person; its wording may change; quotes ids and patterns
}

// FindingCode is a kind of finding. Codes are stable: programs may rely on them. New ones may
// follow.
type FindingCode string

// The codes of findings.
const (
	// Apply would refuse the row: a bad id, a key that appears twice, a text that is too long, or a
	// channel of two users.
	FindingRow FindingCode = "row_invalid"
	// A policy or bank policy does not parse: it denies everything to the holders of the policy, or
	// to all on the bank.
	FindingDocument FindingCode = "document_invalid"
	// A row names another row that is not in the bundle: a member, or a policy or principal of an
	// attachment. Apply would accept it when the store has that row.
	FindingReference FindingCode = "reference_missing"
	// The policy that narrows a service account is not in the bundle: the account is denied
	// everything.
	FindingScoping FindingCode = "scoping_missing"
	// The owner of a service account is not in the bundle: the account is denied everything.
	FindingOwner FindingCode = "owner_missing"
	// A warning: the owner of a service account is inactive, so the account is denied everything.
	FindingInactiveOwner FindingCode = "owner_inactive"
	// The policy that narrows a service account leaves it all that its owner has.
	FindingIdleScoping FindingCode = "scoping_idle"
	// A policy is attached to nothing and narrows no service account. It may narrow keys, which are
	// not in a bundle.
	FindingUnattached FindingCode = "policy_unattached"
	FindingEmptyGroup FindingCode = "group_empty" // a group has no members: it passes on no policy
	// Ids of one list differ only in case, in spaces at an end, in Unicode's normal form, or in
	// letters that look the same.
	FindingAlike         FindingCode = "ids_alike"
	FindingUnknownAction FindingCode = "action_unknown" // an action pattern covers no known action
	// A statement is redundant: removing it changes no decision, and no parameter of one.
	FindingNeedless FindingCode = "statement_needless"
	// A redundant allow: everything that it covers is denied to its holders.
	FindingShadowed FindingCode = "statement_shadowed"
	FindingTurned   FindingCode = "test_turned" // a test has another answer
	// Only the ids of two policies decide which of their values is in force. Principal is the first
	// user with it; a priority settles it.
	FindingTie FindingCode = "tie"
)

// Severity is how much a [Finding] matters, by its Code. Treat one that is not known as a warning.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // Apply would refuse it
	SeverityWarning Severity = "warning" // it works, but may be a mistake
)

// Lint finds mistakes, redundant rows and accidental results in a bundle, which is the whole state
// of access. known are the actions that the host asks about, in addition to [action.All] and those
// of [action.Recall]: a pattern that covers none of them is reported. Nil: no pattern is reported
// as unknown. Built-in policies exist, also where the bundle does not have them, and have no
// findings.
//
// Each finding is exact, for every class of requests that the policies distinguish, and for every
// holder. Inactive principals count as active; principals with a policy that does not parse are
// skipped. All that Lint reports as redundant can be removed together. Of several statements of
// which one would do, the first is not reported. Lint does not check the single patterns of a
// statement, several statements that are redundant only together, or the overrides of bank
// policies.
//
// Lint needs no store and no rights. It may be called concurrently, and cannot be stopped. When the
// check of every class of requests would take more than about half a minute, one finding with the
// code too_complex replaces those of scoping_idle, statement_needless, statement_shadowed and tie.
// The list is sorted by Pointer, with numbers by their value, and never nil; [limits.Errors] does
// not hold here. The parameters are those of AI memory; [Policies.Lint] is for those of a Service.
func Lint(bundle Bundle, known []string) []Finding {
	return lint(policy.NewCompiler(policy.Memory).Apart(nil), bundle, known)
}

// Lint is the function [Lint] for documents with the Service's parameters.
func (s *Policies) Lint(bundle Bundle, known []string) []Finding {
	return lint(policy.NewCompiler(s.compiler.Schema()).Apart(nil), bundle, known)
}

func lint(compiler *policy.Compiler, bundle Bundle, known []string) []Finding {
	compiler.Limit(diffSteps)
	l := &linter{bundle: bundle.withBuiltins(nil), compiler: compiler}
	l.rows()
	l.attachments()
	l.owners()
	l.lookAlikes()
	if known != nil { // action.Recall as a pattern covers the two behind it
		own := append(action.All(), action.Recall, "bank:memories:list", "bank:memories:get")
		l.actions(append(own, known...))
	}
	l.classes()
	l.tests()
	added := at("policies", len(bundle.Policies))
	l.found = slices.DeleteFunc(l.found, func(f *Finding) bool {
		return strings.HasPrefix(f.Pointer, "/policies/") && comparePointers(f.Pointer, added) >= 0
	})
	// Two findings of one place are sorted by code and message, so the order is always the same.
	slices.SortStableFunc(l.found, func(a, b *Finding) int {
		return cmp.Or(
			comparePointers(a.Pointer, b.Pointer), strings.Compare(string(a.Code), string(b.Code)),
			strings.Compare(a.Message, b.Message),
		)
	})
	findings := make([]Finding, len(l.found))
	for i, f := range l.found {
		findings[i] = *f
	}
	return findings
}

// linter collects the findings of one call of Lint. It keeps the bundle as it was given, because
// pointers and messages are about that and not about its normalized form. Built-in policies are
// added at the end, without findings. One goroutine uses it, once.
type linter struct {
	bundle   Bundle           // as it was given, with the built-in policies that it refers to
	compiler *policy.Compiler // its own: it remembers documents of this call only
	found    []*Finding       // pointers are cheaper to sort
}

// add adds a finding. Its severity follows from its code: an error is what Apply refuses.
func (l *linter) add(f Finding) {
	f.Severity = SeverityWarning
	switch f.Code {
	case FindingRow, FindingDocument, FindingReference, FindingScoping, FindingOwner:
		f.Severity = SeverityError
	}
	l.found = append(l.found, &f)
}

// rows finds rows that Apply would refuse. It uses Apply's own checks, so that the two agree.
// endless lifts their limit. A place with a fault of form gets no second finding for its reference:
// a bad id names no row either way.
func (l *linter) rows() {
	c := &checker{compiler: l.compiler, endless: true}
	normal, _ := l.bundle.normalize(c)
	// told has the places with a fault of form.
	told := map[string]bool{}
	for _, e := range c.errs {
		told[e.Field] = true
		l.refused(e, FindingRow)
	}
	// The bundle is the whole state: no row of a store can complete it.
	a := newBundleDiff(l.compiler.Schema(), Bundle{}, normal)
	a.endless = true
	a.checkSizes()
	a.checkReferences()
	a.checkChannels()
	for _, e := range a.errs {
		if !told[e.Field] {
			l.refused(e, FindingReference)
		}
	}
}

// refused adds a finding for an error of Apply. It reads the row from the error's pointer, which
// always has the form /list/index or is longer. A channel of another user is a fault of the row,
// and no missing reference.
func (l *linter) refused(e *Error, code FindingCode) {
	tokens := strings.Split(e.Field, "/")[1:]
	// Each error of Apply is about a row, so the second token is always an index.
	i, _ := strconv.Atoi(tokens[1])
	f := l.about(tokens[0], i)
	f.Code, f.Pointer = code, e.Field
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

// about returns a finding about a row of a list, still without a code.
func (l *linter) about(list string, i int) Finding {
	f := Finding{Pointer: at(list, i), Statement: -1}
	switch list {
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
	return f
}

// report adds a finding about a row of a list.
func (l *linter) report(code FindingCode, list string, i int, message string) {
	f := l.about(list, i)
	f.Code, f.Message = code, message
	l.add(f)
}

// attachments finds policies and groups that reach no principal. Bank policies have no attachments:
// a bank is found by its id. A missing policy or group is a finding of rows. It looks at names
// only: a policy that is attached to an empty group counts as attached, and the group has the
// finding.
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
			l.report(FindingUnattached, "policies", i, "policy "+quote(p.ID)+
				" is attached to no principal and narrows no service account")
		}
	}
	for i, g := range l.bundle.Groups {
		if len(g.Members) == 0 {
			l.report(FindingEmptyGroup, "groups", i, "group "+quote(g.ID)+" has no members")
		}
	}
}

// lookAlikes finds ids that a person may take for another one of the same list.
func (l *linter) lookAlikes() {
	first := map[string]string{}
	add := func(list, noun string, i int, id string) {
		of := list + "/" + text.Skeleton(id)
		if other, known := first[of]; known && other != id {
			l.report(FindingAlike, list, i,
				noun+" "+quote(id)+" looks like "+noun+" "+quote(other))
		} else {
			first[of] = id
		}
	}
	for i, u := range l.bundle.Users {
		add("users", "user", i, u.ID)
	}
	for i, g := range l.bundle.Groups {
		add("groups", "group", i, g.ID)
	}
	for i, a := range l.bundle.ServiceAccounts {
		add("service_accounts", "service account", i, a.ID)
	}
	for i, p := range l.bundle.Policies {
		add("policies", "policy", i, p.ID)
	}
	for i, p := range l.bundle.BankPolicies {
		add("bank_policies", "bank", i, p.BankID)
	}
}

// owners finds service accounts whose owners are inactive. An owner that is missing is a finding of
// rows.
func (l *linter) owners() {
	users := lists.Index(l.bundle.Users, User.key)
	for i, a := range l.bundle.ServiceAccounts {
		if owner, _ := was(users, a.OwnerUserID); owner.Inactive {
			f := l.about("service_accounts", i)
			f.Code, f.Pointer = FindingInactiveOwner, f.Pointer+"/owner_user_id"
			f.Message = "service account " + quote(a.ID) + " is denied everything: its owner " +
				quote(a.OwnerUserID) + " is inactive"
			l.add(f)
		}
	}
}

// tests finds tests whose answer is not the expected one.
func (l *linter) tests() {
	if len(l.bundle.Tests) == 0 {
		return
	}
	rows, senders := indexed(l.compiler.Schema(), l.bundle), sendersAfter(l.bundle.Users, nil)
	for i, t := range l.bundle.Tests {
		var c checker
		if t.normalize(&c, ""); !c.ok() { // a finding of rows
			continue
		}
		turned, err := testRun{[]AccessTest{t}, senders}.turned(l.compiler, rows)
		if err == nil && len(turned) > 0 {
			l.report(FindingTurned, "tests", i, "the answer is not the expected one")
		}
	}
}

// at returns the pointer to a row. list is the name of the list in the JSON form of a bundle.
func at(list string, i int) string { return "/" + list + "/" + strconv.Itoa(i) }

// comparePointers orders numbers by their value, so that row 10 follows row 9. It compares the
// parts of a pointer one by one. A number and a text are compared as texts.
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

// actions finds patterns that cover no known action, in access policies and in the public access of
// banks. Documents that do not parse are skipped: rows reports them. A pattern that covers only
// actions that nobody asks for is probably misspelled. One known action is enough for a pattern.
func (l *linter) actions(known []string) {
	// f is the place so far, to which check adds the pattern.
	check := func(f Finding, patterns []string) {
		for i, p := range patterns {
			covers := func(action string) bool { return policy.MatchAction(p, action) }
			if !slices.ContainsFunc(known, covers) {
				f := f
				f.Code, f.Pointer = FindingUnknownAction, f.Pointer+"/actions/"+strconv.Itoa(i)
				f.Message = "the action pattern " + quote(p) + " covers no known action"
				l.add(f)
			}
		}
	}
	for i, p := range l.bundle.Policies {
		if document, err := l.compiler.Schema().ParseDocument(p.Document); err == nil {
			for n, st := range document.Statements {
				check(Finding{Pointer: statementAt(i, n), Policy: p.ID, Statement: n}, st.Actions)
			}
		}
	}
	for i, b := range l.bundle.BankPolicies {
		document, err := l.compiler.Schema().ParseBankDocument(b.Document)
		if err != nil || document.PublicAccess == nil {
			continue
		}
		f := l.about("bank_policies", i)
		public := f.Pointer + "/document/public_access"
		if document.PublicAccess.Default != nil {
			f.Pointer = public + "/default"
			check(f, document.PublicAccess.Default.Actions)
		}
		// Strategies name no actions, so their overrides have nothing to check.
		for n, o := range document.PublicAccess.Overrides {
			f.Pointer = public + "/overrides/" + strconv.Itoa(n)
			check(f, o.Actions)
		}
	}
}

// statementAt returns the pointer to a statement of a policy, both by index.
func statementAt(policy, statement int) string {
	return at("policies", policy) + "/document/statements/" + strconv.Itoa(statement)
}

// classes finds what only a check of every class of requests can show. It groups principals by
// their policies, so its cost follows the different sets of policies and not the number of
// principals. Its findings name rows by id: the first row with that id is meant, as in
// everybodyActive. Ties concern users only: a service account has those of its owner.
func (l *linter) classes() {
	r := l.everybodyActive()
	parties := r.Parties()
	l.compiler.Gathers(2 * r.Reaching(parties))
	found := l.compiler.Lint(census(l.compiler, r, parties))
	if l.compiler.Err() != nil {
		l.add(Finding{
			Code: FindingCode(CodeTooComplex), Statement: -1,
			Message: "there is too much to check for redundant statements, idle scoping and ties",
		})
		return
	}
	policies := positions(l.bundle.Policies, Policy.key)
	accounts := positions(l.bundle.ServiceAccounts, ServiceAccount.key)
	for _, n := range found.Needless {
		code, problem := FindingNeedless, "is redundant: removing it changes no decision"
		if n.Shadowed {
			code, problem = FindingShadowed,
				"allows nothing: all that it covers is denied to every principal that has it"
		}
		l.add(Finding{
			Code: code, Pointer: statementAt(policies[n.Policy], n.Statement),
			Policy: n.Policy, Statement: n.Statement,
			Message: fmt.Sprintf("statement %d of policy %q %s", n.Statement, n.Policy, problem),
		})
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
		account, _ := r.Account(m.ID)
		l.add(Finding{
			Code: FindingIdleScoping, Policy: account.Scoping, Statement: -1,
			Pointer:   at("service_accounts", accounts[m.ID]) + "/scoping_policy_id",
			Principal: Identity{KindServiceAccount, m.ID},
			Message: fmt.Sprintf("the scoping policy %q takes nothing away "+
				"from service account %q", account.Scoping, m.ID),
		})
	}
}

// everybodyActive returns the bundle's rows with every principal active: a right that rests today
// has to be right when its holder is active again. Of two rows with one id, the first counts. The
// caller's bundle stays as it is.
func (l *linter) everybodyActive() *accessindex.Index {
	b := l.bundle
	for _, k := range kinds {
		k.firsts(&b)
	}
	for i := range b.Users {
		b.Users[i].Inactive = false
	}
	for i := range b.ServiceAccounts {
		b.ServiceAccounts[i].Inactive = false
	}
	return indexed(l.compiler.Schema(), b)
}

// positions returns the index of each row. Of two rows with one key, the first counts, so it goes
// backward.
func positions[R any](rows []R, key func(R) string) map[string]int {
	at := map[string]int{}
	for i, row := range slices.Backward(rows) {
		at[key(row)] = i
	}
	return at
}

func (k *kind[R, K]) firsts(b *Bundle) {
	rows, seen := k.rows(b), map[K]bool{}
	*rows = slices.DeleteFunc(slices.Clone(*rows), func(row R) bool {
		again := seen[row.key()]
		seen[row.key()] = true
		return again
	})
}
