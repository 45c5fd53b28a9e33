package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

func TestRefusedURLs(t *testing.T) {
	const password = "Hunter2Secret"
	for url, want := range map[string]string{
		"":                                      "no URL is given",
		"  ":                                    "no URL is given",
		"db":                                    "want one like postgres://",
		"/tmp":                                  "want one like postgres://",
		"mysql://u:Hunter2Secret@h/db":          "want one like postgres://",
		"postgres://u:Hunter2Secret@h:port/db":  "invalid port",
		"postgres://u:Hunter2Secret@h:99999/db": "invalid port",
		"postgres://u:pass/Hunter2Secret@h:99999/db":           "want one like",
		"postgres://u@h:Hunter2Secret@h/db":                    "invalid port",
		"postgres://u:Hunter2Secret%zz@h/db":                   "want one like",
		"postgres://u:Hunter2Secret@h/db?sslmode=perhaps":      "failed to configure TLS",
		"postgres://u:Hunter2Secret@h/db?connect_timeout=x":    "invalid connect_timeout",
		"host=h password='Hunter2Secret":                       "want one like",
		"host=h password=Hunter2Secret port=x":                 "invalid port",
		"host=h password=Hunter2Secret target_session_attrs=x": "target_session_attrs",
		"host=h password = Hunter2Secret sslmode=x":            "failed to configure TLS",
		"user=u:Hunter2Secret@h port=0":                        "invalid port",
		"host=h port=Hunter2Secret":                            "invalid port",
		"host=h connect_timeout=Hunter2Secret":                 "invalid connect_timeout",
		"postgres://u:Hunter2Secret@h/db%0A":                   "the database of the URL",
		"postgres://u:Hunter2Secret@h/db?search_path=s%0D":     "the search_path of the URL",
		"host=h user='u\n' password=Hunter2Secret":             "the user of the URL",
	} {
		_, err := postgres.Open(t.Context(), url, postgres.Options{})
		expect.Holds(t, err != nil && strings.Contains(err.Error(), want), url, ": got ", err, ", want ", want)
		shown := fmt.Sprintf("%v %+v %#v", err, err, err)
		expect.Holds(t, !strings.Contains(shown, password), url, " hides the password: ", shown)
		expect.Holds(t, !errors.Is(err, svc.ErrUnavailable), url, " is available, as no later try can succeed")
	}
}

func TestRefusedOptions(t *testing.T) {
	for want, options := range map[string]postgres.Options{
		"MaxOpen":           {MaxOpen: -1},
		"SynchronousCommit": {SynchronousCommit: "sometimes"},
	} {
		_, err := postgres.Open(t.Context(), "postgres://127.0.0.1:1/db", options)
		expect.Holds(t, err != nil && strings.Contains(err.Error(), want), "got ", err, ", want ", want)
	}
}

func TestServerThatIsNotThere(t *testing.T) {
	is := is.New(t)
	_, err := postgres.Open(t.Context(), "postgres://u:Hunter2Secret@127.0.0.1:1/db?sslmode=disable", postgres.Options{})
	is.True(errors.Is(err, svc.ErrUnavailable))
	is.Equal(strings.Count(err.Error(), "refused"), 1)
	is.True(strings.HasPrefix(err.Error(), `open PostgreSQL database "db" on 127.0.0.1:1: unavailable: `))
	is.True(!strings.Contains(err.Error(), "Hunter2Secret"))
}

// Open gives up a server that accepts connections and then stays silent.
func TestServerThatHangs(t *testing.T) {
	is := parallel(t)
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	began := time.Now()
	_, err := postgres.Open(context.Background(), "postgres://"+listener.Addr().String()+"/db?sslmode=disable&connect_timeout=1", postgres.Options{})
	is.True(errors.Is(err, svc.ErrUnavailable))
	is.True(time.Since(began) < time.Minute)
}

