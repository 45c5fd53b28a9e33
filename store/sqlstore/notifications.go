package sqlstore

import (
	"context"
	"sync"
	"time"
)

// lull is the least time between two notifications of a Store. Each wakes every process.
const lull = 10 * time.Millisecond

// notifyLimiter spaces notifications. Its zero value is ready to use.
type notifyLimiter struct {
	mu    sync.Mutex
	next  time.Time // when the next notification may be sent
	waits bool      // a notification will be sent then
}

// after calls send when the next notification may be sent, once for all calls until then.
func (p *notifyLimiter) after(send func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits {
		return
	}
	p.waits = true
	time.AfterFunc(time.Until(p.next), func() {
		p.mu.Lock()
		p.waits, p.next = false, time.Now().Add(lull)
		p.mu.Unlock()
		send()
	})
}

// tell notifies other processes that something has changed. It writes nothing, and need not wait
// for the disk: PostgreSQL sends notifications one transaction after the other.
func (s *Store) tell() error {
	ctx, cancel := context.WithTimeout(context.Background(), commitGrace)
	defer cancel()
	pool := s.write
	if s.asking != nil {
		pool = s.asking
	}
	return pool.transact(ctx, readCommitted, func(ctx context.Context, tx session) error {
		if err := tx.later(ctx, nil, `SET LOCAL synchronous_commit TO off`); err != nil {
			return err
		}
		return tx.later(ctx, nil, s.dialect.Notify)
	})
}

// notifications says whether others have told of changes, for followers. A follower trusts it only
// between two questions to the database that are at most patience apart. Its zero value knows
// nothing and is ready to use.
type notifications struct {
	mu        sync.Mutex
	listening bool
	resets    int
	asked     time.Time // when a follower last asked the database; zero: not since the reset
	reached   int64     // the generation that it got
	told      int       // notifications
	answered  int       // those that came before that question
}

// reset forgets all: notifications may have been missed.
func (h *notifications) reset(listening bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listening, h.resets, h.asked = listening, h.resets+1, time.Time{}
}

// hear counts a notification.
func (h *notifications) hear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told++
}

// asks begins a question to the database. answered records that it has its answer.
func (h *notifications) asks() (answered func(generation int64)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	began, resets, told := time.Now(), h.resets, h.told
	return func(generation int64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.resets == resets && told >= h.answered {
			h.asked, h.answered, h.reached = began, told, generation
		}
	}
}

// look reports whether there is a generation after since, or may be one. sure: if not, there is
// none, or its notification is about to come.
func (h *notifications) look(since int64) (newer, sure bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sure = h.listening && time.Since(h.asked) < patience
	return h.told > h.answered || sure && h.reached > since, sure
}

// Listening says whether notifications of other processes reach [Store.Hear] from now on. Call it
// after each connect and each loss of the connection: it drops what the Store has heard, and wakes
// every [Store.AwaitChange].
func (s *Store) Listening(on bool) {
	s.heard.reset(on)
	s.news.tell()
}

// Hears implements [svc.StatsStore]: what Listening was last called with.
func (s *Store) Hears() bool {
	s.heard.mu.Lock()
	defer s.heard.mu.Unlock()
	return s.heard.listening
}

// Hear wakes the callers that wait for changes. Call it when [Dialect.Notify] of another process,
// or of this one, has told of some.
func (s *Store) Hear() {
	s.heard.hear()
	s.news.tell()
}
