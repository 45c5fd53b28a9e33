package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
)

// A connection keeps its plans for the checks of references. Those that it made while tables were small
// are not for many rows: each row would read a table from its start.
func TestReferencesOfManyRows(t *testing.T) {
	is := parallel(t)
	db := openSingle(t).DB()
	// read returns how many rows a change reads without an index.
	read := func(write svc.AccessWrite) (rows int) {
		tx := must(db.Begin())
		is.NoErr(changeAccess(t.Context(), sqlstore.Tx(tx, postgres.Dialect()), svc.AccessNames{}, write))
		is.NoErr(tx.QueryRow(`SELECT sum(seq_tup_read) FROM pg_stat_xact_user_tables WHERE schemaname = current_schema()`).Scan(&rows))
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
	is := parallel(t)
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
	var read int
	is.NoErr(tx.QueryRow(`SELECT sum(seq_tup_read) FROM pg_stat_xact_user_tables WHERE schemaname = current_schema()`).Scan(&read))
	is.True(read < n)
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
	t.Helper()
	must(db.Exec(`INSERT INTO svc_audit (number, id, happened_at, actor_kind, actor_id, actor_key, action, target_kind, target_id,
			target_scope, target_owner, target_holder_kind, target_holder_id, hash, earliest, latest)
		SELECT number, gen_random_uuid(), i, 'user', who, '', '', kind, who, '', '', '', '', '', 1, i FROM (`+rows+`) r`, args...))
}

// A list of the records of one who has many, but none of late, does not read those of all others.
func TestRecordsOfLongAgo(t *testing.T) {
	is := parallel(t)
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
	var read int
	is.NoErr(tx.QueryRow(`SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables
		WHERE schemaname = current_schema() AND relname = 'svc_audit'`).Scan(&read))
	is.True(read < n/4)
}

// A list of rare records, by kind or time, goes through a long log range by range: one statement for all could take longer
// than the database may stay silent.
func TestRecordsOfFew(t *testing.T) {
	is := parallel(t)
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
	service := must(svc.New(svc.Config{Store: store, Logger: slog.New(slog.DiscardHandler)}))
	defer service.Close()
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

// openSingle opens a Store with one connection.
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
