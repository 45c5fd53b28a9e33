// Package observers watches the HTTP interface with OpenTelemetry and Prometheus. Each is one short
// [httpapi.Observer] to copy.
package observers

import (
	"context"

	"github.com/extsvc/svc/httpapi"
)

// All passes each observation to several observers.
type All []httpapi.Observer

// Observe implements [httpapi.Observer].
func (all All) Observe(ctx context.Context, o httpapi.Observation) {
	for _, one := range all {
		one.Observe(ctx, o)
	}
}
