package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Opened is a [Store], or a type that embeds one: what [New] returns, and Open of the packages
// sqlite and postgres.
type Opened interface{ opened() *Store }

func (s *Store) opened() *Store { return s }

// Copy copies all rows of one database into another, of the same kind or not. It is a [Copier]
// without Progress.
func Copy(ctx context.Context, from, to Opened) error { return Copier{}.Copy(ctx, from, to) }

// Copier copies a database. Its zero value is ready to use.
type Copier struct {
	// Progress, unless nil, gets the number of rows copied so far and of all rows: once at the
	// start, and then at most once for each row. The goroutine of Copy calls it. When done is
	// total, the rows are not committed yet.
	Progress func(done, total int64)
}

// Copy copies all rows of from into to. Rows stay as they are: ids, hashes, seals, sealed tokens,
// the generation, the records of events with their chain. So the peppers and sealing keys of one
// database serve the other as well. [Dialect.Channel] is not copied, and neither is what
// [svc.ChangeStore] remembers. Events that wait in the outbox go to the outbox of the target, which
// that of a tenant may share with others.
//
// Copy reads one state of from, and others may go on writing to it. A SQLite file keeps their
// writes in its write-ahead log until the end. Copy writes to in one transaction: when it fails,
// when ctx ends or the process is killed, to is as before. In memory it holds at most 256 rows, and
// of texts and bytes 1 MiB, or one larger row.
//
// Copy refuses a target that is the source, and one that was ever written to: it must have the
// tables as [Store.Migrate] makes them, and no rows. Both databases must have the version that this
// program knows, as after Migrate.
//
// No process should serve the target in the meantime. One that does sees all rows together after
// the commit; its writes wait, or fail as they do behind any long transaction.
//
// Of the options of a PostgreSQL database, Timeout limits each statement of Copy, and how long the
// source's transaction waits for the target. The longest statement counts the rows of a table.
func (c Copier) Copy(ctx context.Context, from, to Opened) error {
	run := &copying{
		from: from.opened(), to: to.opened(), progress: c.Progress,
		known: len(migrationTexts()), tables: tables(migrationTexts()),
	}
	run.tables = slices.DeleteFunc(run.tables, func(t *table) bool {
		return t.name == "svc_changefeed"
	})
	if run.progress == nil {
		run.progress = func(int64, int64) {}
	}
	if err := run.transact(withoutHurry(ctx)); err != nil {
		// The transaction of one database may end a moment before the context of the other.
		if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %w", ended, err)
		}
		return fmt.Errorf("copy the database: %w", err)
	}
	run.to.committed()
	return nil
}

// copying is one call of [Copier.Copy].
type copying struct {
	from, to    *Store
	known       int // the version of the tables
	tables      []*table
	progress    func(done, total int64)
	done, total int64 // rows
}

var (
	errSame = errors.New(
		"the source and the target are the same database: name another target")
	errOneConnection = errors.New(
		"the source and the target share one connection: give their pool another one")
)

// transact runs the copy in a transaction of each database. It uses its own pools: they prepare
// statements for this transaction only, and do not wait for those of the Store.
func (c *copying) transact(ctx context.Context) error {
	source, ok := c.from.db.(*pools)
	target, both := c.to.db.(*pools)
	switch {
	case !ok || !both:
		return errInTx
	case source.write.db != target.write.db:
	case source.write.schema == target.write.schema:
		return errSame
	case target.write.most() < 2:
		return errOneConnection
	}
	var failed error
	reached := false // the target; failed says how its part ended
	read, write := source.read.unlimited(), target.write.unlimited()
	err := read.transact(ctx, oneState, func(_ context.Context, in session) error {
		// In the caller's context: the other ends a moment later, and the target could commit.
		err := write.transact(ctx, readCommitted, func(ctx context.Context, out session) error {
			failed = c.copy(ctx, in, out)
			return failed
		})
		reached = true
		if failed == nil {
			failed = c.to.fault(ctx, "write the target", err)
		}
		return failed
	})
	if reached {
		return failed // the end of the source's transaction does not matter
	}
	return c.from.fault(ctx, "read the source", err)
}

func (c *copying) copy(ctx context.Context, in, out session) error {
	if err := c.check(ctx, in, out); err != nil {
		return err
	}
	if err := c.count(ctx, in); err != nil {
		return err
	}
	c.progress(0, c.total)
	for _, t := range c.tables {
		if err := c.copyTable(ctx, in, out, t); err != nil {
			return err
		}
	}
	if t := c.to.dialect.Tenant; t != nil {
		_, err := out.exec(ctx, t.move("svc_generation"))
		return c.to.fault(ctx, "say what has moved", err)
	}
	return nil
}

// check refuses databases that cannot be copied. From then on, writers of the target wait for the
// end of the transaction.
func (c *copying) check(ctx context.Context, in, out session) error {
	source, err := c.identify(ctx, "source", c.from, in)
	if err != nil {
		return err
	}
	target, err := c.identify(ctx, "target", c.to, out)
	if err != nil {
		return err
	}
	if source != "" && source == target {
		return errSame
	}
	return c.checkEmpty(ctx, out)
}

// identify checks the version of a database, and returns its identity; "": that is not known.
func (c *copying) identify(
	ctx context.Context, name string, s *Store, db session,
) (identity string, err error) {
	version, err := one(ctx, db, scanValue[int], selectVersion)
	switch {
	case err != nil:
		return "", s.fault(ctx, "read the version of the "+name, err)
	case version != c.known:
		return "", fmt.Errorf("the tables of the %s have version %d, but this program knows %d: "+
			"open it with this program first", name, version, c.known)
	case s.dialect.Identity == "":
		return "", nil
	}
	identity, err = one(ctx, db, scanValue[string], s.dialect.Identity)
	return identity, s.fault(ctx, "identify the database", err)
}

// checkEmpty refuses a target with rows. Tables that migrations insert rows into have these rows,
// and the generation says whether they have changed.
func (c *copying) checkEmpty(ctx context.Context, out session) error {
	locks := []string{
		`UPDATE svc_locks SET name = name`, `UPDATE svc_generation SET value = value`,
	}
	if !c.to.dialect.OneWriter { // an issue waits for neither row
		locks = append(locks, `LOCK TABLE svc_api_keys IN EXCLUSIVE MODE`)
	}
	for _, lock := range locks {
		if _, err := out.exec(ctx, lock); err != nil {
			return c.to.fault(ctx, "lock the target", err)
		}
	}
	for _, t := range c.tables {
		query := `SELECT COUNT(*) FROM (SELECT 1 AS one` + c.rows(t) + ` LIMIT 1) t`
		if t.seeded {
			query = selectGeneration
		}
		rows, err := one(ctx, out, scanValue[int64], query)
		if err != nil {
			return c.to.fault(ctx, "read table "+t.name+" of the target", err)
		}
		if rows > 0 {
			return fmt.Errorf("the target is not empty (table %s has rows): "+
				"name a new database", t.name)
		}
	}
	return nil
}

// count counts the rows to copy.
func (c *copying) count(ctx context.Context, in session) error {
	for _, t := range c.tables {
		rows, err := one(ctx, in, scanValue[int64], `SELECT COUNT(*)`+c.rows(t))
		if err != nil {
			return c.from.fault(ctx, "count the rows of table "+t.name, err)
		}
		c.total += rows
	}
	return nil
}
