package svc_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/heaptest"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/limits"
)

// growing are requests to Simulate and PreviewApply, whose sizes are about linear in n, each larger in one way than is common.
var growing = map[string]func(n int) svc.Bundle{
	"tag groups": func(n int) svc.Bundle { return held(times(n, granting(`"recall_tag_groups":[{"any":["#"]}]`))) },
	"equal tag groups": func(n int) svc.Bundle {
		return held(times(n, granting(`"recall_tag_groups":[{"any":[1.0]},{"any":[1]}]`)))
	},
	"tag groups of one": func(n int) svc.Bundle {
		return held(chunked(n, limits.ListElements, `{"a":#}`, granting(`"recall_tag_groups":[@]`)))
	},
	"roles": func(n int) svc.Bundle { return held(times(n, granting(`"retain_roles":["#"]`))) },
	"tags": func(n int) svc.Bundle {
		statements := times(n, granting(`"retain_tags":["#"],"llm_model":"#"`))
		slices.Reverse(statements)
		return held(statements)
	},
	"patterns": func(n int) svc.Bundle {
		b := held(nil)
		for i, st := range chunked(n, limits.Patterns/2-2, `"b#::*"`, `{"effect":"allow","actions":["bank:*"],"banks":["b",@]}`) {
			give(&b, "patterns"+strconv.Itoa(i), document(st))
		}
		return b
	},
	"policies": func(n int) svc.Bundle {
		b := held([]string{granting(`"retain_tags":["a"]`)})
		for i, st := range times(n, granting(`"retain_tags":["p#"]`)) {
			give(&b, "p"+strconv.Itoa(i), document(st))
		}
		return b
	},
	"ways": ways,
	"a large policy in many ways": func(n int) svc.Bundle {
		b := ways(n)
		b.Policies[0].Document = document(`{"effect":"allow","actions":["bank:*"],"banks":["b","` + strings.Repeat("x", 40*n) + `"]}`)
		return b
	},
	"attachments and members": func(n int) svc.Bundle {
		b := held([]string{granting(`"retain_tags":["a"]`)})
		b.Groups = []svc.Group{{ID: "g", Members: []string{"u"}}}
		for _, id := range times(n, "#") {
			b.Users = append(b.Users, svc.User{ID: "u" + id})
			b.Groups[0].Members = append(b.Groups[0].Members, "u"+id)
			b.Policies = append(b.Policies, svc.Policy{ID: "p" + id, Document: document()})
			b.Attachments = append(b.Attachments, attached("p"+id, svc.GrantedToGroup, "g"))
		}
		return b
	},
	"channels": func(n int) svc.Bundle {
		b := held(nil)
		for _, id := range times(n, "#") {
			b.Users[0].Channels = append(b.Users[0].Channels, svc.Channel{Provider: "slack", SenderID: id})
		}
		return b
	},
	"accounts": func(n int) svc.Bundle {
		b := held([]string{granting(`"retain_tags":["a"]`)})
		for _, id := range times(n, "s#") {
			b.ServiceAccounts = append(b.ServiceAccounts, svc.ServiceAccount{ID: id, OwnerUserID: "u", ScopingPolicyID: "p"})
		}
		return b
	},
	"overrides": func(n int) svc.Bundle {
		b := held([]string{granting(`"retain_tags":["a"]`)})
		for i, document := range chunked(n, limits.Overrides, override, overriding) {
			b.BankPolicies = append(b.BankPolicies, svc.BankPolicy{BankID: "b" + strings.Repeat("b", i), Document: []byte(document)})
		}
		return b
	},
	"errors": func(n int) svc.Bundle { return svc.Bundle{Users: make([]svc.User, n), Policies: make([]svc.Policy, n)} },
	"missing": func(n int) svc.Bundle {
		b := held(nil)
		for _, id := range times(n, "none#") {
			b.Attachments = append(b.Attachments, attached(id, svc.GrantedToUser, "nobody"))
		}
		return b
	},
}

