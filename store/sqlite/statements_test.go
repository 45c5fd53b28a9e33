package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	moderncsqlite "modernc.org/sqlite"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
	"github.com/extsvc/svc/store/storetest"
)

// TestStatements looks at every statement that the rules of storetest make a store run: it finds its rows in an index, and in
// order, and numbers its parameters by their first appearance, which is how SQLite counts.
func TestStatements(t *testing.T) {
	seen := &recorder{statements: map[string]bool{}}
	broken := storetest.Check(func() svc.Store { return recorded(t, seen) })
	for rule, err := range broken {
		t.Errorf("%s: %v", rule, err)
	}
	if len(seen.statements) < 40 {
		t.Errorf("only %d statements were seen", len(seen.statements))
	}
	db := raw(t, migrated(t))
	for statement := range seen.statements {
		plan := explain(t, db, statement)
		if strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s\n\n%s", statement, plan)
		}
		if !numberedInOrder(statement) {
			t.Errorf("parameters out of order: %s", statement)
		}
	}
}

var parameter = regexp.MustCompile(`\$[0-9]+`)

func numberedInOrder(statement string) bool {
	seen := map[string]bool{}
	for _, p := range parameter.FindAllString(statement, -1) {
		if seen[p] {
			continue
		}
		seen[p] = true
		if p != "$"+strconv.Itoa(len(seen)) {
			return false
		}
	}
	return true
}

func explain(t *testing.T, db *sql.DB, statement string) string {
	rows, err := db.Query("EXPLAIN QUERY PLAN "+statement, make([]any, strings.Count(parametersOnce(statement), "$"))...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, detail)
	}
	return strings.Join(plan, "\n")
}

func parametersOnce(statement string) string {
	once := map[string]bool{}
	for _, p := range parameter.FindAllString(statement, -1) {
		once[p] = true
	}
	return strings.Repeat("$", len(once))
}

// migrated returns the path of a new database with all tables.
func migrated(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "svc.db")
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// raw opens a database as a stranger would.
func raw(t *testing.T, path string, parameters ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?"+strings.Join(parameters, "&"))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// recorded opens a store whose statements are seen.
func recorded(t *testing.T, seen *recorder) svc.Store {
	const settings = "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)"
	db := sql.OpenDB(connector{"file:" + migrated(t) + settings, seen})
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return sqlstore.New(db, db, sqlite.Dialect())
}

// recorder collects the texts of statements.
type recorder struct {
	mu         sync.Mutex
	statements map[string]bool
}

type connector struct {
	dsn  string
	seen *recorder
}

func (c connector) Driver() driver.Driver { return &moderncsqlite.Driver{} }

func (c connector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.Driver().Open(c.dsn)
	return recordingConn{conn, c.seen}, err
}

type recordingConn struct {
	driver.Conn
	seen *recorder
}

func (c recordingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.seen.mu.Lock()
	c.seen.statements[query] = true
	c.seen.mu.Unlock()
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c recordingConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
}
