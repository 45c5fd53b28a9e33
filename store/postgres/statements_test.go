package postgres_test

import (
	"context"
	"database/sql"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
	"github.com/extsvc/svc/store/storetest"
)

// TestStatements checks every statement that storetest makes a store run. Each finds its rows
// through an index, in order, numbers its parameters by first appearance, and names the schema of a
// dialect that has one. The statements run in a host's pool that prepares nothing, as through a
// pooler. The short form has every twentieth rule.
func TestStatements(t *testing.T) {
	t.Parallel()
	seen := &recorder{statements: map[string]bool{}}
	url := pgtest.With(t, newlyMigrated(t), "synchronous_commit", "off") // it is not about the disk
	db, host := pgtest.Open(t, url), traced(t, pgtest.With(t, url, "search_path", "pg_catalog"), seen)
	dialect := postgres.Dialect()
	dialect.Silence = 0
	dialect.Schema = schemaOf(t, url)
	rule := 0
	storetest.Run(t, func(t *testing.T) svc.Store {
		if rule++; rule%longtest.Times(20, 1) != 0 {
			t.Skip("NOT TESTED here, because it takes long. CI=true has it tested")
		}
		empty(t, db)
		return sqlstore.New(host, host, dialect)
	})
	if len(seen.statements) < longtest.Times(10, 40) {
		t.Errorf("only %d statements were seen", len(seen.statements))
	}
	plans := planner(t, url)
	for statement := range seen.statements {
		if !sqltest.NumberedInOrder(statement) {
			t.Errorf("parameters out of order: %s", statement)
		}
		// Without a limit the plan may sort: there are only a few rows, all of one thing.
		plan, limited := explain(t, plans, statement), strings.Contains(statement, "LIMIT") && !sorts.MatchString(statement)
		plan = strings.ReplaceAll(plan, "Seq Scan on svc_generation", "") // 32 rows
		if strings.Contains(plan, "Seq Scan") || limited && strings.Contains(plan, "Sort") {
			t.Errorf("%s\n\n%s", statement, plan)
		}
	}
}

// sorts finds the statements that may sort: keys of one holder or policy by a time that changes, users
// that a text finds, and lanes.
var sorts = regexp.MustCompile(`svc_generation ORDER BY|(holder_id|scoping_policy_id) = .* ORDER BY k\.(expires_at|last_use)|ORDER BY u\.id \|\| ''`)

// TestPlans checks how the last statements of calls with large rows or many rows find them.
func TestPlans(t *testing.T) {
	is := parallel(t)
	url, seen := newlyMigrated(t), &recorder{statements: map[string]bool{}}
	host, db := traced(t, url, seen), planner(t, url)
	store := sqlstore.New(host, host, postgres.Dialect())
	is.NoErr(store.CreateSource(t.Context(), svc.Source{SourceKey: sqltest.Source}))
	for index, call := range sqltest.Calls(t.Context(), store) {
		want := "using " + index
		if slices.Contains([]string{"svc_attachments", "svc_group_members", "svc_source_files"}, index) {
			want += "_pkey"
		}
		is.NoErr(call())
		plan := explain(t, db, seen.last)
		scans := regexp.MustCompile(`\w+ Scan .*`).FindAllString(plan, -1)
		is.True(len(scans) > 0)
		for _, scan := range scans {
			if !strings.Contains(scan, want) || strings.Contains(plan, "Sort") {
				t.Errorf("%s\n\n%s\n\nis not all %s", seen.last, plan, want)
			}
		}
	}
}

// TestPlanOfChanges: of a full feed, a follower reads what it has not seen, also when the server has
// counted the rows, and when it has not.
func TestPlanOfChanges(t *testing.T) {
	is := parallel(t)
	url, seen := newlyMigrated(t), &recorder{statements: map[string]bool{}}
	host, db := traced(t, url, seen), pgtest.Open(t, url)
	db.SetMaxOpenConns(1)
	for _, fill := range []string{
		`UPDATE svc_generation SET value = 320`,
		`INSERT INTO svc_changefeed (lane, number, changed)
			SELECT 1 + i % 32, 1 + i / 32, '{"Targets":[{"Kind":"user","ID":"' || i || '"}]}'
			FROM generate_series(0, 10239) i`,
		`SET plan_cache_mode = force_generic_plan`,
	} {
		must(db.Exec(fill))
	}
	store := sqlstore.New(host, host, postgres.Dialect())
	all := must(store.Changes(t.Context(), 0))
	is.Equal(len(all.Targets), 10240)
	for _, known := range []string{"SELECT", "ANALYZE svc_generation, svc_changefeed"} { // not the tables of other tests
		must(db.Exec(known))
		if plan := explain(t, db, seen.last); strings.Contains(plan, "Seq Scan on svc_changefeed") {
			t.Errorf("after %s:\n%s\n\n%s", known, seen.last, plan)
		}
	}
}

