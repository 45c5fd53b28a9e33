package policytest

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/policy"
)

// Before a release, and after a change of the engine: -writes 10000000.
var writes = flag.Int("writes", 0, "how many random writes Exceeds is asked about; 0: 100,000 in CI, else 30,000; 10,000 with -short or -race")

// The reference asks for every request there is. It knows few patterns, so these requests stand for all.
var (
	askedActions = append(slices.Clone(excessActions),
		"bank:x", "bank:memories:x", "bank:memories:get", "bank:retain:x", ":x", "iam:x", "iam:users:x", "template:x", "x", "iam", "")
	askedBanks    = []string{"*", "a::*", "a::b::*", "a::b", "a", "b", "a::x", "a::b::x", "a::b::c", "c", "x", "a::**", "**"}
	askedContexts = allContexts([]string{"slack", "teams", "x"}, []string{"general", "x"}, []string{"news", "x"})
)

func allContexts(providers, channels, topics []string) (all []policy.Context) {
	for _, provider := range providers {
		for _, channel := range channels {
			for _, topic := range topics {
				all = append(all, policy.Context{Provider: provider, Channel: channel, Topic: topic})
			}
		}
	}
	return all
}

// fairness holds the rules of what exceeds, one function each, so that a test can break one.
type fairness struct {
	*rules
	blind    func(x *exchange) // changes what the others see
	control  func(action string) bool
	compared func(by *policy.Grantor, control bool, bank string) bool
	within   func(f fact) bool
	vouches  func(f fact, patterns []string, action string) bool
	open     func(n *notice, action string, in policy.Context) bool
	exceeds  func(before, after, control bool) (given, taken bool)
	some     func(claims []policy.Excess, contexts int) bool // what holds in these contexts, of so many, exceeds
}

// fact is what decides on a request of a party.
type fact struct {
	nobody, broken, denied, silent, shut bool // silent: a side does not allow it
}

func newFairness() *fairness {
	return &fairness{
		rules:   newLaw(),
		blind:   func(*exchange) {},
		control: func(a string) bool { return strings.HasPrefix(a, "iam:") || strings.HasPrefix(a, "template:") },
		compared: func(by *policy.Grantor, control bool, bank string) bool {
			return control && bank == "*" || !control && !by.Banks
		},
		within: func(f fact) bool {
			return !f.nobody && !f.broken && !f.denied && !f.silent && !f.shut
		},
		vouches: func(f fact, patterns []string, action string) bool {
			covers := func(p string) bool { return p == "*" || policy.MatchAction(p, action) }
			return !f.nobody && !f.broken && !f.denied && slices.ContainsFunc(patterns, covers)
		},
		open: open,
		exceeds: func(before, after, control bool) (given, taken bool) {
			return after && !before, control && before && !after
		},
		some: func(claims []policy.Excess, _ int) bool { return len(claims) > 0 },
	}
}

// open reports whether a bank's policy allows an action to unmapped senders.
func open(n *notice, action string, in policy.Context) bool {
	if n == nil || n.broken {
		return false
	}
	actions := n.public[override{}]
	for _, o := range []override{{policy.Provider, in.Provider}, {policy.Channel, in.Channel}, {policy.Topic, in.Topic}} {
		if own, found := n.public[o]; found {
			actions = own
		}
	}
	return slices.ContainsFunc(actions, func(p string) bool { return policy.MatchAction(p, action) })
}

// point is a request by the numbers of its strings.
type point struct{ action, bank int }

func (q point) number() int { return q.action*len(askedBanks) + q.bank }

// effects returns whether a document allows, and whether it denies, each request.
func (r *fairness) effects(p *paper) [][2]bool {
	all := make([][2]bool, len(askedActions)*len(askedBanks))
	for _, st := range p.statements {
		for a, action := range askedActions {
			if len(covering(st.Actions, action, r.coversAction)) == 0 {
				continue
			}
			for b, bank := range askedBanks {
				if len(covering(st.Banks, bank, r.coversBank)) > 0 {
					all[point{a, b}.number()][map[string]int{"allow": 0, "deny": 1}[st.Effect]] = true
				}
			}
		}
	}
	return all
}

