//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

// load writes and reads until it is stopped, and notes the acknowledged calls.
type load struct {
	store svc.Store
	stop  chan struct{}
	done  sync.WaitGroup

	mu           sync.Mutex
	acknowledged []string
	refused      int
	wrong        []error // neither nil nor ErrUnavailable
	good         time.Time
}

const loaders = 8

func startLoad(store svc.Store) *load {
	l := &load{store: store, stop: make(chan struct{})}
	for i := range loaders {
		l.done.Go(func() { l.run(i) })
	}
	return l
}

func (l *load) run(loader int) {
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			return
		default:
		}
		id := fmt.Sprintf("%d-%d", loader, n)
		err := l.store.CreateAPIKey(context.Background(), svc.APIKey{ID: id})
		if err == nil {
			_, err = sqltest.ReadKey(context.Background(), l.store, id)
			l.note(id, nil)
			time.Sleep(time.Millisecond) // the others' writes are under way
		}
		if err != nil {
			l.note("", err)
			time.Sleep(25 * time.Millisecond) // a server that recovers starts a process for each connection
		}
	}
}

func (l *load) note(id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.acknowledged = append(l.acknowledged, id)
		l.good = time.Now()
	case errors.Is(err, svc.ErrUnavailable):
		l.refused++
	default:
		l.wrong = append(l.wrong, err)
	}
}

// counts returns the numbers of acknowledged and refused calls, and the time of the last good answer.
func (l *load) counts() (acknowledged, refused int, good time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acknowledged), l.refused, l.good
}

// await waits for that many more acknowledged calls.
func (l *load) await(t *testing.T, more int, within time.Duration) {
	t.Helper()
	before, _, _ := l.counts()
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		if now, refused, _ := l.counts(); now >= before+more {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%d of %d calls were acknowledged within %s, %d refused", now-before, more, within, refused)
		}
	}
}

// awaitRefused waits for that many more refused calls.
func (l *load) awaitRefused(t *testing.T, more int) {
	t.Helper()
	_, before, _ := l.counts()
	expect.Soon(t, "too few calls were refused while there was no server", func() bool {
		_, refused, _ := l.counts()
		return refused >= before+more
	})
}

// end stops the load. It checks that no acknowledged write is lost and that calls failed only as they should.
func (l *load) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.done.Wait()
	for _, err := range l.wrong {
		t.Errorf("not ErrUnavailable: %v", err)
	}
	lost := 0
	for _, id := range l.acknowledged {
		if _, err := sqltest.ReadKey(context.Background(), l.store, id); err != nil {
			lost++
		}
	}
	expect.Equal(t, fmt.Sprint("lost writes of ", len(l.acknowledged), " acknowledged"), lost, 0)
	t.Logf("%d acknowledged, %d refused", len(l.acknowledged), l.refused)
}

func TestServerDies(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Start(t)
	url := func(t *testing.T) string {
		if strings.HasSuffix(t.Name(), "/pool") {
			longtest.Test(t, "the server of a host's pool")
		}
		return cluster.URL
	}
	bothWays(t, url, 10, func(t *testing.T, store *postgres.Store) { serverDies(t, cluster, store) })
}

func serverDies(t *testing.T, cluster *pgtest.Cluster, store *postgres.Store) {
	for how, die := range map[string]func(){"killed": cluster.Kill, "crashed": cluster.Crash, "stopped": cluster.Stop} {
		t.Run(how, func(t *testing.T) {
			if how != "killed" {
				longtest.Test(t, "other ends of a server")
			}
			l := startLoad(store)
			l.await(t, 100, recovery)
			die()
			l.awaitRefused(t, loaders)
			cluster.Restart()
			restarted := time.Now()
			l.await(t, 1, recovery)
			_, _, good := l.counts()
			t.Logf("a good answer %s after the restart", good.Sub(restarted).Round(time.Millisecond))
			l.await(t, 100, recovery)
			l.end(t)
			forget(t, store)
		})
	}
}

// forget deletes the rows of a load.
func forget(t *testing.T, store *postgres.Store) {
	must(store.DB().Exec("DELETE FROM svc_api_keys"))
}

// The check above can fail: without waiting for the disk, commits lose acknowledged writes in a crash.
func TestCheckNoticesLosses(t *testing.T) {
	longtest.Parallel(t, "that the check of losses can fail")
	cluster := pgtest.Start(t, "wal_writer_delay=10s")
	store := open(t, cluster.URL, postgres.Options{SynchronousCommit: "off"})
	for range 5 { // the server may have written all just then
		l := startLoad(store)
		l.await(t, 200, recovery)
		cluster.Kill()
		cluster.Restart()
		close(l.stop)
		l.done.Wait()
		for _, id := range l.acknowledged {
			if _, err := sqltest.ReadKey(t.Context(), store, id); errors.Is(err, svc.ErrNotFound) {
				return
			}
		}
		forget(t, store)
	}
	t.Error("nothing is lost")
}