func TestUnknownDatabase(t *testing.T) {
	address := must(url.Parse(pgtest.Server(t)))
	address.Path = "/svc_no_such_database"
	_, err := postgres.Open(t.Context(), address.String(), postgres.Options{})
	says(t, err, `database "svc_no_such_database" does not exist`)
	is.New(t).True(!errors.Is(err, svc.ErrUnavailable)) // somebody has to make it
}

// A database that accepts no connections for a while does so in maintenance.
func TestDatabaseThatAcceptsNobody(t *testing.T) {
	is := long(t, "a database in maintenance")
	own := pgtest.Database(t)
	store := must(postgres.Open(t.Context(), own, postgres.Options{}))
	t.Cleanup(func() { is.NoErr(store.Close()) })
	name, admin := strings.TrimPrefix(must(url.Parse(own)).Path, "/"), pgtest.Open(t, pgtest.Server(t))
	must(admin.Exec("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false"))
	must(admin.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name))
	for range 3 {
		_, err := sqltest.ReadUser(t.Context(), store, "alice")
		is.True(errors.Is(err, svc.ErrUnavailable))
	}
	must(admin.Exec("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true"))
}

func says(t *testing.T, err error, something string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), something) {
		t.Fatalf("got %v, want %q", err, something)
	}
}

// setting reads one of the settings of the store's connections.
func setting(t *testing.T, store *postgres.Store, name string) string {
	t.Helper()
	return sqltest.Value[string](t, store.DB(), "SHOW "+name)
}

func TestConnectionsAreSetUp(t *testing.T) {
	is := long(t, "the settings of connections")
	url := newlyMigrated(t)
	store := must(postgres.Open(t.Context(), url, postgres.Options{}))
	defer store.Close()
	is.Equal(setting(t, store, "synchronous_commit"), "on")
	is.Equal(setting(t, store, "statement_timeout"), "30s")
	is.Equal(setting(t, store, "idle_in_transaction_session_timeout"), "30s")
	is.Equal(setting(t, store, "application_name"), "svc")
	is.Equal(setting(t, store, "jit"), "off")
	is.Equal(store.DB().Stats().MaxOpenConnections, 10)

	own := pgtest.With(t, pgtest.With(t, url, "statement_timeout", "7s"), "application_name", "mine")
	own = pgtest.With(t, own, "jit", "on")
	store = open(t, own, postgres.Options{MaxOpen: 3, Timeout: 2 * time.Second})
	is.Equal(setting(t, store, "statement_timeout"), "7s") // the URL's
	is.Equal(setting(t, store, "idle_in_transaction_session_timeout"), "2s")
	is.Equal(setting(t, store, "application_name"), "mine")
	is.Equal(setting(t, store, "jit"), "on")
	is.Equal(store.DB().Stats().MaxOpenConnections, 3)

	store = open(t, url, postgres.Options{Timeout: -1})
	is.Equal(setting(t, store, "statement_timeout"), "0")
}

// Open raises a weaker setting of the server, the database, the role or the URL, and keeps a stronger one.
func TestCommitsAreDurable(t *testing.T) {
	long(t, "weaker settings of servers")
	url := migrated(t)
	for servers, want := range map[string]string{
		"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply",
	} {
		t.Run(servers, func(t *testing.T) { // which closes the stores
			is, set := is.New(t), pgtest.With(t, url, "synchronous_commit", servers)
			is.Equal(setting(t, open(t, set, postgres.Options{}), "synchronous_commit"), want)
			is.Equal(setting(t, open(t, set, postgres.Options{SynchronousCommit: "off"}), "synchronous_commit"), "off")
		})
	}
}

