package policy

import "slices"

// Grantor is the caller of a write, by what it may do before the write.
type Grantor struct {
	Subject Subject  // a closed grantor may do nothing
	Vouched []string // action patterns that the host grants on bank "*" (see Permits); nil: none
	Banks   bool     // it may give data-plane rights that it lacks
	Shut    []string // the ids of the banks whose policies do not parse, before the write
}

// Excess is a right that a write gives or takes, and that its grantor lacks.
type Excess struct {
	Action, Bank string  // patterns; read as strings, they are a request that shows the excess
	Context      Context // of a sender's request; an empty part stands for values without override
	Taken        bool    // the write takes the right; false: the write gives it
}

// Exceeds reports whether a write gives a user, a service account or the bearer of a narrowed key
// a right that the grantor lacks, or takes such a right. It returns one such right. A nil or closed
// subject is denied everything. shutAfter is what Grantor.Shut is, after the write.
//
// The write gives a right when it makes an allowed request of a denied one. Parameters do not
// count. Control-plane rights are compared only on bank "*", where the grantor's vouched patterns
// count. All other rights are compared on every bank, unless the grantor has Banks. Only
// control-plane rights count as taken.
//
// The answer is exact: it holds for all requests. But when the Compiler's call ends, Exceeds
// reports a zero Excess: check the call's Err. A Compiler for one call (see Apart) reads a Grantor
// once, so the Grantor must not change during the call.
func (c *Compiler) Exceeds(
	by *Grantor,
	before, after *Subject,
	shutAfter []string,
) (Excess, bool) {
	m := c.comparison(by, c.holder(before, by.Shut), c.holder(after, shutAfter))
	return m.excess()
}

// Covers reports, as Exceeds does, whether a subject has a right that the grantor lacks.
func (c *Compiler) Covers(by *Grantor, of *Subject) (Excess, bool) {
	return c.Exceeds(by, nil, of, by.Shut)
}

// ExceedsPublic reports, as Exceeds does, whether a change of a bank's policy gives unmapped
// senders a right that the grantor lacks. A nil policy opens nothing. Unmapped senders have no
// control-plane rights, whatever a bank policy says.
func (c *Compiler) ExceedsPublic(by *Grantor, before, after *Named) (Excess, bool) {
	m := c.comparison(by, c.unmapped(before), c.unmapped(after))
	return m.excess()
}

// Mapping is the user of a sender, before or after a write.
type Mapping struct {
	Subject *Subject // nil: the sender is unmapped, and has the public access of banks
	Banks   []Named  // the policies of all banks; only those of an unmapped sender are read
	Shut    []string // the ids of the banks whose policies do not parse
}

// ExceedsSender is Exceeds for a sender of a provider that is mapped to another user. Its channel
// and topic may be any. The write gives a right that the sender has after it in some context, and
// lacks before it in that context. before.Shut must be Grantor.Shut.
func (c *Compiler) ExceedsSender(
	by *Grantor,
	provider string,
	before, after Mapping,
) (Excess, bool) {
	m := c.comparison(by, c.sender(before, by), c.sender(after, by))
	m.provider = &provider
	return m.excess()
}

func (c *Compiler) sender(s Mapping, by *Grantor) *holder {
	if s.Subject != nil || by.Banks {
		return c.holder(s.Subject, s.Shut)
	}
	banks := make([]*Named, len(s.Banks))
	for i := range s.Banks {
		banks[i] = &s.Banks[i]
	}
	return c.unmapped(banks...)
}

// administrator has every right over identities and access.
var administrator = Subject{Kind: User, Grants: []Grant{{
	PolicyID: "iam:*",
	Document: []byte(`{"version":"` + Version + `","statements":[` +
		`{"effect":"allow","actions":["iam:*"],"banks":["*"]}]}`),
}}}

// Administers reports whether the policies of a subject allow every action that begins with "iam:"
// on bank "*". It reports false when the Compiler's call ends.
func (c *Compiler) Administers(s Subject) bool {
	allows := func(g Grant) bool { return c.parse(g.Document).controls }
	if !slices.ContainsFunc(s.Grants, allows) {
		return false
	}
	_, lacks := c.Covers(&Grantor{Subject: s, Banks: true}, &administrator)
	return !lacks
}