func frozenConnection(t *testing.T, cluster *pgtest.Cluster) {
	longtest.Test(t, "one connection that does not answer")
	store := open(t, cluster.URL, postgres.Options{Timeout: time.Second, MaxOpen: 1})
	var backend int
	for range 3 { // a connection that was used just now is not asked whether it is good
		backend = sqltest.Value[int](t, store.DB(), "SELECT pg_backend_pid()")
	}
	is.New(t).NoErr(syscall.Kill(backend, syscall.SIGSTOP))
	defer syscall.Kill(backend, syscall.SIGCONT)
	began := time.Now()
	_, err := sqltest.ReadUser(context.Background(), store, "nobody")
	if took := time.Since(began); !errors.Is(err, svc.ErrUnavailable) || took > time.Minute {
		t.Errorf("got %v after %s", err, took)
	}
	// The store refuses calls until its own question was answered, on another connection.
	expect.Soon(t, "no answer on another connection", func() bool {
		return errors.Is(failure(sqltest.ReadUser(t.Context(), store, "nobody")), svc.ErrNotFound)
	})
}

func TestTooManyConnectionsAreUnavailable(t *testing.T) {
	is := parallel(t)
	cluster := pgtest.Start(t, "max_connections=4", "superuser_reserved_connections=0")
	store := open(t, cluster.URL, postgres.Options{NoNotify: true, MaxOpen: 2})
	own := must(store.DB().Conn(t.Context())) // that which Open has made
	held := []interface{ Close() error }{own}
	others := pgtest.Open(t, cluster.URL)
	for deadline := time.Now().Add(time.Minute); len(held) < 4 && time.Now().Before(deadline); {
		if conn, err := others.Conn(t.Context()); err == nil { // the one that has migrated may not have ended
			held = append(held, conn)
		}
	}
	_, err := sqltest.ReadUser(t.Context(), store, "alice")
	is.True(errors.Is(err, svc.ErrUnavailable))
	is.True(strings.Contains(err.Error(), "53300"))
	is.True(errors.Is(failure(postgres.Open(t.Context(), cluster.URL, postgres.Options{})), svc.ErrUnavailable))
	for _, conn := range held {
		is.NoErr(conn.Close())
	}
	is.NoErr(others.Close())
	expect.Soon(t, "the server does not let them go", func() bool { return sqltest.AddUsers(t.Context(), store, "alice") == nil })
}

// onServer is a test of a server that it shares with others.
type onServer struct {
	name string
	run  func(t *testing.T, cluster *pgtest.Cluster)
}

// shareServer runs tests one after the other on a server of their own.
func shareServer(t *testing.T, tests ...onServer) {
	t.Parallel()
	cluster := pgtest.Start(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, cluster) })
	}
}

// TestServerOfItsOwn has what changes the settings of a server. The last one leaves it without commits.
func TestServerOfItsOwn(t *testing.T) {
	longtest.Test(t, "servers with other settings")
	shareServer(t, onServer{"role that may not make tables", mayNotMakeTables}, onServer{"wrong password", wrongPasswordIsClear},
		onServer{"caller leaves while the standby is away", leavesWhileTheStandbyIsAway})
}

// When another role has made the tables, a role needs only to read and write rows.
func mayNotMakeTables(t *testing.T, cluster *pgtest.Cluster) {
	is := is.New(t)
	admin := pgtest.Open(t, cluster.URL)
	must(admin.Exec("CREATE ROLE svc LOGIN"))
	url := strings.Replace(cluster.URL, "postgres@", "svc@", 1)
	is.True(failure(postgres.Open(t.Context(), url, postgres.Options{})) != nil) // there is nothing yet, and it may not make it

	open(t, cluster.URL, postgres.Options{})
	must(admin.Exec("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO svc"))
	is.NoErr(sqltest.AddUsers(t.Context(), open(t, url, postgres.Options{}), "alice"))
}