// Overrides of a bank policy, and a document with them.
const override, overriding = `{"scope":"topic","value":"#","strategy":"s"}`, `{"version":"2026-03-24","strategy_overrides":[@]}`

func ways(n int) svc.Bundle {
	b := held([]string{granting(`"retain_tags":["a"]`)})
	for _, id := range times(n, "g#") {
		b.Groups = append(b.Groups, svc.Group{ID: id, Members: []string{"u"}})
		b.Attachments = append(b.Attachments, attached("p", svc.GrantedToGroup, id))
	}
	return b
}

// times repeats a text with the number of each in place of "#".
func times(n int, text string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.ReplaceAll(text, "#", strconv.Itoa(i))
	}
	return all
}

func granting(parameters string) string {
	return `{"effect":"allow","actions":["bank:*"],"banks":["*"],` + parameters + `}`
}

func document(statements ...string) []byte {
	return []byte(`{"version":"2026-03-24","statements":[` + strings.Join(statements, ",") + `]}`)
}

func attached(policy, kind, id string) svc.Attachment {
	return svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: kind, ID: id}}
}

// held is a user who has policies, as many as it takes for so many statements of two patterns.
func held(statements []string) svc.Bundle {
	b := svc.Bundle{
		Users: []svc.User{{ID: "u"}}, Policies: []svc.Policy{{ID: "p", Document: document()}},
		Attachments: []svc.Attachment{attached("p", svc.GrantedToUser, "u")},
	}
	for some := range slices.Chunk(statements, limits.Patterns/2) {
		if last := &b.Policies[len(b.Policies)-1]; len(b.Policies) == 1 && string(last.Document) == string(document()) {
			last.Document = document(some...)
			continue
		}
		give(&b, "p."+strconv.Itoa(len(b.Policies)), document(some...))
	}
	return b
}

// give attaches another policy to the user.
func give(b *svc.Bundle, id string, document []byte) {
	b.Policies = append(b.Policies, svc.Policy{ID: id, Document: document})
	b.Attachments = append(b.Attachments, attached(id, svc.GrantedToUser, "u"))
}

// chunked puts so many elements in place of "@" in texts, in lists of a length that a document may have.
func chunked(n, most int, element, text string) (all []string) {
	for some := range slices.Chunk(times(n, element), most) {
		all = append(all, strings.Replace(text, "@", strings.Join(some, ","), 1))
	}
	return all
}

// measured skips a test of what is allocated when the race detector runs: then it means nothing, and takes long.
func measured(t *testing.T) {
	t.Helper()
	if longtest.Raced {
		t.Skip("the race detector allocates as well")
	}
}

func allocated(do func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
}

// A request that is twice as large costs about twice as much, whatever makes it large, and so does one that is large in two ways.
func TestWorkIsLinearInARequest(t *testing.T) {
	measured(t)
	h := newHost(t)
	n, all := longtest.Times(250, 1000), slices.Sorted(maps.Keys(growing))
	names := slices.Clone(all)
	for i, name := range all {
		if longtest.InCI() {
			names = append(names, name+"+"+all[(i+1+rand.IntN(len(all)-1))%len(all)])
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			cost := func(n int) float64 {
				bundle := svc.Bundle{}
				for part := range strings.SplitSeq(name, "+") {
					bundle = both(bundle, growing[part](n))
				}
				return allocated(func() {
					_, _ = h.Policies.Simulate(t.Context(), svc.Host, bundle, svc.Question{Bank: "b", UserID: "u"})
				})
			}
			cost(10)
			if small, large := cost(n), cost(4*n); large > 6*small {
				t.Errorf("%d: %.0f bytes, four times as many: %.0f bytes, %.1f times", n, small, large, large/small)
			}
		})
	}
}

