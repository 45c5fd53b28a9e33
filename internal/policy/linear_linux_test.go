package policy_test

import (
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

// TestTimeIsLinear: strings 256 times as long take about 256 times as long, whatever their content and
// however many of their prefixes are patterns. The time is that of the processor, which other programs
// make no longer but by what they push out of its caches, and the limit is far from both 256 and its square.
func TestTimeIsLinear(t *testing.T) {
	longtest.Test(t, "that no text takes more than linear time")
	if longtest.Raced {
		t.Skip("times mean nothing with the race detector")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, unit := range map[string]string{"colon": ":", "star": "*", "colons": "::", "segments": "a::", "letters": "a"} {
		for what, do := range map[string]func(text string) func(){"decide": deciding, "explain": explaining, "compile": compiling} {
			short, long := timeOf(do(strings.Repeat(unit, 4<<10/len(unit)))), timeOf(do(strings.Repeat(unit, 1<<20/len(unit))))
			if long > 4096*short {
				t.Errorf("%s, %s: 4 KB take %v, 1 MB %v", what, name, short, long)
			}
		}
	}
}

// timeOf returns the time of the processor that a call takes in this thread. It is counted in ticks, so it is of many calls.
func timeOf(do func()) time.Duration {
	calls, began := time.Duration(0), processor()
	for processor()-began < 200*time.Millisecond {
		do()
		calls++
	}
	return (processor() - began) / calls
}

func processor() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
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
