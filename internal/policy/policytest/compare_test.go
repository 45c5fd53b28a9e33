package policytest

import (
	"flag"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/parameter"
)

// Before a release, and after a change of the engine: -pairs 1000000.
var pairs = flag.Int("pairs", 0, "how many random questions engine and reference are asked; 0: 30,000 in CI, else 2,000; 5,000 there with -short or -race")

func howMany() int {
	switch {
	case *pairs > 0:
		return *pairs
	case testing.Short(), longtest.Raced:
		return longtest.Times(2_000, 5_000)
	}
	return longtest.Times(2_000, 30_000)
}

const perWorld = 50

type question struct {
	Principal
	Request
	want policy.Result
}

// answer holds the engine's answers to a question, both of Decide and Explain.
type answer struct {
	decided   policy.Result // without a trace
	explained policy.Result
}

// engine answers questions. It must be safe for concurrent use.
type engine func(policy.Subject, Request) answer

// newEngine returns the engine. Its caches last from one world to the next.
func newEngine() engine {
	c := policy.NewCompiler(policy.Memory)
	return func(s policy.Subject, q Request) answer {
		rights := c.Compile(s)
		bank := policy.Memory.CompileBank(q.BankPolicy)
		in := policy.Context{Provider: q.Provider, Channel: q.Channel, Topic: q.Topic}
		d := rights.Decide(q.Action, q.Bank, &in, bank)
		a := answer{explained: rights.Explain(policy.Request{Action: q.Action, Bank: q.Bank, Context: in, Policy: bank})}
		a.decided = policy.Result{Outcome: d.Outcome(), Reason: d.Reason(), Parameters: d.Parameters()}
		if strategy, ok := d.Strategy(); ok {
			a.decided.Strategy = &strategy
		}
		return a
	}
}

// difference says how an answer differs from the expected one, or returns "".
func (a answer) difference(want policy.Result) string {
	decided := want
	decided.Trace = nil
	if !reflect.DeepEqual(a.explained, want) || !reflect.DeepEqual(a.decided, decided) {
		return fmt.Sprintf("Explain says %s\nDecide  says %s\nwant         %s", write(a.explained), write(a.decided), write(want))
	}
	return ""
}

type comparison struct {
	engine engine
	rules  *rules
	limit  int // questions

	mu         sync.Mutex
	next       uint64 // the seed of the next world
	asked      int
	seen       census
	difference string // the first that was found, which ends it
}

// compare asks both the same questions, world by world, on all processors.
func compare(e engine, l *rules, questions int) *comparison {
	c := &comparison{engine: e, rules: l, limit: questions, seen: census{}}
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed, more := c.world(); more; seed, more = c.world() {
				c.enter(c.ask(seed))
			}
		})
	}
	workers.Wait()
	return c
}

// world returns the seed of an unused world.
func (c *comparison) world() (seed uint64, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	return c.next, c.difference == "" && int(c.next-1)*perWorld < c.limit
}

// ask asks all questions of a world, or stops at the first difference.
func (c *comparison) ask(seed uint64) (questions []question, difference string) {
	w := NewWorld(seed)
	var q question
	for i := range perWorld {
		switch {
		case i == 0 || w.IntN(2) == 0:
			q = question{Principal: w.Principal(), Request: w.Request()}
		case w.IntN(2) == 0: // another asks the same
			q.Principal = w.Namesake(q.Principal)
		case w.IntN(2) == 0: // and the same one for something near to it
			q.Action = w.Action()
		default:
			q.Bank = w.Bank()
			q.BankPolicy = w.BankPolicy(q.Bank)
		}
		w.maybe(8, func() { // as if the policy had changed
			q.BankPolicy = &policy.Named{ID: q.Bank, Document: pick(w, w.BankPolicies).Document}
		})
		q.want = c.rules.evaluate(q.Subject, q.Request)
		questions = append(questions, q)
		if d := c.engine(q.Subject, q.Request).difference(q.want); d != "" {
			return questions, fmt.Sprintf("seed %d: %s %q asks %+v\n%s", seed, q.Kind, q.ID, q.Request, d)
		}
	}
	return questions, ""
}

func (c *comparison) enter(questions []question, difference string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked += len(questions)
	if c.difference == "" {
		c.difference = difference
	}
	for _, q := range questions {
		c.seen.count(q)
	}
}

func TestEngineAnswersAsTheReference(t *testing.T) {
	c := compare(newEngine(), law, howMany())
	if c.difference != "" {
		t.Fatal(c.difference)
	}
	t.Logf("%d questions, no difference\n%s", c.asked, c.seen)
	for what, n := range c.seen {
		if n < c.asked/1000 {
			t.Errorf("%q was seen %d times: too rarely to say anything of it", what, n)
		}
	}
}

// census counts the kinds of questions and answers, including kinds not seen, with 0.
type census map[string]int