// both puts one bundle behind another, whose rows with the same ids it drops.
func both(a, b svc.Bundle) svc.Bundle {
	if len(a.Users) == 0 {
		return b
	}
	rename := func(id string) string {
		if id == "u" {
			return id
		}
		return "x" + id
	}
	a.Users = append(a.Users, b.Users[min(1, len(b.Users)):]...)
	for _, g := range b.Groups {
		g.ID = rename(g.ID)
		a.Groups = append(a.Groups, g)
	}
	for _, p := range b.Policies {
		p.ID = rename(p.ID)
		a.Policies = append(a.Policies, p)
	}
	for _, at := range b.Attachments {
		at.PolicyID, at.Principal.ID = rename(at.PolicyID), rename(at.Principal.ID)
		a.Attachments = append(a.Attachments, at)
	}
	return a
}

// What would take minutes if it were quadratic takes a moment. The deadline is generous: it is there to end the test.
func TestLargeRequests(t *testing.T) {
	measured(t)
	h := newHost(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, n := range map[string]int{"tag groups": 19_000, "equal tag groups": 9_000, "tags": 9_000, "roles": 12_000, "a large policy in many ways": 600, "attachments and members": 3_000} {
		expect.Equal(t, name, errorOf(h.Policies.Simulate(ctx, svc.Host, growing[name](n), svc.Question{Bank: "b", UserID: "u"})), nil)
	}
	_, err := h.Policies.Simulate(ctx, svc.Host, growing["a large policy in many ways"](3_000), svc.Question{Bank: "b", UserID: "u"})
	wantCode(t, err, svc.CodeTooComplex, "") // 120 KB in 3,000 ways
	must(h.Access.Preview(ctx, svc.Host, growing["tag groups"](5_000), svc.BundleWrite{}))
	is.New(t).NoErr(ctx.Err())
}

func TestSimulateRefusesTooManyStatements(t *testing.T) {
	is, h := is.New(t), newHost(t)
	b := ways(1000)
	b.Policies[0].Document = document(times(19, granting(`"llm_model":"m"`))...)
	is.Equal(len(must(h.Policies.Simulate(t.Context(), svc.Host, b, svc.Question{Bank: "b", UserID: "u"})).Trace), 1001*19)
	b.Policies[0].Document = document(times(20, granting(`"llm_model":"m"`))...)
	wantCode(t, errorOf(h.Policies.Simulate(t.Context(), svc.Host, b, svc.Question{Bank: "b", UserID: "u"})), svc.CodeInvalid, "")
}

// What takes long ends with its context: here after the check of the caller, and the read of the store.
func TestLongWorkEndsWithItsContext(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	large := held(times(longtest.Times(600, 3_000), `{"effect":"allow","actions":["a#:*"],"banks":["b#"],"retain_tags":["#"]}`))
	h.write(t, large)
	for name, do := range map[string]func(ctx context.Context) error{
		"preview": func(ctx context.Context) error {
			return errorOf(h.Access.Preview(ctx, svc.Host, svc.Bundle{Policies: []svc.Policy{{ID: "p", Document: document()}}}, svc.BundleWrite{}))
		},
		"what can": func(ctx context.Context) error {
			return errorOf(h.Policies.WhatCan(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "u"}))
		},
	} {
		rounds := longtest.Times(8, 40)
		for round := range rounds {
			ctx := &endsAfter{Context: t.Context(), looks: 400 / rounds * round}
			if err := do(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s after %d looks: %v", name, 400/rounds*round, err)
			}
			expect.Holds(t, ctx.past <= 10, name, ": looks after the end: ", ctx.past)
		}
	}
}

type endsAfter struct {
	context.Context
	looks, past int
}

func (c *endsAfter) Err() error {
	if c.looks--; c.looks >= 0 {
		return c.Context.Err()
	}
	c.past++
	return context.Canceled
}

// largeBundle is one of n statements of 200 bytes, none like another.
func largeBundle(i, n int) svc.Bundle {
	return held(times(n, granting(fmt.Sprintf(`"retain_tags":["%d-#","%s"]`, i, strings.Repeat("x", 100)))))
}

