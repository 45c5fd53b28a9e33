package linearizability_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience limits the search for an order of one template's or key's calls. It usually takes
// milliseconds.
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
