package observers

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/extsvc/svc/httpapi"
)

// Spans records a span for each request. The parent is the span of the host's own middleware, if
// there is one.
type Spans struct{ trace.Tracer }

// Observe implements [httpapi.Observer].
func (s Spans) Observe(ctx context.Context, o httpapi.Observation) {
	attributes := trace.WithAttributes(
		attribute.String("http.route", o.Route),
		attribute.Int("http.response.status_code", o.Status),
		attribute.String("error.type", string(o.Code)),
		attribute.String("enduser.id", o.Caller.ID),
	)
	server := trace.WithSpanKind(trace.SpanKindServer)
	_, span := s.Start(ctx, o.Route, trace.WithTimestamp(o.Began), server, attributes)
	if o.Err != nil {
		span.SetStatus(codes.Error, string(o.Code))
	}
	span.End(trace.WithTimestamp(o.Began.Add(o.Took)))
}
