package linearizability_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/limits"
)

// Several clients of two Services issue keys to one holder at once: it gets exactly as many as are allowed.
func TestKeysAreNeverTooMany(t *testing.T) {
	const most = 5
	eachStore(t, func(t *testing.T, open func(*testing.T) []svc.Store) {
		services := serveLimited(t, most, open(t)...)
		for round := range longtest.Times(2, 5) {
			holder := svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint("holder-", round)}
			codes := together(services, func(service *svc.Service, _ int) error {
				var err error
				for range 2 {
					_, err = service.Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{})
				}
				return err
			})
			if n := count(t, services[0], holder); n != most || codes[svc.CodeLimit] == 0 || codes[""]+codes[svc.CodeLimit] != clients {
				t.Fatalf("there are %d keys, want %d: %v", n, most, codes)
			}
		}
	})
}

// Several clients of two Services add to one user's templates, and to its sources: there are no more than are allowed.
func TestPersonalLimitsOfTwoProcesses(t *testing.T) {
	alice := svc.Principal{Kind: svc.KindUser, ID: "alice", Actions: []string{"template:*"}}
	eachStore(t, func(t *testing.T, open func(*testing.T) []svc.Store) {
		ctx, stores := t.Context(), open(t)
		services := serve(t, stores...)
		must(0, services[0].Access.Apply(ctx, svc.Host, svc.Bundle{Users: []svc.User{{ID: alice.ID}}}))
		must(0, stores[0].(svc.FullStore).Atomically(ctx, func(ctx context.Context, tx svc.Store) (err error) {
			for i := range limits.PersonalTemplates - 1 {
				key := svc.TemplateKey{Scope: svc.ScopePersonal, Owner: alice.ID, ID: fmt.Sprint("n", i)}
				err = errors.Join(err, tx.CreateTemplate(ctx, svc.Template{TemplateKey: key, Content: handMade(edit{0, `"x"`})}))
			}
			for i := range limits.PersonalSources - 1 {
				key := svc.SourceKey{Scope: svc.ScopePersonal, Owner: alice.ID, Name: fmt.Sprint("n", i)}
				err = errors.Join(err, tx.CreateSource(ctx, svc.Source{SourceKey: key}))
			}
			return err
		}))
		for _, add := range []string{"create my template", "register my source"} {
			codes := together(services, func(s *svc.Service, i int) error {
				return failure(obey(ctx, s, calls["own"][add], callers{"self": alice}, "$serial", fmt.Sprint("at-once", i)))
			})
			if codes[""] != 1 || codes[svc.CodeLimit] != clients-1 {
				t.Errorf("%s up to the limit: %v, want one to come first", add, codes)
			}
		}
	}, "SQLite", "PostgreSQL")
}

// Keys that issue keys, in two Services, while all are revoked: once that is acknowledged none is
// left, and none comes.
func TestNoKeySurvivesAllOfThem(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(*testing.T) []svc.Store) {
		services := serveLimited(t, 1000, open(t)...)
		for round := range longtest.Times(2, 5) {
			holder := svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint("holder-", round)}
			first := must(services[0].Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{}))
			begun := make(chan struct{}, clients)
			together(services, func(service *svc.Service, i int) error {
				if i == 0 {
					for range clients - 1 {
						<-begun
					}
					must(service.Keys.RevokeAll(t.Context(), svc.Host, holder))
					if n := count(t, services[len(services)-1], holder); n > 0 {
						t.Errorf("%d keys are left", n)
					}
					return nil
				}
				key, err := first.Key, error(nil)
				for n := 0; n < 100 && err == nil; n++ { // each is issued by the one before
					var by svc.Principal
					if by, err = service.Authenticate(t.Context(), string(key)); err == nil {
						var issued svc.IssuedKey
						issued, err = service.Keys.Issue(t.Context(), by, svc.Me, svc.NewAPIKey{})
						key = issued.Key
					}
					if n == 0 {
						begun <- struct{}{}
					}
				}
				return err
			})
			if n := count(t, services[0], holder); n > 0 {
				t.Fatalf("%d keys survived", n)
			}
		}
	})
}

