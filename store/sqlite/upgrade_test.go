package sqlite_test

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// older are the earlier releases of the schema.
var older = []int{1, 2, 5}

// atVersion returns the path of a database as that version left it: with rows, but without changes.
func atVersion(t *testing.T, version int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "svc.db")
	end := fmt.Sprintf("INSERT INTO svc_migrations (version) VALUES (%d);\n", version)
	script, _, found := strings.Cut(sqlstore.SQL(sqlite.Dialect()), end)
	if !found {
		t.Fatalf("version %d does not end", version)
	}
	db := raw(t, path)
	for _, statement := range []string{
		script + end,
		`INSERT INTO svc_users VALUES ('alice', 'Alice', NULL, 0)`,
		`INSERT INTO svc_api_keys (id, holder_kind, holder_id, prefix, description, hash, pepper, created_at, revoked_at)
			VALUES ('k', 'user', 'alice', 'svcu_k', NULL, x'00ff', '1', 1000000, NULL)`,
		oldSource("server", "", "acme", "https://example.com/acme"),
		oldSource("personal", "alice", "acme", "https://example.com/alice"),
		oldSource("personal", "adam", "acme", "https://example.com/adam"),
		oldTemplate("by hand", `NULL, NULL, NULL, NULL, NULL`),
		oldTemplate("from acme", `'server', '', 'acme', 'chat', 'sha256:1'`),
		oldTemplate("from alice's", `'personal', 'alice', 'acme', 'chat', 'sha256:2'`),
		oldTemplate("from nowhere", `'server', '', 'removed', 'chat', 'sha256:3'`),
		`UPDATE svc_generation SET value = 5`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// oldSource is the statement with which a program of any version registers a source.
func oldSource(scope, owner, name, url string) string {
	return fmt.Sprintf(`INSERT INTO svc_sources (scope, owner, name, url, description, sealed_token, created_at, updated_at)
		VALUES ('%s', '%s', '%s', '%s', NULL, x'00ff', 1000000, 1000000)`, scope, owner, name, url)
}

// oldTemplate is the statement with which a program of any version adds a template.
func oldTemplate(id, origin string) string {
	return fmt.Sprintf(`INSERT INTO svc_templates (scope, owner, id, name, integrations, tags, manifest, source_scope, source_owner,
		source_name, source_id, source_revision, installed_at, updated_at)
		VALUES ('server', '', '%s', 'n', '[]', '[]', '{"version":"1"}', %s, 1000000, 1000000)`, strings.ReplaceAll(id, "'", "''"), origin)
}

func checkUpgraded(t *testing.T, store svc.Store) {
	t.Helper()
	is := is.New(t)
	snapshot, err := store.Access(t.Context(), svc.AccessQuery{KeyID: "k"})
	is.NoErr(err)
	is.Equal(*snapshot.Key, svc.APIKey{
		ID: "k", Holder: svc.Identity{Kind: svc.KindUser, ID: "alice"}, Prefix: "svcu_k", Hash: []byte{0, 0xff}, Pepper: "1",
		CreatedAt: time.UnixMicro(1000000).UTC(),
	})
	is.Equal(snapshot.User.DisplayName, "Alice")
	checkSourcesUpgraded(t, store)
	is.Equal(generation(t, store), int64(5))
}

// checkSourcesUpgraded expects templates of known sources to have the URLs of those sources.
func checkSourcesUpgraded(t *testing.T, store svc.Store) {
	t.Helper()
	is := is.New(t)
	acme := svc.SourceKey{Scope: svc.ScopeServer, Name: "acme"}
	alices := svc.SourceKey{Scope: svc.ScopePersonal, Owner: "alice", Name: "acme"}
	list, err := store.Installations(t.Context(), svc.InstallationPage{Scope: svc.ScopeServer, Limit: 10})
	is.NoErr(err)
	is.Equal(list, []svc.Installation{
		{ID: "from acme", Origin: svc.Origin{Source: acme, ID: "chat", URL: "https://example.com/acme", Revision: "sha256:1"}},
		{ID: "from alice's", Origin: svc.Origin{Source: alices, ID: "chat", URL: "https://example.com/alice", Revision: "sha256:2"}},
		{ID: "from nowhere", Origin: svc.Origin{Source: nowhere, ID: "chat", Revision: "sha256:3"}},
	})
	for _, i := range list {
		template, err := store.Template(t.Context(), svc.TemplateKey{Scope: svc.ScopeServer, ID: i.ID})
		is.NoErr(err)
		is.Equal(*template.Origin, i.Origin)
	}
	for key, url := range map[svc.SourceKey]string{acme: "https://example.com/acme", alices: "https://example.com/alice"} {
		source, err := store.Source(t.Context(), key)
		is.NoErr(err)
		is.Equal(source, svc.Source{
			SourceKey: key, URL: url, SealedToken: []byte{0, 0xff},
			CreatedAt: time.UnixMicro(1000000).UTC(), UpdatedAt: time.UnixMicro(1000000).UTC(),
		})
	}
}

// nowhere is a source that was removed before the upgrade.
var nowhere = svc.SourceKey{Scope: svc.ScopeServer, Name: "removed"}

func TestUpgradeKeepsWhatIsThere(t *testing.T) {
	for _, version := range older {
		t.Run(strconv.Itoa(version), func(t *testing.T) { upgradeKeepsWhatIsThere(t, atVersion(t, version)) })
	}
}

func upgradeKeepsWhatIsThere(t *testing.T, path string) {
	is := is.New(t)
	store := open(t, path)
	checkUpgraded(t, store)
	changes, err := store.Changes(t.Context(), 4)
	is.NoErr(err)
	is.Equal(changes, svc.StoreChanges{Generation: 5, Reset: true}) // nobody knows what an older program changed
	changes, err = store.Changes(t.Context(), 5)
	is.NoErr(err)
	is.Equal(changes, svc.StoreChanges{Generation: 5})

	older := raw(t, path) // a program of that version that still runs
	_, err = older.Exec(`INSERT INTO svc_api_keys (id, holder_kind, holder_id, prefix, description, hash, pepper, created_at, revoked_at)
		VALUES ('late', 'user', 'alice', 'svcu_late', NULL, x'01', '1', 1000000, NULL)`)
	is.NoErr(err)
	late, err := readKey(t.Context(), store, "late")
	is.NoErr(err)
	is.True(late.ExpiresAt.IsZero() && late.LastUsedAt.IsZero() && late.RevokedAt.IsZero() && !late.Disabled)

	is.NoErr(store.CreateAPIKey(t.Context(), key(1)))
	changes, err = store.Changes(t.Context(), 5)
	is.NoErr(err)
	is.Equal(changes, svc.StoreChanges{Generation: 6, Targets: []svc.Target{key(1).Target()}})
	_, err = store.DB().Exec(`UPDATE svc_generation SET value = value + 1`) // an older program that still runs
	is.NoErr(err)
	is.NoErr(store.CreateAPIKey(t.Context(), key(2)))
	for since, reset := range map[int64]bool{4: true, 5: true, 6: true, 7: false, 8: false, 9: true} {
		changes, err := store.Changes(t.Context(), since)
		is.NoErr(err)
		is.Equal(changes.Reset, reset)
	}
	lateSourcesAreKept(t, older, store)
}

// lateSourcesAreKept lets an older program, which does not know the new columns, write a source and
// templates.
func lateSourcesAreKept(t *testing.T, older *sql.DB, store svc.Store) {
	t.Helper()
	is := is.New(t)
	for _, statement := range []string{
		oldSource("server", "", "late", "https://late.example"), oldTemplate("late", `'server', '', 'removed', 'late', 'sha256:4'`),
	} {
		_, err := older.Exec(statement)
		is.NoErr(err)
	}
	source, err := store.Source(t.Context(), svc.SourceKey{Scope: svc.ScopeServer, Name: "late"})
	is.NoErr(err)
	is.True(source.Serial == 0 && source.SigningKey == nil)
	key := func(id string) svc.TemplateKey { return svc.TemplateKey{Scope: svc.ScopeServer, ID: id} }
	template, err := store.Template(t.Context(), key("late"))
	is.NoErr(err)
	is.Equal(template.Origin.URL, "")
	rebound, err := store.RebindTemplates(t.Context(), nowhere, "") // which is what they have
	is.NoErr(err)
	is.Equal(rebound, []svc.TemplateKey{})
	rebound, err = store.RebindTemplates(t.Context(), nowhere, "https://found.example")
	is.NoErr(err)
	is.Equal(rebound, []svc.TemplateKey{key("from nowhere"), key("late")})
}

// TestMigrationsAreKilled kills a process at each statement of the migrations, and at each commit.
func TestMigrationsAreKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a process for each statement")
	}
	want := schema(t, migrated(t))
	for name, version := range map[string]int{"a new file": 0, "version 1": 1, "version 2": 2} {
		killed := 0
		for at := 1; ; at++ {
			path := filepath.Join(t.TempDir(), "svc.db")
			if version > 0 {
				path = atVersion(t, version)
			}
			child := exec.Command(os.Args[0], "-test.run=^TestKilledChild$")
			child.Env = append(os.Environ(), "SVC_TEST_KILLED="+path, "SVC_TEST_KILL_AT="+strconv.Itoa(at))
			out, err := child.CombinedOutput()
			store := open(t, path)
			if got := schema(t, path); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s, killed at statement %d: the schema is %v", name, at, got)
			}
			if version > 0 {
				checkUpgraded(t, store)
			}
			checkIntegrity(t, path)
			if err == nil {
				break // it was not killed: there are no more statements
			}
			if !strings.Contains(err.Error(), "killed") {
				t.Fatalf("%v: %s", err, out)
			}
			killed++
		}
		t.Logf("%s: killed %d times", name, killed)
		if killed < 5 {
			t.Errorf("%s: only %d statements were seen", name, killed)
		}
	}
}

