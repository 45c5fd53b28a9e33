package linearizability_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/calltest"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/memstore"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/postgres/pgtest/pgschema"
	"github.com/extsvc/svc/store/sqlite"
)

// stores open a new store. A database opens twice, as in two processes, or once. A Service caches templates in memory
// where it sees the commits of others at once: else it would return the state of a moment ago.
var stores = map[string]func(*testing.T) []svc.Store{
	"memory": func(*testing.T) []svc.Store { return []svc.Store{memstore.New()} },
	"SQLite, one process": func(t *testing.T) []svc.Store {
		path := filepath.Join(t.TempDir(), "svc.db")
		return []svc.Store{opened(t, func() (*sqlite.Store, error) { return sqlite.Open(t.Context(), path, sqlite.Options{}) })}
	},
	"SQLite": func(t *testing.T) []svc.Store {
		path := filepath.Join(t.TempDir(), "svc.db")
		open := func() (*sqlite.Store, error) { return sqlite.Open(t.Context(), path, sqlite.Options{}) }
		return []svc.Store{opened(t, open), opened(t, open)}
	},
	"PostgreSQL":        func(t *testing.T) []svc.Store { return twice(t, postgres.Options{}) },
	"PostgreSQL, exact": func(t *testing.T) []svc.Store { return twice(t, postgres.Options{Exact: true}) },
}

// calls are those of testdata/calls.txt, by section and name.
var calls = func() map[string]map[string]string {
	all, section := map[string]map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(must(os.ReadFile("testdata/calls.txt")))) {
		if title, is := strings.CutPrefix(line, "== "); is {
			section = map[string]string{}
			all[strings.TrimSpace(title)] = section
		} else if name, call, is := strings.Cut(strings.TrimSpace(line), ": "); is && name[0] != '#' {
			section[name] = call
		}
	}
	return all
}()

// callers are the principals that a call may name.
type callers map[string]svc.Principal

// obey makes a call of calls, with values for names in it.
func obey(ctx context.Context, s *svc.Service, call string, by callers, values ...string) (any, error) {
	who, line, _ := strings.Cut(strings.NewReplacer(values...).Replace(call), " ")
	if _, known := by[who]; !known {
		panic(call)
	}
	return calltest.Do(asking(ctx, &templateCall{}), s, by[who], line)
}

// text returns a bundle as a call has it.
func text(b svc.Bundle) string { return string(must(json.Marshal(b))) }

// TestMain runs two tests at once: each has up to ten connections to PostgreSQL.
func TestMain(m *testing.M) {
	longtest.AtOnce(2)
	m.Run()
}

// eachStore runs a test with each kind of stores, or with the named ones, at once.
func eachStore(t *testing.T, test func(t *testing.T, open func(*testing.T) []svc.Store), names ...string) {
	t.Parallel()
	for name, open := range stores {
		if names != nil && !slices.Contains(names, name) {
			continue
		}
		seldom := name == "PostgreSQL, exact" || t.Name() != "TestLinearizable"
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "PostgreSQL") && seldom {
				longtest.Test(t, "this with PostgreSQL")
			}
			t.Parallel()
			test(t, open)
		})
	}
}

func twice(t *testing.T, options postgres.Options) []svc.Store {
	url := pgschema.Migrated(t)
	options.MaxOpen, options.Timeout = pgtest.Connections, -1 // it is not about the limit of 4 s, which a busy machine may reach
	open := func() (*postgres.Store, error) { return postgres.Open(t.Context(), url, options) }
	return []svc.Store{opened(t, open), opened(t, open)}
}

func opened[S interface {
	svc.Store
	Close() error
}](t *testing.T, open func() (S, error)) svc.Store {
	store := must(open())
	t.Cleanup(func() { must(0, store.Close()) })
	return store
}

// enough is the number of histories after which nearly everything has happened. The rarest answer
// comes in one of fifty: more histories follow until it has come.
const enough = 50

// TestLinearizable tests a Service over each store.
func TestLinearizable(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(*testing.T) []svc.Store) {
		stores, sum := open(t), newTally()
		services, exact := serve(t, stores...), isExact(t, stores)
		wanted := (histories(t) + len(stores) - 1) / len(stores)
		goesOn := func() bool {
			rare := wanted >= enough && sum.histories < 10*wanted && sum.missing() != nil
			return sum.histories < wanted || rare
		}
		for seed := firstSeed(t); goesOn(); seed++ {
			h := newHistory(t, seed, fmt.Sprint("history-", seed), services, exact)
			if violation := h.violation(sum); violation != "" {
				t.Fatal(violation)
			}
		}
		t.Log(sum)
		if missing := sum.missing(); sum.histories >= enough && missing != nil {
			t.Errorf("too little happened to tell: no %q", missing)
		}
	})
}

// isExact reports whether each Service sees every commit of the others at once.
func isExact(t *testing.T, stores []svc.Store) bool {
	look, ok := stores[0].(svc.FreshnessStore)
	if !ok {
		return len(stores) == 1
	}
	return len(stores) == 1 || must(look.Look(t.Context())) != 0
}

// histories returns the number of histories over all stores together.
func histories(t *testing.T) int { return number(t, "SVC_LINEAR_HISTORIES", longtest.Times(8, 120)) }

func firstSeed(t *testing.T) uint64 { return uint64(number(t, "SVC_LINEAR_SEED", 1)) }

func number(t *testing.T, name string, fallback int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// serve returns a Service over each store, with the shelf registered. Their clock never shows the same time twice.
// Each reading of the clock yields to other goroutines, in the middle of every call that writes.
func serve(t *testing.T, stores ...svc.Store) []*svc.Service {
	t.Helper()
	return serveWith(t, func(*svc.Config) {}, stores...)
}

// serveLimited is serve where a holder has so many keys at most.
func serveLimited(t *testing.T, mostKeys int, stores ...svc.Store) []*svc.Service {
	t.Helper()
	return serveWith(t, func(c *svc.Config) { c.Keys.MaxPerHolder = mostKeys }, stores...)
}

func serveWith(t *testing.T, edit func(*svc.Config), stores ...svc.Store) []*svc.Service {
	t.Helper()
	var ticks atomic.Int64
	cached := 0
	if !isExact(t, stores) {
		cached = -1
	}
	var services []*svc.Service
	for _, store := range stores {
		config := svc.Config{
			Store: store, Sources: svc.SourceConfig{Marketplace: shelf{}}, Logger: slog.New(slog.DiscardHandler),
			Now: func() time.Time {
				defer runtime.Gosched()
				return time.UnixMicro(ticks.Add(1))
			},
			Keys:   svc.KeyConfig{MaxPerHolder: 1 << 20, Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}}},
			Memory: svc.Memory{Templates: cached},
		}
		edit(&config)
		service := must(svc.New(config))
		t.Cleanup(func() { must(0, service.Close()) })
		services = append(services, service)
	}
	must(services[0].Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: "https://shelf.example/shelf"}))
	return services
}
