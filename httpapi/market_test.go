package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/extsvc/svc"
)

// market is a Marketplace in memory.
type market struct {
	mu      sync.Mutex
	entries map[string]svc.Content // by id, whatever the source
	err     error
	asked   []svc.Upstream
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
