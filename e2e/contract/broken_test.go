package contract_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/intercept"
)

// broken is a store that fails on request, in every method that requests use.
type broken struct {
	*intercept.Store
	faults atomic.Pointer[faults]
}

// faults are the errors of a store; nil: it works.
type faults struct{ reads, writes error }

func newBroken(good svc.FullStore) *broken {
	b := &broken{}
	b.faults.Store(&faults{})
	b.Store = &intercept.Store{FullStore: good, Around: func(_ context.Context, call intercept.Call) error {
		fault := b.faults.Load().reads
		if call.Writes {
			fault = b.faults.Load().writes
		}
		if fault != nil && call.Method != "ChainAudit" { // reads of the records call it
			return fault
		}
		return call.Do()
	}}
	return b
}

// shelf is a marketplace with one template at any address. It fails on request.
type shelf struct {
	content atomic.Pointer[svc.Content]
	fault   atomic.Pointer[error]
}

func (s *shelf) CheckURL(string) error { return nil }

func (s *shelf) Template(_ context.Context, _ svc.Upstream, id string) (svc.Content, error) {
	if fault := s.fault.Load(); fault != nil {
		return svc.Content{}, *fault
	}
	if id != "notes" {
		return svc.Content{}, &svc.Error{Code: svc.CodeNotFound, Message: "the source has no such template"}
	}
	return *s.content.Load(), nil
}

func (s *shelf) Manifest(context.Context, svc.Upstream, svc.CatalogEntry) (json.RawMessage, error) {
	if fault := s.fault.Load(); fault != nil {
		return nil, *fault
	}
	return json.RawMessage(`{"version":"1"}`), nil
}

func (s *shelf) Catalog(context.Context, svc.Upstream, time.Duration) (svc.Catalog, error) {
	if fault := s.fault.Load(); fault != nil {
		return svc.Catalog{}, *fault
	}
	return svc.Catalog{
		Entries: []svc.CatalogEntry{
			{ID: "notes", Content: *s.content.Load()}, {Index: 1, ID: "support", Content: svc.Content{Name: "Support"}, ManifestFile: "support.json"},
		},
		Problems:  []svc.CatalogProblem{{Index: 2, Reason: "it must be an object"}},
		FetchedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}, nil
}
