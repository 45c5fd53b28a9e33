//go:build planted

package storetest

import (
	"context"
	"errors"
	"maps"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/memstore"
)

// TestMain checks more stores at once than there are processors, because rules wait.
func TestMain(m *testing.M) {
	longtest.AtOnce(max(8, runtime.NumCPU()))
	m.Run()
}

// TestEveryRuleCanFail runs the rules on broken stores: those made by hand, and those that are
// generated. Each store must break a rule, and each rule must catch a store.
func TestEveryRuleCanFail(t *testing.T) {
	longtest.Test(t, "that each rule can fail")
	if broken := check(rules(), func() svc.Store { return memstore.New() }); len(broken) > 0 {
		t.Fatalf("a good store breaks %v", broken)
	}
	var c catches
	byHand, made := faults(), generated()
	t.Run("by hand", func(t *testing.T) {
		for name, fault := range byHand {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				to := quickRules()
				if longFaults[name] != nil || longAuditFaults[name] != nil || largePageFaults[name] != nil {
					to = rules()
				}
				var broken map[string]error
				for try := 0; len(broken) == 0 && try < 3; try++ { // rules take some things in no order
					broken = check(to, func() svc.Store { return fault(memstore.New()) })
				}
				if len(broken) == 0 {
					t.Error("breaks no rule")
				}
				c.add("", slices.Collect(maps.Keys(broken))...)
			})
		}
	})
	open, missed := openFaults(t), atomic.Int64{}
	t.Run("generated", func(t *testing.T) {
		for name, fault := range made {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				rule := c.first(name, fault)
				if rule == "" && fault.changes() && !open[name] {
					t.Log("breaks no rule")
					missed.Add(1)
				}
				if rule != "" && open[name] {
					t.Logf("testdata/open.txt can do without this line: it breaks %q", rule)
				}
			})
		}
	})
	// A busy machine may hide the few that only a race shows.
	if most := int64(len(made) / 100); missed.Load() > most {
		t.Errorf("%d generated faults break no rule and are not in testdata/open.txt, want at most %d", missed.Load(), most)
	}
	if c.ran < len(byHand)+len(made) {
		return // only some faults were selected
	}
	if c.broke < 450 {
		t.Errorf("%d broken stores break a rule, want 450", c.broke)
	}
	for _, rule := range rules() {
		if c.caught[rule.says] == 0 && !breaks(rule) {
			t.Errorf("no broken store breaks this rule: %s", rule.says)
		}
	}
}

// openFaults are the names of generated faults that may break no rule: the contract leaves open what
// they change, or no rule shows it yet.
func openFaults(t *testing.T) map[string]bool {
	text, err := os.ReadFile("testdata/open.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for name := range strings.Lines(string(text)) {
		all[strings.TrimSpace(name)] = true
	}
	return all
}

// catches are the rules that have caught a store.
type catches struct {
	mu         sync.Mutex
	caught     map[string]int
	of         map[string]map[string]bool // by method
	ran, broke int
}

// add enters the rules that a store with a fault of a method has broken.
func (c *catches) add(method string, rules ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.caught == nil {
		c.caught, c.of = map[string]int{}, map[string]map[string]bool{}
	}
	if c.of[method] == nil {
		c.of[method] = map[string]bool{}
	}
	c.ran++
	c.broke += min(1, len(rules))
	for _, rule := range rules {
		c.caught[rule]++
		c.of[method][rule] = true
	}
}

// first returns the first rule that a store breaks; "": none. It begins with rules that have caught no store, or one
// with a fault of the same method. It ends after these when the fault has changed nothing in them.
func (c *catches) first(name string, p planted) string {
	method, _, _ := strings.Cut(name, " ")
	c.mu.Lock()
	rules := quickRules()
	place, known := map[string]int{}, len(c.of[method])
	for _, rule := range rules {
		switch {
		case c.of[method][rule.says]:
			place[rule.says] = 1
		case c.caught[rule.says] > 0:
			place[rule.says] = 2
		}
	}
	c.mu.Unlock()
	slices.SortStableFunc(rules, func(a, b rule) int { return place[a.says] - place[b.says] })
	fault := broken(p.fault)
	for i, rule := range rules {
		if place[rule.says] == 2 && known >= 5 && !p.changes() {
			break
		}
		if len(check(rules[i:i+1], func() svc.Store { return fault(memstore.New()) })) > 0 {
			c.add(method, rule.says)
			return rule.says
		}
	}
	c.add(method)
	return ""
}

