package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlstore"
)

// connector makes connections that send statements together where sqlstore allows it.
type connector struct {
	driver.Connector
	hosts bool // they belong to a pool of the host
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{stdConn: made.(*stdlib.Conn), hosts: c.hosts}, nil
}

// Close implements [io.Closer], for [sql.DB].
func (c connector) Close() error {
	if d, ok := c.Connector.(io.Closer); ok {
		return d.Close()
	}
	return nil
}

// conn is a connection of the driver. BEGIN of a transaction of the Store, and each
// [sqlstore.Later], wait for the next statement or for COMMIT. One trip then carries all of them.
//
// Its statements go to the driver as text. The driver prepares each text once, or never for a
// pooler: a prepared statement would be missing on the pooler's next connection.
type conn struct {
	*stdConn
	hosts   bool   // Close gives it back to the host's pool
	lazy    bool   // in a transaction of the Store
	waiting []wait // statements to send with the next one
}

// mostWaiting is how many statements wait for the next one. All have the time of one.
const mostWaiting = 64

// stdConn keeps its method Conn, which a field of that name would hide.
type stdConn = stdlib.Conn

type wait struct {
	query string
	args  []any
	check func(rows int64) error    // may be nil
	read  func(sqlstore.Rows) error // nil: the statement is no query
}

// IsValid implements [driver.Validator]. With it, database/sql keeps the connection of a transaction
// whose context has ended.
func (c *conn) IsValid() bool { return !c.Conn().IsClosed() }

func (c *conn) Prepare(query string) (driver.Stmt, error) { return statement{c, query}, nil }

func (c *conn) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return c.Prepare(query)
}

func (c *conn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	later := sqlstore.LaterOf(ctx)
	if later == nil {
		tx, err := c.stdConn.BeginTx(ctx, options)
		if err != nil {
			return nil, err
		}
		return hostTransaction{tx, c, ctx}, nil
	}
	if c.Conn().IsClosed() {
		return nil, driver.ErrBadConn
	}
	later.Taken = true
	begin := "BEGIN ISOLATION LEVEL " + sql.IsolationLevel(options.Isolation).String()
	if options.ReadOnly {
		begin += " READ ONLY"
	}
	c.lazy, c.waiting = true, append(c.waiting[:0], wait{query: begin})
	return &transaction{c, ctx, later.Caller}, nil
}

func (c *conn) ExecContext(
	ctx context.Context, query string, named []driver.NamedValue,
) (driver.Result, error) {
	result, err := c.exec(ctx, query, named)
	return result, c.judge(err)
}

func (c *conn) exec(
	ctx context.Context, query string, named []driver.NamedValue,
) (driver.Result, error) {
	later := sqlstore.LaterOf(ctx)
	switch {
	case c.lazy && later != nil && query != "" &&
		(len(c.waiting) < mostWaiting || later.Rows != nil):
		later.Taken = true
		c.waiting = append(c.waiting, wait{query, values(named), later.Check, later.Rows})
		return driver.RowsAffected(0), nil
	case c.lost():
		return nil, errLost
	case query == "":
		return driver.RowsAffected(0), c.answer(ctx)
	case len(c.waiting) == 0:
		return c.stdConn.ExecContext(ctx, query, named)
	}
	answers, err := c.send(ctx, wait{query: query, args: values(named)})
	if err != nil {
		return nil, err
	}
	tag, err := answers.Exec()
	closed := answers.Close()
	return driver.RowsAffected(tag.RowsAffected()), cmp.Or(err, closed)
}

// answer sends the statements that wait, if one of them is a query.
func (c *conn) answer(ctx context.Context) error {
	if !slices.ContainsFunc(c.waiting, func(w wait) bool { return w.read != nil }) {
		return nil
	}
	answers, err := c.send(ctx)
	if err != nil {
		return err
	}
	return answers.Close()
}

func (c *conn) QueryContext(
	ctx context.Context, query string, named []driver.NamedValue,
) (driver.Rows, error) {
	answer, err := c.query(ctx, query, named)
	return answer, c.judge(err)
}

