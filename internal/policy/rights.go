package policy

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/extsvc/svc/internal/cache"
)

// Rights are what a subject may do. They are immutable and safe for concurrent use. Use
// [Compiler.Compile].
type Rights struct {
	compiler       *Compiler
	table          *table // nil: an unmapped sender, who has only the public access of banks
	serviceAccount string
	closed         *verdict // nil: the subject is not closed
}

// table holds the statements of subjects with equal policies.
type table struct {
	id     uint64
	schema *Schema
	holder string // whose the grants are, in words
	// sides holds first the grants, in gathering order, then each narrowing policy as its own side:
	// Scoping before Narrowing.
	sides          [][]attachedBy
	actions, banks *classes
	statements     int
	share          *cache.Share
}

// trace returns an empty trace with room for the entries of the statements and the bank policy.
func (t *table) trace() []Entry {
	if t == nil {
		return []Entry{}
	}
	return make([]Entry, 0, t.statements+2)
}

// closed returns the verdict on every request of a closed subject. It returns nil for "".
func closed(reason string) *verdict {
	if reason == "" {
		return nil
	}
	return &verdict{outcome: ImplicitDeny, reason: because(reason), final: true}
}

// Shared identifies what subjects with equal policies share.
type Shared table

// Shared returns what the subject shares with others. nil: an unmapped sender, or no rights at all.
func (r *Rights) Shared() *Shared {
	if r == nil {
		return nil
	}
	return (*Shared)(r.table)
}

// Uses reports whether one of the policies, by id, is among those of the subject.
func (s *Shared) Uses(policies map[string]bool) bool {
	if s == nil {
		return false
	}
	uses := func(w attachedBy) bool { return policies[w.policy] }
	return slices.ContainsFunc(s.sides, func(side []attachedBy) bool {
		return slices.ContainsFunc(side, uses)
	})
}

// Decide decides a request. A matching deny wins over any allow; without a matching allow the
// request is denied. Once a request of the same class was decided, the time is linear in the length
// of the request's strings, whatever the number of policies.
func (r *Rights) Decide(action, bank string, in *Context, policy *Bank) Decision {
	v, policy := r.closed, policy.On(action)
	switch {
	case v != nil:
	case r.table == nil:
		v = policy.public(action, in)
	default:
		v = policy.and(r.verdict(action, bank))
	}
	return Decision{v, v.strategy(in, policy), action, bank, r.compiler.schema}
}

// Note stores the policy of a bank with the cached answer to a request that was just decided. Again
// uses it. moment names the state of the policy: a number, not 0, that the caller never uses for
// another state.
func (r *Rights) Note(action, bank string, policy *Bank, moment uint64) {
	if r.closed != nil || r.table == nil {
		return
	}
	hash := r.hash(action, bank)
	if a := r.compiler.asked.get(hash, r.table.id, action, bank); a != nil {
		noted := *a
		noted.policy, noted.moment = policy.On(action), moment
		r.compiler.asked.replace(hash, a, &noted)
	}
}

// Again sets d to what Decide returns with the bank's policy that Note stored for that moment. It
// returns false when there is none, or when it was evicted.
func (r *Rights) Again(d *Decision, action, bank string, in *Context, moment uint64) bool {
	if r.closed != nil || r.table == nil {
		return false
	}
	a := r.compiler.asked.get(r.hash(action, bank), r.table.id, action, bank)
	if a == nil || a.moment != moment {
		return false
	}
	v := a.policy.and(a.verdict)
	d.verdict, d.strategy, d.action, d.bank = v, v.strategy(in, a.policy), action, bank
	d.schema = r.compiler.schema
	return true
}

// strategy returns the retain strategy in force: that of the allow, or else the bank's.
func (v *verdict) strategy(in *Context, policy *Bank) *string {
	if v.outcome != Allow || policy == nil || v.own != nil {
		return v.own // nil in a denial
	}
	strategy, _ := policy.strategy(in)
	return strategy
}

// verdict returns the verdict of the subject's policies on a request.
func (r *Rights) verdict(action, bank string) *verdict {
	asked, hash := r.compiler.asked, r.hash(action, bank)
	if a := asked.get(hash, r.table.id, action, bank); a != nil {
		return a.verdict
	}
	v := r.ofClass(action, bank)
	if len(action)+len(bank) <= keptLength {
		asked.put(hash, newAnswer(r.table.id, action, bank, v))
	}
	return v
}

