package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

const (
	tellMost  = 7_900 // bytes of targets in a notification; PostgreSQL allows 8,000 with what is before
	heardMost = 128   // generations that a Store remembers of notifications
)

// lull is the least time between two notifications of a Store. Each wakes every process.
const lull = 10 * time.Millisecond

// notifyLimiter spaces notifications. Its zero value is ready to use.
type notifyLimiter struct {
	mu    sync.Mutex
	next  time.Time // when the next notification may be sent
	waits bool      // a notification will be sent then
}

// due reports whether a notification may be sent now, and counts it.
func (p *notifyLimiter) due() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.waits || now.Before(p.next) {
		return false
	}
	p.next = now.Add(lull)
	return true
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

// tell notifies other processes that something has changed.
func (s *Store) tell() error {
	ctx, cancel := context.WithTimeout(context.Background(), commitGrace)
	defer cancel()
	_, err := s.write.reading().exec(ctx, s.dialect.Notify, "[]")
	return err
}

// told returns the text that tells other processes of mutations. "[]" says too little: their
// targets are many.
func told(mutations []mutation) string {
	text, err := json.Marshal(mutations)
	if err != nil || len(text) > tellMost {
		return "[]"
	}
	return string(text)
}

// notifications remembers the latest changes that other processes have told, for followers. A
// follower trusts it only between two questions to the database that are at most patience apart.
// Its zero value knows nothing and is ready to use.
type notifications struct {
	mu        sync.Mutex
	listening bool
	resets    int
	asked     time.Time  // when a follower last asked the database; zero: not since the reset
	until     int64      // the latest generation heard; 0: none
	mutations []mutation // those of the generations up to until
}

// reset forgets all: notifications may have been missed.
func (h *notifications) reset(listening bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listening, h.resets = listening, h.resets+1
	h.asked, h.until, h.mutations = time.Time{}, 0, nil
}

// hear adds the mutations of the generations up to one. What it has of earlier generations it keeps
// only when no generation is missing between.
func (h *notifications) hear(generation int64, mutations []mutation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until+int64(len(mutations)) != generation {
		h.mutations = nil
	}
	h.until = generation
	h.mutations = append(h.mutations, mutations...)
	h.mutations = slices.Delete(h.mutations, 0, max(0, len(h.mutations)-heardMost))
}

// asks begins a question to the database. answered records that it has its answer.
func (h *notifications) asks() (answered func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	began, resets := time.Now(), h.resets
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.resets == resets {
			h.asked = began
		}
	}
}

// look reports whether a generation after since was heard. sure: if not, there is none, or its
// notification is about to come.
func (h *notifications) look(since int64) (newer, sure bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until > since, h.sure()
}

func (h *notifications) sure() bool { return h.listening && time.Since(h.asked) < patience }

// since returns the changes after a generation. false: ask the database.
func (h *notifications) since(generation int64) (svc.StoreChanges, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := h.until - generation
	if !h.sure() || news < 1 || news > int64(len(h.mutations)) {
		return svc.StoreChanges{}, false
	}
	changes := svc.StoreChanges{Generation: h.until}
	for _, m := range h.mutations[len(h.mutations)-int(news):] {
		for _, target := range m.Targets {
			if target.Kind != "" {
				changes.Targets = append(changes.Targets, target)
			}
		}
		changes.Renamed = append(changes.Renamed, m.Renamed...)
	}
	return changes, true
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

// Hear takes what [Dialect.Notify] has told: the generation, a space, and the text that was its
// parameter. Call it for each notification, in their order, from one goroutine. After an error,
// call Listening.
func (s *Store) Hear(notification string) error {
	number, text, _ := strings.Cut(notification, " ")
	generation, err := strconv.ParseInt(number, 10, 64)
	var mutations []mutation
	if err := cmp.Or(err, json.Unmarshal([]byte(text), &mutations)); err != nil {
		return fmt.Errorf("a notification cannot be read: %w", err)
	}
	s.heard.hear(generation, mutations)
	s.news.tell()
	return nil
}