// TestKilledChild is a process of TestMigrationsAreKilled.
func TestKilledChild(t *testing.T) {
	path := os.Getenv("SVC_TEST_KILLED")
	if path == "" {
		t.Skip("runs in processes that another test starts")
	}
	left, err := strconv.Atoi(os.Getenv("SVC_TEST_KILL_AT"))
	if err != nil {
		t.Fatal(err)
	}
	step := func() error {
		if left--; left == 0 {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			return fmt.Errorf("still alive: %w", err)
		}
		return nil
	}
	seen := &tap{commit: step, run: func(driver.Conn, string) error { return step() }}
	if err := tapped(t, path, seen).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTablesOfTheHostAreLeftAlone(t *testing.T) {
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "svc.db")
	db := raw(t, path)
	for _, table := range []string{"schema_migrations", "goose_db_version", "gorp_migrations", "migrations", "users", "api_keys"} {
		_, err := db.Exec("CREATE TABLE " + table + " (version INTEGER); INSERT INTO " + table + " VALUES (42)")
		is.NoErr(err)
	}
	is.NoErr(writeAll(t.Context(), open(t, path)))
	for _, table := range []string{"schema_migrations", "goose_db_version", "gorp_migrations", "migrations", "users", "api_keys"} {
		var version int
		is.NoErr(db.QueryRow("SELECT version FROM " + table).Scan(&version))
		is.Equal(version, 42)
	}
}