func (c *conn) query(
	ctx context.Context, query string, named []driver.NamedValue,
) (driver.Rows, error) {
	switch {
	case c.lost():
		return nil, errLost
	case len(c.waiting) == 0:
		return c.stdConn.QueryContext(ctx, query, named)
	}
	answers, err := c.send(ctx, wait{query: query, args: values(named)})
	if err != nil {
		return nil, err
	}
	found, err := answers.Query()
	if err != nil {
		_ = answers.Close() // it repeats the error
		return nil, err
	}
	r := &rows{found: found, answers: answers, more: found.Next()} // now the columns are known
	if err := found.Err(); err != nil {
		_ = r.Close() // the same
		return nil, err
	}
	return r, nil
}

// judge closes a connection to a server that cannot write: connecting again finds the new primary.
func (c *conn) judge(err error) error {
	fault, ok := errors.AsType[*pgconn.PgError](err)
	if ok && !keepConnection(nil, fault) {
		c.drop()
	}
	return err
}

// drop closes the connection to the server. A pool of the host then makes another one.
func (c *conn) drop() {
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	_ = c.Conn().Close(ctx) // it may be gone already
}

// errLost is the error of a statement that would not be part of its transaction.
var errLost = fmt.Errorf("%w: the transaction could not begin", svc.ErrUnavailable)

// lost reports whether BEGIN was sent and failed.
func (c *conn) lost() bool { return c.lazy && len(c.waiting) == 0 && !c.begun() }

// begun reports whether the server knows of a transaction.
func (c *conn) begun() bool { return c.Conn().PgConn().TxStatus() != 'I' }

// send sends the statements that wait, and more behind them. It returns the answers to more.
func (c *conn) send(ctx context.Context, more ...wait) (pgx.BatchResults, error) {
	var batch pgx.Batch
	waiting := c.waiting
	c.waiting = nil
	for _, w := range slices.Concat(waiting, more) {
		batch.Queue(w.query, w.args...)
	}
	answers := c.Conn().SendBatch(ctx, &batch)
	for _, w := range waiting {
		if err := w.answered(answers); err != nil {
			_ = answers.Close() // it repeats the error
			return nil, err
		}
	}
	return answers, nil
}

// answered takes the next answer, which is that of w.
func (w wait) answered(answers pgx.BatchResults) error {
	if w.read != nil {
		found, err := answers.Query()
		if err != nil {
			return err
		}
		return w.read(rowsOf{found})
	}
	tag, err := answers.Exec()
	if err == nil && w.check != nil {
		err = w.check(tag.RowsAffected())
	}
	return err
}

func values(named []driver.NamedValue) []any {
	args := make([]any, len(named))
	for i, v := range named {
		args[i] = v.Value
	}
	return args
}

// transaction is a transaction that begins with its first statement. It ends with ctx.
type transaction struct {
	*conn
	ctx, caller context.Context
}

// Commit sends COMMIT with the statements that wait. Those with a check come in a trip before.
func (t *transaction) Commit() error {
	defer t.end()
	switch {
	case t.lost():
		return errLost
	case !t.begun() && len(t.waiting) == 1:
		return nil // nothing but BEGIN waits
	}
	canceled := t.cancelable()
	err := t.commit()
	if canceled() {
		defer t.drop() // the server may cancel the next statement instead
		if err == nil && !t.replicated() {
			return errNotReplicated
		}
	}
	return t.judge(err)
}

func (t *transaction) commit() error {
	if slices.ContainsFunc(t.waiting, func(w wait) bool { return w.check != nil }) {
		answers, err := t.send(t.ctx)
		if err != nil {
			return err
		}
		if err := answers.Close(); err != nil {
			return err
		}
	}
	answers, err := t.send(t.ctx, wait{query: "COMMIT"})
	if err != nil {
		return err
	}
	tag, err := answers.Exec()
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	closed := answers.Close()
	return cmp.Or(err, closed)
}

const (
	cancelTimeout = 5 * time.Second // limits a request to cancel
	dropTimeout   = time.Second     // limits the good-bye to a server
)

