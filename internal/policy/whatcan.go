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
	Parameters   Parameters // nil in a denial; the capabilities of a list share memory
}

// MaxCapabilities is the most elements of a list of Capabilities.
const MaxCapabilities = 5000

// maxCapable is the most bytes that the patterns and parameters of such a list take together in
// JSON.
const maxCapable = 2 << 20

// Capabilities returns everything that the rights allow or deny explicitly, except for the banks in
// shut, whose policies do not parse. The list is sorted by action and bank, as short as possible,
// and never nil. A request that no capability covers is an ImplicitDeny. A list that would be
// longer than MaxCapabilities, or would take megabytes, is ErrTooComplex. When the call of the
// Compiler ends, the error is that of the call.
func (r *Rights) Capabilities(shut []string) ([]Capability, error) {
	if r.closed != nil || r.table == nil {
		return []Capability{}, nil
	}
	call, shut := r.compiler.call, expressible(shut)
	g := newGrid(call, shut, r.table, nil)
	var said registry[Capability]
	views := []view{{table: r.table, as: first, shut: shut, call: call}}
	element := func(one region) Capability {
		c := Capability{Outcome: ImplicitDeny}
		if one.what != 0 {
			c = said.values[one.what-1]
		}
		c.Action, c.Bank = g.actions.names[one.action], g.banks.names[one.bank]
		return c
	}
	var found []region
	bytes, fits := 0, true
	way := g.whole()
	way.regions(views, func(r *row, action int32) int32 {
		outcome, parameters := r.rule(0, action)
		if outcome == ImplicitDeny {
			return 0
		}
		key := parameters.append([]byte(outcome))
		return said.id(key, func() Capability {
			spend(call, keptSteps*len(key))
			return Capability{Outcome: outcome, Parameters: parameters.clone()}
		})
	}, func(one region) bool {
		c := element(one)
		bytes += len(c.Action) + len(c.Bank) + c.Parameters.weight()
		fits = len(found) < MaxCapabilities && (bytes <= maxCapable || len(found) == 0)
		found = append(found, one)
		return fits
	})
	if err := r.compiler.Err(); err != nil {
		return nil, err
	}
	if !fits {
		return nil, ErrTooComplex
	}
	way.sort(found)
	list := make([]Capability, len(found))
	for i, one := range found {
		list[i] = element(one)
	}
	return list, nil
}
