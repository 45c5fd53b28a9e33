// Package otelsvc makes spans of OpenTelemetry from the requests to svc. It is its own module, so
// that only its users compile OpenTelemetry.
package otelsvc

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// Spans records a span for each request. It is an [httpapi.Observer]; use [New]. It is safe for
// concurrent use.
type Spans struct{ tracer trace.Tracer }

var _ httpapi.Observer = Spans{}

// New returns an observer that records spans with tracer, which is required. The name of a span is
// the pattern of the route, "svc" for a request without one. The parent is the span of the host's
// own middleware in the request's context, if there is one.
//
// The attributes are those of the semantic conventions of OpenTelemetry: http.request.method,
// http.route, http.response.status_code, error.type (the code of the problem) and enduser.id. Two
// are svc's: svc.tenant and svc.request_id. An attribute without a value is left out. No span holds
// a secret. New panics when tracer is nil.
func New(tracer trace.Tracer) Spans {
	if tracer == nil {
		panic("otelsvc: New needs a Tracer")
	}
	return Spans{tracer}
}

// Observe implements [httpapi.Observer].
func (s Spans) Observe(ctx context.Context, o httpapi.Observation) {
	var attributes []attribute.KeyValue
	method, route, found := strings.Cut(o.Route, " ")
	if !found {
		method, route = "", o.Route
	}
	for _, a := range []struct{ key, value string }{
		{"http.request.method", method}, {"http.route", route},
		{"error.type", string(o.Code)}, {"enduser.id", o.Caller.ID},
		{"svc.tenant", o.Tenant}, {"svc.request_id", o.RequestID},
	} {
		if a.value != "" {
			attributes = append(attributes, attribute.String(a.key, a.value))
		}
	}
	if o.Status != 0 {
		attributes = append(attributes, attribute.Int("http.response.status_code", o.Status))
	}
	name := o.Route
	if name == "" {
		name = "svc"
	}
	_, span := s.tracer.Start(ctx, name, trace.WithTimestamp(o.Began),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	if o.Err != nil {
		span.SetStatus(codes.Error, string(o.Code))
	}
	span.End(trace.WithTimestamp(o.Began.Add(o.Took)))
}

// Decision adds an event "svc.decision" to the span of ctx, if that is recorded: with the action,
// the bank and the outcome. Use it as [svc.EventConfig].OnDecision.
func Decision(ctx context.Context, e svc.DecisionEvent) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.AddEvent("svc.decision", trace.WithAttributes(
		attribute.String("svc.action", e.Action), attribute.String("svc.bank", e.Bank),
		attribute.String("svc.outcome", string(e.Outcome)),
	))
}