// cancelable asks the server to cancel the commit a moment after the caller has left, or when the
// wait is over. It may still wait for a lock: a server that then got the lock would commit unseen.
// canceled ends that and reports whether it has asked.
func (t *transaction) cancelable() (canceled func() bool) {
	server := t.Conn().PgConn()
	var mu sync.Mutex
	over, asked := false, false
	cancel := func() {
		mu.Lock()
		ask := !over
		asked = asked || ask
		mu.Unlock()
		if ask {
			ctx, end := context.WithTimeout(context.Background(), cancelTimeout)
			defer end()
			_ = server.CancelRequest(ctx) // the outcome shows whether it helped
		}
	}
	left := context.AfterFunc(t.caller, func() { time.AfterFunc(cancelDelay, cancel) })
	late := context.AfterFunc(t.ctx, cancel)
	return func() bool {
		left()
		late()
		mu.Lock()
		defer mu.Unlock()
		over = true
		return asked
	}
}

// errNotReplicated is the error of a canceled commit that did not wait for its standby.
var errNotReplicated = fmt.Errorf("%w: a standby may lack the commit", svc.ErrUnavailable)

// warning is the key under which a connection notes a warning of the server.
const warning = "svc warning"

// note remembers a warning. The server warns of a commit that no longer waits for a standby.
func note(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.Severity == "WARNING" || notice.SeverityUnlocalized == "WARNING" {
		conn.CustomData()[warning] = true
	}
}

// replicated reports whether no standby can lack a canceled commit. The server warns when one can.
// A host's connection does not note that, so no standby must count there.
func (t *transaction) replicated() bool {
	server := t.Conn().PgConn()
	if !t.hosts {
		return server.CustomData()[warning] == nil
	}
	shown, err := server.Exec(t.ctx, "SHOW synchronous_standby_names").ReadAll()
	return err == nil && len(shown[0].Rows) == 1 && len(shown[0].Rows[0][0]) == 0
}

// Rollback implements [driver.Tx].
func (t *transaction) Rollback() error {
	t.end()
	return nil
}

// end rolls back what is left of the transaction.
func (t *transaction) end() {
	t.lazy, t.waiting = false, nil
	t.rollback(t.ctx)
}

// rollback rolls back what the server knows of a transaction, also when its context has ended. When it
// cannot, it closes the connection, and the server rolls back.
func (c *conn) rollback(ctx context.Context) {
	if !c.begun() || c.Conn().IsClosed() {
		return
	}
	if ctx.Err() != nil && !isSilence(ctx) {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
		defer cancel()
		ctx = own
	}
	if _, err := c.Conn().Exec(ctx, "ROLLBACK"); err != nil {
		c.drop() // the error that ended the transaction says more
	}
}

// hostTransaction is a transaction of the host. It can roll back after the end of its context.
type hostTransaction struct {
	driver.Tx
	conn *conn
	ctx  context.Context
}

// Rollback implements [driver.Tx].
func (t hostTransaction) Rollback() error {
	t.conn.rollback(t.ctx)
	return nil
}

// rows are the answer to a query that was sent with other statements.
type rows struct {
	found   pgx.Rows
	answers pgx.BatchResults
	more    bool // there is a row that was not returned yet
}

// Columns implements [driver.Rows].
func (r *rows) Columns() []string {
	fields := r.found.FieldDescriptions()
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

// Next implements [driver.Rows]. The Store reads only columns of integers, texts and bytes.
func (r *rows) Next(dest []driver.Value) error {
	if !r.more {
		return cmp.Or(r.found.Err(), io.EOF)
	}
	row, err := r.found.Values()
	if err != nil {
		return err
	}
	for i, value := range row {
		dest[i] = value
	}
	r.more = r.found.Next()
	return nil
}

// Close implements [driver.Rows].
func (r *rows) Close() error {
	r.found.Close()
	return r.answers.Close()
}

// statement is a query that goes to the driver as text each time.
type statement struct {
	conn  *conn
	query string
}

func (s statement) Close() error { return nil }

func (s statement) NumInput() int { return -1 } // unknown

func (s statement) ExecContext(
	ctx context.Context, args []driver.NamedValue,
) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.query, args)
}

func (s statement) QueryContext(
	ctx context.Context, args []driver.NamedValue,
) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.query, args)
}

var errNoContext = errors.New("not supported: call the method with a context")

func (s statement) Exec([]driver.Value) (driver.Result, error) { return nil, errNoContext }

func (s statement) Query([]driver.Value) (driver.Rows, error) { return nil, errNoContext }
