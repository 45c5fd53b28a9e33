package e2e_test

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/contract"
	"github.com/extsvc/svc/e2e/hostilehttp"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/sqlite"
)

// anywhere has the same files in every directory.
type anywhere struct{ fs.FS }

func (a anywhere) Open(name string) (fs.File, error) { return a.FS.Open(path.Base(name)) }

// Random requests go to a database in a file. All sources are files: random requests must not leave
// this machine.
func TestRandomRequestsToAFile(t *testing.T) {
	store := must(sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "svc.db"), sqlite.Options{}))
	defer store.Close()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	shop := fstest.MapFS{"templates.json": {Data: []byte(`{"templates": [` + first + `]}`)}}
	service := must(svc.New(svc.Config{
		Store: store, Logger: logger,
		Authenticator: svc.AuthenticatorFunc(func(_ context.Context, bearer string) (svc.Principal, error) {
			if account, is := strings.CutSuffix(bearer, "+sa"); is {
				return svc.Principal{Kind: svc.KindServiceAccount, ID: account}, nil
			}
			return svc.Principal{Kind: svc.KindUser, ID: bearer}, nil
		}),
		Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}}},
		Sources: svc.SourceConfig{
			Marketplace: must(marketplace.New(marketplace.Config{Files: map[string]fs.FS{"any": anywhere{shop}}})),
			SealingKey:  make([]byte, 32),
		},
		Memory: svc.Memory{Templates: 1 << 20},
	}))
	defer service.Close()
	if err := service.Access.Apply(t.Context(), svc.Host, must(svc.ParseBundle([]byte(access)))); err != nil {
		t.Fatal(err)
	}
	must(service.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: "fs://any/acme"}))
	user := svc.Identity{Kind: svc.KindUser, ID: "admin"}
	key := string(must(service.Keys.Issue(t.Context(), svc.Host, user, svc.NewAPIKey{})).Key)
	api := httpapi.New(service, httpapi.Options{Logger: logger})
	server := httptest.NewServer(api.Mount(http.NewServeMux()))
	defer server.Close()
	server.Config.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelError)
	base := server.URL + httpapi.DefaultPrefix
	hostilehttp.Run(t, server.Client(), base,
		"admin", "admin", "plain", "alice", "robot+sa", "narrow+sa", key, "svcu_wrong", "")
	admin := newCaller(t, &http.Client{Transport: contract.Transport(t, server.Client().Transport)}, base, "admin")
	for _, list := range []string{
		"/admin/template-sources", "/admin/templates",
		"/users/alice/api-keys", "/users/admin/api-keys",
	} {
		if all := string(admin.send("GET", list, "").is(200).body); strings.Contains(all, "\ufffd") {
			t.Errorf("a replaced character is stored: %s", all)
		}
	}
	for _, id := range admin.templates(svc.TemplateQuery{}) {
		admin.send("GET", "/admin/templates/"+url.PathEscape(id), "").is(200)
	}
	for _, fault := range []string{"panic", "superfluous", "level=ERROR"} {
		if _, text, found := strings.Cut(log.String(), fault); found {
			t.Errorf("%s%.600s", fault, text)
		}
	}
}