func wrongPasswordIsClear(t *testing.T, cluster *pgtest.Cluster) {
	is := is.New(t)
	must(pgtest.Open(t, cluster.URL).Exec("ALTER ROLE svc PASSWORD 'right'"))
	is.NoErr(os.WriteFile(cluster.Path("pg_hba.conf"), []byte("local all svc scram-sha-256\nlocal all postgres trust\n"), 0o600))
	cluster.Restart()
	url := strings.Replace(cluster.URL, "postgres@", "svc:Hunter2Secret@", 1)
	_, err := postgres.Open(t.Context(), url, postgres.Options{})
	is.True(strings.Contains(err.Error(), `password authentication failed for user "svc"`))
	is.True(!strings.Contains(fmt.Sprintf("%+v %#v", err, err), "Hunter2Secret"))
	is.True(!errors.Is(err, svc.ErrUnavailable)) // somebody has to mend it
}

// A commit that waits for a standby is no success when its caller leaves: the standby lacks it.
func leavesWhileTheStandbyIsAway(t *testing.T, cluster *pgtest.Cluster) {
	is := is.New(t)
	must(open(t, cluster.URL, postgres.Options{}).DB().Exec("ALTER SYSTEM SET synchronous_standby_names = 'away'"))
	cluster.Restart() // a server that reloads the setting may still commit
	stores := map[string]*postgres.Store{
		"own connections": open(t, cluster.URL, postgres.Options{}),
		"pool":            over(t, newPool(t, cluster.URL), postgres.Options{}),
	}
	for kind, store := range stores {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		is.True(errors.Is(store.CreateAPIKey(ctx, svc.APIKey{ID: kind}), context.DeadlineExceeded))
	}
}

// A server that does not answer, wholly or on one connection.
func TestFrozenServer(t *testing.T) {
	shareServer(t, onServer{"calls", frozenCalls}, onServer{"commit", frozenCommit},
		onServer{"commit of a caller who leaves", frozenCommitOfACallerWhoLeaves}, onServer{"one connection", frozenConnection})
}

// A frozen server that keeps its connections blocks no call for longer than promised. That holds
// for calls on connections that were used just now, on idle ones, of which the driver asks whether
// they are good, and for calls that wait for a connection or open one. A later call fails at once.
func frozenCalls(t *testing.T, cluster *pgtest.Cluster) {
	stores := map[string]*postgres.Store{}
	for _, rest := range []time.Duration{1500 * time.Millisecond, 0} {
		own := open(t, cluster.URL, postgres.Options{MaxOpen: 3, Timeout: limited})
		pooled := over(t, newPool(t, cluster.URL, atMost(3)), postgres.Options{Timeout: limited})
		stores[fmt.Sprint("own connections, idle for ", rest)] = own
		stores[fmt.Sprint("pool, idle for ", rest)] = pooled
		answered(t, own)
		answered(t, pooled)
		time.Sleep(rest)
	}
	each := func(do func(name string, store *postgres.Store)) {
		var group sync.WaitGroup
		for name, store := range stores {
			group.Go(func() { do(name, store) })
		}
		group.Wait()
	}
	cluster.Freeze()
	defer cluster.Thaw()
	each(func(name string, store *postgres.Store) {
		t.Logf("%s: unanswered after %s", name, unanswered(t, store, 2, false).Round(time.Millisecond))
	})
	each(func(_ string, store *postgres.Store) { unanswered(t, store, 1, true) })
	cluster.Thaw()
	each(func(_ string, store *postgres.Store) { answered(t, store) })
}

// When the server does not answer a commit, the outcome is unknown. The commit fails within the
// same time and is not tried again.
func frozenCommit(t *testing.T, cluster *pgtest.Cluster) {
	is := is.New(t)
	defer cluster.Thaw()
	store := open(t, cluster.URL, postgres.Options{Timeout: limited})
	answered(t, store)
	runs := 0
	var began time.Time
	err := store.Atomically(context.Background(), func(ctx context.Context, tx svc.Store) error {
		runs++
		err := sqltest.AddUsers(ctx, tx, "carol")
		cluster.Freeze()
		began = time.Now()
		return err
	})
	is.True(errors.Is(err, svc.ErrUnavailable) && !errors.Is(err, context.Canceled))
	is.True(time.Since(began) < patient)
	is.Equal(runs, 1)
	cluster.Thaw()
	answered(t, store)
}

// A caller that leaves during a commit does not prolong it.
func frozenCommitOfACallerWhoLeaves(t *testing.T, cluster *pgtest.Cluster) {
	longtest.Test(t, "a caller that leaves during a commit")
	is := is.New(t)
	defer cluster.Thaw()
	store := open(t, cluster.URL, postgres.Options{Timeout: limited})
	ctx, leave := context.WithCancel(t.Context())
	var began time.Time
	err := store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		err := sqltest.AddUsers(ctx, tx, "carol")
		cluster.Freeze()
		began = time.Now()
		time.AfterFunc(3*time.Second, leave)
		return err
	})
	is.True(err != nil)
	is.True(time.Since(began) < patient)
	cluster.Thaw()
	answered(t, store)
}

