package linear_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
)

// The check must be able to fail: it soon finds a store with a fault.
func TestFaultsAreFound(t *testing.T) {
	for name, open := range stores {
		for fault, plant := range faults {
			t.Run(name+", "+fault, func(t *testing.T) {
				var faulty []svc.Store
				for _, store := range open(t) {
					faulty = append(faulty, plant(store))
				}
				findOut(t, name, faulty)
			})
		}
	}
}

// It also finds a Service that reads templates from an outdated list.
func TestStaleListsAreFound(t *testing.T) {
	findOut(t, kept, []svc.Store{&listing{Store: memstore.New()}})
}

// soon is the number of histories in which the check must find a fault.
const soon = 100

func findOut(t *testing.T, name string, faulty []svc.Store) {
	services, sum := serve(t, name, faulty...), newTally()
	for seed := firstSeed(t); sum.histories < soon; seed++ {
		if newHistory(t.Context(), seed, fmt.Sprint("history-", seed), services, restsOf[name]).violation(sum) != "" {
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

// listing returns the result of the list before.
type listing struct {
	svc.Store
	mu    sync.Mutex
	chunk []svc.Template
}

func (s *listing) Templates(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
	chunk, err := s.Store.Templates(ctx, page)
	if err != nil || len(chunk) == 0 {
		return chunk, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	chunk, s.chunk = s.chunk, chunk
	return chunk, nil
}
