//go:build unix

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
	"github.com/extsvc/svc/store/storetest"
)

// The settings of PgBouncer, except its mode.
const (
	fewServers     = "default_pool_size=2" // connections to the server
	ignoreTimeouts = "ignore_startup_parameters=statement_timeout,idle_in_transaction_session_timeout"
)

// bounced is a database behind PgBouncer.
type bounced struct {
	*pgtest.Bouncer
	name   string
	url    string
	direct *sql.DB // past PgBouncer
}

// behind makes a database and a PgBouncer in front of it.
func behind(t *testing.T, cluster *pgtest.Cluster, settings ...string) *bounced {
	t.Helper()
	b := pgtest.StartBouncer(t, cluster.URL, settings...)
	name := fmt.Sprintf("d%d", time.Now().UnixNano())
	must(pgtest.Open(t, cluster.URL).Exec("CREATE DATABASE " + name))
	direct := must(url.Parse(cluster.URL))
	direct.Path = "/" + name
	return &bounced{Bouncer: b, name: name, url: b.URL(name), direct: pgtest.Open(t, direct.String())}
}

// servers returns the number of connections from PgBouncer to the server.
func (b *bounced) servers(t *testing.T) int {
	t.Helper()
	return sqltest.Value[int](t, b.direct, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = $1 AND pid <> pg_backend_pid() AND backend_type = 'client backend'`, b.name)
}

// load opens a store, and writes and reads.
func (b *bounced) load(t *testing.T) *load {
	t.Helper()
	l := startLoad(open(t, b.url, postgres.Options{Pooler: true}))
	l.await(t, 50, recovery)
	return l
}

func TestPgBouncer(t *testing.T) {
	long(t, "stores behind PgBouncer")
	cluster := pgtest.Start(t, "fsync=off") // nobody kills this server
	for name, test := range map[string]func(t *testing.T, cluster *pgtest.Cluster){
		"session mode":      testSessionMode,
		"transaction mode":  testTransactionMode,
		"prepared":          testPrepared,
		"host's pool":       testHostsPool,
		"refused":           testRefused,
		"many clients":      testManyClients,
		"killed":            testBouncerDies,
		"paused":            testPause,
		"loses its servers": testLostServers,
	} {
		t.Run(name, func(t *testing.T) {
			switch name {
			case "killed", "paused", "loses its servers":
				longtest.Test(t, "PgBouncer while it fails")
			}
			t.Parallel()
			test(t, cluster)
		})
	}
}

func testSessionMode(t *testing.T, cluster *pgtest.Cluster) {
	b := behind(t, cluster, "pool_mode=session", "default_pool_size=50", ignoreTimeouts)
	settings := postgres.Options{Timeout: limited}
	wakesAnother(t, open(t, b.url, settings), open(t, b.url, settings))
	settings.SynchronousCommit = "remote_apply"
	store := open(t, b.url, settings)
	is := is.New(t)
	is.Equal(setting(t, store, "synchronous_commit"), "remote_apply")

	asTransactionMode := behind(t, cluster, "pool_mode=session")
	is.NoErr(sqltest.AddUsers(t.Context(), open(t, asTransactionMode.url, postgres.Options{Pooler: true}), "alice"))
}

func testTransactionMode(t *testing.T, cluster *pgtest.Cluster) {
	b := behind(t, cluster, "pool_mode=transaction", fewServers)
	openAtOnce(t, b.url, postgres.Options{Pooler: true})
	noticesByAsking(t, b.url, postgres.Options{Pooler: true})
	checkRules(t, b, postgres.Options{Pooler: true})
}

// The oldest PgBouncer in use does not have the setting yet.
func testPrepared(t *testing.T, cluster *pgtest.Cluster) {
	if !pgtest.BouncerPrepares(t) {
		t.Skip("NOT TESTED: this PgBouncer has no max_prepared_statements")
	}
	for _, most := range []string{"0", "10"} {
		b := behind(t, cluster, "pool_mode=transaction", fewServers, "max_prepared_statements="+most)
		b.load(t).end(t)
	}
}

// A host's pool may lead to PgBouncer, with a way to run queries that suits it.
func testHostsPool(t *testing.T, cluster *pgtest.Cluster) {
	b := behind(t, cluster, "pool_mode=transaction", fewServers)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		pool := newPool(t, b.url, func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode })
		l := startLoad(over(t, pool, postgres.Options{Pooler: true}))
		l.await(t, 50, recovery)
		l.end(t)
		must(b.direct.Exec("DELETE FROM svc_api_keys"))
	}
}

// checkRules runs all rules of storetest on one store. It runs only in CI, because it takes long, and
// there only in the mode in which the store keeps nothing on a connection.
func checkRules(t *testing.T, b *bounced, options postgres.Options) {
	t.Helper()
	if os.Getenv("CI") != "true" {
		t.Log("NOT CHECKED here: the rules of storetest. CI=true has them checked")
		return
	}
	store := open(t, b.url, options)
	storetest.Run(t, func(t *testing.T) svc.Store {
		empty(t, b.direct, store)
		return store
	})
}

// Open fails where every later call would fail, even when the tables exist.
func testRefused(t *testing.T, cluster *pgtest.Cluster) {
	for _, c := range []struct {
		settings string
		options  postgres.Options
		want     string
	}{
		{"pool_mode=session", postgres.Options{}, "unsupported startup parameter"},
		{"pool_mode=transaction", postgres.Options{Timeout: -1}, "unsupported startup parameter"},
		{"pool_mode=statement", postgres.Options{Pooler: true}, "not allowed in statement pooling mode"},
	} {
		b := behind(t, cluster, c.settings)
		for range 2 {
			store, err := postgres.Open(t.Context(), b.url, c.options)
			if err == nil {
				t.Fatalf("%s: it is opened: %v", c.settings, store.Close())
			}
			expect.Holds(t, strings.Contains(err.Error(), c.want), c.settings, ": ", err, ", want ", c.want)
			is.New(t).NoErr(sqlstore.New(b.direct, b.direct, postgres.Dialect()).Migrate(t.Context()))
		}
	}
}

// Eight stores, as in eight processes, hold 40 connections to PgBouncer, which has two to the server.
func testManyClients(t *testing.T, cluster *pgtest.Cluster) {
	const stores, workers, each = 8, 5, 5
	b := behind(t, cluster, "pool_mode=transaction", fewServers)
	var done sync.WaitGroup
	for s := range stores {
		store := open(t, b.url, postgres.Options{Pooler: true, MaxOpen: workers})
		for w := range workers {
			done.Go(func() {
				for i := range each {
					id := fmt.Sprintf("%d-%d-%d", s, w, i)
					if err := store.CreateAPIKey(t.Context(), svc.APIKey{ID: id}); err != nil {
						t.Errorf("%s: %v", id, err)
					}
				}
			})
		}
	}
	done.Wait()
	is.New(t).Equal(sqltest.Value[int](t, b.direct, "SELECT count(*) FROM svc_api_keys"), stores*workers*each)
	expect.Soon(t, "PgBouncer has more connections to the server", func() bool { return b.servers(t) <= 2 })
}

func testBouncerDies(t *testing.T, cluster *pgtest.Cluster) {
	b := behind(t, cluster, "pool_mode=transaction", fewServers)
	l := b.load(t)
	b.Kill()
	l.awaitRefused(t, 2*loaders)
	b.Restart()
	l.await(t, 50, recovery)
	l.end(t)
}

// Calls wait while PgBouncer pauses. Here they may wait as long as it takes.
func testPause(t *testing.T, cluster *pgtest.Cluster) {
	is := is.New(t)
	b := behind(t, cluster, "pool_mode=transaction", fewServers)
	l := startLoad(open(t, b.url, postgres.Options{Pooler: true}))
	l.await(t, 50, recovery)
	b.Console("PAUSE")
	before, _, _ := l.counts()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	is.True(errors.Is(failure(sqltest.ReadUser(ctx, l.store, "alice")), context.DeadlineExceeded))
	after, _, _ := l.counts()
	is.True(after <= before+loaders) // what was answered before, and noted since
	b.Console("RESUME")
	l.await(t, 50, recovery)
	l.end(t)
	is.Equal(l.refused, 0)
}

// A lost connection to the server fails at most the call that runs on it.
func testLostServers(t *testing.T, cluster *pgtest.Cluster) {
	is := is.New(t)
	b := behind(t, cluster, "pool_mode=transaction", fewServers)
	l := startLoad(open(t, b.url, postgres.Options{Pooler: true}))
	l.await(t, 50, recovery)
	for range 5 {
		_, before, _ := l.counts()
		must(b.direct.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()", b.name))
		l.await(t, 20, recovery)
		_, refused, _ := l.counts()
		is.True(refused <= before+2)
	}
	l.end(t)
}
