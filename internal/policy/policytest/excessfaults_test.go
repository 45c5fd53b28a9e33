package policytest

import (
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/policy"
)

// excessFaults break the rules of what exceeds.
var excessFaults = map[string]func(*fairness){
	"before does not count":       blindTo(func(x *exchange) { x.before.party = nil }),
	"before is what is after":     blindTo(func(x *exchange) { x.before = x.after }),
	"public before does not open": blindTo(func(x *exchange) { x.before.public = closedIfAny(x.before.public) }),
	"public after does not open":  blindTo(func(x *exchange) { x.after.public = closedIfAny(x.after.public) }),
	"the grantor has what the write gives it": blindTo(func(x *exchange) {
		if x.grantor.party.closed == (x.after.party == nil) {
			x.grantor = x.after
		}
	}),
	"a closed grantor is open":          blindTo(func(x *exchange) { x.grantor.party = with(x.grantor.party, func(p *party) { p.closed = false }) }),
	"a closed party is open":            blindTo(func(x *exchange) { x.before.party = with(x.before.party, func(p *party) { p.closed = false }) }),
	"a party that is closed stays open": blindTo(func(x *exchange) { x.after.party = with(x.after.party, func(p *party) { p.closed = false }) }),
	"scoping does not narrow the grantor": blindTo(func(x *exchange) {
		x.grantor.party = with(x.grantor.party, func(p *party) { p.scoping = nil })
	}),
	"narrowing does not narrow the grantor": blindTo(func(x *exchange) {
		x.grantor.party = with(x.grantor.party, func(p *party) { p.narrowing = nil })
	}),
	"scoping does not narrow the party before": blindTo(func(x *exchange) {
		x.before.party = with(x.before.party, func(p *party) { p.scoping = nil })
	}),
	"scoping does not narrow the party after": blindTo(func(x *exchange) {
		x.after.party = with(x.after.party, func(p *party) { p.scoping = nil })
	}),
	"narrowing does not narrow the party after": blindTo(func(x *exchange) {
		x.after.party = with(x.after.party, func(p *party) { p.narrowing = nil })
	}),
	"groups do not count after": blindTo(func(x *exchange) {
		x.after.party = with(x.after.party, func(p *party) {
			p.grants = slices.DeleteFunc(slices.Clone(p.grants), func(h hold) bool { return h.group != "" })
		})
	}),
	"an unknown kind is a user": blindTo(func(x *exchange) {
		x.after.party = with(x.after.party, func(p *party) { p.kind = policy.User })
	}),
	"nobody vouches":                             blindTo(func(x *exchange) { x.by.Vouched = nil }),
	"the first vouched pattern alone":            blindTo(func(x *exchange) { x.by.Vouched = x.by.Vouched[:min(1, len(x.by.Vouched))] }),
	"a bank that is shut before is open":         blindTo(func(x *exchange) { x.before.shut = nil }),
	"a bank that is shut after is open":          blindTo(func(x *exchange) { x.after.shut = nil }),
	"a bank that is shut is open to the grantor": blindTo(func(x *exchange) { x.grantor.shut = nil }),
	"a bank stays shut":                          blindTo(func(x *exchange) { x.after.shut = x.before.shut }),
	"the provider varies":                        blindTo(func(x *exchange) { x.sender = x.sender && x.before.public == nil && x.after.public == nil }),

	"an account's templates are the data plane": func(r *fairness) { r.control = func(a string) bool { return strings.HasPrefix(a, "iam:") } },
	"the control plane has no colon": func(r *fairness) {
		r.control = func(a string) bool { return strings.HasPrefix(a, "iam") || strings.HasPrefix(a, "template") }
	},
	"the control plane is on every bank": func(r *fairness) {
		r.compared = func(by *policy.Grantor, control bool, _ string) bool { return control || !by.Banks }
	},
	"Banks stands for all": func(r *fairness) {
		r.compared = func(by *policy.Grantor, control bool, bank string) bool {
			return !by.Banks && (bank == "*" || !control)
		}
	},
	"Banks stands for nothing": func(r *fairness) {
		r.compared = func(_ *policy.Grantor, control bool, bank string) bool { return bank == "*" || !control }
	},
	"the data plane is not on bank *": func(r *fairness) {
		r.compared = func(by *policy.Grantor, control bool, bank string) bool {
			return control == (bank == "*") && (control || !by.Banks) && bank != "**" && bank != "x"
		}
	},

	"a deny does not count":            within(func(f *fact) { f.denied = false }),
	"a document that is broken is out": within(func(f *fact) { f.broken = false }),
	"one side is enough":               within(func(f *fact) { f.silent = false }),
	"vouched wins over a deny":         vouching(func(f *fact) { f.denied = false }),
	"vouched wins over what is closed": vouching(func(f *fact) { f.nobody = false }),
	"vouched wins over what is broken": vouching(func(f *fact) { f.broken = false }),
	"vouched for half a word": func(r *fairness) {
		r.vouches = func(f fact, patterns []string, action string) bool {
			return !f.nobody && !f.broken && !f.denied && slices.ContainsFunc(patterns, func(p string) bool {
				return strings.HasPrefix(action, strings.TrimSuffix(p, "*")) && p != ""
			})
		}
	},

	"recall covers nothing more": func(r *fairness) {
		r.coversAction = func(p, a string) bool { return policy.MatchAction(p, a) && (p != "bank:recall" || a == p) }
	},
	"a bank prefix covers its base": func(r *fairness) {
		r.coversBank = func(p, b string) bool { return policy.MatchBank(p, b) || p == b+"::*" }
	},
	"a bank prefix covers one segment": func(r *fairness) {
		r.coversBank = func(p, b string) bool {
			return policy.MatchBank(p, b) && (p == "*" || strings.Count(b, "::") <= strings.Count(p, "::"))
		}
	},

	"a default adds to an override": func(r *fairness) {
		r.open = func(n *notice, action string, in policy.Context) bool {
			return open(n, action, in) || open(n, action, policy.Context{})
		}
	},
	"a provider wins over a channel": func(r *fairness) {
		r.open = func(n *notice, action string, in policy.Context) bool {
			if n != nil && n.public[override{policy.Provider, in.Provider}] != nil {
				in.Channel = ""
			}
			return open(n, action, in)
		}
	},
	"a topic does not count": func(r *fairness) {
		r.open = func(n *notice, action string, in policy.Context) bool {
			in.Topic = ""
			return open(n, action, in)
		}
	},
	"the public has control-plane rights": func(r *fairness) {
		r.control = func(a string) bool { return strings.HasPrefix(a, "iam:users:") || strings.HasPrefix(a, "template:") }
	},
	"a right in some contexts is no right": func(r *fairness) {
		r.some = func(claims []policy.Excess, contexts int) bool { return len(claims) == contexts }
	},

	"nothing is taken":                 changing(func(given, taken, _, _, _ bool) (bool, bool) { return given, false }),
	"nothing is given":                 changing(func(given, taken, _, _, _ bool) (bool, bool) { return false, taken }),
	"data is taken":                    changing(func(given, taken, before, after, _ bool) (bool, bool) { return given, taken || before && !after }),
	"all that is there after is given": changing(func(given, taken, _, after, _ bool) (bool, bool) { return after, taken }),
	"control is not given":             changing(func(given, taken, _, _, control bool) (bool, bool) { return given && !control, taken }),
}

