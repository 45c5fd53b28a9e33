package svc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/accessindex"
	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/limits"
)

// WhoCanAnswer lists the principals that may do something, and why. The caller owns it. Its lists
// are never nil. A bank whose own policy does not parse is closed: then all are empty.
type WhoCanAnswer struct {
	Users           []string // ids of active users, sorted byte by byte
	ServiceAccounts []string // ids of active ones with an active owner, sorted byte by byte
	Public          PublicReach
	Statements      []StatementRef // all that match, allows and denies, by policy, then statement
	Revision        string         // of the store's state: equal revisions give equal answers
}

// PublicReach says whether unmapped senders are allowed. The most specific override that matches
// the context decides (topic over channel over provider), else Default. A bank without public
// access has neither.
type PublicReach struct {
	Default   bool                  // whether they are allowed where no override matches
	Overrides []PublicOverrideReach // in the order of the bank policy; never nil
}

// PublicOverrideReach says whether unmapped senders are allowed where one override of public access
// is in force. It replaces the default: without the action, it denies.
type PublicOverrideReach struct {
	Scope   string // "provider", "channel" or "topic"
	Value   string
	Allowed bool
}

// StatementRef is a statement of a policy that an active principal has. A deny is cited as well,
// and so is an allow that a deny overrides.
type StatementRef struct {
	PolicyID  string
	Statement int // its index in the document, from 0
	Effect    Effect
}

// Capability is how some requests are decided: see [Policies.WhatCan]. A closer element of its list
// may decide otherwise.
type Capability struct {
	Action, Bank string // patterns; read as strings, a request that this element decides
	Outcome      Outcome
	Parameters   Parameters // zero in a denial; the elements of a list share their pointers
}

// Parameter returns one parameter, as [Parameters.Value] does.
func (c Capability) Parameter(name string) (value any, ok bool) { return c.Parameters.Value(name) }

// WhoCan returns every principal that may do an action ("" means [action.Recall]) on a bank:
// exactly the active users and service accounts that [Service.Decide] allows it, and the contexts
// in which it allows it to unmapped senders. Policies that narrow single keys do not count. A user
// without a row is in no list.
//
// The first call reads all rows of access and caches what decisions need of them, up to
// [Memory].Access; above that, each call reads them all. Later calls read what has changed. The
// rows are as fresh as the cache of Decide.
func (s *Policies) WhoCan(
	ctx context.Context, by Principal, allowed, bank string,
) (WhoCanAnswer, error) {
	var c checker
	allowed = cmp.Or(allowed, action.Recall)
	c.action(allowed)
	c.foreign("bank", bank)
	if err := c.err(); err != nil {
		return WhoCanAnswer{}, err
	}
	if err := s.authorize(ctx, by, action.UsersRead); err != nil {
		return WhoCanAnswer{}, err
	}
	var found accessindex.WhoCan
	var revision string
	err := s.look(ctx, 0, func(all *accessRows) {
		found, revision = all.WhoCan(allowed, bank), strconv.FormatInt(all.at, 10)
	})
	if err != nil {
		return WhoCanAnswer{}, err
	}
	cited := lists.Map(found.Statements, func(c accessindex.StatementRef) StatementRef {
		return StatementRef{c.Policy, c.Statement, Effect(c.Effect)}
	})
	return WhoCanAnswer{
		found.Users, found.ServiceAccounts, publicReach(found.Public), cited, revision,
	}, nil
}

// publicReach returns the public form. The caller owns it, because nothing of it is cached.
func publicReach(found policy.PublicReach) PublicReach {
	reach := PublicReach{found.Default, make([]PublicOverrideReach, len(found.Overrides))}
	for i, o := range found.Overrides {
		reach.Overrides[i] = PublicOverrideReach{string(o.Scope), o.Value, o.Allowed}
	}
	return reach
}

