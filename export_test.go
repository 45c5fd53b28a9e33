package svc

import (
	"context"
	"strconv"

	"github.com/extsvc/svc/internal/token"
)

// Resum gives a key without its checksum the right one.
func Resum(key string) string {
	return token.Token{Prefix: key[:5], ID: key[5:21], Secret: key[21:]}.String()
}

// SeenLongAgo makes the service forget that the store was seen lately.
func (s *Service) SeenLongAgo() { s.copies.seen.Store(int64(-2 * trusted)) }

// FlushUses writes now when keys were used last.
func (s *Service) FlushUses(ctx context.Context) { s.flushOnce(ctx) }

// WaitingUses returns how many of n uses wait, of as many keys.
func WaitingUses(n int) int {
	var uses keyUses
	for i := range n {
		uses.add(KeyUse{ID: strconv.Itoa(i)})
	}
	return len(uses.take())
}

// CaughtUp reports whether all that has changed in the store, as far as it was heard of, is forgotten.
func (s *Service) CaughtUp() bool { return s.copies.applied.Load() >= s.copies.heard.Load() }

// Follows reports whether copies of what a store holds can be used, and hold up to a generation.
func Follows(s *Service, generation int64) bool {
	return s.copies.fresh() && s.copies.applied.Load() >= generation
}

// DropCopies makes the next call read the store.
func DropCopies(s *Service) {
	s.copies.apply(Changes{Reset: true, Generation: s.copies.applied.Load()}, s.copies.heard.Load())
}

// ForgetCopies lets go of the copy of all rows of access.
func ForgetCopies(s *Service) {
	DropCopies(s)
	s.copies.everybody.Put(s.copies.everybody.Fence(struct{}{}), struct{}{}, nil)
	DropCopies(s)
}
