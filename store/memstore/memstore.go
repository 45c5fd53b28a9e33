// Package memstore is a store in memory: for tests, and for hosts whose data may end with the
// process.
package memstore

import (
	"context"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
)

// Store is a [svc.FullStore] in memory. Create one with [New]. All methods are safe for concurrent
// use; readers and writers wait for each other.
type Store struct {
	mu   sync.Locker
	undo *journal // nil outside of a transaction
	*rows
}

// rows holds all data of a Store.
type rows struct {
	generation int64
	changes    []svc.StoreChanges // the last mutations, newest last; their Generation is 0
	next       chan struct{}      // closed by the next mutation

	sources   map[svc.SourceKey]svc.Source
	files     map[svc.SourceKey]map[string]svc.SourceFile // by path
	templates map[svc.TemplateKey]svc.Template
	versions  map[svc.TemplateKey][]svc.TemplateVersion // newest first
	keys      map[string]svc.APIKey
	live      map[svc.Identity]map[string]svc.APIKey // the keys that are not revoked, by holder
	kept      map[string][]byte

	users           map[string]svc.User
	channels        map[svc.Channel]string // the user that holds it
	groups          map[string]svc.Group
	serviceAccounts map[string]svc.ServiceAccount
	policies        map[string]svc.Policy
	attachments     map[svc.AttachmentKey]svc.Attachment
	bankPolicies    map[string]svc.BankPolicy
	tests           map[string]svc.AccessTest

	outbox  map[uuid.UUID]outboxEvent
	answers map[string]svc.StoredAnswer // by key
	audit   []svc.AuditRecord           // by number
}

var _ svc.FullStore = (*Store)(nil)

// New returns an empty Store.
func New() *Store {
	return &Store{mu: &sync.Mutex{}, rows: &rows{
		next:            make(chan struct{}),
		sources:         map[svc.SourceKey]svc.Source{},
		files:           map[svc.SourceKey]map[string]svc.SourceFile{},
		templates:       map[svc.TemplateKey]svc.Template{},
		versions:        map[svc.TemplateKey][]svc.TemplateVersion{},
		keys:            map[string]svc.APIKey{},
		live:            map[svc.Identity]map[string]svc.APIKey{},
		kept:            map[string][]byte{},
		users:           map[string]svc.User{},
		channels:        map[svc.Channel]string{},
		groups:          map[string]svc.Group{},
		serviceAccounts: map[string]svc.ServiceAccount{},
		policies:        map[string]svc.Policy{},
		attachments:     map[svc.AttachmentKey]svc.Attachment{},
		bankPolicies:    map[string]svc.BankPolicy{},
		tests:           map[string]svc.AccessTest{},
		outbox:          map[uuid.UUID]outboxEvent{},
		answers:         map[string]svc.StoredAnswer{},
	}}
}

// lock locks the store for one call, or fails if ctx has ended.
func (s *Store) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	return nil
}

// find returns a copy of the row with the key, or [svc.ErrNotFound].
func find[K comparable, R any](rows map[K]R, key K, clone func(R) R) (R, error) {
	row, there := rows[key]
	if !there {
		return row, svc.ErrNotFound
	}
	return clone(row), nil
}

// findOrNil returns a copy of the row with the key, or nil.
func findOrNil[K comparable, R any](rows map[K]R, key K, clone func(R) R) *R {
	row, there := rows[key]
	if !there {
		return nil
	}
	return new(clone(row))
}

// create adds a row, unless its key is taken.
func create[K comparable, R interface{ Target() svc.Target }](
	ctx context.Context, s *Store, rows map[K]R, key K, row R,
) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if _, taken := rows[key]; taken {
		return svc.ErrExists
	}
	put(s, rows, key, row)
	s.recordChange(row.Target())
	return nil
}

// sortedRows returns the rows that wanted accepts, sorted by compare.
func sortedRows[K comparable, R any](
	rows map[K]R, wanted func(R) bool, compare func(a, b R) int,
) []R {
	var list []R
	for _, row := range rows {
		if wanted(row) {
			list = append(list, row)
		}
	}
	slices.SortFunc(list, compare)
	return list
}

// first returns at most limit rows as copies.
func first[R, C any](rows []R, limit int, as func(R) C) []C {
	chunk := make([]C, min(limit, len(rows)))
	for i := range chunk {
		chunk[i] = as(rows[i])
	}
	return chunk
}

func cloneText(s *string) *string {
	if s == nil {
		return nil
	}
	return new(*s)
}

func same[R any](row R) R { return row }
