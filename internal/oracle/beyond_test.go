package oracle_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/memstore"
)

// trials plays worlds against an oracle.
type trials struct {
	ignored string                    // the rule that the oracle does not know
	draws   []func(*scene) attempt    // what callers attempt; nil: everything
	tally   map[string]map[string]int // outcomes by attempt
}

const writesPerWorld = 40

func open(store svc.Store) *svc.Service {
	return must(svc.New(svc.Config{
		Store: store, Logger: slog.New(slog.DiscardHandler),
		Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("a pepper of the test")}}, Imports: []svc.KeyImport{{Prefix: "sk-"}}},
	}))
}

func put(ctx context.Context, store svc.Store, w svc.AccessWrite) {
	must(0, store.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) { return w, nil }))
}

// build makes a world with keys in a store. Some keys and accounts are narrowed by a policy that is gone.
func (c *scene) build(store svc.Store) {
	b := c.rightsWorld()
	narrowing := slices.Concat(scenePolicies[:4], sceneBuiltins[:3])
	loses := c.IntN(4) == 0
	gone := svc.Policy{ID: "gone", DisplayName: "gone", Document: []byte(c.rightsDocument())}
	if loses {
		b.Policies = append(b.Policies, gone)
		b.ServiceAccounts[0].ScopingPolicyID = c.one([]string{"p0", "gone"})
		narrowing = append(narrowing, "gone", "gone")
	}
	c.rows = rowsOf(b)
	put(c.ctx, store, b.Write())
	c.s = open(store)
	for range 2 + c.IntN(4) {
		holder := svc.Identity{Kind: svc.KindUser, ID: c.one(append(sceneUsers, "u5"))}
		if account := b.ServiceAccounts[c.IntN(len(b.ServiceAccounts))]; c.IntN(3) == 0 {
			holder = svc.Identity{Kind: svc.KindServiceAccount, ID: account.ID}
		}
		in := svc.NewAPIKey{}
		if c.IntN(4) > 0 {
			in.ScopingPolicyID = c.one(narrowing)
		}
		c.keep(must(c.s.Keys.Issue(c.ctx, svc.Host, holder, in)).APIKey, nil)
	}
	if loses {
		_ = c.s.Close()
		delete(c.rows.policies, "gone")
		remove := svc.AccessNames{Policies: []string{"gone"}}
		put(c.ctx, store, svc.AccessWrite{Remove: remove, Targets: []svc.Target{{Kind: event.TargetPolicy, ID: "gone"}}})
		c.s = open(store)
	}
}

// play has callers write in the world of a seed, and returns the first outcome that the oracle did not expect.
func (p *trials) play(ctx context.Context, o *oracle, seed uint64) error {
	c := &scene{worlds: &worlds{rand.New(rand.NewPCG(seed, 11)), seed}, o: o, ctx: context.WithoutCancel(ctx), draws: attempts}
	if p.draws != nil {
		c.draws = p.draws
	}
	store := memstore.New()
	c.build(store)
	defer func() { _ = c.s.Close() }()
	for step := range writesPerWorld {
		if err := p.step(c); err != nil {
			return fmt.Errorf("in the world of seed %d, attempt %d: %w", seed, step, err)
		}
	}
	left := map[string]heldKey{}
	for _, key := range must(store.APIKeys(c.ctx, svc.APIKeyPage{KeyQuery: svc.KeyQuery{Limit: 1000}})) {
		left[key.ID] = heldKey{key.Holder, key.ScopingPolicyID, key.SuccessorID != ""}
	}
	if !maps.Equal(left, c.rows.keys) {
		return fmt.Errorf("the world of seed %d ends with keys %v, not %v", seed, left, c.rows.keys)
	}
	return nil
}

func (p *trials) step(c *scene) error {
	a := c.attempt()
	before, want := c.rows, c.o.outcome(c.rows, c.by, a)
	err := a.call(c.by)
	have, after := outcomeOf(err), before
	if have == done && a.after != nil && !a.dry {
		after = a.after
	}
	if p.tally[a.name] == nil {
		p.tally[a.name] = map[string]int{}
	}
	p.tally[a.name][want]++
	// Whose rights would a sender of two users have? The service may judge either, or name another conflict.
	others := []string{aboveCeiling, beyondCaller, string(svc.CodeInUse)}
	if a.wrong == string(svc.CodeExists) && slices.Contains(others, have) {
		have = want
	}
	if have != want {
		return fmt.Errorf("%+v, %s: got %s (%v), want %s\nin %s\nto %s", c.by, a.name, have, err, want, before, after.or(a.after))
	}
	if have == done {
		after = after.clone()
		after.keys = c.keysAfter(a, before)
	}
	stored := rowsOf(must(c.s.Access.Export(c.ctx, svc.Host)))
	if c.rows = after; !stored.equal(after) {
		return fmt.Errorf("%+v, %s: %s, and the store has\n%s\nnot %s", c.by, a.name, have, stored, after)
	}
	return nil
}

func (c *scene) keysAfter(a attempt, before *accessRows) map[string]heldKey {
	if a.key != nil || a.dry || a.after == nil {
		return c.rows.keys
	}
	return a.after.keys
}

func (w *accessRows) or(other *accessRows) *accessRows {
	if other != nil {
		return other
	}
	return w
}

func (w *accessRows) String() string {
	text, err := w.bundle().JSON()
	if err != nil {
		return fmt.Sprintf("%+v", *w)
	}
	return fmt.Sprintf("%s with keys %v", text, w.keys)
}

func outcomeOf(err error) string {
	if err == nil {
		return done
	}
	code := svc.ErrorCode(err)
	if code != svc.CodeForbidden {
		return string(code)
	}
	switch text := err.Error(); {
	case strings.HasPrefix(text, "you are not allowed "):
		return lacksAction
	case strings.HasSuffix(text, ", but you are not"):
		return aboveCeiling
	case strings.HasSuffix(text, ", which you are not allowed"):
		return beyondCaller
	}
	return refusedAtOnce
}

// run plays as many worlds as needed for n attempts, on all cores, and returns the first surprise.
func (p trials) run(t *testing.T, n int) (map[string]map[string]int, error) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var all sync.WaitGroup
	var mu sync.Mutex
	sum := map[string]map[string]int{}
	workers := runtime.GOMAXPROCS(0)
	for worker := range workers {
		all.Go(func() {
			mine, o := p, newOracle(p.ignored)
			mine.tally = map[string]map[string]int{}
			for seed := worker; seed < n/writesPerWorld && ctx.Err() == nil; seed += workers {
				if err := mine.play(ctx, o, uint64(seed)); err != nil {
					cancel(err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for name, outcomes := range mine.tally {
				if sum[name] == nil {
					sum[name] = map[string]int{}
				}
				for outcome, n := range outcomes {
					sum[name][outcome] += n
				}
			}
		})
	}
	all.Wait()
	return sum, context.Cause(ctx)
}

// Nobody writes what gives anybody a right that the writer lacks; everything else may be written; and a refused write changes nothing. An
// oracle that shares no code with the service says of each attempt what must come of it.
func TestNobodyGainsBeyondTheWriter(t *testing.T) {
	n := longtest.Times(4_000, 25_000)
	if testing.Short() || longtest.Raced {
		n = 2000
	}
	tally, err := trials{}.run(t, n)
	is.New(t).NoErr(err)
	for _, name := range slices.Sorted(maps.Keys(tally)) {
		t.Log(name, tally[name])
	}
}