// stepping is a store that is told of each step of its transactions.
type stepping struct {
	svc.Store
	step *func()
}

func (s stepping) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.Store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		(*s.step)()
		return fn(ctx, &intercept.Store{FullStore: tx.(svc.FullStore), Around: func(_ context.Context, call intercept.Call) error {
			switch call.Method {
			case "Lock", "Access", "CreateAPIKey":
				defer (*s.step)()
			}
			return call.Do()
		}})
	})
}

// What ends a key or its holder comes before or after what that key issues, at whichever step of the
// issue it begins. After, it has seen the new key. Nothing is issued once it is acknowledged.
func TestEndsAtEachStepOfAnIssue(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(*testing.T) []svc.Store) {
		both := open(t)
		step := func() {}
		services := serve(t, stepping{both[0], &step}, both[1])
		for how := range calls["ends"] {
			reached := 0
			for at, steps := 1, 1; at <= steps; at++ {
				steps = max(steps, endAt(t, services, &step, how, at))
				reached = at
			}
			if reached < 6 {
				t.Errorf("%s: %d steps", how, reached)
			}
		}
	}, "SQLite", "PostgreSQL")
}

// endAt ends a key when it issues another, at a step of that, and returns the number of steps.
func endAt(t *testing.T, services []*svc.Service, step *func(), how string, at int) (steps int) {
	t.Helper()
	ctx, holder := t.Context(), svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint(how, at)}
	if !strings.HasSuffix(how, "without a row") {
		must(0, services[0].Access.Apply(ctx, svc.Host, svc.Bundle{Users: []svc.User{{ID: holder.ID}}}))
	}
	key := must(services[0].Keys.Issue(ctx, svc.Host, holder, svc.NewAPIKey{}))
	by := must(services[0].Authenticate(ctx, string(key.Key)))
	left, ended := 0, make(chan error, 1)
	*step = func() {
		if steps++; steps != at {
			return
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := obey(ctx, services[1], calls["ends"][how], callers{"host": svc.Host, "by": by},
				"$holder", holder.ID, "$key", key.ID)
			left = count(t, services[1], holder)
			ended <- err
		}()
		select {
		case <-done:
		case <-time.After(50 * time.Millisecond): // it waits
		}
	}
	_, err := services[0].Keys.Issue(ctx, by, svc.Me, svc.NewAPIKey{})
	*step = func() {}
	if steps < at {
		t.Fatalf("%s: the issue ended at step %d of %d: %v", how, steps, at, err)
	}
	if err != nil && svc.ErrorCode(err) != svc.CodeUnauthenticated {
		t.Errorf("%s at step %d: %v", how, at, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("%s at step %d: %v", how, at, err)
	}
	if now := count(t, services[1], holder); now != left {
		t.Errorf("%s at step %d: %d keys when it had ended, now %d", how, at, left, now)
	}
	if _, err := services[0].Keys.Issue(ctx, by, svc.Me, svc.NewAPIKey{}); svc.ErrorCode(err) != svc.CodeUnauthenticated {
		t.Errorf("%s at step %d: issued afterwards: %v", how, at, err)
	}
	return steps
}

const clients = 8

// together lets clients of the services do something at once, and counts how they were answered.
func together(services []*svc.Service, do func(service *svc.Service, i int) error) map[svc.Code]int {
	var group sync.WaitGroup
	var mu sync.Mutex
	codes := map[svc.Code]int{}
	for i := range clients {
		group.Go(func() {
			code := svc.ErrorCode(do(services[i%len(services)], i))
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
		})
	}
	group.Wait()
	return codes
}

func count(t *testing.T, service *svc.Service, holder svc.Identity) (n int) {
	for key, err := range service.Keys.List(t.Context(), svc.Host, holder, svc.KeyQuery{}) {
		must(key, err)
		n++
	}
	return n
}
