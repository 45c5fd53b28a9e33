// Package storetest checks a [svc.Store] against its contract, a table of rules. The author of a
// store runs it in a test:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(*testing.T) svc.Store { return memstore.New() })
//	}
//
// Run it with the race detector. With -short it skips the slow rules. It skips the rules of
// optional roles that the store lacks, and says so.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

// A rule is one sentence of the contract and the check that a store keeps it.
type rule struct {
	says  string
	check func(c *checker)
}

func rules() []rule {
	return slices.Concat(quickRules(), longRules, largeAccessRules, largePageRules, characterRules,
		optional[svc.SourceFileStore](longFileRules), optional[svc.AuditStore](longAuditRules))
}

// quickRules returns the rules that run fast.
func quickRules() []rule {
	return slices.Concat(generalRules, memoryRules, sourceRules, changeSourceRules,
		templateRules, templateListRules, changeTemplateRules, versionRules, installationRules,
		rebindRules, apiKeyRules, apiKeyListRules, changeAPIKeyRules, accessRules, snapshotRules,
		readAccessRules, accessPageRules, changeAccessRules, removeAccessRules, changeRules,
		transactionRules,
		optional[svc.SourceFileStore](sourceFileRules), optional[svc.OutboxStore](outboxRules),
		optional[svc.FreshnessStore](freshnessRules), optional[svc.StatsStore](statsRules),
		optional[svc.AnswerStore](answerRules), optional[svc.AuditStore](auditRules))
}

// optional returns the rules of an optional role. A store that lacks the role breaks none of them.
func optional[R any](rules []rule) []rule {
	list := slices.Clone(rules)
	for i, rule := range rules {
		list[i].check = func(c *checker) {
			if _, has := c.Store.(R); !has {
				panic(skipped{fmt.Errorf("the store is no %v", reflect.TypeFor[R]())})
			}
			rule.check(c)
		}
	}
	return list
}

// with calls do with an optional role of s. When s lacks the role, it returns the error of ctx.
func with[R any](ctx context.Context, s svc.Store, do func(role R) error) error {
	if role, has := s.(R); has {
		return do(role)
	}
	return ctx.Err()
}

// Run checks every rule in a subtest, each with its own store. newStore returns an empty store, and
// releases it with t.Cleanup. A failure prints the broken rule and what its check saw.
func Run(t *testing.T, newStore func(t *testing.T) svc.Store) {
	checked := rules()
	if testing.Short() {
		checked = quickRules()
	}
	for _, rule := range checked {
		t.Run(rule.says, func(t *testing.T) {
			err := rule.broken(newStore(t))
			if _, is := errors.AsType[skipped](err); is {
				t.Skipf("skipped: %v", err)
			}
			if err != nil {
				t.Errorf("broken rule: %s.\n%v", rule.says, err)
			}
		})
	}
}

// check returns the sentences of the broken rules, each with what its check saw. Every rule gets
// its own store from newStore. The map is empty when no rule is broken.
func check(rules []rule, newStore func() svc.Store) map[string]error {
	broken := map[string]error{}
	for _, rule := range rules {
		err := rule.broken(newStore())
		if _, is := errors.AsType[skipped](err); err != nil && !is {
			broken[rule.says] = err
		}
	}
	return broken
}

// broken returns what the check saw when store breaks the rule, else nil. A skipped error says that
// the store lacks the rule's role.
func (r rule) broken(store svc.Store) error {
	return seen(func() {
		r.check(&checker{Store: store, roles: rolesOf(store), ctx: context.Background()})
	})
}

// seen returns what a check has seen.
func seen(check func()) (err error) {
	defer func() {
		switch seen := recover().(type) {
		case nil:
		case violation:
			err = seen
		case skipped:
			err = seen
		default:
			err = fmt.Errorf("panic: %v", seen)
		}
	}()
	check()
	return nil
}

// checker holds the store under test and the expectations about it. A violation ends the rule.
type checker struct {
	svc.Store
	roles
	ctx context.Context
}

// roles holds the optional roles of a store. nil: the store lacks the role.
type roles struct {
	svc.SourceFileStore
	svc.OutboxStore
	svc.StatsStore
	svc.AnswerStore
	svc.AuditStore
}

func rolesOf(store svc.Store) (r roles) {
	r.SourceFileStore, _ = store.(svc.SourceFileStore)
	r.OutboxStore, _ = store.(svc.OutboxStore)
	r.StatsStore, _ = store.(svc.StatsStore)
	r.AnswerStore, _ = store.(svc.AnswerStore)
	r.AuditStore, _ = store.(svc.AuditStore)
	return r
}

// has says which roles the store has.
func (r roles) has() []bool {
	return []bool{
		r.SourceFileStore != nil, r.OutboxStore != nil, r.StatsStore != nil, r.AnswerStore != nil,
		r.AuditStore != nil,
	}
}

// violation and skipped end the check of a rule.
type (
	violation struct{ error }
	skipped   struct{ error }
)

func (c *checker) fail(format string, args ...any) { panic(violation{fmt.Errorf(format, args...)}) }

// ok expects no error.
func (c *checker) ok(err error) {
	if err != nil {
		c.fail("unexpected error: %v", err)
	}
}

// must returns the value of a call that is expected to give no error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(violation{fmt.Errorf("unexpected error: %v", err)})
	}
	return value
}