// Nothing is kept of simulations, previews, comparisons and linting, nor of what is refused, to whomever.
func TestNothingIsKeptOfWhatIsNotStored(t *testing.T) {
	measured(t)
	is, h := is.New(t), newHost(t)
	plain := svc.Principal{Kind: svc.KindUser, ID: "plain"}
	q := svc.Question{Bank: "b", UserID: "u"}
	statements := longtest.Times(1_250, 5_000)
	try := func(i int) {
		large := largeBundle(i, statements)
		for _, by := range []svc.Principal{svc.Host, plain} {
			_, simulated := h.Policies.Simulate(t.Context(), by, large, q)
			_, previewed := h.Access.Preview(t.Context(), by, large, svc.BundleWrite{})
			is.Equal(simulated == nil && previewed == nil, by.Kind == svc.KindHost)
			is.Equal(svc.ErrorCode(h.Access.Apply(t.Context(), plain, large)), svc.CodeForbidden)
		}
		large.Attachments[0].PolicyID = "none"
		is.Equal(svc.ErrorCode(h.Access.Apply(t.Context(), svc.Host, large)), svc.CodeInvalid)
		is.Equal(svc.ErrorCode(errorOf(h.Policies.Simulate(t.Context(), svc.Host, large, q))), svc.CodeInvalid)
	}
	try(0)
	before := heaptest.Live()
	for i := range 8 {
		try(i + 1)
	}
	if grown := heaptest.Live() - before; grown > int64(statements)<<10 {
		t.Errorf("%d bytes are kept of 8 requests of %d statements", grown, statements)
	}
	runtime.KeepAlive(h)
}

// However large the policies of banks and holders are that are asked about, the copies of them have a bound.
func TestCopiesOfLargePoliciesAreBounded(t *testing.T) {
	longtest.Test(t, "that copies of large policies have a bound")
	measured(t)
	is, h := is.New(t), newHost(t)
	overrides := []byte(chunked(10_000, 10_000, override, overriding)[0])
	asked := must(svc.New(svc.Config{Store: h.store, Logger: h.config.Logger}))
	for i := range 120 {
		id := fmt.Sprint("b", i)
		h.write(t, svc.Bundle{
			Users: []svc.User{{ID: "u" + id}}, BankPolicies: []svc.BankPolicy{{BankID: id, Document: overrides}},
		})
		must(asked.Decide(t.Context(), svc.Principal{Kind: svc.KindUser, ID: "u" + id}, "bank:recall", id, svc.Context{}))
	}
	kept := heaptest.Live()
	is.NoErr(asked.Close())
	asked = nil
	kept -= heaptest.Live()
	t.Logf("%d bytes", kept)
	is.True(kept <= policy.MaxKept*3/4) // the estimate that is bounded is more than the bytes of the heap
	is.True(kept > policy.MaxKept/4)
}

// The answers of one call have a budget of bytes, whatever makes them large. One question is always answered.
func TestAnswersHaveABudget(t *testing.T) {
	long := strings.Repeat("x", 900<<10)
	for name, b := range map[string]svc.Bundle{
		"tag groups": held([]string{granting(`"recall_tag_groups":[{"a":"` + long + `"}]`)}),
		"roles":      held([]string{granting(`"retain_roles":["` + long + `"]`)}),
		"a model":    held([]string{granting(`"llm_model":"` + long + `"`)}),
		"a strategy": both(held([]string{granting(`"retain_tags":[]`)}), svc.Bundle{}),
	} {
		t.Run(name, func(t *testing.T) {
			is, h := is.New(t), newHost(t)
			if name == "a strategy" {
				b.BankPolicies = []svc.BankPolicy{{BankID: "b", Document: []byte(`{"version":"2026-03-24","default_strategy":"` + long + `"}`)}}
			}
			h.write(t, b)
			questions := make([]svc.Question, 5)
			for i := range questions {
				questions[i] = svc.Question{Bank: "b", UserID: "u"}
			}
			for n, code := range map[int]svc.Code{1: "", 4: "", 5: svc.CodeTooComplex} {
				is.Equal(svc.ErrorCode(errorOf(h.Policies.Decide(t.Context(), svc.Host, questions[:n]...))), code)
			}
		})
	}
	t.Run("of more than one question", func(t *testing.T) {
		h := newHost(t)
		b := held(nil)
		for i := range 6 { // one answer has the groups of all
			id := fmt.Sprint("more", i)
			give(&b, id, document(granting(`"recall_tag_groups":[{"a":"`+id+long+`"}]`)))
		}
		h.write(t, b)
		question := svc.Question{Bank: "b", UserID: "u"}
		is.New(t).NoErr(errorOf(h.Policies.Decide(t.Context(), svc.Host, question)))
		wantCode(t, errorOf(h.Policies.Decide(t.Context(), svc.Host, question, question)), svc.CodeTooComplex, "")
	})
}