// Through a pooler the Store sets and prepares nothing, so Open refuses a setting that is too weak.
func TestPooler(t *testing.T) {
	is := long(t, "the options for a pooler")
	url := migrated(t)
	store := open(t, url, postgres.Options{Pooler: true, MaxOpen: 1})
	is.NoErr(sqltest.AddUsers(t.Context(), store, "alice"))
	must(sqltest.ReadUser(t.Context(), store, "alice"))
	is.Equal(setting(t, store, "statement_timeout"), "0")
	is.Equal(sqltest.Value[int](t, store.DB(), "SELECT count(*) FROM pg_prepared_statements"), 0)

	weak := pgtest.With(t, url, "synchronous_commit", "off")
	_, err := postgres.Open(t.Context(), weak, postgres.Options{Pooler: true})
	says(t, err, `synchronous_commit is "off", want on: ALTER ROLE … SET synchronous_commit = on`)
	open(t, weak, postgres.Options{Pooler: true, SynchronousCommit: "off"})
	_, err = postgres.Open(t.Context(), url, postgres.Options{Pooler: true, SynchronousCommit: "off"})
	says(t, err, `want off`)
}

// The Store relies on how the server writes texts, whatever a role or a database has set. Where it must
// not set that itself, the start fails.
func TestTextsOfTheServer(t *testing.T) {
	is := long(t, "servers that write texts otherwise")
	url := migrated(t)
	for name, values := range map[string][2]string{
		"bytea_output": {"escape", "hex"}, "extra_float_digits": {"-15", "1"}, "client_encoding": {"LATIN1", "UTF8"},
	} {
		odd, want := pgtest.With(t, url, name, values[0]), values[1]
		store := open(t, pgtest.With(t, odd, "default_query_exec_mode", "exec"), postgres.Options{})
		is.Equal(setting(t, store, name), want)
		key := svc.APIKey{ID: "key of " + name, Hash: []byte{1, '\\', 255}, Rate: svc.Rate{PerSecond: 1.0 / 3}}
		is.NoErr(store.CreateAPIKey(t.Context(), key))
		read := must(store.Access(t.Context(), svc.AccessQuery{KeyID: key.ID}))
		is.Equal(read.Key.Hash, key.Hash)
		is.Equal(read.Key.Rate, key.Rate)

		refusal := fmt.Sprintf("%s is %q, want %s: ALTER ROLE … SET %[1]s = %[3]s", name, values[0], want)
		says(t, failure(postgres.New(t.Context(), newPool(t, odd), postgres.Options{})), refusal)
		pooled, err := postgres.Open(t.Context(), odd, postgres.Options{Pooler: true})
		if name == "client_encoding" { // which poolers take from each client
			is.NoErr(err)
			is.Equal(setting(t, pooled, name), want)
			is.NoErr(pooled.Close())
			continue
		}
		says(t, err, refusal)
	}
}

// A database in another encoding than UTF8 lacks letters, or bytes, that the Store must keep.
func TestEncodingOfTheDatabase(t *testing.T) {
	is := long(t, "databases in other encodings")
	admin, address := pgtest.Open(t, pgtest.Server(t)), pgtest.Database(t)
	in := must(url.Parse(address))
	for _, encoding := range []string{"SQL_ASCII", "LATIN1"} {
		for _, statement := range []string{
			"DROP DATABASE " + in.Path[1:] + " WITH (FORCE)",
			"CREATE DATABASE " + in.Path[1:] + " TEMPLATE template0 LOCALE 'C' ENCODING " + encoding + " OWNER " + in.User.Username(),
		} {
			must(admin.Exec(statement))
		}
		refused := func(err error) {
			t.Helper()
			says(t, err, "the database has the encoding "+encoding+": CREATE DATABASE")
		}
		refused(failure(postgres.Open(t.Context(), address, postgres.Options{})))
		refused(failure(postgres.Open(t.Context(), address, postgres.Options{Pooler: true})))
		refused(failure(postgres.OpenTenants(t.Context(), address, postgres.Options{})))
		pool := newPool(t, address)
		refused(failure(postgres.New(t.Context(), pool, postgres.Options{})))
		pool.Close()
		is.Equal(sqltest.Value[int](t, pgtest.Open(t, address), "SELECT count(*) FROM pg_class WHERE relname LIKE 'svc%'"), 0)
	}
}