// A call that waits too long for a lock fails alone: the server still answers others.
func TestLockedIsNotFrozen(t *testing.T) {
	longtest.Parallel(t, "that a lock differs from a frozen server")
	bothWaysWithin(t, limited, migrated, pgtest.Connections, lockedIsNotFrozen)
}

func lockedIsNotFrozen(t *testing.T, store *postgres.Store) {
	is := parallel(t)
	other := must(store.DB().Begin())
	must(other.Exec("LOCK TABLE svc_access_lock IN EXCLUSIVE MODE"))
	ended := make(chan error)
	go func() { ended <- sqltest.AddUsers(t.Context(), store, "alice") }()
	for n := 0; ; n++ {
		select {
		case err := <-ended:
			is.True(errors.Is(err, svc.ErrUnavailable))
			is.NoErr(store.CreateAPIKey(t.Context(), svc.APIKey{ID: "at once"}))
			is.NoErr(other.Rollback())
			answered(t, store)
			return
		case <-time.After(10 * time.Millisecond):
			is.NoErr(store.CreateAPIKey(t.Context(), svc.APIKey{ID: fmt.Sprint(n)}))
		}
	}
}

// A bundle may wait longer than a request.
func TestBundleWaitsForALock(t *testing.T) {
	is := long(t, "a bundle that waits for a lock")
	url := migrated(t)
	store := open(t, url, postgres.Options{Timeout: limited})
	other := must(pgtest.Open(t, url).Begin())
	must(other.Exec("LOCK TABLE svc_access_lock IN EXCLUSIVE MODE"))
	var bundle svc.Bundle
	for i := range 200 {
		bundle.Users = append(bundle.Users, svc.User{ID: fmt.Sprint(i)})
	}
	service := sqltest.Serve(t, svc.Config{Store: store, Events: svc.EventConfig{Keep: true}})
	time.AfterFunc(promised+time.Second, func() { _ = other.Rollback() })
	is.NoErr(service.Access.Apply(t.Context(), svc.Host, bundle))
}

// A database that can only be read is opened like any other, with the tables of this version. Writes are refused.
func TestOpenToRead(t *testing.T) {
	long(t, "a database that can only be read")
	url := migrated(t)
	pool := func(url string) (*postgres.Store, error) {
		return postgres.New(t.Context(), newPool(t, url), postgres.Options{})
	}
	direct := func(url string) (*postgres.Store, error) {
		return postgres.Open(t.Context(), url, postgres.Options{})
	}
	tenants := must(postgres.OpenTenants(t.Context(), url, postgres.Options{}))
	is.New(t).NoErr(tenants.Close())
	tenants = must(postgres.OpenTenants(t.Context(), pgtest.With(t, url, "default_transaction_read_only", "on"), postgres.Options{}))
	is.New(t).NoErr(tenants.Close())
	for name, opens := range map[string]func(url string) (*postgres.Store, error){"Open": direct, "New": pool} {
		is := is.New(t)
		store, err := opens(pgtest.With(t, url, "default_transaction_read_only", "on"))
		if err != nil {
			t.Fatal(name, err)
		}
		must(store.Changes(t.Context(), 0))
		is.True(errors.Is(sqltest.AddUsers(t.Context(), store, "alice"), svc.ErrUnavailable))
		is.NoErr(store.Close())
	}
}

// A process on a standby follows what the primary writes. When the standby is promoted, the process writes and listens.
func TestStandby(t *testing.T) {
	is := long(t, "a process on a standby")
	ctx := t.Context()
	primary, standby := pgtest.Start(t), pgtest.Start(t)
	writer := open(t, primary.URL, postgres.Options{})
	standby.Follow(primary)
	reader := open(t, standby.URL, postgres.Options{})
	service := sqltest.Serve(t, svc.Config{Store: reader, Events: svc.EventConfig{Keep: true}})
	known := func(id string) func() bool {
		return func() bool {
			return failure(service.Users.Read(ctx, svc.Host, id)) == nil
		}
	}
	is.NoErr(sqltest.AddUsers(ctx, writer, "alice"))
	expect.Soon(t, "it never sees alice", known("alice"))
	err := service.Access.Apply(context.Background(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "bob"}}})
	is.True(errors.Is(err, svc.ErrUnavailable))
	is.True(!reader.Hears())
	standby.Promote()
	expect.Soon(t, "it never writes", func() bool {
		return service.Access.Apply(ctx, svc.Host, svc.Bundle{Users: []svc.User{{ID: "bob"}}}) == nil
	})
	expect.Soon(t, "it never listens", reader.Hears)
}
