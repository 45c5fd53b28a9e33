package e2e_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/contract"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/barrage"
	"github.com/extsvc/svc/store/sqlite"
)

// Random requests go to a database in a file. There is no marketplace: random requests must not
// leave this machine.
func TestRandomRequestsToAFile(t *testing.T) {
	store := must(sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "svc.db"), sqlite.Options{}))
	defer store.Close()
	service := must(svc.New(svc.Config{
		Store: store,
		Authenticator: svc.AuthenticatorFunc(func(_ context.Context, bearer string) (svc.Principal, error) {
			return svc.Principal{Kind: svc.KindUser, ID: bearer}, nil
		}),
		Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}}},
	}))
	defer service.Close()
	if err := service.Access.Apply(t.Context(), svc.Host, must(svc.ParseBundle([]byte(access)))); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(httpapi.New(service, httpapi.Options{}).Ahead(http.NewServeMux()))
	defer server.Close()
	url := server.URL + httpapi.DefaultPrefix
	barrage.Run(t, server.Client(), url, "admin", "admin", "alice", "svcu_wrong", "")
	admin := newCaller(t, &http.Client{Transport: contract.Transport(t, server.Client().Transport)}, url, "admin")
	for template, err := range admin.Templates.List(t.Context(), svc.TemplateFilter{}) {
		if err != nil || strings.Contains(template.Name+string(template.Manifest), "\ufffd") {
			t.Errorf("%v: %v", template, err)
		}
	}
}
