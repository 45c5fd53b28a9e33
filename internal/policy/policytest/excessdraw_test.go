package policytest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/extsvc/svc/internal/policy"
)

var (
	excessActions = []string{
		"bank:*", "bank:recall", "bank:memories:*", "bank:memories:list", "bank:retain", "bank:retain:*", ":*",
		"iam:*", "iam:users:*", "iam:users:read", "iam:banks:", "iam", "template:*", "template:list",
	}
	excessBanks = []string{"*", "*", "a::*", "a::b::*", "a::b", "a", "b"}
	shutBanks   = []string{"a", "a::b", "a::*", "*", "b", "a::b::c"}
	publicBanks = []string{"a", "a::b", "c", "a::*"}
)

// paper is an access policy. One that does not parse has no statements.
type paper struct {
	policy.Named
	statements []Statement
	broken     bool
	effects    [][2]bool // by the number of the request: whether it allows, and denies
}

// hold is a paper as it reaches a user.
type hold struct {
	*paper
	group    string
	priority int64
}

// party is a principal with policies.
type party struct {
	kind               policy.Kind
	closed             bool
	grants             []hold
	scoping, narrowing []*paper
	sides              [][]*paper // what must allow a request: the grants, and each paper that narrows them
}

// notice is a bank policy. The zero override is its default.
type notice struct {
	policy.Named
	public map[override][]string
	broken bool
}

// moment is what a party may do, before or after a write.
type moment struct {
	party  *party // nil: nobody
	shut   []string
	public map[string]*notice // of an unmapped sender; nil: it is not one
}

// exchange is a write and its grantor.
type exchange struct {
	grantor, before, after moment
	by                     *policy.Grantor
	sender                 bool // of a sender of the provider
	provider, bank         string
}

func (n *notice) named() *policy.Named {
	if n == nil {
		return nil
	}
	return &n.Named
}

func (x *exchange) kind() string {
	switch {
	case x.sender:
		return fmt.Sprintf("sender, mapped before: %v, after: %v", x.before.public == nil, x.after.public == nil)
	case x.before.public != nil:
		return "public"
	}
	return "party"
}

// contexts returns the contexts in which the requests of an exchange may come.
func (x *exchange) contexts() (all []policy.Context) {
	switch {
	case x.before.public == nil && x.after.public == nil && x.sender:
		return []policy.Context{{Provider: x.provider, Channel: "x", Topic: "x"}}
	case x.before.public == nil && x.after.public == nil:
		return []policy.Context{{}}
	}
	for _, in := range askedContexts {
		if !x.sender || in.Provider == x.provider {
			all = append(all, in)
		}
	}
	return all
}

// join notes the sides of a party.
func (p *party) join() {
	if p == nil {
		return
	}
	p.sides = [][]*paper{{}}
	for _, h := range p.grants {
		p.sides[0] = append(p.sides[0], h.paper)
	}
	for _, n := range slices.Concat(p.scoping, p.narrowing) {
		p.sides = append(p.sides, []*paper{n})
	}
}

func (p *party) subject() *policy.Subject {
	if p == nil {
		return nil
	}
	s := &policy.Subject{Kind: p.kind}
	if p.closed {
		s.Closed = "closed"
	}
	for _, h := range p.grants {
		s.Grants = append(s.Grants, policy.Grant{PolicyID: h.ID, Group: h.group, Priority: h.priority, Document: h.Document})
	}
	for _, n := range p.scoping {
		s.Scoping = append(s.Scoping, n.Named)
	}
	for _, n := range p.narrowing {
		s.Narrowing = append(s.Narrowing, n.Named)
	}
	return s
}

func (p *party) String() string {
	if p == nil {
		return "nobody"
	}
	s := p.subject()
	text := fmt.Sprintf("%s %s", s.Kind, s.Closed)
	for _, g := range s.Grants {
		text += fmt.Sprintf("\n  grant %s", g.Document)
	}
	for _, n := range slices.Concat(s.Scoping, s.Narrowing) {
		text += fmt.Sprintf("\n  narrowed by %s", n.Document)
	}
	return text
}

