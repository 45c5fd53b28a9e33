package bench_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/bench/internal/measure"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/heaptest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlite"
)

// city is many tenants in one database.
type city struct {
	*svc.Tenants
	b    *testing.B
	api  http.Handler
	url  string            // of a server of api
	keys map[string]string // by the tenant
	db   *sql.DB           // of PostgreSQL; nil: none
}

// newCity makes so many tenants. An idle one stays open.
func newCity(b *testing.B, e engine, count int) *city {
	b.Helper()
	c := &city{b: b, keys: map[string]string{}}
	var store interface {
		svc.TenantStore
		Close() error
	}
	if e.name == sqliteEngine.name {
		store = get(sqlite.OpenTenants(b.Context(), filepath.Join(b.TempDir(), "tenants"), sqlite.Options{}))
	} else {
		address := pgtest.Database(b)
		store = get(postgres.OpenTenants(b.Context(), address, postgres.Options{}))
		c.db = get(sql.Open("pgx", address))
		b.Cleanup(func() { _ = c.db.Close() })
	}
	c.Tenants = get(svc.NewTenants(svc.TenantsConfig{
		Store: store, IdleTime: time.Hour, MaxOpen: 1 << 20,
		Config: svc.Config{Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: make([]byte, 32)}}}},
	}))
	b.Cleanup(func() {
		_ = c.Close()
		_ = store.Close()
	})
	c.api = httpapi.NewTenants(c.Tenants, httpapi.Options{Prefix: "/t/{tenant}/ext/svc"})
	server := httptest.NewServer(c.api)
	b.Cleanup(server.Close)
	c.url = server.URL
	var next atomic.Int64
	check(together(4, func(int) error {
		for {
			i := next.Add(1)
			if i > int64(count) {
				return nil
			}
			if _, err := c.Create(b.Context(), nameOf(int(i))); err != nil {
				return err
			}
		}
	}))
	return c
}

func nameOf(i int) string { return fmt.Sprint("t", i) }

// issue issues a key of each tenant, which opens it.
func (c *city) issue(count int) {
	for i := range count {
		check(c.Use(c.b.Context(), nameOf(i+1), func(s *svc.Service) error {
			issued, err := s.Keys.Issue(c.b.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "ada"}, svc.NewAPIKey{})
			c.keys[nameOf(i+1)] = string(issued.Key)
			return err
		}))
	}
}

// ask sends a request of a tenant for its own keys.
func (c *city) ask(name string) error {
	return ask(c.b.Context(), c.api, "/t/"+name+"/ext/svc/me/api-keys", c.keys[name], &discard{})
}

// tenantCount is how many tenants a benchmark makes: few, unless SVC_BENCH_LARGE is set.
func tenantCount(few, many int) int {
	if os.Getenv("SVC_BENCH_LARGE") != "" {
		return many
	}
	return few
}

// BenchmarkMakeTenants makes 100 tenants; with SVC_BENCH_LARGE=1 10,000.
func BenchmarkMakeTenants(b *testing.B) {
	eachEngine(b, func(b *testing.B, e engine) {
		count := tenantCount(100, 10_000)
		began := time.Now()
		_ = newCity(b, e, count)
		b.ReportMetric(time.Since(began).Seconds()*1000/float64(count), "ms-each")
		b.ReportMetric(time.Since(began).Minutes(), "minutes-in-all")
		b.ReportMetric(0, "ns/op")
	})
}

