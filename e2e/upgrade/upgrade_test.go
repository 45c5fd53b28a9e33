package upgrade

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/sqltest"
)

func tables(t *testing.T, db *sql.DB) []string {
	const ofSQLite = `SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'svc\_%' ESCAPE '\' ORDER BY name`
	const ofPostgres = `SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE 'svc\_%' ORDER BY tablename`
	if _, err := db.Exec(ofSQLite); err != nil {
		return sqltest.Column(t, db, ofPostgres)
	}
	return sqltest.Column(t, db, ofSQLite)
}

// versions runs a test over each kept database.
func versions(t *testing.T, test func(t *testing.T, kind kind, dir string)) {
	dirs := must(filepath.Glob("testdata/v*"))
	if len(dirs) == 0 {
		t.Fatal("no version is kept: CONTRIBUTING.md says how")
	}
	for _, dir := range dirs {
		for _, kind := range kinds {
			t.Run(filepath.Base(dir)+" "+kind.name, func(t *testing.T) { test(t, kind, dir) })
		}
	}
}

// A kept database answers as its version did, also in a process that goes on while another one migrates it.
func TestAnswers(t *testing.T) {
	may := differences(t)
	versions(t, func(t *testing.T, kind kind, dir string) {
		kept := must(readRecord(filepath.Join(dir, kind.name+".answers")))
		for _, at := range []int{-1, len(kept.exchanges) / 2} {
			s := newSite(t)
			s.vars = kept.keys
			s.restore(kind, dir)
			for i, was := range kept.exchanges {
				if i == at {
					migrate(t, s.store.DB())
				}
				if found := difference(was, s.ask(was.request), may); found != "" {
					t.Errorf("an answer (migrated at %d) %s\n"+
						"(a later version may add fields, if testdata/differences.txt says so)", at, found)
				}
			}
		}
	})
}

// differences reads what answers may have that kept ones do not, by the name of a field or a header.
func differences(t *testing.T) map[string]string {
	t.Helper()
	may := map[string]string{}
	for _, line := range lines("testdata/differences.txt") {
		name, reason, _ := strings.Cut(line, ": ")
		if reason == "" {
			t.Fatalf("testdata/differences.txt: %s has no reason", name)
		}
		may[name] = reason
	}
	return may
}

// The chain of records, the sealed tokens of sources and what waits to be delivered or recorded are
// whole, and a holder gets new keys.
func TestSecretsAndRecords(t *testing.T) {
	versions(t, func(t *testing.T, kind kind, dir string) {
		is, ctx := is.New(t), t.Context()
		s := newSite(t)
		s.vars = must(readRecord(filepath.Join(dir, kind.name+".answers"))).keys
		place := s.restore(kind, dir)
		newest := s.newest(event.APIKeyIssued) // of the transaction in fill: it may have waited
		chain := must(s.service.Audit.Verify(ctx, svc.Host))
		is.Equal(chain.Fault, nil)
		is.True(chain.Erased > 0)
		is.Equal(chain.Newest.Number, newest)
		is.Equal(must(s.service.Sources.Sealed(ctx, svc.Host)), svc.SealReport{Under: []int{2}})
		issued, _ := s.ask("alice POST /me/api-keys").body.(map[string]any)
		s.vars["new"], _ = issued["api_key"].(string)
		is.Equal(s.ask("new GET /me").status, "200")
		is.NoErr(s.stop())
		s.serve(must(kind.open(ctx, place)), func(c *svc.Config) { c.Events.OnEvent = s.deliver })
		select {
		case delivered := <-s.events:
			is.Equal(delivered.Action, event.APIKeyIssued)
		case <-time.After(time.Minute):
			t.Error("the event in the outbox is not delivered")
		}
	})
}

// newest returns the number of the newest record, which has that action.
func (s *site) newest(action event.Action) int64 {
	s.t.Helper()
	for record, err := range s.service.Audit.Records(s.t.Context(), svc.Host, svc.AuditQuery{}) {
		if err != nil || record.Action != action {
			s.t.Fatalf("the newest record is of %s: %v", record.Action, err)
		}
		return record.Number
	}
	return 0
}

