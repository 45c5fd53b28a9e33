// Package memstore keeps everything in memory: for tests, and for hosts that need nothing to outlive the process.
package memstore

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
)

// Store is a [svc.Store] in memory. Use [New]. All methods are safe for concurrent use; writers and readers wait for each
// other.
type Store struct {
	mu   sync.Locker
	undo *journal // nil: each call is for itself
	*rows
}

// rows are all that a Store keeps.
type rows struct {
	generation int64
	changes    [][]svc.Target // of the last generations, the newest last
	next       chan struct{}  // closed by the next mutation

	sources   map[svc.SourceKey]svc.Source
	files     map[svc.SourceKey]map[string]svc.SourceFile // by path
	templates map[svc.TemplateKey]svc.Template
	versions  map[svc.TemplateKey][]svc.TemplateVersion // newest first
	keys      map[string]svc.APIKey
	kept      map[string][]byte

	users           map[string]svc.User
	channels        map[svc.Channel]string // whose it is
	groups          map[string]svc.Group
	serviceAccounts map[string]svc.ServiceAccount
	policies        map[string]svc.Policy
	attachments     map[svc.AttachmentKey]svc.Attachment
	bankPolicies    map[string]svc.BankPolicy

	outbox  map[uuid.UUID]outboxed
	answers map[string]svc.Answer // by key
	audit   []svc.AuditRecord     // by number

	auditLatest []time.Time // of each record: the latest time of it and of those before
}

var _ svc.Store = (*Store)(nil)

// New returns an empty Store.
func New() *Store {
	return &Store{mu: &sync.Mutex{}, rows: &rows{
		next:            make(chan struct{}),
		sources:         map[svc.SourceKey]svc.Source{},
		files:           map[svc.SourceKey]map[string]svc.SourceFile{},
		templates:       map[svc.TemplateKey]svc.Template{},
		versions:        map[svc.TemplateKey][]svc.TemplateVersion{},
		keys:            map[string]svc.APIKey{},
		kept:            map[string][]byte{},
		users:           map[string]svc.User{},
		channels:        map[svc.Channel]string{},
		groups:          map[string]svc.Group{},
		serviceAccounts: map[string]svc.ServiceAccount{},
		policies:        map[string]svc.Policy{},
		attachments:     map[svc.AttachmentKey]svc.Attachment{},
		bankPolicies:    map[string]svc.BankPolicy{},
		outbox:          map[uuid.UUID]outboxed{},
		answers:         map[string]svc.Answer{},
	}}
}

// lock takes the store for one call, unless ctx has ended.
func (s *Store) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	return nil
}

// found returns a copy of the row with that key.
func found[K comparable, R any](rows map[K]R, key K, clone func(R) R) (R, error) {
	row, there := rows[key]
	if !there {
		return row, svc.ErrNotFound
	}
	return clone(row), nil
}

// foundOrNil returns a copy of the row with that key, or nil.
func foundOrNil[K comparable, R any](rows map[K]R, key K, clone func(R) R) *R {
	row, there := rows[key]
	if !there {
		return nil
	}
	row = clone(row)
	return &row
}

func cloneText(s *string) *string {
	if s == nil {
		return nil
	}
	text := *s
	return &text
}

func cloneBytes[B ~[]byte](b B) B { return bytes.Clone(b) }

func same[R any](row R) R { return row }
