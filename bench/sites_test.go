package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlstore"
)

// site is a database with rows, a Service over it, and the bare driver.
type site struct {
	engine
	content
	place   string
	store   svc.Store
	service *svc.Service
	bare    *bare
}

// sites are shared by all benchmarks of the run. Their databases live until its end.
var sites = map[string]*site{}

// siteOf returns the site of that engine and size. The first call seeds it.
func siteOf(tb testing.TB, e engine, s size) *site {
	tb.Helper()
	if err := e.check(); err != nil {
		tb.Skip("NOT MEASURED: ", err)
	}
	if s.large && os.Getenv("SVC_BENCH_LARGE") == "" {
		tb.Skip("NOT MEASURED: large sizes need SVC_BENCH_LARGE=1")
	}
	name := e.name + "_" + s.name
	if sites[name] == nil {
		made, err := newSite(e, s, name)
		if err != nil {
			tb.Fatal(err)
		}
		sites[name] = made
	}
	return sites[name]
}

func newSite(e engine, s size, name string) (*site, error) {
	place, err := e.place(name)
	if err != nil {
		return nil, err
	}
	store, err := e.open(place)
	if err != nil {
		return nil, err
	}
	write, read := e.connect(place, nil)
	site := &site{engine: e, content: content{size: s}, place: place, store: store}
	if site.bare, err = newBare(write, read, e.dialect); err != nil {
		return nil, err
	}
	if site.service, err = svc.New(config(store)); err != nil {
		return nil, err
	}
	return site, site.seed()
}

// observed returns the same database with an observed store and bare driver.
func (s *site) observed(tb testing.TB, seen *observer) *site {
	tb.Helper()
	write, read := s.connect(s.place, seen)
	other := *s
	other.store = sqlstore.New(write, read, s.dialect)
	var err, failed error
	other.bare, err = newBare(write, read, s.dialect)
	other.service, failed = svc.New(config(other.store))
	if err := errors.Join(err, failed); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(other.service.Close(), other.bare.close()); err != nil {
			tb.Error(err)
		}
	})
	return &other
}

// ownSite returns a nearly empty site for one benchmark alone.
func ownSite(tb testing.TB, e engine, name string) *site {
	tb.Helper()
	if err := e.check(); err != nil {
		tb.Skip("NOT MEASURED: ", err)
	}
	ownSites++
	s, err := newSite(e, size{keys: 100, templates: 100, known: 10}, fmt.Sprint(name, "_", ownSites))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// ownSites counts these sites, so that each has its own place.
var ownSites int

func (s *site) close() error {
	return errors.Join(s.service.Close(), s.bare.close(), s.store.(closingStore).Close())
}

// scratch is the directory of the files.
var scratch string

func TestMain(m *testing.M) {
	if runAsChild() {
		return
	}
	var err error
	if scratch, err = os.MkdirTemp("", "svc-bench-"); err != nil {
		panic(err)
	}
	code := m.Run()
	for _, site := range sites {
		err = errors.Join(err, site.close())
	}
	for _, schema := range schemas {
		err = errors.Join(err, inPostgres("DROP SCHEMA "+schema+" CASCADE"))
	}
	if err = errors.Join(err, os.RemoveAll(scratch)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// config is the configuration of every measured Service: that of a well configured host.
func config(store svc.Store) svc.Config {
	return svc.Config{
		Store: store, Marketplace: shelf{}, Authenticator: svc.AuthenticatorFunc(authenticate), Logger: slog.New(slog.DiscardHandler),
		Keys:      svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("a pepper for benchmarks")}}},
		Templates: svc.TemplateConfig{Cached: -1},
	}
}

const password = "the administrator's"

func authenticate(_ context.Context, bearer string) (svc.Principal, error) {
	if bearer != password {
		return svc.Principal{}, svc.ErrUnauthenticated
	}
	return svc.Principal{Kind: svc.KindUser, ID: "administrator", Actions: []string{svc.ActionTemplateAdmin}}, nil
}

// shelf is a Marketplace that has every template at hand.
type shelf struct{}

func (shelf) CheckURL(string) error { return nil }

func (shelf) Template(context.Context, svc.Upstream, string) (svc.Content, error) {
	return installed(), nil
}

func (shelf) Catalog(context.Context, svc.Upstream, time.Duration) (svc.Catalog, error) {
	return svc.Catalog{}, nil
}

func (shelf) Manifest(context.Context, svc.Upstream, svc.CatalogEntry) (json.RawMessage, error) {
	return nil, nil
}

func installed() svc.Content {
	category := "installed"
	return svc.Content{
		Name: "zzz, behind all others", Category: &category, Integrations: []string{"mail"}, Tags: []string{"one", "two"},
		Manifest: json.RawMessage(manifest),
	}
}
