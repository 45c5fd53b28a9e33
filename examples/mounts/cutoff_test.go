package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

// breaking is a store whose lists fail after the first chunk.
type breaking struct {
	svc.Store
	chunks int
}

func (b *breaking) Templates(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
	if b.chunks++; b.chunks > 2 {
		return nil, errors.New("disk on fire")
	}
	return b.Store.Templates(ctx, page)
}

// half requests a list that breaks off in the middle.
func half(t *testing.T, m mount) answer {
	t.Helper()
	store := memstore.New()
	service := newService(t, &breaking{Store: store})
	for i := range 150 {
		in := svc.NewTemplate{ID: fmt.Sprintf("t%03d", i), Content: svc.Content{
			Name: "Same", Manifest: []byte(`{"version":"1","padding":"` + strings.Repeat("x", 4<<10) + `"}`),
		}}
		must(service.Templates.Create(t.Context(), svc.Host, in))
	}
	host := m.serve(t, httpapi.New(service, httpapi.Options{Prefix: m.prefix}))
	return serve(t, host).ask("GET", m.path()+"/admin/templates", bearer, "")
}

// No middleware makes half a list look complete.
func TestHalfAListIsCutOff(t *testing.T) {
	for _, m := range mounts {
		t.Run(m.name, func(t *testing.T) {
			if got := half(t, m); !got.cut {
				t.Errorf("answered %v", got)
			}
		})
	}
}
