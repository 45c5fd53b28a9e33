package linearizability_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/memstore"
)

// patience limits the search for an order of one template's or key's calls. It usually takes milliseconds.
const patience = time.Minute

// A call is a client's request, an answer is its result.
type (
	call interface {
		comparable
		fmt.Stringer
		subject() string // the template or key; subjects are independent of each other
		kind() string
		reads() bool // changes nothing
	}
	answer interface {
		fmt.Stringer
		kind() string
		unknown() bool // the outcome is unknown: the call took effect, will, or never does
	}
	state[S any, C call, A answer] interface {
		comparable
		step(C, A) []S
	}
)

// possible returns the states after a call, or none. The rules want an answer and a state after it.
func possible[S any, A interface {
	comparable
	answer
}](before, after S, have, want A) []S {
	switch {
	case have.unknown():
		return []S{before, after}
	case have != want:
		return nil
	}
	return []S{after}
}

// moment is one call with its times since the start of the history.
type moment[C call, A answer] struct {
	client           int
	call             C
	answer           A
	called, answered time.Duration
}

// tally counts what checks have seen.
type tally struct {
	histories, calls int
	overlaps         int            // calls that began before the answer to an earlier one on the same subject
	answers          map[string]int // calls by kind and code
	took             time.Duration  // time to find the orders
}

func newTally() *tally { return &tally{answers: map[string]int{}} }

// missing returns what should have happened many times and has not happened.
func (sum *tally) missing() (missing []string) {
	for _, kind := range strings.Split("create ok,create already_exists,read ok,read not_found,patch ok,patch not_found,"+
		"install ok,install already_exists,update ok,update not_found,update invalid_request,update edited_locally,"+
		"delete ok,delete not_found,issue ok,issue by it ok,issue by it unauthenticated,authenticate ok,authenticate unauthenticated,revoke ok,revoke not_found,"+
		"decide ok,decide allowed,who can ok,who can allowed,activate ok,deactivate ok,join ok,leave ok,leave not_found,allow ok,deny ok,rename ok,"+
		"patch active ok,patch inactive ok,delete user ok,create user ok,attach ok,detach ok,"+
		"patch to allow ok,patch to deny ok,delete policy policy_in_use,delete policy ok,create policy ok,create policy already_exists,"+
		"open ok,shut ok,decide as public ok,decide as public allowed", ",") {
		if sum.answers[kind] == 0 {
			missing = append(missing, kind)
		}
	}
	if sum.overlaps*10 < sum.calls {
		missing = append(missing, "overlap in one call of ten")
	}
	return missing
}

func (sum *tally) String() string {
	var answers []string
	for _, kind := range slices.Sorted(maps.Keys(sum.answers)) {
		answers = append(answers, fmt.Sprintf("%s %d", kind, sum.answers[kind]))
	}
	return fmt.Sprintf("%d histories, %d calls, %d of which overlapped, checked in %v: %s",
		sum.histories, sum.calls, sum.overlaps, sum.took.Round(time.Millisecond), strings.Join(answers, ", "))
}

// check looks for an order of each subject's calls that explains their answers. It returns "", or
// the calls of the first subject without such an order.
func check[S state[S, C, A], C call, A answer](moments []moment[C, A], sum *tally) string {
	began := time.Now()
	defer func() { sum.took += time.Since(began) }()
	slices.SortStableFunc(moments, func(a, b moment[C, A]) int { return cmp.Compare(a.called, b.called) })
	bySubject := map[string][]moment[C, A]{}
	for _, m := range moments {
		sum.calls++
		sum.answers[m.call.kind()+" "+m.answer.kind()]++
		if !m.answer.unknown() || !m.call.reads() {
			bySubject[m.call.subject()] = append(bySubject[m.call.subject()], m)
		}
	}
	for subject, moments := range bySubject {
		sum.overlaps += overlaps(moments)
		if result := porcupine.CheckOperationsTimeout(model[S, C, A](), operations(moments), patience); result != porcupine.Ok {
			return fmt.Sprintf("%s: no order explains this (%s)\n%s", subject, result, describe(moments))
		}
	}
	return ""
}

func model[S state[S, C, A], C call, A answer]() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{*new(S)} },
		Step: func(state, input, output any) (next []any) {
			for _, after := range state.(S).step(input.(C), output.(A)) {
				next = append(next, after)
			}
			return next
		},
	}
	return m.ToModel()
}