func TestTenants(t *testing.T) {
	versions(t, func(t *testing.T, kind kind, dir string) {
		is, ctx := is.New(t), t.Context()
		s, place := newSite(t), kind.make(t)
		s.vars = must(readRecord(filepath.Join(dir, kind.name+".answers"))).keys
		kind.restore(t, dir, place)
		store := must(kind.tenants(ctx, place))
		list := must(svc.NewTenants(svc.TenantsConfig{Store: store, Config: s.config(nil, peppers...)}))
		states := map[string]svc.TenantState{}
		for tenant, err := range list.List(ctx) {
			is.NoErr(err)
			states[tenant.Name] = tenant.State
		}
		is.Equal(states, map[string]svc.TenantState{"acme": svc.TenantActive, "asleep": svc.TenantSuspended})
		is.NoErr(list.Use(ctx, "acme", func(service *svc.Service) error {
			who, err := service.Authenticate(ctx, s.vars["tenant"])
			is.Equal(who.Identity(), admin)
			return err
		}))
		is.NoErr(list.Close())
		is.NoErr(store.Close())
	})
}

// migrate does what a later migration may do: it adds a column to each table, a table and a version.
func migrate(t *testing.T, db *sql.DB) {
	t.Helper()
	statements := []string{"CREATE TABLE svc_later (id BIGINT NOT NULL PRIMARY KEY)"}
	for _, table := range tables(t, db) {
		if table != "svc_migrations" {
			statements = append(statements, "ALTER TABLE "+table+" ADD COLUMN later TEXT NOT NULL DEFAULT 'x'")
		}
	}
	statements = append(statements, "INSERT INTO svc_migrations (version) SELECT MAX(version) + 1 FROM svc_migrations")
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// changed names the kept migrations that are missing or not the same now.
func changed(kept, now []string) (names []string) {
	for _, line := range kept {
		if !slices.Contains(now, line) {
			names = append(names, line[:strings.LastIndexByte(line, ' ')])
		}
	}
	return names
}

// A released migration never changes: the databases of that version have run it as it was.
func TestReleasedMigrationsStay(t *testing.T) {
	for _, path := range must(filepath.Glob("testdata/v*/migrations.txt")) {
		for _, name := range changed(lines(path), migrations()) {
			t.Errorf("%s: THE MIGRATION %s HAS CHANGED. Databases of that version have run the old one. "+
				"Undo the change and write a new migration. Only if the version is not released yet, keep it again (CONTRIBUTING.md)",
				filepath.Dir(path), name)
		}
	}
}

func TestChangedMigrationsAreFound(t *testing.T) {
	is := is.New(t)
	kept := []string{"sqlite 0001.sql aa", "sqlite 0002.sql bb"}
	is.Equal(changed(kept, []string{"sqlite 0001.sql aa", "sqlite 0002.sql bb", "sqlite 0003.sql cc"}), nil)
	is.Equal(changed(kept, []string{"sqlite 0001.sql aa", "sqlite 0002.sql cc"}), []string{"sqlite 0002.sql"})
	is.Equal(changed(kept, nil), []string{"sqlite 0001.sql", "sqlite 0002.sql"})
}

func TestDifferencesAreFound(t *testing.T) {
	is := is.New(t)
	const kept = "admin GET /users\n200\tETag: \"1\"\n[{\"id\":\"alice\",\"n\":1.0}]\n"
	was := must(parseExchange(kept))
	is.Equal(was.String(), kept)
	for now, found := range map[string]bool{
		kept: false,
		"admin GET /users\n200\tETag: \"1\"\n[{\"n\":1.0,\"added\":[],\"id\":\"alice\"}]\n": false,
		"admin GET /users\n200\tETag: \"1\"\n[{\"id\":\"alice\",\"n\":1}]\n":                true,
		"admin GET /users\n200\tETag: \"2\"\n[{\"id\":\"alice\",\"n\":1.0}]\n":              true,
		"admin GET /users\n201\tETag: \"1\"\n[{\"id\":\"alice\",\"n\":1.0}]\n":              true,
		"admin GET /users\n200\tETag: \"1\"\n[{\"id\":\"alice\",\"n\":1.0,\"x\":1}]\n":      true,
		"admin GET /users\n200\tETag: \"1\"\n[]\n":                                          true,
		"admin GET /users\n200\n": true,
	} {
		text := difference(was, must(parseExchange(now)), map[string]string{"added": "a field"})
		is.Equal(text != "", found)
	}
}
