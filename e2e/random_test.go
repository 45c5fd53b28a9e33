package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/hostilehttp"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/marketplace"
)

// anywhere has the same files in every directory.
type anywhere struct{ fs.FS }

func (a anywhere) Open(name string) (fs.File, error) { return a.FS.Open(path.Base(name)) }

// sessions are those of a host: the ID of a user, or "ID+sa" of a service account.
func sessions(_ context.Context, bearer string) (svc.Principal, error) {
	if account, is := strings.CutSuffix(bearer, "+sa"); is {
		return svc.Principal{Kind: svc.KindServiceAccount, ID: account}, nil
	}
	return svc.Principal{Kind: svc.KindUser, ID: bearer}, nil
}

// Random requests go to a database in a file. All sources are files: random requests must not leave
// this machine.
func TestRandomRequestsToAFile(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	shop := fstest.MapFS{"templates.json": {Data: []byte(`{"templates": [
		{"id": "chat", "name": "Chat", "category": "talk", "tags": ["t"], "manifest": {"version": "1", "n": 1.0}}]}`)}}
	s := newSite(t, func(c *svc.Config) {
		c.Logger, c.Authenticator, c.Memory.Templates = logger, svc.AuthenticatorFunc(sessions), 1<<20
		c.Events.Keep, c.Templates.Banks = false, nil
		c.Sources.Marketplace = must(marketplace.New(marketplace.Config{Files: map[string]fs.FS{"any": anywhere{shop}}}))
	})
	must(s.Service.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: "fs://any/acme"}))
	server := httptest.NewUnstartedServer(s.API.Mount(http.NewServeMux()))
	server.Config.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelError)
	server.Start()
	defer server.Close()
	hostilehttp.Run(t, server.Client(), server.URL+httpapi.DefaultPrefix,
		"admin", "admin", "plain", "alice", "robot+sa", "narrow+sa", s.key("admin"), "svcu_wrong", "")
	admin := s.as("admin")
	for _, list := range []string{
		"/admin/template-sources", "/admin/templates",
		"/users/alice/api-keys", "/users/admin/api-keys",
	} {
		if all := string(admin.send("GET", list, "").is(200).body); strings.Contains(all, "\ufffd") {
			t.Errorf("a replaced character is stored: %s", all)
		}
	}
	var list struct{ Templates []struct{ ID string } }
	must(0, json.Unmarshal(admin.send("GET", "/admin/templates", "").is(200).body, &list))
	for _, template := range list.Templates {
		admin.send("GET", "/admin/templates/"+url.PathEscape(template.ID), "").is(200)
	}
	for _, fault := range []string{"panic", "superfluous", "level=ERROR"} {
		if _, text, found := strings.Cut(log.String(), fault); found {
			t.Errorf("%s%.600s", fault, text)
		}
	}
}
