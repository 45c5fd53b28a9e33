package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

// market is a Marketplace in memory.
type market struct {
	mu        sync.Mutex
	entries   map[string]svc.Content // by id, whatever the source
	err       error
	bad       []svc.CatalogProblem // of the catalogue
	remembers bool                 // the catalogue, while there is an err
	asked     []svc.Upstream
}

func (m *market) CheckURL(url string) error {
	if !strings.HasPrefix(url, "https://") {
		return fmt.Errorf("must be https")
	}
	return nil
}

func (m *market) Template(_ context.Context, from svc.Upstream, id string) (svc.Content, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, from)
	if m.err != nil {
		return svc.Content{}, m.err
	}
	content, there := m.entries[id]
	if !there {
		return svc.Content{}, &svc.Error{Code: svc.CodeNotFound, Message: fmt.Sprintf("source %q has no template %q", from.Source.Name, id)}
	}
	return content, nil
}

func (m *market) Catalog(_ context.Context, from svc.Upstream, _ time.Duration) (svc.Catalog, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, from)
	if m.err != nil && !m.remembers {
		return svc.Catalog{}, m.err
	}
	catalog := svc.Catalog{Problems: m.bad, FetchedAt: begin, Failure: m.err}
	for _, id := range slices.Sorted(maps.Keys(m.entries)) {
		catalog.Entries = append(catalog.Entries, svc.CatalogEntry{Index: len(catalog.Entries), ID: id, Content: m.entries[id]})
	}
	return catalog, nil
}

func (m *market) Manifest(_ context.Context, from svc.Upstream, entry svc.CatalogEntry) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, from)
	return m.entries[entry.ID].Manifest, m.err
}

// offer puts a template into every source.
func (m *market) offer(id, name, manifest string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries = map[string]svc.Content{}
	}
	m.entries[id] = svc.Content{Name: name, Manifest: json.RawMessage(manifest)}
}

func (m *market) withdraw(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, id)
}

func (m *market) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *market) requests() []svc.Upstream {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]svc.Upstream(nil), m.asked...)
}
