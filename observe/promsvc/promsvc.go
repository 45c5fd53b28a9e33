// Package promsvc makes metrics of Prometheus from the requests to svc, and from the figures of its
// Service. It is its own module, so that only its users compile the Prometheus client.
package promsvc

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// New registers metrics, and returns the observer that counts and times requests. registry is
// required. The observer is safe for concurrent use.
//
// The histogram svc_http_request_duration_seconds has labels for the route, the status and the code
// of the problem. It has none for the caller: the number of callers has no bound. The other metrics
// are those of [svc.Service.Stats], read at each collection and without labels. service nil: only
// requests are counted, as with tenants.
//
// An error is one of registry, which takes the metrics of one Service. For several, wrap it for
// each with [prometheus.WrapRegistererWith] and a label. After an error, nothing stays registered.
func New(registry prometheus.Registerer, service *svc.Service) (httpapi.Observer, error) {
	requests := requests{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "svc_http_request_duration_seconds", Help: "Requests of the svc interface.",
	}, []string{"route", "status", "code"})}
	if err := registry.Register(requests); err != nil {
		return nil, err
	}
	if service == nil {
		return requests, nil
	}
	if err := registry.Register(figures{service}); err != nil {
		registry.Unregister(requests)
		return nil, err
	}
	return requests, nil
}

// requests counts and times requests.
type requests struct{ *prometheus.HistogramVec }

// Observe implements [httpapi.Observer].
func (r requests) Observe(_ context.Context, o httpapi.Observation) {
	r.WithLabelValues(o.Route, strconv.Itoa(o.Status), string(o.Code)).Observe(o.Took.Seconds())
}

// figures collects the Stats of a Service.
type figures struct{ *svc.Service }

// figure is one metric of Stats.
type figure struct {
	*prometheus.Desc
	kind  prometheus.ValueType
	value func(s svc.Stats) float64
}

func counter(name, help string, value func(svc.Stats) float64) figure {
	return figure{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, value}
}

func gauge(name, help string, value func(svc.Stats) float64) figure {
	return figure{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value}
}

var all = []figure{
	counter("svc_decisions_total", "Answers of Decide and May.",
		func(s svc.Stats) float64 { return float64(s.Decisions) }),
	counter("svc_denials_total", "Answers of Decide and May that were not allowed.",
		func(s svc.Stats) float64 { return float64(s.Denials) }),
	counter("svc_cache_reads_total", "Reads of the store because the cache had no answer.",
		func(s svc.Stats) float64 { return float64(s.CacheReads) }),
	gauge("svc_cache_bytes", "Estimated bytes of all caches.",
		func(s svc.Stats) float64 { return float64(s.CacheBytes) }),
	gauge("svc_follower_following", "1: the cache follows the store.",
		func(s svc.Stats) float64 { return number(s.Following) }),
	gauge("svc_follower_age_seconds", "Time since the cache has last seen the store.",
		func(s svc.Stats) float64 { return s.Age.Seconds() }),
	gauge("svc_follower_lag", "Mutations that are known and not yet followed.",
		func(s svc.Stats) float64 { return float64(s.Lag) }),
	gauge("svc_listening", "1: commits of other processes are notified at once.",
		func(s svc.Stats) float64 { return number(s.Listening) }),
	gauge("svc_outbox_waiting", "Events in the outbox, up to 10,000; -1: not known.",
		func(s svc.Stats) float64 { return float64(s.OutboxWaiting) }),
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// Describe implements [prometheus.Collector].
func (figures) Describe(to chan<- *prometheus.Desc) {
	for _, f := range all {
		to <- f.Desc
	}
}

// Collect implements [prometheus.Collector].
func (f figures) Collect(to chan<- prometheus.Metric) {
	stats := f.Stats()
	for _, f := range all {
		to <- prometheus.MustNewConstMetric(f.Desc, f.kind, f.value(stats))
	}
}