func TestOldChangesAreForgotten(t *testing.T) {
	is := is.New(t)
	store := open(t, filepath.Join(t.TempDir(), "svc.db"))
	fill(t, store.DB(), 12_031)
	oldest := func() (generation int64) {
		is.NoErr(store.DB().QueryRow("SELECT MIN(generation) FROM svc_changes").Scan(&generation))
		return generation
	}
	is.Equal(oldest(), int64(1))
	is.NoErr(store.CreateAPIKey(t.Context(), key(0)))
	is.Equal(oldest(), int64(1025)) // so many at once
	for i := range 256 {
		is.NoErr(store.CreateAPIKey(t.Context(), key(1+i)))
	}
	is.Equal(oldest(), int64(2049))
	for since, reset := range map[int64]bool{0: true, 2000: true, 2047: true, 2048: false, 12_000: false} {
		changes, err := store.Changes(t.Context(), since)
		is.NoErr(err)
		is.Equal(changes.Reset, reset)
		if !reset {
			is.Equal(int64(len(changes.Targets)), 12_031+257-since)
		}
	}
}

// fill makes that many generations.
func fill(t *testing.T, db *sql.DB, generations int) {
	t.Helper()
	_, err := db.Exec(`INSERT INTO svc_changes WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		SELECT i, 0, 'user', 'u' || i, '', '', '', '' FROM n`, generations)
	if err == nil {
		_, err = db.Exec(`UPDATE svc_generation SET value = $1`, generations)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Lists find the records of an older program by time, even when their times go back.
func TestUpgradeFindsRecordsByTime(t *testing.T) {
	is := is.New(t)
	path := atVersion(t, 7)
	db := raw(t, path)
	for number, happened := range []int64{100, 300, 200, 400} {
		_, err := db.Exec(`INSERT INTO svc_audit (number, id, happened_at, actor_kind, actor_id, action, target_kind, target_id,
			target_scope, target_owner, target_holder_kind, target_holder_id, hash)
			VALUES ($1, '0195ff80-0000-7000-8000-000000000000', $2, 'user', 'a', 'x', 'user', 'a', '', '', '', '', '')`, number+1, happened)
		is.NoErr(err)
	}
	is.NoErr(db.Close())
	store := open(t, path)
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