// operations returns the moments for porcupine. A call with an unknown outcome may take effect
// until the end of the history, or after it.
func operations[C call, A answer](moments []moment[C, A]) []porcupine.Operation {
	var list []porcupine.Operation
	for _, m := range moments {
		if m.answer.unknown() {
			m.answered = time.Hour
		}
		list = append(list, porcupine.Operation{
			ClientId: m.client, Input: m.call, Call: int64(m.called), Output: m.answer, Return: int64(m.answered),
		})
	}
	return list
}

// overlaps counts the calls that began before the answer to an earlier one.
func overlaps[C call, A answer](moments []moment[C, A]) (n int) {
	var answered time.Duration
	for _, m := range moments {
		if m.called < answered {
			n++
		}
		answered = max(answered, m.answered)
	}
	return n
}

func describe[C call, A answer](moments []moment[C, A]) string {
	var b strings.Builder
	for _, m := range moments {
		fmt.Fprintf(&b, "%10s to %10s  client %d  %v: %v\n", m.called, m.answered, m.client, m.call, m.answer)
	}
	return b.String()
}

// The check must be able to fail: it soon finds a store with a fault.
func TestFaultsAreFound(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	for name, open := range stores {
		for fault, plant := range faults {
			t.Run(name+", "+fault, func(t *testing.T) {
				var faulty []svc.Store
				for _, store := range open(t) {
					faulty = append(faulty, plant(store))
				}
				findOut(t, faulty)
			})
		}
	}
}

// It also finds a Service whose rows in memory lack a change, or whose list has an outdated template.
func TestStaleListsAreFound(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	findOut(t, []svc.Store{silent{memstore.New(), event.TargetTemplate}})
	for _, kind := range []event.TargetKind{event.TargetUser, event.TargetPolicy, event.TargetAttachment, event.TargetBankPolicy} {
		findOut(t, []svc.Store{silent{memstore.New(), kind}})
	}
	findOut(t, []svc.Store{&late{Store: memstore.New(), before: map[string]svc.Template{}}})
}

// soon is the number of histories in which the check must find a fault.
const soon = 100

func findOut(t *testing.T, faulty []svc.Store) {
	services, sum, exact := serve(t, faulty...), newTally(), isExact(t, faulty)
	for seed := firstSeed(t); sum.histories < soon; seed++ {
		if newHistory(t, seed, fmt.Sprint("history-", seed), services, exact).violation(sum) != "" {
			t.Logf("found by history %d, after %d calls", sum.histories, sum.calls)
			return
		}
	}
	t.Fatalf("not found: %v", sum)
}

var faults = map[string]func(svc.Store) svc.Store{
	"a change that reads outside of its transaction": func(store svc.Store) svc.Store { return forgetful{store} },
	"a key that is remembered for a moment": func(store svc.Store) svc.Store {
		return &remembering{Store: store, keys: map[string]remembered{}}
	},
}

// forgetful reads and writes in two transactions.
type forgetful struct{ svc.Store }

func (s forgetful) ChangeTemplate(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
	template, err := s.Template(ctx, key)
	if err != nil {
		return err
	}
	if write, err := change(&template); err != nil || !write {
		return err
	}
	runtime.Gosched()
	return s.Store.ChangeTemplate(ctx, key, func(there *svc.Template) (bool, error) {
		*there = template
		return true, nil
	})
}

// remembering answers with what it read a moment ago.
type remembering struct {
	svc.Store
	mu   sync.Mutex
	keys map[string]remembered
}

type remembered struct {
	svc.AccessSnapshot
	read time.Time
}

const aMoment = 200 * time.Millisecond

func (s *remembering) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, there := s.keys[query.KeyID]; there && time.Since(known.read) < aMoment {
		return known.AccessSnapshot, nil
	}
	snapshot, err := s.Store.Access(ctx, query)
	if err == nil && query.KeyID != "" {
		s.keys[query.KeyID] = remembered{snapshot, time.Now()}
	}
	return snapshot, err
}

// silent reports no change of one kind.
type silent struct {
	svc.Store
	kind event.TargetKind
}

func (s silent) Changes(ctx context.Context, since int64) (svc.StoreChanges, error) {
	changes, err := s.Store.Changes(ctx, since)
	changes.Targets = slices.DeleteFunc(changes.Targets, func(t svc.Target) bool { return t.Kind == s.kind })
	return changes, err
}

// late returns a template as the call before read it.
type late struct {
	svc.Store
	mu     sync.Mutex
	before map[string]svc.Template
}

func (s *late) Template(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
	template, err := s.Store.Template(ctx, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.before[key.ID]
	if s.before[key.ID] = template; known && err == nil {
		return before, nil
	}
	return template, err
}
