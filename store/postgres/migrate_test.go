package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
)

// starters is how many processes open one new schema at once.
const starters = 8

func TestOpenAtOnceInOneProcess(t *testing.T) {
	t.Parallel()
	for range 5 {
		openAtOnce(t, pgtest.Schema(t), postgres.Options{})
	}
}

func openAtOnce(t *testing.T, url string, options postgres.Options) {
	t.Helper()
	var done sync.WaitGroup
	for range starters {
		done.Go(func() {
			if err := openAndWrite(url, options); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
}

func TestOpenAtOnceInManyProcesses(t *testing.T) {
	t.Parallel()
	for range 2 {
		url := pgtest.Schema(t)
		var done sync.WaitGroup
		for range starters {
			done.Go(func() {
				child := exec.Command(os.Args[0], "-test.run=^TestChild$")
				child.Env = append(os.Environ(), "SVC_TEST_URL="+url)
				if out, err := child.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		done.Wait()
	}
}

// TestChild is a process of TestOpenAtOnceInManyProcesses.
func TestChild(t *testing.T) {
	url := os.Getenv("SVC_TEST_URL")
	if url == "" {
		t.Skip("runs in processes that another test starts")
	}
	if err := openAndWrite(url, postgres.Options{}); err != nil {
		t.Fatal(err)
	}
}

func openAndWrite(url string, options postgres.Options) error {
	options.MaxOpen = 2
	store, err := postgres.Open(context.Background(), url, options)
	if err != nil {
		return err
	}
	_, err = store.KeepValue(context.Background(), "name", []byte("value"))
	return errors.Join(err, store.Close())
}

func TestOpenAgainKeepsWhatIsThere(t *testing.T) {
	is := is.New(t)
	url := pgtest.Schema(t)
	for i := range 3 {
		store, err := postgres.Open(t.Context(), url, postgres.Options{NoNotify: i == 1})
		is.NoErr(err)
		if i == 0 {
			is.NoErr(addUsers(t.Context(), store, "alice"))
		}
		read, err := readUser(t.Context(), store, "alice")
		is.NoErr(err)
		is.Equal(read, svc.User{ID: "alice"})
		is.NoErr(store.Migrate(t.Context())) // there is nothing to do
		is.NoErr(store.Close())
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	is := is.New(t)
	url := migrated(t)
	_, err := pgtest.Open(t, url).Exec("INSERT INTO svc_migrations (version) VALUES (99)")
	is.NoErr(err)
	_, err = postgres.Open(t.Context(), url, postgres.Options{})
	is.True(err != nil)
	is.True(strings.Contains(err.Error(), "version 99"))
}

// atVersion returns a schema as that version left it.
func atVersion(t *testing.T, version int) (url string, db *sql.DB) {
	t.Helper()
	url = pgtest.Schema(t)
	db = pgtest.Open(t, url)
	end := fmt.Sprintf("INSERT INTO svc_migrations (version) VALUES (%d);\n", version)
	script, _, found := strings.Cut(sqlstore.SQL(postgres.Dialect()), end)
	if !found {
		t.Fatalf("version %d does not end", version)
	}
	if _, err := db.Exec(script + end); err != nil {
		t.Fatal(err)
	}
	return url, db
}

// The upgrade keeps the rows of the earlier version, and its program can go on writing.
func TestUpgradeKeepsWhatIsThere(t *testing.T) {
	is := is.New(t)
	url, db := atVersion(t, 2)
	insert := func(id string) {
		t.Helper()
		_, err := db.Exec(`INSERT INTO svc_api_keys (id, holder_kind, holder_id, prefix, description, hash, pepper, created_at, revoked_at)
			VALUES ('` + id + `', 'user', 'alice', 'svcu_', NULL, '\x00ff', '1', 1000000, NULL)`)
		is.NoErr(err)
	}
	insert("k")
	store := open(t, url, postgres.Options{})
	insert("late")
	for _, id := range []string{"k", "late"} {
		key, err := readKey(t.Context(), store, id)
		is.NoErr(err)
		is.Equal(key, svc.APIKey{
			ID: id, Holder: svc.Identity{Kind: svc.KindUser, ID: "alice"}, Prefix: "svcu_", Hash: []byte{0, 0xff}, Pepper: "1",
			CreatedAt: time.UnixMicro(1000000).UTC(),
		})
	}
}

// Templates of registered sources get the sources' URLs. Templates that an older program installs
// later have none.
func TestUpgradeBindsTemplates(t *testing.T) {
	is := is.New(t)
	url, db := atVersion(t, 5)
	source := func(scope, owner, name string) {
		t.Helper()
		_, err := db.Exec(`INSERT INTO svc_sources (scope, owner, name, url, created_at, updated_at)
			VALUES ($1, $2, $3, 'https://' || $2 || $3, 0, 0)`, scope, owner, name)
		is.NoErr(err)
	}
	template := func(id string, origin ...any) {
		t.Helper()
		_, err := db.Exec(`INSERT INTO svc_templates (scope, owner, id, name, integrations, tags, manifest, installed_at, updated_at,
			source_scope, source_owner, source_name, source_id, source_revision)
			VALUES ('server', '', $1, 'n', '[]', '[]', '{}', 0, 0, $2, $3, $4, $5, $6)`,
			append([]any{id}, origin...)...)
		is.NoErr(err)
	}
	source("server", "", "acme")
	source("personal", "alice", "acme")
	source("personal", "adam", "acme")
	template("by hand", nil, nil, nil, nil, nil)
	template("from acme", "server", "", "acme", "a", "1")
	template("from alice's", "personal", "alice", "acme", "a", "1")
	template("from nowhere", "server", "", "removed", "a", "1")
	store := open(t, url, postgres.Options{})
	template("late", "server", "", "acme", "a", "1")

	list, err := store.Installations(t.Context(), svc.InstallationPage{Scope: svc.ScopeServer, Limit: 10})
	is.NoErr(err)
	urls := map[string]string{}
	for _, i := range list {
		urls[i.ID] = i.Origin.URL
	}
	is.Equal(urls, map[string]string{"from acme": "https://acme", "from alice's": "https://aliceacme", "from nowhere": "", "late": ""})
	registered, err := store.Source(t.Context(), svc.SourceKey{Scope: svc.ScopeServer, Name: "acme"})
	is.NoErr(err)
	is.True(registered.Serial == 0 && registered.SigningKey == nil)
	rebound, err := store.RebindTemplates(t.Context(), svc.SourceKey{Scope: svc.ScopeServer, Name: "removed"}, "") // which is what it has
	is.NoErr(err)
	is.Equal(rebound, []svc.TemplateKey{})
}

func TestMigrationThatFailsLeavesNothing(t *testing.T) {
	is := is.New(t)
	url := pgtest.Schema(t)
	db := pgtest.Open(t, url)
	_, err := db.Exec("CREATE TABLE svc_users (mine TEXT)")
	is.NoErr(err)
	_, err = postgres.Open(t.Context(), url, postgres.Options{})
	is.True(err != nil)
	is.Equal(schema(t, url), []string{"svc_users.mine text"})
}

func TestPrintedMigrationsAreTheMigrations(t *testing.T) {
	is := is.New(t)
	url := pgtest.Schema(t)
	script := sqlstore.SQL(postgres.Dialect())
	_, err := pgtest.Open(t, url).Exec(script)
	is.NoErr(err)
	printed := schema(t, url)
	is.Equal(printed, schema(t, migrated(t)))
	is.True(!strings.Contains(strings.ToUpper(script), "DROP"))
	is.True(!strings.ContainsAny(script, "{}"))
	open(t, url, postgres.Options{})
	is.Equal(schema(t, url), printed)
}

// The tables of a host's migration tool stay as they are, and cause no conflict.
func TestHostsOwnTables(t *testing.T) {
	is := is.New(t)
	url := pgtest.Schema(t)
	db := pgtest.Open(t, url)
	tables := []string{"migrations", "schema_migrations", "goose_db_version", "gorp_migrations", "flyway_schema_history", "users", "policies"}
	for _, table := range tables {
		_, err := db.Exec("CREATE TABLE " + table + " (version BIGINT PRIMARY KEY, dirty BOOLEAN); INSERT INTO " + table + " VALUES (7, false)")
		is.NoErr(err)
	}
	is.NoErr(addUsers(t.Context(), open(t, url, postgres.Options{}), "alice"))
	for _, table := range tables {
		var version int
		is.NoErr(db.QueryRow("SELECT version FROM " + table).Scan(&version))
		is.Equal(version, 7)
	}
	var others int
	is.NoErr(db.QueryRow("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND NOT starts_with(tablename, 'svc_')").Scan(&others))
	is.Equal(others, len(tables))
}

// A migration waits for others, and only as long as its context allows.
func TestMigrationWaits(t *testing.T) {
	is := is.New(t)
	url := pgtest.Schema(t)
	tx, err := pgtest.Open(t, url).Begin()
	is.NoErr(err)
	_, err = tx.Exec(postgres.Dialect().Lock)
	is.NoErr(err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = postgres.Open(ctx, url, postgres.Options{Timeout: 10 * time.Millisecond})
	is.True(errors.Is(err, context.DeadlineExceeded)) // and not the statement's limit
	is.NoErr(tx.Rollback())
	open(t, url, postgres.Options{})
}

// schema lists the columns, indexes and foreign keys of a schema.
func schema(t *testing.T, url string) []string {
	t.Helper()
	rows, err := pgtest.Open(t, url).Query(`
		SELECT table_name || '.' || column_name || ' ' || data_type || COALESCE(' ' || collation_name, '') ||
			CASE is_nullable WHEN 'NO' THEN ' not null' ELSE '' END
		FROM information_schema.columns WHERE table_schema = current_schema()
		UNION ALL SELECT replace(indexdef, schemaname || '.', '') FROM pg_indexes WHERE schemaname = current_schema()
		UNION ALL SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
			WHERE connamespace = current_schema()::regnamespace
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		list = append(list, text)
	}
	return list
}

// Lists find the records of an older program by time, even when their times go back.
func TestUpgradeFindsRecordsByTime(t *testing.T) {
	is := is.New(t)
	url, db := atVersion(t, 7)
	for number, happened := range []int64{100, 300, 200, 400} {
		_, err := db.Exec(`INSERT INTO svc_audit (number, id, happened_at, actor_kind, actor_id, action, target_kind, target_id,
			target_scope, target_owner, target_holder_kind, target_holder_id, hash)
			VALUES ($1, '0195ff80-0000-7000-8000-000000000000', $2, 'user', 'a', 'x', 'user', 'a', '', '', '', '', '')`, number+1, happened)
		is.NoErr(err)
	}
	store := open(t, url, postgres.Options{})
	for since, want := range map[int64][]int64{0: {4, 3, 2, 1}, 100: {4, 3, 2, 1}, 101: {4, 3, 2}, 201: {4, 2}, 301: {4}, 401: nil} {
		list, err := store.AuditRecords(t.Context(), svc.AuditQuery{Since: time.UnixMicro(since).UTC(), Limit: 10})
		is.NoErr(err)
		var numbers []int64
		for _, record := range list {
			numbers = append(numbers, record.Number)
		}
		is.Equal(numbers, want)
	}
}
