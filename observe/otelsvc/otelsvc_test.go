package otelsvc_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/matryer/is"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/observe/otelsvc"
	"github.com/extsvc/svc/store/memstore"
)

func ExampleNew() {
	service, err := svc.New(svc.Config{Store: memstore.New(), Events: svc.EventConfig{OnDecision: otelsvc.Decision}})
	if err != nil {
		return
	}
	defer service.Close()
	api := httpapi.New(service, httpapi.Options{Observer: otelsvc.New(otel.Tracer("svc"))})
	_ = api // mount it under /ext/svc
}

func TestNewNeedsATracer(t *testing.T) {
	defer func() { is.New(t).True(recover() != nil) }()
	otelsvc.New(nil)
}

func TestSpans(t *testing.T) {
	is := is.New(t)
	quiet := slog.New(slog.DiscardHandler)
	service, err := svc.New(svc.Config{
		Store: memstore.New(), Logger: quiet, Events: svc.EventConfig{OnDecision: otelsvc.Decision},
		Authenticator: svc.AuthenticatorFunc(func(_ context.Context, bearer string) (svc.Principal, error) {
			return svc.Principal{Kind: svc.KindUser, ID: bearer, Actions: []string{"template:admin"}}, nil
		}),
	})
	is.NoErr(err)
	defer service.Close()
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("svc")
	api := httpapi.New(service, httpapi.Options{Logger: quiet, Observer: otelsvc.New(tracer)})
	ctx, host := tracer.Start(t.Context(), "host")
	for _, target := range []string{"/ext/svc/admin/templates", "/ext/svc/admin/templates/none", "/ext/svc/none"} {
		r := httptest.NewRequestWithContext(ctx, "GET", target, nil)
		r.Header.Set("Authorization", "Bearer alice")
		r.Header.Set("X-Request-Id", "r1")
		api.ServeHTTP(httptest.NewRecorder(), r)
	}
	_, err = service.May(ctx, svc.Principal{Kind: svc.KindUser, ID: "alice"}, "bank:recall", "notes")
	is.NoErr(err)
	_, err = service.May(t.Context(), svc.Host, "bank:recall", "notes") // without a span
	is.NoErr(err)
	host.End()

	ended := recorder.Ended()
	is.Equal(len(ended), 4)
	is.Equal(ended[0].Name(), "GET /ext/svc/admin/templates")
	is.True(ended[0].EndTime().After(ended[0].StartTime()))
	is.Equal(ended[0].Parent().SpanID(), host.SpanContext().SpanID())
	is.Equal(ended[2].Name(), "svc")
	attributes := map[string]string{}
	for _, a := range ended[1].Attributes() {
		attributes[string(a.Key)] = a.Value.String()
	}
	is.Equal(attributes, map[string]string{
		"http.request.method": "GET", "http.route": "/ext/svc/admin/templates/{template_id}", "http.response.status_code": "404",
		"error.type": "not_found", "enduser.id": "alice", "svc.request_id": "r1",
	})
	events := ended[3].Events()
	is.Equal(len(events), 1)
	is.Equal(events[0].Name, "svc.decision")
	is.Equal(events[0].Attributes[2].Value.String(), "implicit_deny")
}
