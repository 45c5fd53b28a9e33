package policy

// Capability says what is decided for the requests that its patterns cover and that no closer one of its list covers.
//
// Of two that cover a request one is closer when its action pattern is at least as close to the action, and its bank pattern to the
// bank: the string itself is closest, then "bank:recall" for what it covers beside itself, then a longer prefix. Where none is
// closer than all others, those that none is closer than say the same.
type Capability struct {
	Action, Bank string // patterns; as strings they are a request that this decides
	Outcome      Outcome
	Parameters   Parameters // zero in a denial; what they point to is shared within a list
}

// Capabilities returns all that the rights come to, but for the banks in shut, whose policies do not parse: sorted by action and
// bank, no longer than it has to be, never nil. What none of it covers is an ImplicitDeny.
func (r *Rights) Capabilities(shut []string) []Capability {
	if r.closed != nil || r.table == nil {
		return []Capability{}
	}
	g := newGrid(shut, r.table, nil)
	var said registry[Capability]
	regions := g.whole().regions([]view{{table: r.table, as: first, shut: shut, call: r.compiler.call}}, func(r *row, action int32) int32 {
		outcome, parameters := r.rule(0, action)
		if outcome == ImplicitDeny {
			return 0
		}
		return said.id(parameters.append([]byte(outcome)), func() Capability {
			return Capability{Outcome: outcome, Parameters: parameters.clone()}
		})
	})
	list := make([]Capability, 0, len(regions))
	for _, found := range regions {
		c := Capability{Outcome: ImplicitDeny}
		if found.what != 0 {
			c = said.values[found.what-1]
		}
		c.Action, c.Bank = g.actions.names[found.action], g.banks.names[found.bank]
		list = append(list, c)
	}
	return list
}
