// Package recent remembers texts for a while.
package recent

import (
	"sync"
	"time"
)

// Set remembers texts until a period is over. It holds at most Most of them: a full Set begins
// again. It is safe for concurrent use.
type Set struct {
	Most   int
	Period time.Duration

	mu sync.Mutex
	at map[string]time.Time
}

// Has reports whether a text was added less than the period before now.
func (s *Set) Has(text string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, found := s.at[text]
	return found && !now.Before(at) && now.Sub(at) < s.Period
}

// Add adds a text at the time now.
func (s *Set) Add(text string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil || len(s.at) >= s.Most {
		s.at = map[string]time.Time{}
	}
	s.at[text] = now
}