func blindTo(blind func(*exchange)) func(*fairness) {
	return func(r *fairness) { r.blind = blind }
}

// with returns a changed copy of a party.
func with(p *party, change func(*party)) *party {
	if p == nil {
		return nil
	}
	other := *p
	change(&other)
	other.join()
	return &other
}

func closedIfAny(public map[string]*notice) map[string]*notice {
	if public == nil {
		return nil
	}
	return map[string]*notice{}
}

func within(blind func(*fact)) func(*fairness) {
	return func(r *fairness) {
		right := r.within
		r.within = func(f fact) bool {
			blind(&f)
			return right(f)
		}
	}
}

func vouching(blind func(*fact)) func(*fairness) {
	return func(r *fairness) {
		right := r.vouches
		r.vouches = func(f fact, patterns []string, action string) bool {
			blind(&f)
			return right(f, patterns, action)
		}
	}
}

func changing(change func(given, taken, before, after, control bool) (bool, bool)) func(*fairness) {
	return func(r *fairness) {
		right := r.exceeds
		r.exceeds = func(before, after, control bool) (bool, bool) {
			given, taken := right(before, after, control)
			return change(given, taken, before, after, control)
		}
	}
}

// TestExcessFaultsAreFound: the comparison finds every planted fault.
func TestExcessFaultsAreFound(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	most := 0
	for _, name := range planted(excessFaults) {
		t.Run(name, func(t *testing.T) {
			r := newFairness()
			excessFaults[name](r)
			c := compareExcess(r, true, 50_000)
			if c.difference == "" {
				t.Errorf("not found in %d writes", c.asked)
			}
			most = max(most, c.asked)
		})
	}
	t.Logf("%d faults, each found by the %dth write", len(excessFaults), most)
}