// TestPlanOfRecordsByTime: the records of a time are ranges of numbers, which the index of spans
// gives.
func TestPlanOfRecordsByTime(t *testing.T) {
	is := parallel(t)
	url, seen := newlyMigrated(t), &recorder{statements: map[string]bool{}}
	store := sqlstore.New(traced(t, url, seen), traced(t, url, seen), postgres.Dialect())
	must(store.AuditRecords(t.Context(), svc.AuditQuery{Until: time.Now(), Limit: 10}))
	is.Equal(len(seen.statements), 3)
	first := ""
	for statement := range seen.statements {
		if strings.HasPrefix(statement, "SELECT COALESCE(MAX") { // the newest number
			continue
		}
		if strings.Contains(statement, "LIMIT") {
			first = statement
		}
		plan := explain(t, planner(t, url), statement)
		spans := regexp.MustCompile(`using svc_audit_spans on .*\s+Index Cond: \(+number < `)
		if !spans.MatchString(plan) || strings.Contains(plan, "Sort") {
			t.Errorf("%s\n\n%s\n\ndoes not use the spans", statement, plan)
		}
	}
	records := regexp.MustCompile(`Scan Backward using svc_audit_pkey on svc_audit .*\s+Index Cond: \(\(number > `)
	if plan := explain(t, planner(t, url), first); !records.MatchString(plan) {
		t.Errorf("%s\n\n%s\n\nreads no range of numbers", first, plan)
	}
}

// traced opens a host's pool that records its statements.
func traced(t *testing.T, url string, seen *recorder) *sql.DB {
	t.Helper()
	config := must(pgx.ParseConfig(url))
	config.Tracer, config.DefaultQueryExecMode = seen, pgx.QueryExecModeExec
	host := stdlib.OpenDB(*config)
	host.SetMaxIdleConns(10)
	t.Cleanup(func() { _ = host.Close() })
	return host
}

// planner opens a connection that plans for large tables and for any parameters, as if the server had
// counted no rows: autovacuum may have, at any moment.
func planner(t *testing.T, url string) *sql.DB {
	t.Helper()
	db := pgtest.Open(t, url)
	db.SetMaxOpenConns(1)
	for _, table := range ownTables(t, db) {
		must(db.Exec("ALTER TABLE " + table + " SET (autovacuum_enabled = false)"))
	}
	for _, setting := range []string{
		`UPDATE pg_class SET relpages = 0, reltuples = -1 WHERE relnamespace = current_schema::regnamespace`,
		`DELETE FROM pg_statistic s USING pg_class c
			WHERE c.oid = s.starelid AND c.relnamespace = current_schema::regnamespace`,
		`SET enable_seqscan = off`, `SET enable_sort = off`, `SET enable_bitmapscan = off`,
		`SET plan_cache_mode = force_generic_plan`,
	} {
		must(db.Exec(setting))
	}
	return db
}

// ownTables returns the tables of the test. Other tests have theirs in the same database.
func ownTables(t *testing.T, db *sql.DB) []string {
	t.Helper()
	return sqltest.Column(t, db, `SELECT oid::regclass FROM pg_class
		WHERE relnamespace = current_schema::regnamespace AND relkind = 'r'`)
}

// analyze counts the rows of the test.
func analyze(t *testing.T, db *sql.DB) {
	t.Helper()
	must(db.Exec("ANALYZE " + strings.Join(ownTables(t, db), ", ")))
}

// explain returns the plan of a statement, for any parameters.
func explain(t *testing.T, db *sql.DB, statement string) string {
	t.Helper()
	if _, err := db.Exec("PREPARE statement AS " + statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	nulls := ""
	if count := highest(statement); count > 0 {
		nulls = "(" + strings.TrimSuffix(strings.Repeat("NULL, ", count), ", ") + ")"
	}
	plan := sqltest.Column(t, db, "EXPLAIN EXECUTE statement"+nulls)
	must(db.Exec("DEALLOCATE statement"))
	return strings.Join(plan, "\n") + "\n"
}

func highest(statement string) (count int) {
	for _, p := range sqltest.Parameter.FindAllString(statement, -1) {
		n, _ := strconv.Atoi(p[1:])
		count = max(count, n)
	}
	return count
}

// recorder collects the texts of statements that have plans.
type recorder struct {
	mu         sync.Mutex
	statements map[string]bool
	last       string
}

func (r *recorder) TraceQueryStart(
	ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData,
) context.Context {
	switch verb, _, _ := strings.Cut(data.SQL, " "); strings.ToUpper(verb) {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH":
		r.mu.Lock()
		defer r.mu.Unlock()
		r.statements[data.SQL] = true
		if !strings.Contains(data.SQL, "pg_notify") { // goes out after its call has answered
			r.last = data.SQL
		}
	}
	return ctx
}

func (r *recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