// breaks reports whether a broken store breaks a rule when nothing else runs: some rules catch a
// store that does not wait within milliseconds, which a busy machine may not give it. Others catch
// only generated faults that another rule has caught first.
func breaks(one rule) bool {
	all := faults()
	for name, made := range generated() {
		all[name] = broken(made.fault)
	}
	for _, fault := range all {
		if len(check([]rule{one}, func() svc.Store { return fault(memstore.New()) })) > 0 {
			return true
		}
	}
	return false
}

// bare is a store without the optional roles.
type bare struct{ svc.Store }

func (b bare) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return b.Store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return fn(ctx, bare{tx}) })
}

// A store without the optional roles breaks no rule, and the rules of these roles are skipped.
func TestStoreWithoutOptionalRoles(t *testing.T) {
	Run(t, func(*testing.T) svc.Store { return bare{memstore.New()} })
	var lacks []string
	for _, rule := range quickRules() {
		if missing, is := errors.AsType[skipped](rule.broken(bare{memstore.New()})); is {
			lacks = append(lacks, missing.Error())
		}
	}
	if want := len(sourceFileRules) + len(outboxRules) + len(statsRules) + len(freshnessRules) + len(answerRules) + len(auditRules); len(lacks) != want {
		t.Errorf("%d rules are skipped, want %d", len(lacks), want)
	}
	if slices.Sort(lacks); !slices.Equal(slices.Compact(lacks), []string{
		"the store is no svc.AnswerStore", "the store is no svc.AuditStore", "the store is no svc.FreshnessStore",
		"the store is no svc.OutboxStore", "the store is no svc.SourceFileStore", "the store is no svc.StatsStore",
	}) {
		t.Errorf("rules are skipped because of %q", lacks)
	}
}

// store is a good store, and the methods that a fault replaces, by name: functions of the same types.
type store struct {
	svc.FullStore
	does map[string]any
}

// broken returns a store with methods that fault has replaced.
func broken(fault func(s *store)) func(svc.Store) svc.Store {
	return func(good svc.Store) svc.Store {
		s := &store{good.(svc.FullStore), map[string]any{}}
		fault(s)
		return &intercept.Store{FullStore: s.FullStore, All: true, Around: s.around}
	}
}

func (s *store) around(ctx context.Context, call intercept.Call) error {
	does, replaced := s.does[call.Method]
	if !replaced {
		return call.Do()
	}
	method := reflect.ValueOf(does)
	var args []reflect.Value
	for i, arg := range slices.Concat([]any{ctx}, call.Args, call.Funcs) {
		value := reflect.New(method.Type().In(i)).Elem() // arg may be nil
		if arg != nil {
			value.Set(reflect.ValueOf(arg))
		}
		args = append(args, value)
	}
	out := method.Call(args)
	if len(out) > 1 {
		reflect.ValueOf(call.Result).Elem().Set(out[0])
	}
	err, _ := out[len(out)-1].Interface().(error)
	return err
}

func faults() map[string]func(svc.Store) svc.Store {
	all := map[string]func(*store){}
	for _, group := range []map[string]func(*store){
		accessFaults, largePageFaults, apiKeyFaults, auditFaults, longAuditFaults, changeFaults, longFaults, outboxFaults,
		sourceFaults, templateFaults, transactionFaults,
	} {
		maps.Copy(all, group)
	}
	built := map[string]func(svc.Store) svc.Store{}
	for name, fault := range all {
		built[name] = broken(fault)
	}
	return built
}
