package sqlstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
)

const (
	copiedAtOnce = 256     // rows that one statement reads, and most that are held in memory
	copiedBytes  = 1 << 20 // of texts and bytes; with so many, rows are written immediately
)

// copyTable copies the rows of a table in the order of its primary key. Each statement reads a part
// of the table, so that no limit on the time of a statement limits the size of a table.
func (c *copying) copyTable(ctx context.Context, in, out session, t *table) error {
	batch := &batch{copying: c, table: c.to.dialect.target(t), out: out}
	query := `SELECT ` + strings.Join(t.names(), ", ") + c.rows(t)
	order := fmt.Sprintf(` ORDER BY %s LIMIT %d`, strings.Join(t.key, ", "), copiedAtOnce)
	var last []any // the key of the row before
	for rows := copiedAtOnce; rows == copiedAtOnce; {
		part := query + order
		if last != nil {
			part = query + t.behind() + order
		}
		rows = 0
		err := each(ctx, in, func(row scanner) (bool, error) {
			cells, err := t.scan(row)
			if err != nil {
				return false, err
			}
			rows++
			last = t.keyOf(cells)
			return false, batch.add(ctx, cells)
		}, part, last...)
		if err != nil {
			return c.from.outcome(ctx, "read table "+t.name+" of the source", err)
		}
	}
	return c.from.outcome(ctx, "", batch.write(ctx))
}

// target returns the table for the rows of t. The events of a tenant go to the outbox of all.
func (d Dialect) target(t *table) *table {
	if d.Tenant == nil || t.name != outboxTable {
		return t
	}
	shared := *t
	shared.name, shared.of = d.outbox(), d.Tenant.Name
	return &shared
}

// rows returns the FROM and WHERE of the rows to copy, which can be extended with AND. The first
// lane of the target gets the whole generation: the databases may have other numbers of lanes.
func (c *copying) rows(t *table) string {
	if t.name == "svc_generation" {
		return ` FROM (SELECT 1 AS id, value FROM (` + selectGeneration + `) s) g WHERE 1 = 1`
	}
	condition := ` FROM ` + t.name + ` WHERE 1 = 1`
	for _, s := range []*Store{c.from, c.to} {
		if t.name == "svc_kept_values" && s.dialect.Channel != "" {
			condition += ` AND name <> '` + s.dialect.Channel + `'`
		}
	}
	return condition
}

// behind returns the condition of the rows behind the one whose key is the parameters.
func (t *table) behind() string {
	return ` AND (` + strings.Join(t.key, ", ") + `) > ` + values(1, len(t.key))
}

// scan reads a row.
func (t *table) scan(row scanner) ([]any, error) {
	cells, dest := make([]any, len(t.columns)), make([]any, len(t.columns))
	for i := range cells {
		dest[i] = &cells[i]
	}
	err := row.Scan(dest...)
	for i, c := range t.columns {
		cells[i] = c.value(cells[i])
	}
	return cells, err
}

// value returns a value of a driver with the type of the column. Empty bytes stay apart from null,
// for which a nil slice would be taken.
func (c column) value(v any) any {
	switch v := v.(type) {
	case []byte:
		if c.kind == "{text}" {
			return string(v)
		} else if v == nil {
			return []byte{}
		}
	case string:
		if c.kind == "{bytes}" {
			return []byte(v)
		}
	}
	return v
}

// batch collects rows of a table and writes several with one statement.
type batch struct {
	*copying
	table *table
	out   session
	rows  [][]any
	bytes int
}

// add adds a row, and writes the rows when there are enough.
func (b *batch) add(ctx context.Context, row []any) error {
	if b.table.of != "" {
		row[slices.Index(b.table.names(), "tenant")] = b.table.of
	}
	for i, c := range b.table.columns {
		if c.kind == serial { // behind it come the numbers of the target, which begin at 1
			row[i] = math.MinInt64 + b.done + int64(len(b.rows))
		}
	}
	b.rows = append(b.rows, row)
	for _, v := range row {
		switch v := v.(type) {
		case string:
			b.bytes += len(v)
		case []byte:
			b.bytes += len(v)
		}
	}
	if len(b.rows) < copiedAtOnce && b.bytes < copiedBytes {
		return nil
	}
	return b.write(ctx)
}

// write writes the rows. Its error is a refusal, because it is not one of the source.
func (b *batch) write(ctx context.Context) error {
	if len(b.rows) == 0 {
		return nil
	}
	for left := b.rows; len(left) > 0; {
		rows := b.to.dialect.rowsAtOnce(len(left))
		args := slices.Concat(left[:rows]...)
		if _, err := b.out.exec(ctx, b.table.insert(rows), args...); err != nil {
			return refusal{b.to.fault(ctx, "write table "+b.table.name+" of the target", err)}
		}
		left = left[rows:]
	}
	b.done += int64(len(b.rows))
	b.progress(b.done, b.total)
	b.rows, b.bytes = b.rows[:0], 0
	return nil
}

// insert returns the statement that inserts rows. A row that a migration has made is updated: other
// processes wait for it, and would miss a deleted one.
func (t *table) insert(rows int) string {
	names := t.names()
	statement := `INSERT INTO ` + t.name + ` (` + strings.Join(names, ", ") + `) VALUES ` +
		values(rows, len(names))
	switch {
	case t.of != "": // an earlier copy may have the same events
		return statement + ` ON CONFLICT DO NOTHING`
	case !t.seeded:
		return statement
	}
	var sets []string
	for _, name := range names {
		sets = append(sets, name+` = EXCLUDED.`+name)
	}
	return statement + ` ON CONFLICT (` + strings.Join(t.key, ", ") + `) DO UPDATE SET ` +
		strings.Join(sets, ", ")
}