// holdGeneration locks the row that every mutation needs, until letGo. That waits for the server to hear that callers have given up: else it
// would do what they asked for.
func holdGeneration(t *testing.T, url string) (letGo func()) {
	t.Helper()
	tx := must(pgtest.Open(t, url).Begin())
	must(tx.Exec("UPDATE svc_generation SET value = value"))
	return func() {
		for sqltest.Value[bool](t, tx, `SELECT count(*) > 0 FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))`) {
		}
		is.New(t).NoErr(tx.Rollback())
	}
}

func TestLockedIsUnavailable(t *testing.T) {
	is := long(t, "a locked row")
	url := migrated(t)
	inTime := func(do func() error) (err error) { // on a busy machine any statement may be late
		for range 20 {
			if err = do(); !errors.Is(err, svc.ErrUnavailable) {
				break
			}
		}
		return err
	}
	var store *postgres.Store
	is.NoErr(inTime(func() (err error) {
		store, err = postgres.Open(t.Context(), url, postgres.Options{Timeout: 100 * time.Millisecond, MaxOpen: 1})
		return err
	}))
	defer store.Close()
	write := func() error { return failure(store.KeepValue(t.Context(), "name", []byte("value"))) }
	letGo := holdGeneration(t, url)
	is.True(errors.Is(write(), svc.ErrUnavailable))
	is.True(errors.Is(inTime(func() error {
		return failure(sqltest.ReadUser(t.Context(), store, "alice"))
	}), svc.ErrNotFound)) // reading goes on
	letGo()
	is.NoErr(inTime(write))
}

// A server that answers Open too late, or ends its transaction, is unavailable.
func TestLateServerIsUnavailable(t *testing.T) {
	longtest.Parallel(t, "a late server")
	url := migrated(t)
	for range 50 {
		store, err := postgres.Open(t.Context(), url, postgres.Options{Timeout: time.Millisecond, NoNotify: true})
		if err == nil {
			err = store.Close()
		}
		if err != nil && !errors.Is(err, svc.ErrUnavailable) {
			t.Fatal(err)
		}
	}
}

func TestDeadlineEndsTheWaitForAWriter(t *testing.T) {
	is := long(t, "a deadline during the wait for a writer")
	url := migrated(t)
	store := open(t, url, postgres.Options{})
	letGo := holdGeneration(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := store.CreateSource(ctx, sqltest.NamedSource("s"))
	expect.Holds(t, errors.Is(err, context.DeadlineExceeded), err)
	letGo()
	is.True(errors.Is(failure(store.Source(t.Context(), sqltest.NamedSource("s").SourceKey)), svc.ErrNotFound))
}

func TestCanceledWhileChanging(t *testing.T) {
	longtest.Parallel(t, "a change that is canceled")
	bothWays(t, migrated, 1, func(t *testing.T, store *postgres.Store) {
		sqltest.CanceledWhileChanging(t, store)
	})
}

// A server that became a standby refuses one write. The next call connects again, to the URL's current server.
func TestReadOnlyIsUnavailableOnce(t *testing.T) {
	longtest.Parallel(t, "a server that became a standby")
	bothWays(t, migrated, 1, func(t *testing.T, store *postgres.Store) {
		must(store.DB().Exec("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"))
		is.New(t).True(errors.Is(failure(store.KeepValue(t.Context(), "name", []byte("value"))), svc.ErrUnavailable))
		must(store.KeepValue(t.Context(), "name", []byte("value")))
	})
}

// A connection that the server ended fails at most one call.
func TestTerminatedConnectionIsUnavailableOnce(t *testing.T) {
	longtest.Parallel(t, "a terminated connection")
	bothWays(t, migrated, 1, func(t *testing.T, store *postgres.Store) {
		is := is.New(t)
		pid := sqltest.Value[int](t, store.DB(), "SELECT pg_backend_pid()")
		must(pgtest.Open(t, pgtest.Server(t)).Exec("SELECT pg_terminate_backend($1)", pid))
		if _, err := sqltest.ReadUser(t.Context(), store, "alice"); !errors.Is(err, svc.ErrNotFound) {
			is.True(errors.Is(err, svc.ErrUnavailable))
		}
		is.NoErr(sqltest.AddUsers(t.Context(), store, "alice"))
	})
}