// BenchmarkIdleTenants opens 100 tenants, with SVC_BENCH_LARGE=1 1,000, each for a request, and
// measures what they take when they are open and idle.
func BenchmarkIdleTenants(b *testing.B) {
	eachEngine(b, func(b *testing.B, e engine) {
		count := tenantCount(100, 1000)
		c := newCity(b, e, count)
		c.issue(count)
		empty := heaptest.Live()
		for i := range count {
			check(c.ask(nameOf(i + 1)))
		}
		// All were open before: what the requests and the issue of keys have cached is small. So
		// compare with the state after closing.
		full := heaptest.Live()
		time.Sleep(40 * time.Second) // until the uses of the keys are recorded, and PostgreSQL has counted that
		before, files := c.commits(), open()
		time.Sleep(20 * time.Second)
		if c.db != nil {
			b.ReportMetric(float64(c.commits()-before-1)/20, "polls/s") // the count is one itself
			b.ReportMetric(float64(c.connections()), "connections")
		}
		b.ReportMetric(float64(files), "files")
		b.ReportMetric(float64(runtime.NumGoroutine())/float64(count), "goroutines-each")
		_ = c.Close()
		b.ReportMetric(float64(max(full, empty)-heaptest.Live())/float64(count)/1000, "kB-each")
		b.ReportMetric(0, "ns/op")
	})
}

// open returns the number of open files of this process.
func open() int {
	files, _ := os.ReadDir("/proc/self/fd")
	return len(files)
}

// connections returns how many connections PostgreSQL has, besides the one that asks.
func (c *city) connections() (count int64) {
	return c.count(`SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND backend_type = 'client backend'`)
}

// commits returns how many transactions there were: each poll is one.
func (c *city) commits() int64 {
	return c.count(`SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`)
}

func (c *city) count(query string) (count int64) {
	if c.db == nil {
		return 0
	}
	check(c.db.QueryRow(query).Scan(&count))
	return count
}

// BenchmarkColdTenant measures the first request of a tenant that is closed.
func BenchmarkColdTenant(b *testing.B) {
	eachEngine(b, func(b *testing.B, e engine) {
		const count = 50
		c := newCity(b, e, count)
		c.issue(count)
		var took []time.Duration
		for i := range count {
			name := nameOf(i + 1)
			for _, change := range []func(context.Context, string) error{c.Suspend, c.Resume} { // which closes it
				check(change(b.Context(), name))
			}
			began := time.Now()
			check(c.ask(name))
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		b.ReportMetric(percentile(took, 50), "ms-p50")
		b.ReportMetric(percentile(took, 99), "ms-p99")
		b.ReportMetric(0, "ns/op")
	})
}

// percentile returns the ms of one of the times, which are sorted.
func percentile(took []time.Duration, p int) float64 { return took[len(took)*p/100].Seconds() * 1000 }

// BenchmarkWarmTenant compares a tenant with a Service alone: verify a key, decide, issue a key, each
// within a call of Use, and a request with its own call. BenchmarkUseTenant of the root measures Use.
func BenchmarkWarmTenant(b *testing.B) {
	eachEngine(b, func(b *testing.B, e engine) {
		c := newCity(b, e, 1)
		place := e.place(b)
		store := get(e.open(place))
		b.Cleanup(func() { _ = store.Close() })
		single := get(svc.New(svc.Config{
			Store: store, Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: make([]byte, 32)}}},
		}))
		b.Cleanup(func() { _ = single.Close() })
		ctx, ada := b.Context(), svc.Identity{Kind: svc.KindUser, ID: "ada"}
		api := httpapi.New(single, httpapi.Options{})
		alone := string(get(single.Keys.Issue(ctx, svc.Host, ada, svc.NewAPIKey{})).Key)
		c.issue(1)
		verify := func(key string) func(*svc.Service) error {
			return func(s *svc.Service) error { return failure(s.Authenticate(ctx, key)) }
		}
		decide := func(s *svc.Service) error {
			return failure(s.Decide(ctx, svc.Principal{Kind: svc.KindUser, ID: "ada"}, "bank:recall", "b", svc.Context{}))
		}
		issue := func(s *svc.Service) error {
			issued, err := s.Keys.Issue(ctx, svc.Host, ada, svc.NewAPIKey{})
			if err == nil {
				err = s.Keys.Revoke(ctx, svc.Host, ada, issued.ID)
			}
			return err
		}
		request := func() error { return ask(ctx, api, "/ext/svc/me/api-keys", alone, &discard{}) }
		versus := func(name string, alone, tenant func() error) {
			b.Run(name, func(b *testing.B) {
				compare(b, measure.Side{Name: "single", Call: alone}, measure.Side{Name: "tenant", Call: tenant})
			})
		}
		check(c.Use(ctx, "t1", func(s *svc.Service) error { // as a host does for a request
			versus("verify", func() error { return verify(alone)(single) }, func() error { return verify(c.keys["t1"])(s) })
			versus("decide", func() error { return decide(single) }, func() error { return decide(s) })
			versus("issue", func() error { return issue(single) }, func() error { return issue(s) })
			return nil
		}))
		versus("request", request, func() error { return c.ask("t1") })
	})
}

