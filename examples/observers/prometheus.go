package observers

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/extsvc/svc/httpapi"
)

// Metrics counts and times requests by route, status and code. It has no label for the caller: the
// number of callers has no bound.
type Metrics struct{ *prometheus.HistogramVec }

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (Metrics, error) {
	m := Metrics{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "svc_http_request_duration_seconds", Help: "Requests of the svc interface.",
	}, []string{"route", "status", "code"})}
	return m, registry.Register(m)
}

// Observe implements [httpapi.Observer].
func (m Metrics) Observe(_ context.Context, o httpapi.Observation) {
	m.WithLabelValues(o.Route, strconv.Itoa(o.Status), string(o.Code)).Observe(o.Took.Seconds())
}
