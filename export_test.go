package svc

import (
	"context"
	"encoding/json"
	"strconv"
)

// SeenLongAgo makes the service forget that the store was seen lately.
func (s *Service) SeenLongAgo() { s.copies.Distrust() }

// FlushUses writes now when keys were used last.
func (s *Service) FlushUses(ctx context.Context) { s.callers.flushOnce(ctx) }

// WaitingUses returns how many of n uses wait, of as many keys.
func WaitingUses(n int) int {
	var uses keyUses
	for i := range n {
		uses.add(keyUse{KeyUse: KeyUse{ID: strconv.Itoa(i)}})
	}
	return len(uses.take())
}

// UsesWaiting returns how many uses of keys wait to be written.
func (s *Service) UsesWaiting() int {
	s.callers.uses.mu.Lock()
	defer s.callers.uses.mu.Unlock()
	return len(s.callers.uses.waiting)
}

// CaughtUp reports whether all that has changed in the store, as far as it was heard of, is forgotten.
func (s *Service) CaughtUp() bool {
	applied, heard, _ := s.copies.State()
	return applied >= heard
}

// Follows reports whether copies of what a store holds can be used, and hold up to a generation.
func Follows(s *Service, generation int64) bool {
	applied, _, fresh := s.copies.State()
	return fresh && applied >= generation
}

// DropCopies makes the next call read the store.
func DropCopies(s *Service) { s.copies.Reset() }

// ForgetCopies lets go of the copy of all rows of access.
func ForgetCopies(s *Service) {
	s.Policies.rosters.keep(nil)
	DropCopies(s)
}

// EventRow returns a row as events have it.
func EventRow(row []byte) json.RawMessage { return eventRow(row) }

// Merge puts together what two have made of a content.
func Merge(base, ours, theirs Content) (merged Content, conflicts []string) {
	merged, conflicts, err := merge(context.Background(), base, ours, theirs)
	if err != nil {
		panic(err)
	}
	return merged, conflicts
}

// TemplatesTooLarge reports whether it is known that there are too many templates to keep.
func TemplatesTooLarge(s *Service) bool {
	s.Templates.templateList(context.Background()) // has them looked at
	return s.Templates.templateReader.kept.Full()
}

// KeepsTemplates reports whether reads of templates are answered from memory.
func KeepsTemplates(s *Service) bool { return s.Templates.templateList(context.Background()) != nil }

// Kept is how many bytes are kept of what was compiled from policies.
func Kept(s *Service) int64 { return s.guard.compiler.Budget().Used() }

// AccessRows are all rows of access.
type AccessRows struct {
	Generation int64
	Bundle
}

// AllAccess reads every row of access of a store.
func AllAccess(ctx context.Context, store AccessStore) (all AccessRows, err error) {
	read, err := store.ReadAccess(ctx, AccessRead{}, func(part Bundle) error {
		all.add(part)
		return nil
	})
	all.Generation = read.Generation
	return all, err
}
