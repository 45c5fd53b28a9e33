package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

// session runs statements: on a database, in one of its transactions, or in a transaction of the
// host.
type session struct {
	host Transaction          // a transaction of the host; nil: the session has a pool
	pool *pool                // nil: a transaction of the host, which prepares no statements
	tx   *sql.Tx              // of the pool; nil: each statement is its own transaction
	own  map[string]*sql.Stmt // the prepared statements of tx; nil without a tx
	lazy bool                 // the driver of tx sends statements together

	access  *string     // the statement that has locked access in tx, to change it; "": none
	changed *[]mutation // collects mutations for the end of Atomically; nil: records them now

	caller  context.Context // no statement begins after its end; nil: each has its own context
	hearing *callTimer      // limits the waits of all statements of tx; nil: each has its own limit
	silence *answerLimit    // limits the wait of each statement; nil: no limit
	schema  schema
}

// within returns a session in a transaction of the pool; h limits the waits of its statements. One
// goroutine at a time may use the session.
func (p *pool) within(tx *sql.Tx, h *callTimer) session {
	return session{
		pool: p, tx: tx, own: map[string]*sql.Stmt{}, access: new(string), hearing: h,
		schema: p.schema,
	}
}

// reading returns a session whose statements are their own transactions.
func (p *pool) reading() session {
	return session{pool: p, silence: p.silence, schema: p.schema}
}

// texts runs statements that are not prepared.
type texts interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (s session) texts() texts {
	if s.tx != nil {
		return s.tx
	}
	return s.pool.db
}

// await runs a statement with a context that ends when the database stays silent for too long. A
// statement that is its own transaction takes a turn first, where several Stores share them.
func (s session) await(
	ctx context.Context, writes bool, run func(ctx context.Context, h *callTimer) error,
) error {
	refuseNil(ctx)
	if s.caller != nil && s.caller.Err() != nil {
		return s.caller.Err()
	}
	if s.hearing != nil && !hasTime(ctx) {
		s.hearing.resume()
		return s.hearing.pause(run(ctx, s.hearing))
	}
	if s.pool != nil && s.pool.shared && s.tx == nil {
		done, err := s.pool.queueUp(ctx, writes)
		if err != nil {
			return err
		}
		defer done()
	}
	ctx, h, err := s.silence.hear(ctx)
	if err != nil {
		return err
	}
	defer h.end()
	return h.pause(run(ctx, h))
}

// refuseNil panics for a nil ctx: database/sql would panic with its lock held.
func refuseNil(ctx context.Context) { _ = ctx.Err() }

// work is the body of a transaction. Its context need not be the context of the caller.
type work func(ctx context.Context, tx session) error

// run runs a statement and returns how many rows it wrote.
func (s session) run(ctx context.Context, query string, args []any) (n int64, err error) {
	query = s.schema.qualify(query)
	if s.host != nil {
		return s.host.Exec(ctx, query, args...)
	}
	var result sql.Result
	if s.schema != "" {
		result, err = s.texts().ExecContext(ctx, query, args...)
	} else {
		var stmt *sql.Stmt
		if stmt, err = s.statement(ctx, query); err != nil {
			return 0, err
		}
		result, err = stmt.ExecContext(ctx, args...)
	}
	if later := LaterOf(ctx); err == nil && later != nil && later.Taken {
		return 0, errTaken // the database has answered nothing yet
	}
	return written(result, err)
}

