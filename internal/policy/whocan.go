package policy

import "slices"

// Reach lists the principals that may do something, and the statements that decide it.
type Reach struct {
	Users, ServiceAccounts []string // ids, sorted; never nil
	Public                 PublicReach
	Statements             []Cited // those that match, by policy and statement; never nil
}

// PublicReach says whether unmapped senders are allowed. The most specific override that matches
// their context decides (topic over channel over provider). Without one, the default decides.
type PublicReach struct {
	Default   bool
	Overrides []PublicOverrideReach // in the order of the bank's policy; never nil
}

// PublicOverrideReach says whether unmapped senders are allowed where an override is in force.
type PublicOverrideReach struct {
	Scope   Scope
	Value   string
	Allowed bool
}

// Cited is a statement of a policy that some principal has who is not closed.
type Cited struct {
	Policy    string
	Statement int
	Effect    Effect
}

// reach is the answer for all requests of a class.
type reach struct {
	allowed    bitset
	users      int // how many of the allowed are users
	accounts   int // how many are service accounts
	statements []Cited
}

// WhoCan returns the principals that may do an action on a bank: those that Decide allows it,
// without vouching. The caller owns the result.
func (w *World) WhoCan(action, bank string) Reach {
	policy := w.bankPolicies[bank]
	r := Reach{
		Users: []string{}, ServiceAccounts: []string{}, Statements: []Cited{},
		Public: policy.reach(action),
	}
	if policy != nil && policy.fault != nil {
		return r
	}
	class := cell{action: w.actions.of(action), bank: w.banks.of(bank)}
	found := w.reaches.get(class.hash(), class)
	if found == nil {
		found = w.find(class)
		w.reaches.put(class.hash(), class, found)
	}
	r.Users = idsOf(w.users, found.allowed, 0, found.users)
	r.ServiceAccounts = idsOf(w.accounts, found.allowed, len(w.users), found.accounts)
	r.Statements = append(r.Statements, found.statements...)
	return r
}

// find computes the answer for a class of requests. Among a member's own policies a deny wins over
// any allow. Each policy that narrows the member must allow the request as well.
func (w *World) find(class cell) *reach {
	const allows, denies = 1, 2
	effects := make([]uint8, len(w.policies))
	matching := slices.Sorted(w.matching(class.action, class.bank))
	found := &reach{}
	for _, i := range slices.Compact(matching) {
		st := w.statements[i]
		effect := uint8(allows)
		if st.effect == EffectDeny {
			effect = denies
		}
		effects[st.policy] |= effect
		c := Cited{w.policies[st.policy].id, st.statement, st.effect}
		found.statements = append(found.statements, c)
	}
	allowed, denied := make(bitset, len(w.barred)), slices.Clone(w.barred)
	for policy, effect := range effects {
		if effect&allows != 0 {
			allowed.add(w.policies[policy].holders)
		}
		if effect&denies != 0 {
			denied.add(w.policies[policy].holders)
		}
	}
	for _, n := range w.narrowed {
		if effects[n.policy] != allows {
			denied.set(n.member)
		}
	}
	allowed.remove(denied)
	found.allowed, found.users = allowed, allowed.below(len(w.users))
	found.accounts = allowed.below(len(w.users)+len(w.accounts)) - found.users
	return found
}

// reach returns where unmapped senders are allowed an action.
func (b *Bank) reach(action string) PublicReach {
	r := PublicReach{Overrides: []PublicOverrideReach{}}
	if b == nil || b.document == nil || b.document.PublicAccess == nil {
		return r
	}
	for _, o := range b.document.PublicAccess.Overrides {
		in := Context{}.with(o.context())
		allowed := b.public(action, &in).outcome == Allow
		r.Overrides = append(r.Overrides, PublicOverrideReach{o.Scope, o.Value, allowed})
	}
	r.Default = b.public(action, &Context{}).outcome == Allow
	return r
}