// fact returns what decides on a request of a party.
func (r *fairness) fact(p *party, q point, shut bool) fact {
	f := fact{nobody: p == nil || p.closed || p.kind != policy.User && p.kind != policy.ServiceAccount, shut: shut}
	if p == nil {
		return f
	}
	for _, side := range p.sides {
		allowed := false
		for _, d := range side {
			if d.effects == nil {
				d.effects = r.effects(d)
			}
			e := d.effects[q.number()]
			f.broken, f.denied, allowed = f.broken || d.broken, f.denied || e[1], allowed || e[0]
		}
		f.silent = f.silent || !allowed
	}
	return f
}

// allowed reports whether a party may do something at a moment.
func (r *fairness) allowed(m *moment, q point, in policy.Context) bool {
	action, bank := askedActions[q.action], askedBanks[q.bank]
	control := r.control(action)
	if m.public != nil {
		return !control && r.open(m.public[bank], action, in)
	}
	return r.within(r.fact(m.party, q, !control && slices.Contains(m.shut, bank)))
}

// claims returns everything that exceeds.
func (r *fairness) claims(x exchange) (all []policy.Excess) {
	x.by = new(*x.by)
	r.blind(&x)
	contexts := x.contexts()
	for a, action := range askedActions {
		for b, bank := range askedBanks {
			q, control := point{a, b}, r.control(action)
			if !r.compared(x.by, control, bank) || r.allowed(&x.grantor, q, policy.Context{}) ||
				control && r.vouches(r.fact(x.grantor.party, q, false), x.by.Vouched, action) {
				continue
			}
			if found := r.changes(&x, q, control, contexts); r.some(found, len(contexts)) {
				all = append(all, found...)
			}
		}
	}
	return all
}

// changes returns what an exchange changes for a request, by context.
func (r *fairness) changes(x *exchange, q point, control bool, contexts []policy.Context) (all []policy.Excess) {
	for _, in := range contexts {
		before, after := r.allowed(&x.before, q, in), r.allowed(&x.after, q, in)
		if given, taken := r.exceeds(before, after, control); given || taken {
			if control {
				in = policy.Context{}
			}
			all = append(all, policy.Excess{Action: askedActions[q.action], Bank: askedBanks[q.bank], Context: in, Taken: taken})
		}
	}
	return all
}

// ask asks the engine.
func (x *exchange) ask(c *policy.Compiler) (policy.Excess, bool) {
	before, after := x.before.party.subject(), x.after.party.subject()
	switch {
	case x.sender:
		return c.ExceedsSender(x.by, x.provider,
			policy.Mapping{Subject: before, Banks: documentsOf(x.before.public), Shut: x.before.shut},
			policy.Mapping{Subject: after, Banks: documentsOf(x.after.public), Shut: x.after.shut})
	case x.before.public != nil:
		return c.ExceedsPublic(x.by, x.before.public[x.bank].named(), x.after.public[x.bank].named())
	case before == nil && slices.Equal(x.before.shut, x.after.shut):
		return c.Covers(x.by, after)
	}
	return c.Exceeds(x.by, before, after, x.after.shut)
}

func documentsOf(notices map[string]*notice) (all []policy.Named) {
	for _, id := range slices.Sorted(maps.Keys(notices)) {
		if n := notices[id].named(); n != nil {
			all = append(all, *n)
		}
	}
	return all
}

// perDraw is the number of writes in one drawn world.
const perDraw = 200

// fairs is a run of the engine against the rules.
type fairs struct {
	rules  *fairness
	faulty bool // the rules are: only Exceeds and its relatives are compared
	limit  int

	mu         sync.Mutex
	next       uint64
	asked      int
	seen       map[string]int
	difference string // the first that was found, which ends it
}

func compareExcess(r *fairness, faulty bool, limit int) *fairs {
	c := &fairs{rules: r, faulty: faulty, limit: limit, seen: map[string]int{}}
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed, more := c.world(); more; seed, more = c.world() {
				c.enter(c.ask(seed))
			}
		})
	}
	workers.Wait()
	return c
}

func (c *fairs) world() (seed uint64, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	return c.next, c.difference == "" && int(c.next-1)*perDraw < c.limit
}

func (c *fairs) enter(asked int, seen map[string]int, difference string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked += asked
	for what, n := range seen {
		c.seen[what] += n
	}
	c.difference = cmp.Or(c.difference, difference)
}

