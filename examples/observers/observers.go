// Package observers watches the HTTP interface with OpenTelemetry and with Prometheus: one short [httpapi.Observer] each, to copy.
package observers

import (
	"context"

	"github.com/extsvc/svc/httpapi"
)

// All tells several observers.
type All []httpapi.Observer

// Observe implements [httpapi.Observer].
func (all All) Observe(ctx context.Context, o httpapi.Observation) {
	for _, one := range all {
		one.Observe(ctx, o)
	}
}