// WhatCan returns all that a user or a service account may do, or the caller ([Me]) as its key
// narrows it. For every request, either an element says how [Service.Decide] decides it, or it is
// an ImplicitDeny. The list is sorted, as short as possible, and never nil. For an unknown or
// inactive principal it is empty.
//
// An element covers a request as a statement with its patterns does. Of two elements that cover it,
// one is closer when neither of its patterns is less close than the other's. A literal is closer
// than a prefix, and a longer prefix is closer than a shorter one. The action itself is closer than
// "bank:recall" where that stands for the other actions that it covers. An element decides when no
// other is closer; several such elements say the same.
//
// A bank whose own policy does not parse is in the list as a denial, unless its id ends in an
// asterisk and so reads like a pattern. The elements share what their Parameters point to.
//
// WhatCan checks every pair of an action pattern and a bank pattern. It stops when ctx ends. A list
// of more than [limits.Capabilities], or of megabytes, is CodeTooComplex, and so is one that takes
// more than about a second.
func (s *Policies) WhatCan(ctx context.Context, by Principal, who Identity) ([]Capability, error) {
	var c checker
	switch who.Kind {
	case kindMe:
	case KindUser:
		c.id("user_id", who.ID)
	case KindServiceAccount:
		c.id("sa_id", who.ID)
	default:
		c.add("user_id", "must be that of a user or of a service account")
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	narrowedBy := ""
	if who == Me {
		who, narrowedBy = by.Identity(), by.ScopingPolicyID
		if err := authorizeSelf(by); err != nil {
			return nil, err
		}
	} else if err := s.authorize(ctx, by, action.UsersRead); err != nil {
		return nil, err
	}
	var subject policy.Subject
	var shut []string
	err := s.look(ctx, 0, func(all *accessRows) {
		subject, shut = subjectIn(all.Index, who, narrowedBy), all.Shut()
	})
	if err != nil {
		return nil, err
	}
	leave, err := s.analyse(ctx, by)
	if err != nil {
		return nil, fault("list what a principal can do", err)
	}
	defer leave()
	found, err := s.compiler.Apart(ctx).Compile(subject).Capabilities(shut)
	if err != nil {
		return nil, fault("list what a principal can do", err)
	}
	list := make([]Capability, len(found))
	for i, c := range found {
		parameters := parametersOf(s.compiler.Schema(), c.Parameters, false)
		list[i] = Capability{c.Action, c.Bank, Outcome(c.Outcome), parameters}
	}
	return list, nil
}

// Simulate answers a question as [Policies.Resolve] would after a bundle is applied. It writes
// nothing and keeps nothing of the bundle, whose rows it checks only after by is authorized. The
// stored rows come from the cache of WhoCan. If the bundle would change something, the Revision
// ends in "+simulated". To take a bundle from a caller, parse it with [ParseBundleWithin].
//
// Errors: those of Resolve, those of [Access.Apply] about the bundle, and CodeInvalid when more
// than [limits.SimulatedStatements] reach the subject.
func (s *Policies) Simulate(
	ctx context.Context, by Principal, overlay Bundle, q Question,
) (Resolution, error) {
	asked, wrong := q.check()
	if q.Me {
		wrong = errors.Join(wrong,
			Invalid("user_id", "is required: a simulation names its subject"))
	}
	if err := s.authorize(ctx, by, action.UsersRead); err != nil {
		return Resolution{}, cmp.Or(wrong, err)
	}
	leave, err := s.analyse(ctx, by)
	if err != nil {
		return Resolution{}, fault("simulate", err)
	}
	defer leave()
	compiler := s.compiler.Apart(ctx)
	after, changed, err := s.simulated(ctx, by, compiler, overlay, asked, wrong)
	if err = cmp.Or(err, fault("simulate", compiler.Err())); err != nil {
		return Resolution{}, err
	}
	r, err := resolve(compiler, after, asked, q, limits.SimulatedStatements)
	if err != nil {
		return Resolution{}, err
	}
	r.BankPolicy = slices.Clone(r.BankPolicy)
	if changed {
		r.Revision += "+simulated"
	}
	return r, nil
}

// AccessDiff is the difference in what all principals may do. Lists without elements are nil.
//
// It has every difference in an answer of [Service.Decide]: whether it allows, its parameters, its
// strategy. Its parts about principals and the public do differ. A change from one kind of denial
// to another does not count, although only an implicit denial gives way to what a host vouches for.
// A bank whose own policy does not parse counts as denied, unless its id ends in an asterisk.
type AccessDiff struct {
	Principals []PrincipalsDiff // by the first principal: users before service accounts, then by id
	Public     []PublicDiff     // by bank, then context
	Strategies []StrategyDiff   // likewise
	// Omitted counts the differences beyond [limits.Differences], and those whose patterns and
	// parameters would take more than a megabyte. Not 0: the lists, and their exceptions
	// ([Unchanged]), are incomplete.
	Omitted int
	// Turned are the kept tests, and those of the bundle, with another answer than expected after
	// the write, by ID. [Diff] asks those of the bundle after.
	Turned   []AccessTest
	Revision string // that of the rows before, for [BundleWrite]; only Access.Preview sets it
}

// PrincipalsDiff is the difference for principals that have equal policies, before and after: the
// answers of each differ in this way.
type PrincipalsDiff struct {
	Principals  []Identity   // users before service accounts, then by id
	Differences []Difference // not empty; read it as a list of WhatCan
}

// Difference is how the answer to some requests changes: those that its patterns cover and that no
// closer element of its list covers, as with a [Capability]. The answer to all other requests is
// unchanged. Its patterns, read as strings, are a request with such a change.
type Difference struct {
	Action, Bank string // patterns
	Change       ChangeKind
	// Before and After are zero where denied or unchanged. The elements of a list share what they
	// point to.
	Before, After Parameters
}

// ChangeKind is the kind of a [Difference].
type ChangeKind string

// The kinds of changes.
const (
	NewlyAllowed    ChangeKind = "newly_allowed"    // denied before; Before is zero
	NewlyDenied     ChangeKind = "newly_denied"     // denied after; After is zero
	OtherParameters ChangeKind = "other_parameters" // allowed before and after
	Unchanged       ChangeKind = "unchanged"        // a closer pattern without a change
)

// PublicDiff is the difference for unmapped senders on one bank. Its Context stands for all that
// differ from it only in values that no override names, or that a more specific override hides.
type PublicDiff struct {
	Bank        string
	Context     Context
	Differences []Difference // their Bank is this one
}

// StrategyDiff is a change of a bank's own strategy, for principals that are allowed and have no
// own strategy.
type StrategyDiff struct {
	Bank          string
	Context       Context // as in a [PublicDiff]
	Before, After *string // nil: no strategy
}

// Diff compares what all principals may do under two bundles, each the whole state of access. A
// principal that is in only one bundle is denied everything by the other. Diff needs no store and
// no rights, and cannot be stopped. It may be called concurrently. A comparison of more than about
// half a minute, or of more than some megabytes for one principal, is CodeTooComplex. The other
// errors are those of [Access.Apply] about a bundle; each Field starts with "/before" or "/after".
//
// The parameters are those of AI memory; [Policies.Diff] is for those of a Service.
func Diff(before, after Bundle) (AccessDiff, error) {
	return diffBundles(policy.NewCompiler(policy.Memory), before, after)
}

// Diff is the function [Diff] for documents with the Service's parameters.
func (s *Policies) Diff(before, after Bundle) (AccessDiff, error) {
	return diffBundles(s.compiler, before, after)
}

func diffBundles(compiler *policy.Compiler, before, after Bundle) (AccessDiff, error) {
	compiler = compiler.Apart(nil)
	compiler.Limit(diffSteps)
	b, _, beforeErr := wholeState(compiler, before)
	a, after, afterErr := wholeState(compiler, after)
	if err := errors.Join(under("/before", beforeErr), under("/after", afterErr)); err != nil {
		return AccessDiff{}, err
	}
	were, are := b.Parties(), a.Parties()
	compiler.Gathers(b.Reaching(were) + a.Reaching(are))
	d, err := diff(compiler, census(compiler, b, were), census(compiler, a, are))
	if err == nil {
		d.Turned, err = testRun{after.Tests, sendersAfter(after.Users, nil)}.turned(compiler, a)
	}
	return d, err
}

// diffSteps is the budget of a [Diff] and a [Lint]: their bundles are often those of a whole
// organization.
const diffSteps = 32 * policy.MaxSteps

// Preview returns what [Access.Write] of a bundle would change in what all principals may do. It
// writes nothing, and by needs only [action.UsersRead]. The stored rows come from the cache of
// [Policies.WhoCan]. It stops when ctx ends. A comparison of more than about a second is
// CodeTooComplex; the other errors are those of Apply. For each processor, one call of Preview,
// [Policies.Simulate], [Policies.WhatCan] or a dry run works at a time. Others wait.
func (s *Access) Preview(
	ctx context.Context, by Principal, bundle Bundle, how BundleWrite,
) (AccessDiff, error) {
	if err := s.authorize(ctx, by, action.UsersRead); err != nil {
		return AccessDiff{}, err
	}
	leave, err := s.analyse(ctx, by)
	if err != nil {
		return AccessDiff{}, fault("compare access", err)
	}
	defer leave()
	now, _, err := s.named(ctx, nil) // first: the comparison must lack none
	if err != nil {
		return AccessDiff{}, err
	}
	compiler := s.compiler.Apart(ctx)
	before, after, turned, err := s.previewed(ctx, by, compiler, bundle, how, now.Tests)
	if err != nil {
		return AccessDiff{}, err
	}
	d, err := diff(compiler, before, after)
	d.Revision, d.Turned = now.Revision(), turned
	return d, err
}

// testRun asks tests of one state of access.
type testRun struct {
	tests   []AccessTest
	senders map[Channel]string // the users who have channels
}

// needs returns the rows that the answers depend on.
func (r testRun) needs() (rows accessindex.Rows) {
	for _, t := range r.tests {
		asked, _ := t.question().check() // it is checked where it is written
		rows.Add(asked.needs(r.senders[asked.Channel]))
	}
	return rows
}

// turned returns the tests with another answer than the expected one, by ID.
func (r testRun) turned(
	compiler *policy.Compiler, rows *accessindex.Index,
) (turned []AccessTest, err error) {
	for _, t := range r.tests {
		asked, _ := t.question().check()
		from := snapshot(rows, asked, r.senders[asked.Channel])
		if !compiler.Gathers(len(from.Grants)) {
			return nil, fault("ask the tests", compiler.Err())
		}
		is, err := resolve(compiler, from, asked, t.question(), limits.SimulatedStatements)
		if err != nil {
			return nil, err
		}
		if (is.Outcome == Allow) != t.Allowed {
			turned = append(turned, t)
		}
	}
	slices.SortFunc(turned, func(a, b AccessTest) int { return strings.Compare(a.ID, b.ID) })
	return turned, nil
}

// senders returns the channels that tests ask about.
func senders(lists ...[]AccessTest) (all []Channel) {
	for _, t := range slices.Concat(lists...) {
		if asked, _ := t.question().check(); asked.Channel != (Channel{}) {
			all = append(all, asked.Channel)
		}
	}
	return all
}

// sendersAfter returns the users who have channels after users are written over those of the store.
func sendersAfter(write, stored []User) map[Channel]string {
	of, seen := map[Channel]string{}, map[string]bool{}
	for _, u := range slices.Concat(write, stored) {
		for _, channel := range u.Channels {
			if !seen[u.ID] {
				of[channel] = u.ID
			}
		}
		seen[u.ID] = true
	}
	return of
}

// normalize checks the question of a test, and sets its ID.
func (t *AccessTest) normalize(c *checker, at string) {
	t.Action = cmp.Or(t.Action, action.Recall)
	isNone := func(subject string) bool { return subject == "" }
	subjects := slices.DeleteFunc([]string{t.UserID, t.ServiceAccountID, t.Sender}, isNone)
	if len(subjects) > 1 {
		c.add(at, "has more than one of user_id, sa_id and sender")
	}
	if t.absent.has(noAnswer) && !t.Allowed {
		c.add(at+"/allowed", "is required")
	}
	_, err := t.question().check()
	for _, e := range Errors(under(at+"/", err)) {
		c.check(e)
	}
	text, _ := json.Marshal(t.question()) // texts always encode
	t.ID, t.absent = jcs.Digest(text)[:32], 0
}

// wholeState returns the rows of a bundle that is the whole state of access, also normalized. A row
// that names a missing row is an error, because no store can supply it.
func wholeState(
	compiler *policy.Compiler, b Bundle,
) (rows *accessindex.Index, normal Bundle, err error) {
	normal, err = b.normalize(&checker{compiler: compiler})
	if err != nil {
		return nil, normal, err
	}
	a := newBundleDiff(compiler.Schema(), Bundle{}, normal)
	a.whole = true
	a.rows()
	return indexed(compiler.Schema(), a.bundle), normal, a.err()
}

// census groups the members of parties that r has by their policies. The first member of a party
// stands for all. The census is incomplete when the call of the compiler ends early: check its Err.
func census(
	compiler *policy.Compiler, r *accessindex.Index, parties [][]policy.Member,
) *policy.Census {
	c := &policy.Census{Banks: r.Banks(), Shut: r.Shut()}
	for _, members := range parties {
		if compiler.Err() != nil {
			break
		}
		first := Identity{Kind(members[0].Kind), members[0].ID}
		_, user := r.User(first.ID)
		_, account := r.Account(first.ID)
		if user && first.Kind == KindUser || account && first.Kind == KindServiceAccount {
			c.Add(func() policy.Subject { return subjectIn(r, first, "") }, members...)
		}
	}
	return c
}

// diff compares two censuses, unless the compiler's call ends early.
func diff(compiler *policy.Compiler, before, after *policy.Census) (AccessDiff, error) {
	found := compiler.Diff(before, after)
	if err := compiler.Err(); err != nil {
		return AccessDiff{}, fault("compare access", err)
	}
	d := AccessDiff{Omitted: found.Omitted}
	for _, p := range found.Parties {
		one := PrincipalsDiff{Differences: accessDifferences(p.Differences, compiler.Schema())}
		for _, m := range p.Members {
			one.Principals = append(one.Principals, Identity{Kind: Kind(m.Kind), ID: m.ID})
		}
		d.Principals = append(d.Principals, one)
	}
	for _, p := range found.Public {
		differences := accessDifferences(p.Differences, compiler.Schema())
		d.Public = append(d.Public, PublicDiff{p.Bank, Context(p.Context), differences})
	}
	for _, c := range found.Strategies {
		changed := StrategyDiff{c.Bank, Context(c.Context), c.Before, c.After}
		d.Strategies = append(d.Strategies, changed)
	}
	return d, nil
}

// accessDifferences returns the public form of a list. Its elements share what their parameters
// point to.
func accessDifferences(found []policy.Difference, schema *policy.Schema) []Difference {
	list := make([]Difference, len(found))
	for i, d := range found {
		before, after := parametersOf(schema, d.Before, false), parametersOf(schema, d.After, false)
		list[i] = Difference{d.Action, d.Bank, ChangeKind(d.Change), before, after}
	}
	return list
}