// BenchmarkTenantStorm measures the calls of one tenant alone, and while another one storms: 64
// callers that write, that read keys that nobody has cached, or that do so over HTTP, in the same
// process. "apart" is the same storm in another database with a pool and turns of its own: nothing
// keeps it from the processors, the collector and the disk. With SVC_BENCH_LARGE=1, 1,000 tenants are
// open.
func BenchmarkTenantStorm(b *testing.B) {
	percentiles := [3]int{50, 90, 99}
	eachEngine(b, func(b *testing.B, e engine) {
		for _, kind := range []string{"writes", "reads", "requests"} {
			b.Run(kind, func(b *testing.B) {
				count := tenantCount(2, 1000)
				c, other := newCity(b, e, count), newCity(b, e, 1)
				c.issue(count)
				other.issue(1)
				var quiet, busy, apart [3][]float64
				note := func(rounds *[3][]float64) {
					took := c.latencies("t1", kind)
					slices.Sort(took)
					for i, p := range percentiles {
						rounds[i] = append(rounds[i], percentile(took, p))
					}
				}
				during := func(rounds *[3][]float64, where *city, name string) {
					defer where.storm(name, kind)()
					time.Sleep(200 * time.Millisecond)
					note(rounds)
				}
				storms := []func(){
					func() { during(&busy, c, "t2") }, func() { during(&apart, other, "t1") },
				}
				for range 9 {
					note(&quiet)
					slices.Reverse(storms) // the second one finds the processors awake
					storms[0]()
					storms[1]()
				}
				for i, p := range percentiles {
					alone := median(quiet[i])
					b.ReportMetric(median(busy[i])/alone, fmt.Sprint("x-p", p))
					b.ReportMetric(median(apart[i])/alone, fmt.Sprintf("x-p%d-apart", p))
					b.ReportMetric(alone, fmt.Sprintf("ms-p%d-alone", p))
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	})
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// work writes, or reads what is not cached, or does so over HTTP.
func (c *city) work(name, kind string) error {
	if kind == "requests" {
		return send(c.b.Context(), http.MethodGet, c.url+"/t/"+name+"/ext/svc/me/api-keys", c.keys[name], "")
	}
	return c.Use(c.b.Context(), name, func(s *svc.Service) error {
		ada := svc.Identity{Kind: svc.KindUser, ID: "ada"}
		if kind == "reads" {
			for _, err := range s.Keys.List(c.b.Context(), svc.Host, ada, svc.KeyQuery{}) {
				return err
			}
			return nil
		}
		issued, err := s.Keys.Issue(c.b.Context(), svc.Host, ada, svc.NewAPIKey{})
		if err == nil {
			err = s.Keys.Revoke(c.b.Context(), svc.Host, ada, issued.ID)
		}
		return err
	})
}

func (c *city) latencies(name, kind string) (took []time.Duration) {
	for range 300 {
		began := time.Now()
		check(c.work(name, kind))
		took = append(took, time.Since(began))
		time.Sleep(time.Millisecond)
	}
	return took
}

// storm calls work without end, from 64 goroutines. It returns what ends it.
func (c *city) storm(name, kind string) (stop func()) {
	var ended atomic.Bool
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	for range 64 {
		all.Go(func() {
			for !ended.Load() {
				if err := c.work(name, kind); err != nil && svc.ErrorCode(err) != svc.CodeUnavailable {
					failed.Store(&err)
					return
				}
			}
		})
	}
	return func() {
		ended.Store(true)
		all.Wait()
		if err := failed.Load(); err != nil {
			c.b.Error(*err)
		}
	}
}