func (x exchange) String() string {
	text := fmt.Sprintf("%s of %q by vouched %q, banks %v, shut %q, then %q\n grantor %s\n before %s\n after %s",
		x.kind(), x.provider, x.by.Vouched, x.by.Banks, x.by.Shut, x.after.shut, x.grantor.party, x.before.party, x.after.party)
	for _, m := range []moment{x.before, x.after} {
		for _, n := range documentsOf(m.public) {
			text += fmt.Sprintf("\n %s: %s", n.ID, n.Document)
		}
	}
	return text
}

// market draws exchanges of few policies.
type market struct {
	*World // for its draws
	papers []*paper
	broad  []*paper

	by      *policy.Grantor // of the last exchange
	grantor moment
}

func newMarket(seed uint64) *market {
	w := &market{World: &World{Rand: rand.New(rand.NewPCG(seed, 2))}}
	for i := range 8 {
		w.papers = append(w.papers, w.paper(fmt.Sprint("p", i), w.statements()...))
	}
	w.maybe(2, func() { w.papers[7] = &paper{Named: policy.Named{ID: "p7", Document: []byte("{")}, broken: true} })
	all := Statement{Effect: "allow", Actions: []string{"bank:*", "iam:*", "template:*", ":*"}, Banks: []string{"*"}}
	w.broad = []*paper{w.paper("all", all), w.paper("most", all, w.claimed("deny"))}
	return w
}

func (w *market) paper(id string, statements ...Statement) *paper {
	return &paper{Named: policy.Named{ID: id, Document: Document(statements...)}, statements: statements}
}

func (w *market) statements() (all []Statement) {
	for range 1 + w.IntN(3) {
		all = append(all, w.claimed(w.one("allow", "allow", "allow", "deny")))
	}
	return all
}

func (w *market) claimed(effect string) Statement {
	s := Statement{Effect: effect, Actions: w.some(excessActions), Banks: w.some(excessBanks)}
	s.Actions, s.Banks = s.Actions[:min(2, len(s.Actions))], s.Banks[:min(2, len(s.Banks))]
	if effect == "allow" {
		s.LLMModel = w.one("", "", "m")
	}
	return s
}

// rewrite returns a paper with one statement more, less, or replaced.
func (w *market) rewrite(p *paper) *paper {
	statements := slices.Clone(p.statements)
	if len(statements) > 0 && w.IntN(3) > 0 {
		i := w.IntN(len(statements))
		statements = slices.Delete(statements, i, i+1)
	}
	w.maybe(2, func() { statements = append(statements, w.claimed(w.one("allow", "allow", "deny"))) })
	return w.paper(p.ID, statements...)
}

func (w *market) hold() hold {
	return hold{pick(w.World, w.papers), w.one("", "g", "h"), w.Int64N(3)}
}

func (w *market) party() *party {
	p := &party{kind: policy.User, closed: w.IntN(15) == 0}
	for range w.IntN(4) {
		p.grants = append(p.grants, w.hold())
	}
	w.maybe(3, func() {
		p.kind = policy.ServiceAccount
		w.maybe(2, func() { p.scoping = []*paper{w.narrow()} })
	})
	w.maybe(6, func() { p.narrowing = []*paper{w.narrow()} })
	w.maybe(40, func() { p.kind = policy.Kind(w.one("", "robot", string(policy.Unmapped))) })
	return p
}

func (w *market) narrow() *paper {
	return pick(w.World, slices.Concat(w.papers, w.broad, w.broad))
}

// changed returns the party after a write.
func (w *market) changed(p *party) *party {
	if p == nil || w.IntN(8) == 0 {
		return w.party()
	}
	after := *p
	after.grants = slices.Clone(p.grants)
	switch w.IntN(7) {
	case 0:
		after.grants = append(after.grants, w.hold())
	case 1:
		after.grants = after.grants[min(1, len(after.grants)):]
	case 2:
		after.closed = false
	case 3:
		after.scoping, after.narrowing = w.renarrowed(p.scoping), w.renarrowed(p.narrowing)
	case 4:
		for i := range after.grants {
			after.grants[i].priority = w.Int64N(3)
		}
	default:
		w.rewriteIn(&after)
	}
	return &after
}

