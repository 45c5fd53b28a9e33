package svc

import (
	"context"
	"crypto/sha256"
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
func (s *Service) CaughtUp() bool { return s.copies.applied.Load() >= s.copies.heard.Load() }

// Follows reports whether copies of what a store holds can be used, and hold up to a generation.
func Follows(s *Service, generation int64) bool {
	return s.copies.fresh() && s.copies.applied.Load() >= generation
}

// DropCopies makes the next call read the store.
func DropCopies(s *Service) {
	s.copies.apply(StoreChanges{Reset: true, Generation: s.copies.applied.Load()}, s.copies.heard.Load())
}

// ForgetCopies lets go of the copy of all rows of access.
func ForgetCopies(s *Service) {
	DropCopies(s)
	s.copies.everybody.Put(s.copies.everybody.Fence(struct{}{}), struct{}{}, nil)
	DropCopies(s)
}

// KeyCopies are copies of keys, of which nothing is told apart but their holders.
type KeyCopies struct{ copies *keyCopies }

// NewKeyCopies makes room for so many holders.
func NewKeyCopies(holders int) KeyCopies { return KeyCopies{newKeyCopies(1000, holders)} }

func (k KeyCopies) Keep(id, holder string) {
	k.copies.keep(k.copies.Fence(idOf(id)), idOf(id), keyCopy{holder: actor{Identity: Identity{KindUser, holder}}})
}

// Holder returns that of a key. false: there is no copy.
func (k KeyCopies) Holder(id string) (string, bool) {
	key, found := k.copies.find(idOf(id))
	return key.holder.ID, found
}

// Again is a copy of a key, and what is found when it was kept.
func (k KeyCopies) Again(pepper int, closed, unsealed bool) (kept, found any) {
	key := keyCopy{
		holder: actor{Identity{KindServiceAccount, "ci"}, "narrow"}, hash: sha256.Sum256([]byte("key")), pepper: pepper,
		closed: closed, unsealed: unsealed, expires: 1 << 61, used: 1 << 31, generation: 1 << 62,
	}
	id := idOf("0123456789abcdef")
	k.copies.keep(k.copies.Fence(id), id, key)
	again, _ := k.copies.find(id)
	return key, again
}

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
	s.Templates.templateList() // has them looked at
	list, found := s.copies.templates.lists.Get(struct{}{})
	return found && list.tooLarge
}

// KeepsTemplates reports whether reads of templates are answered from memory.
func KeepsTemplates(s *Service) bool { return s.Templates.templateList() != nil }

// Kept is how many bytes are kept of what was compiled from policies.
func Kept(s *Service) int64 { return s.compiler.Budget().Used() }
