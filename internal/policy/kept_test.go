package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/heaptest"
	"github.com/extsvc/svc/internal/policy"
)

// bulky are subjects with n parts of one sort each, all different.
var bulky = map[string]func(i, n int) policy.Subject{
	"statements": func(i, n int) policy.Subject {
		return allows(strings.Repeat(`{"effect":"deny","actions":["a"],"banks":["b"]},`, n) + fmt.Sprintf(`{"effect":"allow","actions":["a"],"banks":["b%d"]}`, i))
	},
	"patterns": func(i, n int) policy.Subject {
		return allows(`{"effect":"allow","actions":["a"],"banks":["` + strings.Join(names(fmt.Sprintf("bank-%d-", i), n), `::*","`) + `::*","b"]}`)
	},
	"tags": func(i, n int) policy.Subject {
		return allows(fmt.Sprintf(`{"effect":"allow","actions":["a"],"banks":["*"],"retain_tags":["%d"%s]}`, i, strings.Repeat(`,"a tag"`, n)))
	},
	"tag groups": func(i, n int) policy.Subject {
		return allows(fmt.Sprintf(`{"effect":"allow","actions":["a"],"banks":["*"],"recall_tag_groups":[{"a":%d}%s]}`, i, strings.Repeat(`,{"b":1}`, n)))
	},
	"parameters": func(i, n int) policy.Subject {
		return allows(strings.Repeat(fmt.Sprintf(`{"effect":"allow","actions":["a"],"banks":["b"],"llm_model":"m%d","recall_max_tokens":7,"retain_roles":["r"]},`, i), n) +
			`{"effect":"deny","actions":["a"],"banks":["b"]}`)
	},
	"groups": func(i, n int) policy.Subject {
		s := allows(fmt.Sprintf(`{"effect":"allow","actions":["a"],"banks":["b%d"]}`, i))
		s.Grants = slices.Repeat(s.Grants, n)
		for k := range n {
			s.Grants[k].Group = fmt.Sprintf("group-%d-%026d", i, k)
		}
		return s
	},
}

func allows(statements string) policy.Subject {
	document := `{"version":"2026-03-24","statements":[` + statements + `]}`
	return policy.Subject{Kind: policy.User, Grants: []policy.Grant{{PolicyID: "p", Document: []byte(document)}}}
}

// A compiler's own estimate is at least its heap bytes, and not many times more.
func TestKeptIsHonest(t *testing.T) {
	for name, subject := range bulky {
		c := policy.NewCompilerWithin(policy.Memory, 1<<40)
		before := heaptest.Live()
		for i := range 40 {
			rights := c.Compile(subject(i, 1000))
			for k := range 20 {
				rights.Decide(fmt.Sprint("a", k%3), fmt.Sprint("b", i+k), &policy.Context{}, nil)
			}
		}
		real, said := heaptest.Live()-before, c.Budget().Used()
		expect.Holds(t, real*9/10 <= said && said <= 4*real, name, ": bytes, and the estimate: ", real, said)
	}
}

// The same holds for the estimates of bank policies.
func TestBanksAreHonest(t *testing.T) {
	const n = 40
	all := make([]*policy.Bank, n)
	overrides := func(of string) string {
		return strings.Join(names(`{"scope":"topic","value":"t`, 1000), `",`+of+`},`) + `",` + of + `}`
	}
	for _, document := range []string{
		`{"version":"2026-03-24","strategy_overrides":[` + overrides(`"strategy":"s"`) + `]}`,
		`{"version":"2026-03-24","public_access":{"overrides":[` + overrides(`"actions":["bank:recall","bank:reflect"],"recall_max_tokens":3`) + `]}}`,
	} {
		before := heaptest.Live()
		for i := range all {
			all[i] = policy.Memory.CompileBank(&policy.Named{ID: fmt.Sprint("bank", i), Document: []byte(document)})
		}
		real, said := heaptest.Live()-before, int64(0)
		for _, b := range all {
			said += b.Share().Bytes()
		}
		expect.Holds(t, real*9/10 <= said && said <= 4*real, "bytes, and the estimate: ", real, said)
	}
}

// The memory of caches has a limit on the heap, whatever is compiled, decided and noted. They give up all that they hold.
func TestKeptIsBounded(t *testing.T) {
	is := is.New(t)
	const most = 16 << 20
	c, before := policy.NewCompilerWithin(policy.Memory, most), heaptest.Live()
	for i := range 200 {
		bank := policy.Memory.CompileBank(overridden(200, "topic"))
		for _, subject := range bulky {
			rights := c.Compile(subject(i, 300))
			for k := range 20 {
				rights.Decide(fmt.Sprint("a", k), fmt.Sprint("b", i, k), &policy.Context{}, nil)
				is.True(c.Budget().Used() <= most)
			}
			rights.Note("a0", fmt.Sprint("b", i, 0), bank, 1)
			is.True(c.Budget().Used() <= most)
		}
	}
	grown, said := heaptest.Live()-before, c.Budget().Used()
	expect.Holds(t, said > most/2 && grown < 2*most, "bytes, and the estimate: ", grown, said)
	c.Budget().Empty()
	is.Equal(c.Budget().Used(), int64(0))
}

// A compiler for one call gives the same answers, uses the shared caches, and adds nothing to them.
func TestApartKeepsNothing(t *testing.T) {
	is, c := is.New(t), policy.NewCompiler(policy.Memory)
	named := bulky["tags"](7, 10)
	named.Grants[0].PolicyID = strings.Repeat("p", 10_000)
	rights, before := c.Compile(named), c.Budget().Used()
	rights.Decide("a", "b", &policy.Context{}, nil)
	is.True(c.Budget().Used() > before+10_000) // with its reason
	request := policy.Request{Action: "a", Bank: "b7"}
	want, kept := c.Compile(bulky["tags"](7, 10)).Explain(request), c.Budget().Used()
	for _, subject := range bulky {
		apart := c.Apart(nil)
		is.NoErr(apart.Check(subject(7, 10).Grants[0].Document))
		apart.Compile(subject(7, 10)).Explain(request)
		is.True(apart.Check([]byte(`{}`)) != nil)
	}
	is.Equal(c.Apart(nil).Compile(bulky["tags"](7, 10)).Explain(request), want)
	is.Equal(c.Budget().Used(), kept)
}
