package policy

// Capability says how requests are decided that its patterns cover and no closer capability of its
// list covers.
//
// Of two capabilities that cover a request, one is closer when its action pattern is at least as
// close to the action and its bank pattern at least as close to the bank. The string itself is
// closest, then "bank:recall" for the other actions that it covers, then a longer prefix. When no
// single capability is closest, all those that have no closer one say the same.
type Capability struct {
	Action, Bank string // patterns; read as strings, they are a request that this decides
	Outcome      Outcome
	Parameters   Parameters // zero in a denial; the capabilities of a list share memory
}

// Capabilities returns everything that the rights allow or deny explicitly, except for the banks in
// shut, whose policies do not parse. The list is sorted by action and bank, as short as possible,
// and never nil. A request that no capability covers is an ImplicitDeny.
func (r *Rights) Capabilities(shut []string) []Capability {
	if r.closed != nil || r.table == nil {
		return []Capability{}
	}
	g := newGrid(shut, r.table, nil)
	var said registry[Capability]
	views := []view{{table: r.table, as: first, shut: shut, call: r.compiler.call}}
	regions := g.whole().regions(views, func(r *row, action int32) int32 {
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
