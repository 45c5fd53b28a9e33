package sqlstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	pollPause  = 400 * time.Millisecond // between two questions of a Poll
	pollTrust  = 3 * time.Second        // how long the answer to one counts at most
	pollLonger = time.Second            // the longest wait of AwaitChange without an answer
)

// Poll asks a PostgreSQL database for the changes of many tenants with one statement, in place of
// their Stores. Each mutation of a tenant raises its number in the registry, so one short list says
// which have moved. It also passes on notifications. Use [NewPoll].
type Poll struct {
	registry *Registry
	cancel   context.CancelFunc
	ended    chan struct{}

	mu        sync.Mutex
	open      map[int64][]*Store // by the number of the tenant; 0 is the registry's own
	listening bool
}

// NewPoll starts a Poll, which asks until Close.
func NewPoll(registry *Registry) *Poll {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Poll{
		registry: registry, cancel: cancel, ended: make(chan struct{}),
		open: map[int64][]*Store{},
	}
	p.Add(0, registry.store)
	go p.run(ctx)
	return p
}

// Close ends the Poll.
func (p *Poll) Close() {
	p.cancel()
	<-p.ended
}

// Add asks for the Store of a tenant from now on, until Remove. Call it before the Store is used.
func (p *Poll) Add(number int64, store *Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	store.polled = &pollState{}
	store.Listening(p.listening)
	p.open[number] = append(p.open[number], store)
}

// Remove ends what Add has begun.
func (p *Poll) Remove(number int64, store *Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(p.open[number]), func(s *Store) bool {
		return s == store
	})
	if p.open[number] = left; len(left) == 0 {
		delete(p.open, number)
	}
}

// Listening is [Store.Listening] for the registry and all tenants, also for those that open later.
func (p *Poll) Listening(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listening = on
	for _, stores := range p.open {
		for _, s := range stores {
			s.Listening(on)
		}
	}
}

// Hear is [Store.Hear] for a tenant, or for the registry with the number 0.
func (p *Poll) Hear(number int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.open[number] {
		s.Hear()
	}
}

func (p *Poll) run(ctx context.Context) {
	defer close(p.ended)
	for ctx.Err() == nil {
		p.ask(ctx)
		_ = wait(ctx, pollPause)
	}
}

// ask asks once. After a failure it tells nobody, and the Stores ask for themselves.
func (p *Poll) ask(ctx context.Context) {
	began := time.Now()
	latest, err := p.registry.moves(ctx, p.numbers())
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for number, stores := range p.open {
		for _, s := range stores {
			s.polled.answer(latest[number], began)
			s.news.tell()
		}
	}
}

// numbers returns the numbers of the open tenants as an array of PostgreSQL.
func (p *Poll) numbers() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]string, 0, len(p.open))
	for number := range p.open {
		list = append(list, strconv.FormatInt(number, 10))
	}
	return "{" + strings.Join(list, ",") + "}"
}

// FollowLooks makes the followers of a Store ask look, and the database only when look's number
// differs from an earlier one. look is quick: a [svc.FreshnessStore] has one. Call it before the
// Store is used.
func (s *Store) FollowLooks(look func(ctx context.Context) (uint64, error)) {
	s.polled = &pollState{look: look}
}

// pollState is what a Poll has found out for a Store, or what a look at it says.
type pollState struct {
	look func(ctx context.Context) (uint64, error) // nil: a Poll answers

	mu    sync.Mutex
	moves int64     // the number that the mutations raise
	at    time.Time // when the Poll asked; zero: never

	// The Store was asked last when moves was applied, and had the generation. known: it was asked
	// after the first answer of the Poll.
	applied, generation int64
	known               bool
}

func (p *pollState) answer(moves int64, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moves, p.at = moves, at
}

// see looks at the Store, where there is no Poll.
func (p *pollState) see(ctx context.Context) {
	if p.look == nil {
		return
	}
	began := time.Now()
	now, err := p.look(ctx)
	if err != nil {
		began = time.Time{}
	}
	p.answer(int64(now), began)
}

// asks begins a question to the Store itself. answered records its generation.
func (p *pollState) asks() (answered func(generation int64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	moves, known := p.moves, !p.at.IsZero()
	return func(generation int64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.applied, p.generation, p.known = moves, generation, known
	}
}

// still reports whether a generation was still the Store's at a moment not long ago.
func (p *pollState) still(generation int64) (at time.Time, still bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at, p.known && p.generation == generation && p.applied == p.moves &&
		time.Since(p.at) < pollTrust
}

// awaitPoll is AwaitChange for a Store that a Poll asks for.
func (s *Store) awaitPoll(ctx context.Context, since int64) error {
	if err := ctx.Err(); err != nil {
		return s.fault(ctx, "await a change", err)
	}
	next := s.news.next()
	if newer, _ := s.heard.look(since); newer {
		return nil
	}
	s.polled.see(ctx)
	if _, still := s.polled.still(since); !still {
		generation, err := one(ctx, s.questions(), scanValue[int64], selectGeneration)
		if err == nil && generation != since {
			return nil
		}
	}
	late := time.NewTimer(pollLonger)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return s.fault(ctx, "await a change", ctx.Err())
	case <-next:
	case <-late.C:
	}
	return nil
}

// moves returns the number of each of these tenants that its mutations raise. That of the registry
// is 0: its generation.
func (r *Registry) moves(ctx context.Context, numbers string) (map[int64]int64, error) {
	moves := map[int64]int64{}
	err := each(ctx, r.store.db.reading(), func(row scanner) (bool, error) {
		var number, value int64
		err := row.Scan(&number, &value)
		moves[number] = value
		return false, err
	}, `SELECT 0, value FROM (`+selectGeneration+`) g
		UNION ALL SELECT number, SUM(moves)::BIGINT FROM svc_tenant_lanes
		WHERE number = ANY ($1::TEXT::BIGINT[]) GROUP BY number`, numbers)
	return moves, r.store.fault(ctx, "read what has moved", err)
}