func written(result sql.Result, err error) (rows int64, _ error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// query runs a query.
func (s session) query(ctx context.Context, query string, args []any) (Rows, error) {
	query = s.schema.qualify(query)
	switch {
	case s.host != nil:
		return s.host.Query(ctx, query, args...)
	case s.schema != "":
		return s.texts().QueryContext(ctx, query, args...)
	}
	stmt, err := s.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

// statement returns a prepared query of the pool.
func (s session) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if s.tx == nil {
		return s.pool.prepare(ctx, query)
	}
	if stmt := s.own[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := s.prepare(ctx, query)
	if err == nil {
		s.own[query] = stmt
	}
	return stmt, err
}

// prepare prepares a query for the transaction, which keeps it to its end. Preparing it again for
// each row of a large mutation would cost one statement of memory per row.
func (s session) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt := s.pool.statement(query); stmt != nil {
		return s.tx.StmtContext(ctx, stmt), nil
	}
	s.pool.want(query)
	return s.tx.PrepareContext(ctx, query)
}

// exec runs a statement and returns how many rows it wrote.
func (s session) exec(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = s.await(ctx, true, func(ctx context.Context, _ *callTimer) error {
		n, err = s.run(ctx, query, args)
		return err
	})
	return n, err
}

// errTaken is the outcome of a statement that the driver runs later.
var errTaken = errors.New("runs later")

// later runs a statement, or lets the driver run it together with the next one. check, unless nil,
// looks at the number of rows that it wrote. A statement with a long text runs now: several together
// would take longer than a call waits.
func (s session) later(
	ctx context.Context, check func(rows int64) error, query string, args ...any,
) error {
	if !slices.ContainsFunc(args, isLong) {
		ctx = maybeLater(ctx, &Later{Check: check})
	}
	n, err := s.exec(ctx, query, args...)
	if errors.Is(err, errTaken) {
		return nil
	}
	if err == nil && check != nil {
		err = check(n)
	}
	return err
}

// isLong reports whether an argument is a text of many rows.
func isLong(arg any) bool {
	text, is := arg.(string)
	return is && len(text) >= batchSize
}

// create runs an INSERT that does nothing when the row's key is taken. Then it returns ErrExists.
func (s session) create(ctx context.Context, query string, args ...any) error {
	n, err := s.exec(ctx, query, args...)
	if err == nil && n == 0 {
		return svc.ErrExists
	}
	return err
}

// hit runs a statement that must write a row. When it writes none, hit returns ErrNotFound.
func (s session) hit(ctx context.Context, query string, args ...any) error {
	n, err := s.exec(ctx, query, args...)
	return cmp.Or(err, found(n))
}

// found returns ErrNotFound when a statement wrote no row.
func found(rows int64) error {
	if rows == 0 {
		return svc.ErrNotFound
	}
	return nil
}

// parameters are those of a statement in the making, in the order in which its text names them.
type parameters []any

// add adds a parameter and returns its name.
func (p *parameters) add(value any) string {
	*p = append(*p, value)
	return "$" + strconv.Itoa(len(*p))
}

// listing is a query for one chunk of a list.
type listing struct {
	query string // up to the conditions
	and   string // what comes before the next condition
	parameters
}

func list(from string) *listing { return &listing{query: from, and: " WHERE "} }

func (l *listing) where(condition string) {
	l.query += l.and + condition
	l.and = " AND "
}

// equal narrows the list to rows with a value, unless that is "".
func (l *listing) equal(column, value string) {
	if value != "" {
		l.where(column + " = " + l.add(value))
	}
}

// after narrows the list to rows behind a key. columns are those of the key, or of its end when
// the filters of the list fix its begin.
func (l *listing) after(columns string, key ...string) {
	names := make([]string, len(key))
	for i, value := range key {
		names[i] = l.add(value)
	}
	l.where("(" + columns + ") > (" + strings.Join(names, ", ") + ")")
}

func (l *listing) skip(rows int) {
	if rows > 0 {
		l.query += ` OFFSET (` + l.add(rows) + ` + 0)`
	}
}

type scanner interface{ Scan(dest ...any) error }

// orZero scans a column that is null where a join found nothing. Null becomes the zero value.
type orZero[T any] struct{ to *T }

// Scan implements [sql.Scanner].
func (o orZero[T]) Scan(value any) error {
	var column sql.Null[T]
	err := column.Scan(value)
	*o.to = column.V
	return err
}

// micro scans a time, which is stored as microseconds since 1970. Null becomes the zero time.
type micro struct{ to *time.Time }

// Scan implements [sql.Scanner].
func (m micro) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		*m.to = time.Time{}
	case int64:
		*m.to = time.UnixMicro(value).UTC()
	default:
		return fmt.Errorf("a stored time is a %T: it must be a whole number", value)
	}
	return nil
}

// orNil returns the row that a join found. An empty id means that it found none: the result is nil.
func orNil[R any](id string, row R) *R {
	if id == "" {
		return nil
	}
	return &row
}

// scanValue reads a row of one column.
func scanValue[T any](row scanner) (value T, err error) {
	err = row.Scan(&value)
	return value, err
}

// one reads a single row with scan. No row: ErrNotFound.
func one[R any](
	ctx context.Context, s session, scan func(scanner) (R, error), query string, args ...any,
) (R, error) {
	var row R
	found := false
	err := each(ctx, s, func(r scanner) (enough bool, err error) {
		found = true
		row, err = scan(r)
		return false, err
	}, query, args...)
	if err == nil && !found {
		err = svc.ErrNotFound
	}
	return row, err
}

// oneOrNil reads a single row with scan. No row: nil.
func oneOrNil[R any](
	ctx context.Context, s session, scan func(scanner) (R, error), query string, args ...any,
) (*R, error) {
	row, err := one(ctx, s, scan, query, args...)
	if errors.Is(err, svc.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return &row, nil
}

// each reads rows with scan to the last, or until scan returns enough.
func each(
	ctx context.Context, s session,
	scan func(scanner) (enough bool, err error), query string, args ...any,
) error {
	return s.await(ctx, false, func(ctx context.Context, h *callTimer) error {
		rows, err := s.query(ctx, query, args)
		if err != nil {
			return err
		}
		return scanAll(rows, h, scan)
	})
}

func scanAll(rows Rows, h *callTimer, scan func(scanner) (enough bool, err error)) error {
	defer rows.Close()
	for rows.Next() {
		_ = h.pause(nil) // scan may call the caller's function
		if enough, err := scan(rows); err != nil || enough {
			return err
		}
		h.resume() // a row is an answer
	}
	return rows.Err()
}

// eachLater is each for an answer that nobody needs before answers, or before the transaction ends.
func (s session) eachLater(
	ctx context.Context, scan func(scanner) (enough bool, err error), query string, args ...any,
) error {
	if !s.lazy {
		return each(ctx, s, scan, query, args...)
	}
	h := s.hearing
	if hasTime(ctx) {
		h = nil
	}
	return s.await(ctx, false, func(ctx context.Context, _ *callTimer) error {
		read := func(rows Rows) error {
			h.resume()
			return scanAll(rows, h, scan)
		}
		_, err := s.run(maybeLater(ctx, &Later{Rows: read}), query, args)
		if errors.Is(err, errTaken) {
			return nil
		}
		return err
	})
}

// answers returns when the queries of eachLater have their answers.
func (s session) answers(ctx context.Context) error {
	if !s.lazy {
		return nil
	}
	_, err := s.exec(maybeLater(ctx, &Later{}), "")
	return err
}

// all reads all rows with scan. The list is never nil.
func all[R any](
	ctx context.Context, s session, scan func(scanner) (R, error), query string, args ...any,
) ([]R, error) {
	list := []R{}
	err := each(ctx, s, func(row scanner) (bool, error) {
		r, err := scan(row)
		list = append(list, r)
		return false, err
	}, query, args...)
	return list, err
}
