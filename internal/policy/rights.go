package policy

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/extsvc/svc/internal/cache"
)

// Rights are what a subject may do. They cannot be changed and are safe for concurrent use. Use [Compiler.Compile].
type Rights struct {
	compiler       *Compiler
	table          *table // nil: an unmapped sender has only what banks give to everybody
	serviceAccount string
	closed         *verdict // nil: open
}

// table is the statements of equal subjects.
type table struct {
	id             uint64
	holder         string  // whose the grants are, in words
	sides          [][]way // the grants, in gathering order, and then each policy that narrows them, by itself: Scoping before Narrowing
	actions, banks *classes
	statements     int
	share          *cache.Share
}

// trace returns an empty trace with room for what the statements and the bank's policy come to.
func (t *table) trace() []Entry {
	if t == nil {
		return []Entry{}
	}
	return make([]Entry, 0, t.statements+2)
}

// closed is the verdict on everything that a subject asks for which is closed; nil for "".
func closed(reason string) *verdict {
	if reason == "" {
		return nil
	}
	return &verdict{outcome: ImplicitDeny, reason: because(reason), final: true}
}

// Decide decides a request. A matching deny wins over any allow; without a matching allow the answer is no. It takes time linear
// in the length of the request's strings, whatever the number of policies, once a request of their class was decided before.
func (r *Rights) Decide(action, bank string, in *Context, policy *Bank) Decision {
	v := r.closed
	switch {
	case v != nil:
	case r.table == nil:
		v = policy.public(action, in)
	default:
		v = policy.and(r.verdict(action, bank))
	}
	return Decision{v, v.strategy(in, policy), action, bank}
}

// Note notes the policy of a bank beside the answer to a request that was just decided, for Again, as it is at a moment: a number that the
// caller never gives to another state of it, and not 0.
func (r *Rights) Note(action, bank string, policy *Bank, moment uint64) {
	if r.closed != nil || r.table == nil {
		return
	}
	hash := r.hash(action, bank)
	if a := r.compiler.asked.get(hash, r.table.id, action, bank); a != nil {
		noted := *a
		noted.policy, noted.moment = policy, moment
		r.compiler.asked.replace(hash, a, &noted)
	}
}

// Again sets d to what Decide returns, with the policy of the bank that was noted at that moment. false: none was, or it is forgotten.
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
	return true
}

// strategy is the retain strategy in force: where an allow brings none of its own, the bank has its say.
func (v *verdict) strategy(in *Context, policy *Bank) *string {
	if v.outcome != Allow || policy == nil || v.parameters.RetainStrategy != nil {
		return v.parameters.RetainStrategy // nil in a denial
	}
	strategy, _ := policy.strategy(in)
	return strategy
}

// verdict returns what the subject's policies say.
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

// ofClass returns what they say of all requests of the classes that its strings are in.
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

// Explain decides a request as Decide does, and says what each statement came to. The result is the caller's own.
func (r *Rights) Explain(q Request) Result {
	rec := &recorder{request: &q, serviceAccount: r.serviceAccount, trace: r.table.trace(), nothing: map[string]string{}}
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
	return rec.result(Decision{v, v.strategy(&q.Context, q.Policy), q.Action, q.Bank}, q.Policy)
}

// Opened returns the rights that the subject has when nothing closes it.
func (r *Rights) Opened() *Rights {
	open := *r
	open.closed = nil
	return &open
}

// judge decides what the policies say, and tells the recorder, which may be nil, what each statement came to.
func (t *table) judge(action, bank string, rec *recorder) *verdict {
	sides := make([]*side, len(t.sides))
	for i, ways := range t.sides {
		sides[i] = examine(ways, action, bank, rec)
	}
	r := rule(sides)
	v := &verdict{outcome: r.outcome, final: r.cause == documentBroken}
	switch of := sides[r.side]; r.cause {
	case statementDenies:
		v.reason = because("denied by " + of.denied.String())
	case documentBroken:
		v.reason = because(fmt.Sprintf("denied: %s is not valid: %v", of.broken.words, of.broken.fault))
	case sideSilent:
		v.reason = lacking(t.silence(r.side))
	case allAllow:
		v.parameters, v.reason = narrowed(sides), because(allowance(sides))
	}
	return v
}

// allowance is the reason of an allow: the first statement of each side that allows.
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

// silence says of a side that it does not allow something.
func (t *table) silence(side int) string {
	if side == 0 {
		return "no policy of " + t.holder + " allows"
	}
	return t.sides[side][0].words + " does not allow"
}

// ruling is what comes of what all sides say.
type ruling struct {
	outcome Outcome
	cause   cause
	side    int // the first that it comes of
}

// cause is why something is decided.
type cause int

const (
	statementDenies cause = iota
	documentBroken
	sideSilent
	allAllow
)

// rule decides what comes of what the sides say: what one denies is denied, and what is allowed all have to allow.
func rule(sides []*side) ruling {
	if i := slices.IndexFunc(sides, (*side).denies); i >= 0 {
		return ruling{ExplicitDeny, statementDenies, i}
	}
	if i := slices.IndexFunc(sides, (*side).isBroken); i >= 0 {
		return ruling{ImplicitDeny, documentBroken, i}
	}
	if i := slices.IndexFunc(sides, (*side).isSilent); i >= 0 {
		return ruling{ImplicitDeny, sideSilent, i}
	}
	return ruling{Allow, allAllow, 0}
}

// lacking is the reason of a denial because there is no allow.
func lacking(words string) func(action, bank string) string {
	return func(action, bank string) string { return fmt.Sprintf("denied: %s %q on bank %q", words, action, bank) }
}