// rewriteIn rewrites a policy in all places where it is.
func (w *market) rewriteIn(p *party) {
	old := pick(w.World, w.papers)
	if len(p.grants) > 0 {
		old = pick(w.World, p.grants).paper
	}
	now := w.rewrite(old)
	for i := range p.grants {
		if p.grants[i].ID == old.ID {
			p.grants[i].paper = now
		}
	}
	for _, list := range []*[]*paper{&p.scoping, &p.narrowing} {
		*list = slices.Clone(*list)
		for i, n := range *list {
			if n.ID == old.ID {
				(*list)[i] = now
			}
		}
	}
}

func (w *market) renarrowed(list []*paper) []*paper {
	if len(list) > 0 && w.IntN(2) == 0 {
		return nil
	}
	return []*paper{w.narrow()}
}

func (w *market) shut() (all []string) {
	w.maybe(8, func() { all = w.some(shutBanks) })
	return all
}

func (w *market) exchange() exchange {
	x := exchange{before: moment{party: w.party()}}
	w.maybe(8, func() { x.before.party = nil })
	x.after.party = w.changed(x.before.party)
	w.maybe(12, func() { x.after.party = nil })
	if w.by == nil || w.IntN(3) == 0 { // else one write changes several parties
		w.grant(&x)
	}
	x.by, x.grantor = w.by, w.grantor
	x.before.shut, x.after.shut = x.by.Shut, x.by.Shut
	w.maybe(8, func() { x.after.shut = w.shut() })
	switch w.IntN(5) {
	case 0:
		w.publish(&x)
	case 1:
		w.remap(&x)
	}
	x.before.party.join()
	x.after.party.join()
	return x
}

// grant draws a grantor. It often has what the party has.
func (w *market) grant(x *exchange) {
	p := w.party()
	w.maybe(2, func() { p.grants = append(p.grants, hold{pick(w.World, w.broad), "", 0}) })
	for _, m := range []moment{x.before, x.after} {
		if m.party == nil || w.IntN(3) > 0 {
			continue
		}
		for _, h := range m.party.grants {
			if slices.Contains(w.papers, h.paper) { // the write does not change it
				p.grants = append(p.grants, h)
			}
		}
	}
	p.join()
	w.grantor = moment{party: p, shut: w.shut()}
	w.by = &policy.Grantor{Subject: *p.subject(), Banks: w.IntN(4) == 0, Shut: w.grantor.shut}
	w.maybe(3, func() {
		w.by.Vouched = w.some([]string{"*", "iam:*", "iam:users:*", "template:list", "bank:*", "iam*", ""})
	})
}

// publish makes an exchange one of a bank's policy.
func (w *market) publish(x *exchange) {
	x.bank = w.one(publicBanks...)
	x.before = moment{public: map[string]*notice{x.bank: w.notice(x.bank)}}
	x.after = moment{public: map[string]*notice{x.bank: w.notice(x.bank)}}
}

// remap makes an exchange one of a sender.
func (w *market) remap(x *exchange) {
	x.sender, x.provider = true, w.one("slack", "teams", "x")
	banks, later := map[string]*notice{}, map[string]*notice{}
	for _, id := range publicBanks {
		banks[id] = w.notice(id)
		later[id] = banks[id]
		w.maybe(4, func() { later[id] = w.notice(id) })
	}
	if x.before.party == nil || w.IntN(3) == 0 {
		x.before.party, x.before.public = nil, banks
	}
	if x.after.party == nil || w.IntN(3) == 0 {
		x.after.party, x.after.public = nil, later
	}
}

// notice draws a bank policy, or nil.
func (w *market) notice(bank string) *notice {
	if w.IntN(5) == 0 {
		return nil
	}
	n := &notice{Named: policy.Named{ID: bank}, public: map[override][]string{}}
	type object map[string]any
	access := object{}
	w.maybe(2, func() {
		n.public[override{}] = w.some(excessActions)
		access["default"] = object{"actions": n.public[override{}]}
	})
	overrides := []object{}
	for _, o := range []override{{policy.Provider, "slack"}, {policy.Provider, "teams"}, {policy.Channel, "general"}, {policy.Topic, "news"}} {
		w.maybe(3, func() {
			n.public[o] = w.some(excessActions)[w.IntN(2):]
			overrides = append(overrides, object{"scope": o.scope, "value": o.value, "actions": n.public[o]})
		})
	}
	access["overrides"] = overrides
	n.Document = write(object{"version": policy.Version, "public_access": access})
	w.maybe(16, func() { n.Document, n.broken = []byte("{"), true })
	return n
}
