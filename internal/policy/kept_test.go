package policy_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/heaptest"
	"github.com/extsvc/svc/internal/policy"
)

// bulky are documents with n large parts of one sort each, all different.
var bulky = map[string]func(i, n int) string{
	"statements": func(i, n int) string {
		return allows(strings.Repeat(`{"effect":"deny","actions":["a"],"banks":["b"]},`, n) + fmt.Sprintf(`{"effect":"allow","actions":["a"],"banks":["b%d"]}`, i))
	},
	"patterns": func(i, n int) string {
		var banks strings.Builder
		for k := range n {
			fmt.Fprintf(&banks, `,"bank-%d-%d::*"`, i, k)
		}
		return allows(`{"effect":"allow","actions":["a"],"banks":["b"` + banks.String() + `]}`)
	},
	"tags": func(i, n int) string {
		return allows(fmt.Sprintf(`{"effect":"allow","actions":["a"],"banks":["*"],"retain_tags":["%d"%s]}`, i, strings.Repeat(`,"a tag"`, n)))
	},
	"tag groups": func(i, n int) string {
		return allows(fmt.Sprintf(`{"effect":"allow","actions":["a"],"banks":["*"],"recall_tag_groups":[{"a":%d}%s]}`, i, strings.Repeat(`,{"b":1}`, n)))
	},
	"parameters": func(i, n int) string {
		return allows(strings.Repeat(fmt.Sprintf(`{"effect":"allow","actions":["a"],"banks":["b"],"llm_model":"m%d","recall_max_tokens":7,"retain_roles":["r"]},`, i), n) +
			`{"effect":"deny","actions":["a"],"banks":["b"]}`)
	},
}

func allows(statements string) string {
	return `{"version":"2026-03-24","statements":[` + statements + `]}`
}

func held(document string) policy.Subject {
	return policy.Subject{Kind: policy.User, Grants: []policy.Grant{{PolicyID: "p", Document: []byte(document)}}}
}

// A compiler's own estimate is at least its heap bytes, and not many times more.
func TestKeptIsHonest(t *testing.T) {
	for name, document := range bulky {
		c := policy.NewCompilerWithin(policy.Memory, 1<<40)
		before, said := heaptest.Live(), c.Budget().Used()
		for i := range 40 {
			rights := c.Compile(held(document(i, 1000)))
			for k := range 20 {
				rights.Decide(fmt.Sprint("a", k%3), fmt.Sprint("b", i+k), &policy.Context{}, nil)
			}
		}
		real := heaptest.Live() - before
		said = c.Budget().Used() - said
		runtime.KeepAlive(c)
		t.Logf("%s: %d bytes, estimated %d", name, real, said)
		expect.Holds(t, real*9/10 <= said && said <= 4*real, name, ": bytes, and the estimate: ", real, said)
	}
}

// The same holds for the estimates of bank policies.
func TestBanksAreHonest(t *testing.T) {
	const n = 40
	all := make([]*policy.Bank, n)
	overrides := func(of string) string {
		var list strings.Builder
		for k := range 1000 {
			fmt.Fprintf(&list, `{"scope":"topic","value":"t%d",%s},`, k, of)
		}
		return strings.TrimSuffix(list.String(), ",")
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
		t.Logf("%d bytes, estimated %d", real, said)
		expect.Holds(t, real*9/10 <= said && said <= 4*real, "bytes, and the estimate: ", real, said)
	}
}

// The memory of caches has a limit on the heap, whatever the number of compiled subjects and decisions.
func TestKeptIsBounded(t *testing.T) {
	is := is.New(t)
	const most = 16 << 20
	c, before := policy.NewCompilerWithin(policy.Memory, most), heaptest.Live()
	for i := range 300 {
		for _, document := range bulky {
			rights := c.Compile(held(document(i, 300)))
			for k := range 4 {
				rights.Decide(fmt.Sprint("a", k), fmt.Sprint("b", i, k), &policy.Context{}, nil)
			}
		}
		is.True(c.Budget().Used() <= most)
	}
	is.True(c.Budget().Used() > most/2)
	grown := heaptest.Live() - before
	t.Logf("%d bytes, estimated %d", grown, c.Budget().Used())
	is.True(grown < 2*most)
	runtime.KeepAlive(c)
}

// A compiler for one call gives the same answers, uses the shared caches, and adds nothing to them.
func TestApartKeepsNothing(t *testing.T) {
	is, c := is.New(t), policy.NewCompiler(policy.Memory)
	named := held(bulky["tags"](7, 10))
	named.Grants[0].PolicyID = strings.Repeat("p", 10_000)
	rights, before := c.Compile(named), c.Budget().Used()
	rights.Decide("a", "b", &policy.Context{}, nil)
	is.True(c.Budget().Used() > before+10_000) // with its reason
	request := policy.Request{Action: "a", Bank: "b7"}
	want := c.Compile(held(bulky["tags"](7, 10))).Explain(request)
	kept := c.Budget().Used()
	for _, document := range bulky {
		apart := c.Apart(nil)
		is.NoErr(apart.Check([]byte(document(7, 10))))
		apart.Compile(held(document(7, 10))).Explain(request)
		is.True(apart.Check([]byte(`{}`)) != nil)
	}
	is.Equal(c.Apart(nil).Compile(held(bulky["tags"](7, 10))).Explain(request), want)
	is.Equal(c.Budget().Used(), kept)
}
