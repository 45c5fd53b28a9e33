package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"math"
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
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
	"github.com/extsvc/svc/store/storetest"
)

// TestStatements checks every statement that storetest makes a store run. Each finds its rows through an index, in
// order, numbers its parameters by first appearance, and names the schema of a dialect that has one. The statements
// run in a host's pool that prepares nothing, as through a pooler.
func TestStatements(t *testing.T) {
	longtest.Parallel(t, "the plan of each statement")
	seen := &recorder{statements: map[string]bool{}}
	url := pgtest.With(t, newlyMigrated(t), "synchronous_commit", "off") // it is not about the disk
	db, host := pgtest.Open(t, url), traced(t, pgtest.With(t, url, "search_path", "pg_catalog"), seen)
	dialect := postgres.Dialect()
	dialect.Silence = 0
	dialect.Schema = schemaOf(t, url)
	storetest.Run(t, func(t *testing.T) svc.Store {
		empty(t, db)
		return sqlstore.New(host, host, dialect)
	})
	if len(seen.statements) < 40 {
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
	is := long(t, "the plans of statements")
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
	is := long(t, "plans of large tables")
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
	is.Equal(len(must(store.Changes(t.Context(), 0)).Targets), 10240)
	for _, known := range []string{"SELECT", "ANALYZE svc_generation, svc_changefeed"} { // not the tables of other tests
		must(db.Exec(known))
		if plan := explain(t, db, seen.last); strings.Contains(plan, "Seq Scan on svc_changefeed") {
			t.Errorf("after %s:\n%s\n\n%s", known, seen.last, plan)
		}
	}
}

// TestPlanOfRecordsByTime: the records of a time are ranges of numbers, which the index of spans gives.
func TestPlanOfRecordsByTime(t *testing.T) {
	is := long(t, "plans of large tables")
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

// A connection keeps its plans for the checks of references. Those that it made while tables were small
// are not for many rows: each row would read a table from its start.
func TestReferencesOfManyRows(t *testing.T) {
	is := long(t, "plans of large tables")
	db := openSingle(t).DB()
	// read returns how many rows a change reads without an index.
	read := func(write svc.AccessWrite) (rows int) {
		tx := must(db.Begin())
		is.NoErr(changeAccess(t.Context(), sqlstore.Tx(tx, postgres.Dialect()), svc.AccessNames{}, write))
		rows = readOf(t, tx, "seq_tup_read", "%")
		is.NoErr(tx.Commit())
		return rows
	}
	removed := func(w svc.AccessWrite) (all svc.AccessWrite) {
		for _, u := range w.Users {
			all.Remove.Users = append(all.Remove.Users, u.ID)
		}
		for _, a := range w.Attachments {
			all.Remove.Attachments = append(all.Remove.Attachments, svc.AttachmentKey{PolicyID: a.PolicyID, Principal: a.Principal})
		}
		for _, p := range w.Policies {
			all.Remove.Policies = append(all.Remove.Policies, p.ID)
		}
		return all
	}
	read(referring(0, 10))
	analyze(t, db)
	for i := range 10 { // the plans are kept from now on
		few := referring(10*(i+1), 10)
		read(few)
		read(removed(few))
	}
	const n = 2000 // the server may read a table of ten pages from its start
	many := referring(1000, n)
	is.True(read(many) < 20*n)
	is.True(read(removed(many)) < 20*n)
}

// A change that names few rows reads no large table from its start.
func TestFewRowsOfMany(t *testing.T) {
	is := long(t, "plans of large tables")
	opened := openSingle(t)
	const n, groups = 10_000, 100
	many := referring(0, n)
	for i := range groups {
		many.Groups = append(many.Groups, svc.Group{ID: fmt.Sprint("g", i)})
	}
	for i := range many.Join {
		many.Join[i].Group = fmt.Sprint("g", i%groups)
	}
	is.NoErr(changeAccess(t.Context(), opened, svc.AccessNames{}, many))
	analyze(t, opened.DB())
	tx := must(opened.DB().Begin())
	defer tx.Rollback()
	for _, named := range []svc.AccessNames{
		{Users: []string{"00001"}}, {MembersOf: []string{"g1"}}, {GroupsOf: []string{"00001"}}, {Policies: []string{"00001"}},
		{UsesOf: []string{"00001"}}, {Members: []svc.Membership{{Group: "g1", User: "00001"}}},
		{Attachments: []svc.AttachmentKey{{PolicyID: "00001", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "00001"}}}},
	} {
		is.NoErr(changeAccess(t.Context(), sqlstore.Tx(tx, postgres.Dialect()), named, svc.AccessWrite{
			Leave:  []svc.Membership{{Group: "g1", User: "00001"}},
			Remove: svc.AccessNames{Attachments: named.Attachments, Channels: []svc.Channel{{Provider: "p", SenderID: "00001"}}},
		}))
	}
	is.True(readOf(t, tx, "seq_tup_read", "%") < n)
}

// readOf returns how many rows of tables a transaction has read.
func readOf(t *testing.T, tx *sql.Tx, how, tables string) int {
	return sqltest.Value[int](t, tx, `SELECT sum(`+how+`) FROM pg_stat_xact_user_tables WHERE schemaname = current_schema() AND relname LIKE $1`, tables)
}

// A row of the queue may have hundreds of events. What chains some of them does not read all.
func TestQueueOfManyEvents(t *testing.T) {
	is := parallel(t)
	db := openSingle(t).DB()
	tx := must(db.Begin())
	defer tx.Rollback()
	store := sqlstore.Tx(tx, postgres.Dialect())
	const calls, each = 100, 200
	for range calls {
		events := make([]svc.Event, each)
		for i := range events {
			events[i].ActorKey = rand.Text() // so that the server cannot compress it to little
		}
		is.NoErr(store.QueueAudit(t.Context(), events, nil))
	}
	chained := 0
	for more := true; more; {
		more = must(store.ChainAudit(t.Context(), func(_ svc.AuditRecord, events []svc.Event) []svc.AuditRecord {
			chained += len(events)
			return nil
		}))
	}
	is.Equal(chained, calls*each)
	var stored, read int // parts of long texts, which the server reads when it sends them or deletes them
	is.NoErr(tx.QueryRow(`SELECT n_tup_ins, idx_tup_fetch FROM pg_stat_xact_all_tables WHERE relid =
		(SELECT reltoastrelid FROM pg_class WHERE oid = 'svc_audit_queue'::regclass)`).Scan(&stored, &read))
	is.True(stored > 2*calls)
	is.True(read < 5*stored)
}

// insertRecords inserts records of users at the times i. rows is a query for i, number, and the target: its kind, and who it is.
func insertRecords(t *testing.T, db *sql.DB, rows string, args ...any) {
	must(db.Exec(`INSERT INTO svc_audit (number, id, happened_at, actor_kind, actor_id, actor_key, action, target_kind, target_id,
			target_scope, target_owner, target_holder_kind, target_holder_id, hash, earliest, latest)
		SELECT number, gen_random_uuid(), i, 'user', who, '', '', kind, who, '', '', '', '', '', 1, i FROM (`+rows+`) r`, args...))
}

// A list of the records of one who has many, but none of late, does not read those of all others.
func TestRecordsOfLongAgo(t *testing.T) {
	is := long(t, "plans of large tables")
	db := openSingle(t).DB()
	const n = 20_000
	insertRecords(t, db, `SELECT i, i AS number, 'user' AS kind, CASE WHEN i * 2 <= $1 THEN 'before' ELSE 'since' END AS who
		FROM generate_series(1, $1::BIGINT) i`, n)
	analyze(t, db)
	tx := must(db.Begin())
	defer tx.Rollback()
	for _, query := range []svc.AuditQuery{
		{ActorID: "before"}, {TargetID: "before"}, {ActorID: "before", TargetID: "before"}, {ActorID: "before", ActorKind: svc.KindUser},
	} {
		query.Limit = 50
		records := must(sqlstore.Tx(tx, postgres.Dialect()).AuditRecords(t.Context(), query))
		is.Equal(len(records), 50)
		is.Equal(records[0].Number, int64(n/2))
		is.Equal(records[49].Number, int64(n/2-49))
	}
	is.True(readOf(t, tx, "seq_tup_read + idx_tup_fetch", "svc_audit") < n/4)
}

// A list of rare records, by kind or time, goes through a long log range by range: one statement for all could take longer
// than the database may stay silent.
func TestRecordsOfFew(t *testing.T) {
	is := long(t, "plans of large tables")
	url, seen := newlyMigrated(t), &recorder{statements: map[string]bool{}}
	db := pgtest.Open(t, url)
	const n, apart = 40, 100_000
	insertRecords(t, db, `SELECT i, i * $2 AS number, CASE WHEN i % 13 = 1 THEN 'group' ELSE 'user' END AS kind, '' AS who
		FROM generate_series(1, $1::BIGINT) i`, n, apart)
	store := sqlstore.New(traced(t, url, seen), traced(t, url, seen), postgres.Dialect())
	for _, query := range []svc.AuditQuery{
		{TargetKind: event.TargetGroup}, {TargetKind: event.TargetGroup, Until: time.Unix(9, 0)}, {TargetKind: event.TargetGroup, ActorKind: svc.KindUser},
	} {
		query.Limit = 3
		records := must(store.AuditRecords(t.Context(), query))
		is.Equal(len(records), 3)
		is.Equal([]int64{records[0].Number, records[1].Number, records[2].Number}, []int64{40 * apart, 27 * apart, 14 * apart})
		query.Before, query.Limit = records[2].Number, 100
		records = must(store.AuditRecords(t.Context(), query))
		is.Equal(len(records), 1)
		is.Equal(records[0].Number, int64(apart))
	}
	ranges := 0
	for statement := range seen.statements {
		ranges += strings.Count(statement, "AND number >= ")
	}
	is.True(ranges > 0)
}

// Statements whose answers nobody needs wait for another one, whose time is 4 s. So long texts do not
// wait, and neither do many statements.
func TestTimeOfManyStatements(t *testing.T) {
	longtest.Test(t, "how long the statements of a large change may take")
	is := parallel(t)
	opened := open(t, newlyMigrated(t), postgres.Options{NoNotify: true, SynchronousCommit: "off"})
	must(opened.DB().Exec(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN PERFORM pg_sleep(CASE WHEN length(NEW::TEXT) > 100000 THEN CAST(TG_ARGV[0] AS FLOAT) ELSE 0 END); RETURN NEW; END $$;
		CREATE TRIGGER slow BEFORE INSERT ON svc_audit_queue FOR EACH ROW EXECUTE FUNCTION slow(0.5);
		CREATE TRIGGER slow BEFORE INSERT ON svc_changefeed FOR EACH ROW EXECUTE FUNCTION slow(4.5);
		CREATE FUNCTION lock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END $$;
		CREATE TRIGGER lock BEFORE INSERT ON svc_key_holders FOR EACH ROW EXECUTE FUNCTION lock()`))
	is.NoErr(opened.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
		for i := range 250 {
			holder := svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint(i)}
			if err := tx.Lock(ctx, svc.Locks{Holder: holder}); err != nil {
				return err
			}
		}
		write := svc.AccessWrite{Bundle: referring(0, 1).Bundle, Targets: make([]svc.Target, 5000)}
		if err := changeAccess(ctx, tx, svc.AccessNames{}, write); err != nil {
			return err
		}
		return tx.(svc.FullStore).QueueAudit(ctx, make([]svc.Event, 2500), nil)
	}))
}

// The server counts rows in 32 bits where it also compares with the number.
func TestSkipBeyondAll(t *testing.T) {
	is := parallel(t)
	store := open(t, migrated(t), postgres.Options{NoNotify: true, SynchronousCommit: "off"})
	service := sqltest.Serve(t, svc.Config{Store: store})
	is.NoErr(sqltest.AddUsers(t.Context(), store, "alice"))
	for _, skip := range []int{1, math.MaxInt32, math.MaxInt} {
		for range service.Users.List(t.Context(), svc.Host, svc.UserQuery{RowQuery: svc.RowQuery{Skip: skip}}) {
			t.Error("a user, or an error")
		}
		for range service.MyTemplates.List(t.Context(), svc.Principal{Kind: svc.KindUser, ID: "alice", Actions: []string{"template:*"}}, svc.TemplateQuery{Skip: skip}) {
			t.Error("a template, or an error")
		}
	}
}

func openSingle(t *testing.T) *postgres.Store {
	t.Helper()
	return open(t, newlyMigrated(t), postgres.Options{MaxOpen: 1, NoNotify: true, SynchronousCommit: "off"})
}

// changeAccess writes after it has asked for the named rows.
func changeAccess(ctx context.Context, store svc.Store, named svc.AccessNames, write svc.AccessWrite) error {
	return store.ChangeAccess(ctx, named, func(svc.Bundle) (svc.AccessWrite, error) { return write, nil })
}

// referring returns n users with a channel, a membership and a policy each.
func referring(first, n int) (w svc.AccessWrite) {
	w.Groups = []svc.Group{{ID: "g"}}
	for i := range n {
		id := fmt.Sprintf("%05d", first+i)
		w.Users = append(w.Users, svc.User{ID: id, Channels: []svc.Channel{{Provider: "p", SenderID: id}}})
		w.Join = append(w.Join, svc.Membership{Group: "g", User: id})
		w.Policies = append(w.Policies, svc.Policy{ID: id, Document: []byte(`{}`)})
		w.Attachments = append(w.Attachments, svc.Attachment{PolicyID: id, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: id}})
	}
	return w
}
