package bench_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/extsvc/svc/internal/sqltest"
)

// step is something that the Service asked the database to do. With prepared statements each step
// is one round trip.
type step struct {
	verb    string // begin, commit, rollback, exec or query
	text    string // of the statement
	args    []any
	options sql.TxOptions
	writes  bool  // on the pool of writes
	tx      int64 // the number of its transaction; 0: none

	played *played // the statement on the bare driver
}

// recorder records the steps of one call at a time.
type recorder struct {
	mu    sync.Mutex
	steps []step
}

func (r *recorder) note(s step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, s)
}

func (r *recorder) of(call func() error) ([]step, error) {
	r.mu.Lock()
	r.steps = nil
	r.mu.Unlock()
	err := call()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.steps, err
}

// record returns a connector whose connections record their steps; with a nil r, the connector.
func (r *recorder) record(c driver.Connector, writes bool) driver.Connector {
	if r == nil {
		return c
	}
	return sqltest.Tap{Connector: c, Seen: func(call sqltest.TapCall) error {
		if call.Verb == "prepare" || call.Verb == "committed" {
			return nil
		}
		one := step{verb: call.Verb, text: call.Query, writes: writes, tx: call.Tx,
			options: sql.TxOptions{Isolation: sql.IsolationLevel(call.Options.Isolation), ReadOnly: call.Options.ReadOnly}}
		for _, a := range call.Args {
			one.args = append(one.args, a.Value)
		}
		r.note(one)
		return nil
	}}
}

// player runs recorded steps on the bare driver: the floor of a figure. It prepares each statement
// once and scans each row.
type player struct {
	write, read *sql.DB
	prepared    map[statement]*played
}

// statement is prepared on one of the pools.
type statement struct {
	text   string
	writes bool
}

type played struct {
	*sql.Stmt
	columns []any // pointers to scan into; nil: no row was scanned
}

// scan copies a row: texts as bytes, as for the Service. The first row shows which columns have
// texts.
func (p *played) scan(rows *sql.Rows) error {
	if p.columns != nil {
		return rows.Scan(p.columns...)
	}
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	for range names {
		p.columns = append(p.columns, new(any))
	}
	err = rows.Scan(p.columns...)
	for i, c := range p.columns {
		switch (*c.(*any)).(type) {
		case string, []byte:
			p.columns[i] = new([]byte)
		case int64:
			p.columns[i] = new(sql.NullInt64)
		}
	}
	return err
}

func newPlayer(w *world) *player {
	return &player{write: w.write, read: w.read, prepared: map[statement]*played{}}
}

func (p *player) close() error {
	var err error
	for _, one := range p.prepared {
		err = errors.Join(err, one.Close())
	}
	return err
}

func (p *player) pool(s step) *sql.DB {
	if s.writes {
		return p.write
	}
	return p.read
}

// prepare prepares the statements of the steps. A transaction may hold the only connection, so
// that comes before.
func (p *player) prepare(ctx context.Context, steps []step) error {
	for i, s := range steps {
		if s.text == "" {
			continue
		}
		key := statement{s.text, s.writes}
		if p.prepared[key] == nil {
			stmt, err := p.pool(s).PrepareContext(ctx, s.text)
			if err != nil {
				return err
			}
			p.prepared[key] = &played{Stmt: stmt}
		}
		steps[i].played = p.prepared[key]
	}
	return nil
}

// play runs prepared steps. Those of a transaction that began before them are left out: it was of
// the Service's background.
func (p *player) play(ctx context.Context, steps []step) error {
	open := map[int64]*sql.Tx{}
	defer func() {
		for _, tx := range open {
			_ = tx.Rollback()
		}
	}()
	for _, s := range steps {
		tx := open[s.tx]
		if s.tx != 0 && tx == nil && s.verb != "begin" {
			continue
		}
		var err error
		switch s.verb {
		case "begin":
			if tx, err = p.pool(s).BeginTx(ctx, &s.options); err == nil {
				open[s.tx] = tx
			}
		case "commit":
			err = tx.Commit()
			delete(open, s.tx)
		case "rollback":
			err = tx.Rollback()
			delete(open, s.tx)
		default:
			err = s.run(ctx, tx)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", s.verb, s.text, err)
		}
	}
	return nil
}

func (s step) run(ctx context.Context, tx *sql.Tx) error {
	one := s.played
	stmt := one.Stmt
	if tx != nil {
		stmt = tx.StmtContext(ctx, stmt)
	}
	if s.verb == "exec" {
		return failure(stmt.ExecContext(ctx, s.args...))
	}
	rows, err := stmt.QueryContext(ctx, s.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := one.scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
