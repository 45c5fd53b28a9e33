package observers

import (
	"context"

	"github.com/extsvc/svc/httpapi"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Spans makes a span of each request, below the one that the host's own middleware began, if it did.
type Spans struct{ trace.Tracer }

// Observe implements [httpapi.Observer].
func (s Spans) Observe(ctx context.Context, o httpapi.Observation) {
	_, span := s.Start(ctx, o.Route, trace.WithTimestamp(o.Began), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.route", o.Route), attribute.Int("http.response.status_code", o.Status),
		attribute.String("error.type", string(o.Code)), attribute.String("enduser.id", o.Caller.ID)))
	if o.Err != nil {
		span.SetStatus(codes.Error, string(o.Code))
	}
	span.End(trace.WithTimestamp(o.Began.Add(o.Took)))
}