var codes = []string{
	policy.CodeAllowMatched, policy.CodeAllowOverridden, policy.CodeDenyMatched, policy.CodeActionNotMatched, policy.CodeBankNotMatched,
	policy.CodeDocumentInvalid, policy.CodePublicAllowed, policy.CodePublicActionNotMatched, policy.CodePublicLessSpecific,
	policy.CodePublicContextNotMatched, policy.CodeBankOverride, policy.CodeBankDefault,
}

func (c census) count(q question) {
	for what, so := range facts(q) {
		c[what] += map[bool]int{true: 1}[so]
	}
}

const (
	lostByScoping = "lost by a scoping side"
	lostByFirst   = "lost by the first of two scoping sides"

	lostByNarrowing = "lost by a side that gives nothing"
	lostToNarrowing = "lost to a side that gives nothing"
)

// facts returns each kind of question and answer, and whether this question is of that kind.
func facts(q question) map[string]bool {
	p, s := MemoryOf(q.want.Parameters), q.Subject
	outcome := func(o policy.Outcome, kind policy.Kind) bool { return q.want.Outcome == o && q.Kind == kind }
	f := map[string]bool{
		"user: allow":                    outcome(policy.Allow, policy.User),
		"user: explicit deny":            outcome(policy.ExplicitDeny, policy.User),
		"user: implicit deny":            outcome(policy.ImplicitDeny, policy.User),
		"service account: allow":         outcome(policy.Allow, policy.ServiceAccount),
		"service account: explicit deny": outcome(policy.ExplicitDeny, policy.ServiceAccount),
		"service account: implicit deny": outcome(policy.ImplicitDeny, policy.ServiceAccount),
		"unmapped: allow":                outcome(policy.Allow, policy.Unmapped),
		"unmapped: implicit deny":        outcome(policy.ImplicitDeny, policy.Unmapped),
		"a closed subject":               s.Closed != "",
		"a kind that is none":            s.Kind == "robot",
		"a user narrowed: allow":         outcome(policy.Allow, policy.User) && len(s.Scoping) > 0,
		"lessened: allow":                q.want.Outcome == policy.Allow && len(s.Narrowing) > 0,
		"lessened: explicit deny":        q.want.Outcome == policy.ExplicitDeny && len(s.Narrowing) > 0,
		"lessened: implicit deny":        q.want.Outcome == policy.ImplicitDeny && len(s.Narrowing) > 0,
		lostByNarrowing:                  false,
		lostToNarrowing:                  false,
		"narrowed twice: allow":          q.want.Outcome == policy.Allow && len(s.Scoping) == 2,
		"narrowed thrice":                len(s.Scoping) == 3,
		"narrowed twice: implicit deny":  q.want.Outcome == policy.ImplicitDeny && len(s.Scoping) == 2,
		"an empty intersection":          len(s.Scoping) > 0 && p.RetainRoles != nil && len(p.RetainRoles) == 0,
		"several tag groups":             len(p.RecallTagGroups) > 1,
		"the principal's own strategy":   p.RetainStrategy != nil,
		"no strategy at all":             q.want.Outcome == policy.Allow && q.want.Strategy == nil,
		"a string that is no UTF-8":      !utf8.ValidString(q.Action) || !utf8.ValidString(q.Bank),
		"a long string":                  len(q.Action) > 128 || len(q.Bank) > 128,
		"a star that is asked for":       strings.Contains(q.Action+q.Bank, "*"),
		lostByScoping:                    false,
		lostByFirst:                      false,
	}
	for _, code := range codes {
		f["code "+code] = false
	}
	for _, p := range policy.Memory.Parameters() {
		if p.Merge != parameter.Union && p.Merge != parameter.All {
			f["lost "+p.Name] = false
		}
	}
	narrowing := func(id string) bool {
		return slices.ContainsFunc(s.Narrowing, func(n policy.Named) bool { return n.ID == id })
	}
	for _, e := range q.want.Trace {
		scoping := strings.HasPrefix(e.Via, "scoping:") && narrowing(e.PolicyID)
		f[lostByNarrowing] = f[lostByNarrowing] || scoping && len(e.Lost) > 0
		for _, winner := range e.Lost {
			id, _, _ := strings.Cut(winner, "#")
			f[lostToNarrowing] = f[lostToNarrowing] || !scoping && narrowing(id)
		}
		f["code "+e.Code] = true
		for name := range e.Lost {
			f["lost "+name] = true
		}
		if e.Via == "scoping:"+s.ServiceAccountID && len(e.Lost) > 0 {
			f[lostByScoping] = true
			f[lostByFirst] = f[lostByFirst] || len(s.Scoping) == 2 && e.PolicyID == s.Scoping[0].ID && e.PolicyID != s.Scoping[1].ID
		}
	}
	return f
}

func (c census) String() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "%8d %s\n", c[what], what)
	}
	return b.String()
}
