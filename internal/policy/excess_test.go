package policy_test

import (
	gocontext "context"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

// on returns a statement for other banks.
func on(st policytest.Statement, banks ...string) policytest.Statement {
	st.Banks = banks
	return st
}

// write is a drawn write and its grantor. The patterns of all documents, read as strings, have every
// class of requests.
type write struct {
	by            policy.Grantor
	before, after *policy.Subject
	shut          []string // after the write
	actions       []string
	banks         []string
}

// drawnWrite changes one statement of a principal, or makes another one of it.
func drawnWrite(w *policytest.World) write {
	x := write{by: policy.Grantor{Subject: w.Principal().Subject, Banks: w.IntN(4) == 0}, before: new(w.Principal().Subject)}
	x.actions, x.banks = patternsOf(w)
	changed := &w.Policies[w.IntN(len(w.Policies))]
	statements, other := slices.Clone(changed.Statements), w.Statement()
	if len(statements) == 0 {
		statements = append(statements, other)
	}
	switch st := &statements[w.IntN(len(statements))]; w.IntN(6) {
	case 0:
		x.after = new(w.Principal().Subject)
	case 1:
		st.Banks = other.Banks
	case 2:
		st.Actions = other.Actions
	case 3:
		st.Effect = map[string]string{"allow": "deny", "deny": "allow"}[st.Effect]
		*st = policytest.Statement{Effect: st.Effect, Actions: st.Actions, Banks: st.Banks}
	case 4:
		*st = other
	}
	if x.after == nil {
		changed.Statements, changed.Document = statements, policytest.Document(statements...)
		x.after = new(rewritten(*x.before, func(id string, raw []byte) []byte {
			if id == changed.ID {
				return changed.Document
			}
			return raw
		}))
	}
	actions, banks := patternsOf(w)
	x.actions = append(append(x.actions, actions...), "bank:memories:list", "bank:memories:get")
	x.banks = append(append(x.banks, banks...), "*")
	slices.Sort(x.actions)
	slices.Sort(x.banks)
	x.actions, x.banks = slices.Compact(x.actions), slices.Compact(x.banks)
	for _, shut := range []*[]string{&x.by.Shut, &x.shut} {
		for range w.IntN(3) {
			*shut = append(*shut, x.banks[w.IntN(len(x.banks))])
		}
	}
	if w.IntN(2) == 0 {
		x.shut = x.by.Shut
	}
	for _, bank := range x.banks { // a bank that is shut does not stand for its class
		if strings.HasSuffix(bank, "*") {
			x.banks = append(x.banks, bank+"*")
		}
	}
	for range w.IntN(3) {
		x.by.Vouched = append(x.by.Vouched, x.actions[w.IntN(len(x.actions))])
	}
	return x
}

// exceeding returns a function that reports whether a request shows an excess: it asks for the decisions.
func (x *write) exceeding() func(action, bank string, taken bool) bool {
	before, after, by := compiler.Compile(*x.before), compiler.Compile(*x.after), compiler.Compile(x.by.Subject)
	may := func(who *policy.Rights, action, bank string, shut []string) bool {
		return !slices.Contains(shut, bank) && who.Decide(action, bank, &policy.Context{}, nil).Allowed()
	}
	return func(action, bank string, taken bool) bool {
		if strings.HasPrefix(action, "iam:") || strings.HasPrefix(action, "template:") {
			had, has := may(before, action, bank, nil), may(after, action, bank, nil)
			return bank == "*" && had != has && had == taken && !by.Permits(x.by.Vouched, action)
		}
		return !x.by.Banks && !taken && may(after, action, bank, x.shut) && !may(before, action, bank, x.by.Shut) &&
			!may(by, action, bank, x.by.Shut)
	}
}

// TestExceedsIsTheDifferenceOfDecisions: Exceeds says what asking for every request says, and its witness
// is one of them.
func TestExceedsIsTheDifferenceOfDecisions(t *testing.T) {
	given, taken, none := 0, 0, 0
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		for range 4 {
			x := drawnWrite(policytest.NewWorld(w.Uint64()))
			exceeding := x.exceeding()
			want := slices.ContainsFunc(x.actions, func(action string) bool {
				return slices.ContainsFunc(x.banks, func(bank string) bool {
					return exceeding(action, bank, false) || exceeding(action, bank, true)
				})
			})
			got, exceeds := compiler.Exceeds(&x.by, x.before, x.after, x.shut)
			is.Equal(exceeds, want)
			switch {
			case !exceeds:
				none++
			case got.Taken:
				taken++
			default:
				given++
			}
			is.True(!exceeds || exceeding(got.Action, got.Bank, got.Taken))
		}
	})
	varied(t, given, taken, none)
}