func TestExplanationsHaveABudget(t *testing.T) {
	is, h := is.New(t), newHost(t)
	long := strings.Repeat("x", 900<<10)
	b := ways(20)
	b.Policies[0].Document = document(granting(`"llm_model":"` + long + `"`))
	h.write(t, b)
	wantCode(t, errorOf(h.Policies.Resolve(t.Context(), svc.Host, svc.Question{Bank: "b", UserID: "u"})), svc.CodeTooComplex, "")
	wantCode(t, errorOf(h.Policies.Simulate(t.Context(), svc.Host, svc.Bundle{}, svc.Question{Bank: "b", UserID: "u"})), svc.CodeTooComplex, "")

	banks := strings.Join(times(400, `"#"`), ",")
	h = newHost(t)
	h.write(t, held([]string{`{"effect":"deny","actions":["` + long + `"],"banks":[` + banks + `]}`}))
	_, err := h.Policies.WhatCan(t.Context(), user("u"), svc.Me) // 400 times the action
	wantCode(t, err, svc.CodeTooComplex, "")
	h = newHost(t)
	h.write(t, held([]string{statement("deny", 500, 500)}))
	cost := allocated(func() { _, err = h.Policies.WhatCan(t.Context(), user("u"), svc.Me) })
	wantCode(t, err, svc.CodeTooComplex, "")
	is.True(cost < 8<<20 || longtest.Raced) // it stops early
}

// A difference lists some changes, and counts the others. The widest come first.
func TestDifferencesHaveAnEnd(t *testing.T) {
	is, h := is.New(t), newHost(t)
	for n, omitted := range map[int]int{31: 0, 40: 600, 500: 249_000} {
		var d svc.AccessDiff
		var err error
		cost := allocated(func() {
			d, err = h.Access.Preview(t.Context(), svc.Host, held([]string{statement("allow", n, n)}), svc.BundleWrite{})
		})
		is.NoErr(err)
		is.True(cost < 16<<20 || longtest.Raced) // most requests share what decides them
		is.Equal(d.Omitted, omitted)
		is.Equal(len(d.Principals[0].Differences), n*n-omitted)
		is.Equal(must(svc.Diff(svc.Bundle{}, held([]string{statement("allow", n, n)}))).Omitted, omitted)
	}
}

// Diff, which cannot be stopped, has a budget.
func TestDiffHasABudget(t *testing.T) {
	var b svc.Bundle
	cost := allocated(func() {
		b = held(times(12_000, `{"effect":"deny","actions":["a#"],"banks":["b"]}`))
		wantCode(t, errorOf(svc.Diff(svc.Bundle{}, b)), svc.CodeTooComplex, "")
	})
	is.New(t).True(cost < 128<<20 || longtest.Raced)
	must(svc.Diff(b, b)) // nothing is compared
}

// What a caller does with a built-in policy is not for others.
func TestBuiltinsAreTheCallers(t *testing.T) {
	h := newHost(t)
	read := func() svc.Policy { return must(h.Policies.Read(t.Context(), admin, svc.PolicyIAMAdmin)) }
	want := string(read().Document)
	clear(read().Document)
	is.New(t).Equal(string(read().Document), want)
}
