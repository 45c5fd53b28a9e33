package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"

	"github.com/extsvc/svc"
)

// pool is a database and the statements prepared on it, each once.
type pool struct {
	db *sql.DB

	mu       sync.Mutex
	prepared map[string]*sql.Stmt
	wanted   []string // were run in a transaction before they were prepared
}

func newPool(db *sql.DB) *pool { return &pool{db: db, prepared: map[string]*sql.Stmt{}} }

// statement returns a prepared query, or nil when it is not prepared yet.
func (p *pool) statement(query string) *sql.Stmt {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.prepared[query]
}

// prepare returns a prepared query. It takes a connection, so nobody who holds one may call it: it may be the only one.
func (p *pool) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt := p.statement(query); stmt != nil {
		return stmt, nil
	}
	stmt, err := p.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if earlier := p.prepared[query]; earlier != nil {
		return earlier, stmt.Close()
	}
	p.prepared[query] = stmt
	return stmt, nil
}

func (p *pool) want(query string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.wanted, query) {
		p.wanted = append(p.wanted, query)
	}
}

// prepareWanted prepares what earlier transactions had to do without.
func (p *pool) prepareWanted(ctx context.Context) error {
	p.mu.Lock()
	wanted := p.wanted
	p.wanted = nil
	p.mu.Unlock()
	for _, query := range wanted {
		if _, err := p.prepare(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

// transact runs fn in a transaction, which is rolled back when fn fails or panics.
func (p *pool) transact(ctx context.Context, options *sql.TxOptions, fn func(tx session) error) error {
	if err := p.prepareWanted(ctx); err != nil {
		return err
	}
	tx, err := p.db.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit; what it returns would only hide the cause
	if err := fn(session{pool: p, tx: tx}); err != nil {
		return err
	}
	return tx.Commit()
}

// session runs statements, on a database or in one of its transactions.
type session struct {
	pool *pool
	tx   *sql.Tx // nil: each statement is its own
}

func (s session) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if s.tx == nil {
		return s.pool.prepare(ctx, query)
	}
	if stmt := s.pool.statement(query); stmt != nil {
		return s.tx.StmtContext(ctx, stmt), nil
	}
	s.pool.want(query)
	return s.tx.PrepareContext(ctx, query)
}

// exec runs a statement and returns how many rows it wrote.
func (s session) exec(ctx context.Context, query string, args ...any) (int64, error) {
	stmt, err := s.statement(ctx, query)
	if err != nil {
		return 0, err
	}
	result, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// create runs an INSERT that does nothing when the row's key is taken, which is ErrExists.
func (s session) create(ctx context.Context, query string, args ...any) error {
	n, err := s.exec(ctx, query, args...)
	if err == nil && n == 0 {
		return svc.ErrExists
	}
	return err
}

// hit runs a statement that has to write a row: ErrNotFound when it does not.
func (s session) hit(ctx context.Context, query string, args ...any) error {
	n, err := s.exec(ctx, query, args...)
	if err == nil && n == 0 {
		return svc.ErrNotFound
	}
	return err
}

// touch runs a statement on a row that a migration made.
func (s session) touch(ctx context.Context, query string) error {
	n, err := s.exec(ctx, query)
	if err == nil && n == 0 {
		return errors.New("a row that the migrations made is gone: " + query)
	}
	return err
}

// scanner is a row that can be read.
type scanner interface{ Scan(dest ...any) error }

// one reads a single row with scan. ErrNotFound when there is none.
func one[R any](ctx context.Context, s session, scan func(scanner) (R, error), query string, args ...any) (R, error) {
	var zero R
	stmt, err := s.statement(ctx, query)
	if err != nil {
		return zero, err
	}
	row, err := scan(stmt.QueryRowContext(ctx, args...))
	if errors.Is(err, sql.ErrNoRows) {
		return zero, svc.ErrNotFound
	}
	return row, err
}

// oneOrNil reads a single row with scan, or nil when there is none.
func oneOrNil[R any](ctx context.Context, s session, scan func(scanner) (R, error), query string, args ...any) (*R, error) {
	row, err := one(ctx, s, scan, query, args...)
	if errors.Is(err, svc.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return &row, nil
}

// each reads rows with scan, until there are no more or it says that it is enough.
func each(ctx context.Context, s session, scan func(scanner) (enough bool, err error), query string, args ...any) error {
	stmt, err := s.statement(ctx, query)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if enough, err := scan(rows); err != nil || enough {
			return err
		}
	}
	return rows.Err()
}

// all reads all rows with scan.
func all[R any](ctx context.Context, s session, scan func(scanner) (R, error), query string, args ...any) ([]R, error) {
	var list []R
	err := each(ctx, s, func(row scanner) (bool, error) {
		r, err := scan(row)
		list = append(list, r)
		return false, err
	}, query, args...)
	return list, err
}
