package linearizability_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

// shelf is the marketplace. The caller decides what it has, so the shelf is not part of the checked
// state.
type shelf struct{}

// entries can be installed.
var entries = []string{"chat", "notes"}

// published is a version of an entry.
func published(entry string, version int) svc.Content {
	return svc.Content{
		Name: entry, Description: new(fmt.Sprint("version ", version)), Integrations: []string{}, Tags: []string{entry},
		Manifest: json.RawMessage(fmt.Sprintf(`{"version":"%d"}`, version)),
	}
}

// handMade is a template that a client creates, with an edited name.
func handMade(e edit) svc.Content {
	return svc.Content{Name: strings.Trim(e.value, `"`), Integrations: []string{}, Tags: []string{"mine"}, Manifest: json.RawMessage(`{"version":"1"}`)}
}

type askingKey struct{}

// asking gives the shelf the version in call, and notes in call which entry was requested.
func asking(ctx context.Context, call *templateCall) context.Context {
	return context.WithValue(ctx, askingKey{}, call)
}

func (shelf) CheckURL(string) error { return nil }

func (shelf) Template(ctx context.Context, _ svc.Upstream, id string) (svc.Content, error) {
	call := ctx.Value(askingKey{}).(*templateCall)
	call.fetched = id
	time.Sleep(rand.N(time.Millisecond)) // a request takes its time
	return published(id, call.version), nil
}

func (shelf) Catalog(context.Context, svc.Upstream, time.Duration) (svc.Catalog, error) {
	return svc.Catalog{}, nil
}

func (shelf) Manifest(context.Context, svc.Upstream, svc.CatalogEntry) (json.RawMessage, error) {
	return nil, nil
}

func fieldsOf(err error) string {
	if e, ok := errors.AsType[*svc.Error](err); ok {
		return strings.Join(e.Fields, " ")
	}
	return ""
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