// TestExceedsFailsClosed: a call that has ended finds an excess, and no administrator.
func TestExceedsFailsClosed(t *testing.T) {
	is := is.New(t)
	call, end := gocontext.WithCancel(t.Context())
	apart, all := compiler.Apart(call), user(allow("iam:*", "bank:*"))
	_, exceeds := apart.Exceeds(&policy.Grantor{Subject: all}, new(user()), &all, nil)
	is.True(!exceeds)
	is.True(apart.Administers(all) && !apart.Administers(user(allow("bank:recall"))))
	end()
	apart = compiler.Apart(call)
	_, exceeds = apart.Exceeds(&policy.Grantor{Subject: all}, new(user()), &all, nil)
	is.True(exceeds)
	is.True(!apart.Administers(all))
}

// TestSetsThatOnlyHashAlike: the statements of x:0 and those of x:1 are sets of three words with equal hashes.
func TestSetsThatOnlyHashAlike(t *testing.T) {
	all, odd := slices.Repeat([]policytest.Statement{allow("y:z")}, 129), uint64(0x9E3779B97F4A7C15)
	all[0], all[1] = deny("x:0"), allow("x:1")
	for left := bits.RotateLeft64((3^1)*odd^(3^2)*odd, 29); left != 0; left &= left - 1 {
		all[64+bits.TrailingZeros64(left)] = allow("x:1")
	}
	_, exceeds := compiler.Exceeds(&policy.Grantor{Subject: user(allow("y:z"))}, new(user()), new(user(all...)), nil)
	list, _ := compiler.Compile(user(all...)).Capabilities(nil)
	is.New(t).True(exceeds && len(list) == 3 && list[1].Action == "x:1" && list[1].Outcome == policy.Allow)
}

// A bank is opened by who has all that it opens, in each context, also what no statement names.
func TestExceedsPublic(t *testing.T) {
	recalls := user(allow("bank:recall"))
	opened := func(access string) *policy.Named {
		return &policy.Named{ID: "b", Document: []byte(`{"version":"2026-03-24","public_access":` + access + `}`)}
	}
	override := func(topic, action string) string {
		return `{"scope":"topic","value":"` + topic + `","actions":["` + action + `"]}`
	}
	for access, want := range map[string]policy.Excess{
		`{"default":{"actions":["bank:recall","bank:memories:get","iam:*"]}}`: {},
		`{"default":{"actions":["bank:recall","tool:x"]}}`:                    {Action: "tool:x", Bank: "b"},
		`{"overrides":[` + override("a", "bank:recall") + `,` + override("t", "tool:*") + `]}`: {
			Action: "tool:*", Bank: "b", Context: policy.Context{Topic: "t"}},
	} {
		for _, banks := range []bool{false, true} { // who may give rights that it lacks may open anything
			x, found := compiler.Apart(t.Context()).ExceedsPublic(&policy.Grantor{Subject: recalls, Banks: banks},
				opened(`{}`), opened(access))
			if found != (!banks && want.Bank != "") || found && x != want {
				t.Errorf("%s: %+v %v", access, x, found)
			}
		}
	}
}