// ask asks all questions of a world, or stops at the first difference.
func (c *fairs) ask(seed uint64) (asked int, seen map[string]int, difference string) {
	w := newMarket(seed)
	compiler := policy.NewCompiler(policy.Memory)
	if seed%2 == 0 {
		compiler = compiler.Apart(nil)
	}
	seen = map[string]int{}
	for i := range perDraw {
		x := w.exchange()
		claims := c.rules.claims(x)
		got, exceeds := x.ask(compiler)
		if difference := x.differs(claims, got, exceeds); difference != "" {
			return i + 1, seen, fmt.Sprintf("seed %d, write %d, %s: %s", seed, i, x, difference)
		}
		if i%10 == 0 && !c.faulty {
			difference := cmp.Or(c.rules.administrator(compiler, x.after.party), c.rules.unlike(w, &x))
			if difference != "" {
				return i + 1, seen, fmt.Sprintf("seed %d, write %d, %s: %s", seed, i, x, difference)
			}
		}
		seen[fmt.Sprint(x.kind(), ", exceeds: ", exceeds, ", taken: ", got.Taken, ", in a context: ", got.Context != policy.Context{})]++
	}
	return perDraw, seen, ""
}

// differs compares the engine's answer with all that exceeds.
func (x *exchange) differs(claims []policy.Excess, got policy.Excess, exceeds bool) string {
	few := claims[:min(5, len(claims))]
	if in := &got.Context; exceeds && (in.Provider != "" || x.kind() == "public") {
		for _, part := range []*string{&in.Provider, &in.Channel, &in.Topic} {
			*part = cmp.Or(*part, "x") // any other
		}
	}
	switch {
	case exceeds != (len(claims) > 0):
		return fmt.Sprintf("exceeds: %v, want %+v", exceeds, few)
	case exceeds && !slices.Contains(claims, got):
		return fmt.Sprintf("%+v does not exceed, want one of %d like %+v", got, len(claims), few)
	case !exceeds && got != policy.Excess{}:
		return fmt.Sprintf("%+v without an excess", got)
	}
	return ""
}

// unlike compares one decision of the rules with the reference of all decisions.
func (r *fairness) unlike(w *market, x *exchange) string {
	m := pick(w.World, []*moment{&x.grantor, &x.before, &x.after})
	at, in := point{w.IntN(len(askedActions)), w.IntN(len(askedBanks))}, pick(w.World, askedContexts)
	q := Request{Action: askedActions[at.action], Bank: askedBanks[at.bank], Provider: in.Provider, Channel: in.Channel, Topic: in.Topic}
	s := policy.Subject{Kind: policy.Unmapped}
	if m.public == nil {
		s.Closed = "nobody"
	}
	if m.party != nil {
		s = *m.party.subject()
	}
	if r.control(q.Action) {
		if m.public != nil {
			return "" // has no control-plane rights, whatever is decided
		}
	} else if q.BankPolicy = m.public[q.Bank].named(); m.public == nil && slices.Contains(m.shut, q.Bank) {
		q.BankPolicy = &policy.Named{ID: q.Bank, Document: []byte("{")}
	}
	if got, want := r.allowed(m, at, in), Evaluate(s, q).Outcome == policy.Allow; got != want {
		return fmt.Sprintf("%s asks %+v: the rules say %v, the reference %v", m.party, q, got, want)
	}
	return ""
}

// administrator compares Administers with asking for each action.
func (r *fairness) administrator(c *policy.Compiler, p *party) string {
	if p == nil {
		return ""
	}
	all := true
	for a, action := range askedActions {
		if strings.HasPrefix(action, "iam:") {
			all = all && r.within(r.fact(p, point{a, slices.Index(askedBanks, "*")}, false))
		}
	}
	if got := c.Administers(*p.subject()); got != all {
		return fmt.Sprintf("%s administers: %v, want %v", p, got, all)
	}
	return ""
}

// TestExceedsIsTheReference: Exceeds and its relatives say what asking for every request says.
func TestExceedsIsTheReference(t *testing.T) {
	limit := cmp.Or(*writes, longtest.Times(6_000, 100_000))
	if *writes == 0 && (testing.Short() || longtest.Raced) {
		limit = longtest.Times(2_000, 10_000)
	}
	c := compareExcess(newFairness(), false, limit)
	for _, what := range slices.Sorted(maps.Keys(c.seen)) {
		t.Logf("%8d %s", c.seen[what], what)
	}
	if c.difference != "" {
		t.Error(c.difference)
	} else if len(c.seen) < 18 {
		t.Error("the writes are not varied")
	}
}
