package policy_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

// TestTimeIsLinear: strings sixteen times as long take about sixteen times as long, whatever their
// content and however many of their prefixes are patterns. Times are those of a busy machine, so
// the limit is far from both 16 and its square.
func TestTimeIsLinear(t *testing.T) {
	longtest.Test(t, "that no text takes more than linear time")
	if longtest.Raced {
		t.Skip("times mean nothing with the race detector")
	}
	for name, unit := range map[string]string{"colon": ":", "star": "*", "colons": "::", "segments": "a::", "letters": "a"} {
		for what, do := range map[string]func(text string) func(){"decide": deciding, "explain": explaining, "compile": compiling} {
			t.Run(what+"/"+name, func(t *testing.T) {
				ten, more := do(strings.Repeat(unit, 10<<10/len(unit))), do(strings.Repeat(unit, 160<<10/len(unit)))
				short, long := fastest(20, ten), fastest(5, more)
				for range 20 { // other work may have taken the processor
					if long < 100*short {
						return
					}
					long = min(long, fastest(1, more))
				}
				t.Errorf("10 KB take %v, 160 KB %v", short, long)
			})
		}
	}
}

func fastest(of int, do func()) time.Duration {
	least := time.Hour
	for range of {
		began := time.Now()
		do()
		least = min(least, time.Since(began))
	}
	return least
}

// deciding returns a function that decides new requests. All prefixes of the text are patterns.
func deciding(text string) func() {
	rights, n := policy.NewCompiler(policy.Memory).Compile(nested(text)), 0
	return func() {
		for range 4 {
			n++
			s := text + strconv.Itoa(n)
			rights.Decide(s, s, &policy.Context{}, nil)
		}
	}
}

func explaining(text string) func() {
	rights := policy.NewCompiler(policy.Memory).Compile(nested(text))
	return func() { rights.Explain(policy.Request{Action: text, Bank: text}) }
}

func compiling(text string) func() {
	s := nested(text)
	return func() { policy.NewCompiler(policy.Memory).Compile(s) }
}

// nested returns patterns of growing length. Each is the beginning of the next, and of text.
func nested(text string) policy.Subject {
	text = strings.ReplaceAll(text, "*", "b")
	st := policytest.Statement{Effect: "allow", Actions: []string{"bank:*"}, Banks: []string{"*"}}
	for i := range 20 {
		prefix := text[:len(text)*(i+1)/20]
		st.Actions, st.Banks = append(st.Actions, prefix+":*"), append(st.Banks, prefix+"::*")
	}
	return policy.Subject{Kind: policy.User, Grants: []policy.Grant{{PolicyID: "p", Document: policytest.Document(st)}}}
}
