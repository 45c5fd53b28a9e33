package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"
	moderncsqlite "modernc.org/sqlite"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
	"github.com/extsvc/svc/store/storetest"
)

// TestStatements checks every statement that storetest makes a store run. Each finds its rows through an index, in
// order, and numbers its parameters by first appearance, as SQLite counts them.
func TestStatements(t *testing.T) {
	longtest.Parallel(t, "the plan of each statement")
	var mu sync.Mutex
	seen := map[string]bool{}
	record := &tap{run: func(_ driver.Conn, query string) error {
		mu.Lock()
		defer mu.Unlock()
		seen[query] = true
		return nil
	}}
	storetest.Run(t, func(t *testing.T) svc.Store { return tapped(t, migrated(t), record) })
	if len(seen) < 40 {
		t.Errorf("only %d statements were seen", len(seen))
	}
	db := raw(t, migrated(t))
	for statement := range seen {
		if strings.Contains(statement, "SAVEPOINT") {
			continue // there is no plan to see
		}
		plan := harmless.ReplaceAllString(explain(t, db, statement), "")
		if sorts.MatchString(statement) {
			plan = strings.ReplaceAll(plan, "USE TEMP B-TREE FOR ORDER BY", "")
		}
		if !strings.Contains(statement, "WHERE") {
			plan = alongIndex.ReplaceAllString(plan, "")
		}
		if walks.MatchString(plan) {
			t.Errorf("%s\n\n%s", statement, plan)
		}
		if !sqltest.NumberedInOrder(statement) {
			t.Errorf("parameters out of order: %s", statement)
		}
	}
}

// TestPlans checks calls with large rows or many rows. Their last statements use indexes, and read
// no row only to count or to list it.
func TestPlans(t *testing.T) {
	is := is.New(t)
	path, last := migrated(t), ""
	store := tapped(t, path, &tap{run: func(_ driver.Conn, query string) error {
		last = query
		return nil
	}})
	is.NoErr(store.CreateSource(t.Context(), svc.Source{SourceKey: sqltest.Source}))
	calls := sqltest.Calls(t.Context(), store)
	calls["svc_attachments of all"] = func() error {
		page := svc.AccessPage{Kind: event.TargetAttachment, After: "a/b/c", Limit: 1}
		_, err := store.ReadAccess(t.Context(), svc.AccessRead{Page: &page}, func(svc.Bundle) error { return nil })
		return err
	}
	for index, query := range map[string]svc.AuditQuery{
		"svc_audit_actor":  {ActorKind: "user", ActorID: "a", Limit: 10},
		"svc_audit_target": {TargetKind: "user", TargetID: "a", Limit: 10},
	} {
		calls[index] = func() error {
			return failure(store.AuditRecords(t.Context(), query))
		}
	}
	for index, want := range map[string]string{
		"svc_api_keys_created":         "svc_api_keys_created ((created_at,id)<(?,?))",
		"svc_api_keys_expiry":          "svc_api_keys_expiry ((expires_at,id)>(?,?) AND expires_at<?)",
		"svc_api_keys_last_use":        "svc_api_keys_last_use ((last_use,id)>(?,?) AND last_use<?)",
		"svc_api_keys_scoping":         "svc_api_keys_scoping (scoping_policy_id=? AND (created_at,id)<(?,?))",
		"svc_api_keys_holder":          "svc_api_keys_holder (holder_kind=? AND holder_id=? AND (created_at,id)<(?,?))",
		"svc_service_accounts_owner":   "svc_service_accounts_owner (owner_user_id=? AND id>?)",
		"svc_service_accounts_scoping": "svc_service_accounts_scoping (scoping_policy_id=? AND id>?)",
		"svc_attachments_policy":       "svc_attachments_policy (policy_id=? AND (principal_type,principal_id)>(?,?))",
		"svc_attachments":              "sqlite_autoindex_svc_attachments_1 (principal_type=? AND principal_id=? AND policy_id>?)",
		"svc_attachments of all":       "sqlite_autoindex_svc_attachments_1 ((principal_type,principal_id,policy_id)>(?,?,?))",
		"svc_channels_user":            "svc_channels_user (user_id=? AND (provider,sender_id)>(?,?))",
		"svc_group_members":            "sqlite_autoindex_svc_group_members_1 (group_id=? AND user_id>?)",
		"svc_templates_installed":      "svc_templates_installed (scope=? AND owner=? AND id>?)",
		"svc_templates_source":         "svc_templates_installed (scope=? AND owner=?)",
		"svc_source_files_kept":        "svc_source_files_kept (scope=? AND owner=? AND name=?",
		"svc_source_files":             "sqlite_autoindex_svc_source_files_1 (scope=? AND owner=? AND name=? AND path=?)",
		"svc_audit_actor":              "svc_audit_actor (actor_id=? AND number<?)",
		"svc_audit_target":             "svc_audit_target (target_id=? AND number<?)",
	} {
		if slices.Contains(covering, index) {
			want = "USING COVERING INDEX " + want
		} else {
			want = "USING INDEX " + want
		}
		is.NoErr(calls[index]())
		plan := explain(t, raw(t, path), last)
		searches := regexp.MustCompile(`(?m)^(SEARCH|SCAN) .*`).FindAllString(plan, -1)
		is.True(len(searches) > 0)
		for _, search := range searches {
			if !strings.Contains(search, want) {
				t.Errorf("%s\n\n%s\n\nis not all %s", last, plan, want)
			}
		}
		delete(calls, index)
	}
	is.Equal(len(calls), 0)
}