func (r *Rights) hash(action, bank string) uint64 {
	seed := r.compiler.seed
	return (maphash.String(seed, action)^r.table.id)*odd1 ^ maphash.String(seed, bank)
}

// ofClass returns the verdict on all requests in the classes of these strings.
func (r *Rights) ofClass(action, bank string) *verdict {
	key := cell{r.table.id, r.table.actions.of(action), r.table.banks.of(bank)}
	hash := key.hash()
	v := r.compiler.verdicts.get(hash, key)
	if v == nil {
		v = r.table.judge(action, bank, nil)
		v.share = cache.NewShare(v.size())
		r.compiler.verdicts.put(hash, key, v)
	}
	return v
}

// Explain decides a request as Decide does, and says what effect each statement had. The caller
// owns the result.
func (r *Rights) Explain(q Request) Result {
	q.Policy = q.Policy.On(q.Action)
	rec := &recorder{
		request:        &q,
		schema:         r.compiler.schema,
		serviceAccount: r.serviceAccount,
		trace:          r.table.trace(),
		nothing:        map[string]string{},
	}
	v := r.closed
	switch {
	case r.table != nil:
		said := r.table.judge(q.Action, q.Bank, rec)
		rec.bank(q.Policy)
		if v == nil {
			v = q.Policy.and(said)
		}
	case v == nil:
		v = q.Policy.public(q.Action, &q.Context)
		rec.public(q.Policy)
	}
	d := Decision{v, v.strategy(&q.Context, q.Policy), q.Action, q.Bank, r.compiler.schema}
	return rec.result(d, q.Policy)
}

// Opened returns the rights that the subject would have if it were not closed.
func (r *Rights) Opened() *Rights {
	open := *r
	open.closed = nil
	return &open
}

// judge decides a request by the policies, and records the effect of each statement. rec may be
// nil.
func (t *table) judge(action, bank string, rec *recorder) *verdict {
	sides := make([]*side, len(t.sides))
	for i, ways := range t.sides {
		sides[i] = t.examine(ways, action, bank, rec)
	}
	outcome, by := rule(sides)
	v, of := &verdict{outcome: outcome}, sides[by]
	switch {
	case outcome == Allow:
		v.parameters, v.reason = narrowed(sides), because(allowance(sides))
		v.own = t.schema.strategyOf(v.parameters)
	case outcome == ExplicitDeny:
		v.reason = because("denied by " + of.denied.String())
	case of.isBroken():
		words, fault := of.broken.words(), of.broken.fault
		v.reason = because(fmt.Sprintf("denied: %s is not valid: %v", words, fault))
		v.final = true
	default:
		v.reason = lacking(t.silence(by))
	}
	return v
}

// allowance returns the reason of an allow: the first statement of each side that allows.
func allowance(sides []*side) string {
	words := "allowed by " + sides[0].allowed.String()
	for i, s := range sides[1:] {
		joint := ", within "
		if i > 0 {
			joint = " and "
		}
		words += joint + s.allowed.String()
	}
	return words
}

// silence returns the words for a side that does not allow a request.
func (t *table) silence(side int) string {
	if side == 0 {
		return "no policy of " + t.holder + " allows"
	}
	return t.sides[side][0].words() + " does not allow"
}

// rule combines the sides. If one side denies, the request is denied. To be allowed, all sides must
// allow it. It returns the first side that makes the request denied, or 0.
func rule(sides []*side) (outcome Outcome, by int) {
	if by = slices.IndexFunc(sides, (*side).denies); by >= 0 {
		return ExplicitDeny, by
	}
	if by = slices.IndexFunc(sides, (*side).isBroken); by >= 0 {
		return ImplicitDeny, by
	}
	if by = slices.IndexFunc(sides, (*side).isSilent); by >= 0 {
		return ImplicitDeny, by
	}
	return Allow, 0
}

// lacking returns the reason of a denial for lack of an allow.
func lacking(words string) func(action, bank string) string {
	return func(action, bank string) string {
		return fmt.Sprintf("denied: %s %q on bank %q", words, action, bank)
	}
}
