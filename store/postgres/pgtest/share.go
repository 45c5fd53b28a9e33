package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"time"
)

// mostConnections is how many connections the tests of a package have at most at a time.
const mostConnections = 48

// shareTaken, in the environment, says that this process or its parent has a share.
const shareTaken = "SVC_TEST_SHARE"

var share struct {
	once sync.Once
	err  error
}

// takeShare waits until a server has connections for the tests of one more package: with many
// processors, more run concurrently. The share ends with the process. The later calls do nothing.
func takeShare(server string) error {
	share.once.Do(func() {
		if os.Getenv(shareTaken) == "" {
			share.err = awaitShare(context.Background(), server)
		}
	})
	return share.err
}

func awaitShare(ctx context.Context, server string) error {
	db, err := sql.Open("pgx", server)
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	var shares int
	err = conn.QueryRowContext(ctx, `SELECT GREATEST(1, current_setting('max_connections')::INT / $1)`,
		mostConnections).Scan(&shares)
	for taken := false; err == nil && !taken; time.Sleep(10 * time.Millisecond) {
		for n := 0; n < shares && err == nil && !taken; n++ {
			err = conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock(hashtext('svc tests'), $1)`,
				n).Scan(&taken)
		}
	}
	if err == nil {
		err = errors.Join(tidy(ctx, conn), os.Setenv(shareTaken, "yes"))
	}
	return err
}

// tidy vacuums the catalogue when dead rows fill it. Each schema of a test leaves hundreds, and
// where autovacuum is off or slow, all statements take longer with every run.
func tidy(ctx context.Context, conn *sql.Conn) error {
	const many = 50_000
	var dead int
	err := conn.QueryRowContext(ctx, `SELECT n_dead_tup FROM pg_stat_sys_tables
		WHERE relid = 'pg_attribute'::regclass`).Scan(&dead)
	if err == nil && dead > many {
		_, err = conn.ExecContext(ctx, `VACUUM (SKIP_LOCKED) pg_attrdef, pg_attribute, pg_class, pg_constraint,
			pg_depend, pg_index, pg_shdepend, pg_trigger, pg_type`)
	}
	return err
}
