package policy_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

func agrees(d policy.Decision, r policy.Result) bool {
	strategy, ok := d.Strategy()
	for name, value := range d.Schema().All(r.Parameters) {
		if !reflect.DeepEqual(policy.Plain(d.Parameter(name)), value) {
			return false
		}
	}
	return d.Outcome() == r.Outcome && d.Reason() == r.Reason && reflect.DeepEqual(d.Parameters(), r.Parameters) &&
		ok == (r.Strategy != nil) && (!ok || strategy == *r.Strategy)
}

// patternsOf returns the patterns of a world, with every value of their variables.
func patternsOf(w *policytest.World) (actions, banks []string) {
	for _, p := range w.Policies {
		for _, st := range p.Statements {
			actions, banks = append(actions, st.Actions...), append(banks, st.Banks...)
		}
	}
	for _, pattern := range banks {
		for _, u := range w.Users {
			for _, g := range w.Groups {
				if bank, ok := byHand(pattern, u.ID, g.ID); ok {
					banks = append(banks, bank)
				}
			}
		}
	}
	return actions, banks
}

// TestReceiversOwnResults: changes to an answer do not affect the next answer, for any user of the table or the bank.
func TestReceiversOwnResults(t *testing.T) {
	changed := 0
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		p, q := w.Principal(), w.Request()
		bank, in := policy.Memory.CompileBank(q.BankPolicy), context(q)
		rights, other := compiler.Compile(p.Subject), compiler.Compile(p.Subject)
		explain := func(r *policy.Rights) policy.Result {
			return r.Explain(policy.Request{Action: q.Action, Bank: q.Bank, Context: in, Policy: bank})
		}
		before := written(explain(rights))
		for range 2 {
			d := rights.Decide(q.Action, q.Bank, &in, bank)
			parameters, result := d.Parameters(), explain(rights)
			changed += scribble(reflect.ValueOf(&parameters)) + scribble(reflect.ValueOf(&result))
			is.True(written(result) != before) // it was changed
			is.Equal(written(explain(rights)), before)
			is.Equal(written(explain(other)), before)
			is.True(agrees(other.Decide(q.Action, q.Bank, &in, bank), explain(rights)))
			is.True(agrees(d, explain(other))) // a decision that was made stays
		}
	})
	varied(t, changed)
}

// written differs for different results, even for results that are no longer valid JSON.
func written(r policy.Result) string {
	raw, err := json.Marshal(r)
	return fmt.Sprint(string(raw), err)
}

func scribble(v reflect.Value) (changed int) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return scribble(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			changed += scribble(v.Field(i))
		}
	case reflect.Slice:
		whole := v.Slice(0, v.Cap()) // including what lies behind its end
		for i := range whole.Len() {
			changed += scribble(whole.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			v.SetMapIndex(key, reflect.ValueOf("scribbled"))
		}
		if !v.IsNil() {
			v.SetMapIndex(reflect.ValueOf("scribbled"), reflect.ValueOf("scribbled"))
		}
		return 1
	case reflect.String:
		v.SetString("scribbled " + v.String())
		return 1
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
		return 1
	case reflect.Uint8:
		v.SetUint('0')
		return 1
	}
	return changed
}

// TestCallersOwnDocuments: after compiling, changes to the caller's input have no effect.
func TestCallersOwnDocuments(t *testing.T) {
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		s, q := w.Principal().Subject, w.Request()
		c := policy.NewCompiler(policy.Memory)
		own := rewritten(s, func(_ string, raw []byte) []byte { return slices.Clone(raw) })
		if q.BankPolicy != nil {
			q.BankPolicy = &policy.Named{ID: q.BankPolicy.ID, Document: slices.Clone(q.BankPolicy.Document)}
		}
		request := policy.Request{Action: q.Action, Bank: q.Bank, Context: context(q), Policy: policy.Memory.CompileBank(q.BankPolicy)}
		given := slices.Clone(own.Grants)
		rights := c.Compile(own)
		is.Equal(own.Grants, given) // in their order
		before := rights.Explain(request)
		scribble(reflect.ValueOf(&own))
		if q.BankPolicy != nil {
			scribble(reflect.ValueOf(q.BankPolicy))
		}
		is.Equal(before, rights.Explain(request))
		is.Equal(before, c.Compile(s).Explain(request))
	})
}

// TestAgainIsDecide: Again repeats a decision with the bank policy that Note stored, for that moment only.
func TestAgainIsDecide(t *testing.T) {
	var moment uint64
	known := map[bool]int{}
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		for range 10 {
			p, q := w.Principal(), w.Request()
			rights, in, bank := compiler.Compile(p.Subject), context(q), policy.Memory.CompileBank(q.BankPolicy)
			moment++
			var d policy.Decision
			is.True(!rights.Again(&d, q.Action, q.Bank, &in, moment))
			rights.Decide(q.Action, q.Bank, &in, bank)
			rights.Note(q.Action, q.Bank, bank, moment)
			d = policy.Decision{}
			again := rights.Again(&d, q.Action, q.Bank, &in, moment)
			is.True(!again || agrees(d, explain(rights, q)))
			known[again]++
		}
	})
	varied(t, known[true], known[false])
}
