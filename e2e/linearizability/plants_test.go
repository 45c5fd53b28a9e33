package linearizability_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/memstore"
)

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
