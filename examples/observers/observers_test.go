package observers_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/matryer/is"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/examples/observers"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

func TestObservers(t *testing.T) {
	is := is.New(t)
	quiet := slog.New(slog.DiscardHandler)
	service, err := svc.New(svc.Config{
		Store: memstore.New(), Logger: quiet,
		Authenticator: svc.AuthenticatorFunc(func(_ context.Context, bearer string) (svc.Principal, error) {
			return svc.Principal{Kind: svc.KindUser, ID: bearer, Actions: []string{"template:admin"}}, nil
		}),
	})
	is.NoErr(err)
	defer service.Close()
	spans, registry := tracetest.NewSpanRecorder(), prometheus.NewRegistry()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("svc")
	metrics, err := observers.NewMetrics(registry)
	is.NoErr(err)
	api := httpapi.New(service, httpapi.Options{Logger: quiet, Observer: observers.All{observers.Spans{Tracer: tracer}, metrics}})
	for _, target := range []string{"/ext/svc/admin/templates", "/ext/svc/admin/templates/none", "/ext/svc/admin/templates/none"} {
		r := httptest.NewRequest("GET", target, nil)
		r.Header.Set("Authorization", "Bearer alice")
		api.ServeHTTP(httptest.NewRecorder(), r)
	}

	ended := spans.Ended()
	is.Equal(len(ended), 3)
	is.Equal(ended[0].Name(), "GET /ext/svc/admin/templates")
	is.True(ended[0].EndTime().After(ended[0].StartTime()))
	attributes := map[string]string{}
	for _, a := range ended[1].Attributes() {
		attributes[string(a.Key)] = a.Value.String()
	}
	is.Equal(attributes, map[string]string{
		"http.route": "GET /ext/svc/admin/templates/{template_id}", "http.response.status_code": "404", "error.type": "not_found", "enduser.id": "alice",
	})

	families, err := registry.Gather()
	is.NoErr(err)
	counted := map[string]uint64{}
	for _, metric := range families[0].GetMetric() {
		labels := ""
		for _, label := range metric.GetLabel() {
			labels += label.GetName() + "=" + label.GetValue() + " "
		}
		counted[labels] = metric.GetHistogram().GetSampleCount()
	}
	is.Equal(counted, map[string]uint64{
		"code= route=GET /ext/svc/admin/templates status=200 ":                        1,
		"code=not_found route=GET /ext/svc/admin/templates/{template_id} status=404 ": 2,
	})
}