// is expects err to be, or wrap, target.
func (c *checker) is(doing string, err, target error) {
	if !errors.Is(err, target) {
		c.fail("%s: got the error %v, want %v", doing, err, target)
	}
}

// same expects equal values. Empty and nil lists are equal: the contract leaves the choice to the
// store.
func (c *checker) same(what string, got, want any) {
	if reflect.DeepEqual(got, want) {
		return // show would take much longer
	}
	if g, w := show(got), show(want); g != w {
		c.fail("%s:\n got %s\nwant %s", what, g, w)
	}
}

// show formats a value. Equal values, and only these, have equal texts.
func show(value any) string {
	var b strings.Builder
	write(&b, reflect.ValueOf(value))
	return b.String()
}

func write(b *strings.Builder, v reflect.Value) {
	if v.IsValid() && v.CanInterface() {
		if at, ok := v.Interface().(time.Time); ok {
			b.WriteString(at.Format(time.RFC3339Nano) + " " + at.Location().String())
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			b.WriteString("nil")
			return
		}
		b.WriteString("&")
		write(b, v.Elem())
	case reflect.Struct:
		b.WriteString("{")
		for field, value := range v.Fields() {
			fmt.Fprintf(b, " %s:", field.Name)
			write(b, value)
		}
		b.WriteString(" }")
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			fmt.Fprintf(b, "%q", v.Bytes())
			return
		}
		b.WriteString("[")
		for i := range v.Len() {
			b.WriteString(" ")
			write(b, v.Index(i))
		}
		b.WriteString(" ]")
	case reflect.String:
		fmt.Fprintf(b, "%q", v.String())
	default:
		fmt.Fprint(b, v)
	}
}

// racers is the number of goroutines in a race.
const racers = 8

// race calls do in racers goroutines concurrently, numbered from 0, and returns their errors by
// number. A panic is an error.
func race(do func(i int) error) []error {
	errs := make([]error, racers)
	start := make(chan struct{})
	var done sync.WaitGroup
	for i := range racers {
		done.Go(func() {
			<-start
			if panicked := seen(func() { errs[i] = do(i) }); panicked != nil {
				errs[i] = panicked
			}
		})
	}
	close(start)
	done.Wait()
	return errs
}

// together calls do in racers goroutines concurrently, so many times in each. An expectation of do
// that fails ends the rule.
func (c *checker) together(times int, do func(i, j int)) {
	c.ok(errors.Join(race(func(i int) error {
		for j := range times {
			do(i, j)
		}
		return nil
	})...))
}

// raceToDelete calls remove in one of racers goroutines, which must succeed, and do in the others,
// which may find that the row is gone.
func (c *checker) raceToDelete(remove func() error, do func(i int) error) {
	errs := race(func(i int) error {
		if i == 0 {
			return remove()
		}
		return do(i)
	})
	c.ok(errs[0])
	for _, err := range errs[1:] {
		if err != nil {
			c.is("a call that races with a deletion", err, svc.ErrNotFound)
		}
	}
}

// oneWins expects that exactly one error is nil and the others are loss.
func (c *checker) oneWins(errs []error, loss error) {
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !errors.Is(err, loss) {
			c.fail("a loser got the error %v, want %v", err, loss)
		}
	}
	if won != 1 {
		c.fail("%d of %d won, want 1", won, len(errs))
	}
}

// generation returns the generation. Changes then knows it.
func (c *checker) generation() int64 {
	changes := must(c.Changes(c.ctx, math.MaxInt64))
	snapshot := must(c.Access(c.ctx, svc.AccessQuery{}))
	c.same("generation of Access", snapshot.Generation, changes.Generation)
	return snapshot.Generation
}

// edit returns a change function that writes what do changed.
func edit[R any](do func(*R)) func(*R) (bool, error) {
	return func(row *R) (bool, error) {
		do(row)
		return true, nil
	}
}

// leave is a change function that changes nothing.
func leave[R any](*R) (bool, error) { return false, nil }

// refuse is a change function that fails.
func refuse[R any](*R) (bool, error) { return true, errRefused }

// missing is a change function that says that the row does not exist.
func missing[R any](*R) (bool, error) { return false, svc.ErrNotFound }

// pages reads a list in chunks until one is empty. A chunk may be short, but not above the limit.
// next gets the last row of the previous chunk, at first a zero row.
func pages[R any](c *checker, limit int, next func(last R) ([]R, error)) []R {
	return pagesUntil(c, limit, 1, next)
}

// wholePages reads a list in chunks until one is not full.
func wholePages[R any](c *checker, limit int, next func(last R) ([]R, error)) []R {
	return pagesUntil(c, limit, limit, next)
}

func pagesUntil[R any](c *checker, limit, full int, next func(last R) ([]R, error)) (list []R) {
	var first, last R
	for range 10_000 {
		chunk := must(next(last))
		if len(chunk) > limit {
			c.fail("a chunk has %d rows, want at most %d", len(chunk), limit)
		}
		if len(list) > 0 && len(chunk) > 0 && reflect.DeepEqual(chunk[0], first) {
			c.fail("a chunk begins with the first row of the chunk before: the list does not end")
		}
		list = append(list, chunk...)
		if len(chunk) < full {
			return list
		}
		first, last = chunk[0], chunk[len(chunk)-1]
	}
	c.fail("the list does not end")
	return nil
}

// column returns one value of each row.
func column[R, V any](rows []R, of func(R) V) []V {
	var list []V
	for _, row := range rows {
		list = append(list, of(row))
	}
	return list
}
