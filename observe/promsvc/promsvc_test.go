package promsvc_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/observe/promsvc"
	"github.com/extsvc/svc/store/memstore"
)

func ExampleNew() {
	service, err := svc.New(svc.Config{Store: memstore.New()})
	if err != nil {
		return
	}
	defer service.Close()
	metrics, err := promsvc.New(prometheus.DefaultRegisterer, service)
	if err != nil {
		return
	}
	api := httpapi.New(service, httpapi.Options{Observer: metrics})
	_ = api // mount it under /ext/svc, and promhttp.Handler() under /metrics
}

func TestMetrics(t *testing.T) {
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
	registry := prometheus.NewRegistry()
	metrics, err := promsvc.New(registry, service)
	is.NoErr(err)
	api := httpapi.New(service, httpapi.Options{Logger: quiet, Observer: metrics})
	for _, target := range []string{"/ext/svc/admin/templates", "/ext/svc/admin/templates/none", "/ext/svc/admin/templates/none"} {
		r := httptest.NewRequest("GET", target, nil)
		r.Header.Set("Authorization", "Bearer alice")
		api.ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, who := range []svc.Principal{svc.Host, {Kind: svc.KindUser, ID: "bob"}} {
		_, err := service.May(t.Context(), who, "bank:recall", "notes")
		is.NoErr(err)
	}

	for end := time.Now().Add(time.Minute); !service.Stats().Following && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // it begins with the first decision
	}
	families, err := registry.Gather()
	is.NoErr(err)
	counted, values := map[string]uint64{}, map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if h := metric.GetHistogram(); h != nil {
				labels := ""
				for _, label := range metric.GetLabel() {
					labels += label.GetName() + "=" + label.GetValue() + " "
				}
				counted[labels] = h.GetSampleCount()
				continue
			}
			is.Equal(len(metric.GetLabel()), 0)
			values[family.GetName()] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	is.Equal(counted, map[string]uint64{
		"code= route=GET /ext/svc/admin/templates status=200 ":                        1,
		"code=not_found route=GET /ext/svc/admin/templates/{template_id} status=404 ": 2,
	})
	is.Equal(len(values), 9)
	is.Equal(values["svc_decisions_total"], 2.0)
	is.Equal(values["svc_denials_total"], 1.0)
	is.Equal(values["svc_follower_following"], 1.0)
	is.True(values["svc_cache_bytes"] > 0)

	// One registry takes one Service, or several with a label each.
	_, err = promsvc.New(registry, service)
	is.True(err != nil)
	shared := prometheus.NewRegistry()
	for _, name := range []string{"a", "b"} {
		_, err = promsvc.New(prometheus.WrapRegistererWith(prometheus.Labels{"service": name}, shared), service)
		is.NoErr(err)
	}
	_, err = promsvc.New(prometheus.NewRegistry(), nil)
	is.NoErr(err)
}