// covering are the indexes of statements that read no rows.
var covering = []string{
	"svc_channels_user", "svc_group_members", "svc_templates_installed", "svc_templates_source", "svc_source_files_kept",
}

// TestPlanOfRecordsByTime: the records of a time, and those of an actor, are ranges of numbers,
// which the index of spans gives.
func TestPlanOfRecordsByTime(t *testing.T) {
	is := is.New(t)
	path, seen := migrated(t), []string(nil)
	store := tapped(t, path, &tap{run: func(_ driver.Conn, query string) error {
		seen = append(seen, query)
		return nil
	}})
	const spans = "SEARCH svc_audit USING COVERING INDEX svc_audit_spans (number<?)"
	for actor, numbers := range map[string]string{
		"":  "USING INDEX sqlite_autoindex_svc_audit_1 (number>? AND number<?)",
		"a": "USING INDEX svc_audit_actor (actor_id=? AND number>? AND number<?)",
	} {
		seen = nil
		must(store.AuditRecords(t.Context(), svc.AuditQuery{ActorID: actor, Until: time.Now(), Limit: 10}))
		is.Equal(len(seen), 3) // the first asks for the newest number
		for i, first := range []string{numbers, spans} {
			plan := explain(t, raw(t, path), seen[1+i])
			if !strings.Contains(plan, first) || !strings.Contains(plan, spans) || walks.MatchString(plan) {
				t.Errorf("%s\n\n%s\n\nis not %s", seen[i], plan, first)
			}
		}
	}
}

// walks finds scans of a table, scans of the attachments of all groups, and sorting.
var walks = regexp.MustCompile(`SCAN|\(principal_type=\?\)|TEMP B-TREE`)

// harmless finds the scans that are right: of rows in the statement itself or in its parameter, and
// of the outbox, which is nearly always empty, and of the generation, which has one row. w are the policies of one user, kept at most so many
// answers of one caller.
var harmless = regexp.MustCompile(`(?m)CO-ROUTINE t\n\s*SCAN svc_outbox .*\n\s*SCAN t$|SCAN (svc_outbox|svc_audit_queue|svc_generation|g$|waiting|held|elements|(j|json_each) VIRTUAL TABLE INDEX 1:|subjects|w$|kept$|live|many$|near|found|by_(id|name|email|other_case)|([0-9]+ )?CONSTANT ROWS?|[0-9]+-ROW VALUES CLAUSE)|USE TEMP B-TREE FOR GROUP BY`)

// sorts finds the statements that may sort: keys of one holder or policy by a time that changes, and
// users that a text finds, and the changes of the feed.
var sorts = regexp.MustCompile(`FROM svc_generation g|(holder_id|scoping_policy_id) = .* ORDER BY k\.(expires_at|last_use)|ORDER BY u\.id \|\| ''`)

// alongIndex finds scans of a whole table in index order, which are right for a list of all rows.
var alongIndex = regexp.MustCompile(`SCAN \w+ USING (COVERING )?INDEX`)

func explain(t *testing.T, db *sql.DB, statement string) string {
	t.Helper()
	parameters := make([]any, strings.Count(parametersOnce(statement), "$"))
	return strings.Join(sqltest.Column(t, db, "EXPLAIN QUERY PLAN "+statement, parameters...), "\n")
}

func parametersOnce(statement string) string {
	once := map[string]bool{}
	for _, p := range sqltest.Parameter.FindAllString(statement, -1) {
		once[p] = true
	}
	return strings.Repeat("$", len(once))
}

// raw opens a database without this package.
func raw(t *testing.T, path string, parameters ...string) *sql.DB {
	db := must(sql.Open("sqlite", "file:"+path+"?"+strings.Join(parameters, "&")))
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// tap observes the calls to the driver, and can disturb them.
type tap struct {
	run     func(conn driver.Conn, query string) error // before each statement; nil: nothing
	commit  func() error                               // instead of a commit, when it fails; nil: nothing
	begun   atomic.Int64
	readied atomic.Int64 // statements that were prepared
	commits atomic.Int64 // those that succeeded
}

func (s *tap) see(call sqltest.TapCall) error {
	switch call.Verb {
	case "prepare":
		s.readied.Add(1)
	case "begin":
		s.begun.Add(1)
	case "exec", "query":
		if s.run != nil {
			return s.run(call.Conn, call.Query)
		}
	case "commit":
		if s.commit != nil {
			return s.commit()
		}
	case "committed":
		s.commits.Add(1)
	}
	return nil
}

func tapped(t *testing.T, path string, seen *tap) *sqlstore.Store {
	db := tappedDB(t, path, seen)
	return sqlstore.New(db, db, sqlite.Dialect())
}

func tappedDB(t *testing.T, path string, seen *tap) *sql.DB {
	const settings = "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=journal_mode(wal)"
	db := sql.OpenDB(sqltest.Tap{Connector: file("file:" + path + settings), Seen: seen.see})
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// file connects to a SQLite file, given the driver's name for it.
type file string

func (f file) Connect(context.Context) (driver.Conn, error) { return f.Driver().Open(string(f)) }

func (f file) Driver() driver.Driver { return &moderncsqlite.Driver{} }
