package postgres

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/extsvc/svc/store/sqlstore"
)

// The listener reconnects after pauses, and checks a silent connection.
const (
	firstPause   = 100 * time.Millisecond // before it connects again
	longestPause = 3 * time.Second        // each pause is twice the previous one, up to this
	heartbeat    = 30 * time.Second       // after so much silence it pings the server
)

// listener passes on what processes tell of their commits. It only saves time: the callers that
// wait for changes also ask every second.
type listener struct {
	connect   connect
	db        *sql.DB
	dialect   sqlstore.Dialect // names the tables
	to        hearer
	heartbeat time.Duration
	cancel    context.CancelFunc
	ended     chan struct{}
}

// connect makes a connection for a listener.
type connect func(ctx context.Context) (*pgx.Conn, error)

func connectTo(config *pgx.ConnConfig) connect {
	return func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, config) }
}

// hearer is a [sqlstore.Poll], or a Store.
type hearer interface {
	Listening(on bool)
	// Hear says that a tenant, or with the number 0 the Store itself, has changed.
	Hear(tenant int64)
}

func newListener(dial connect, db *sql.DB, dialect sqlstore.Dialect, to hearer) *listener {
	return &listener{
		connect: dial, db: db, dialect: dialect, to: to,
		heartbeat: heartbeat, ended: make(chan struct{}),
	}
}

// start connects, and reconnects, until the listener is closed.
func (l *listener) start() *listener {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	go l.run(ctx)
	return l
}

func (l *listener) close() {
	l.cancel()
	<-l.ended
}

func (l *listener) run(ctx context.Context) {
	defer close(l.ended)
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		began := time.Now()
		l.hear(ctx)
		if time.Since(began) > longestPause {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// hear connects, and passes on notifications for as long as the connection holds.
func (l *listener) hear(ctx context.Context) {
	conn, err := l.connect(ctx)
	if err != nil {
		return
	}
	defer hangUp(conn)
	table, err := l.subscribe(ctx, conn)
	if err != nil {
		return
	}
	l.to.Listening(true)
	defer l.to.Listening(false)
	for err == nil {
		var told string
		told, err = l.next(ctx, conn)
		if tenant, ours := addressee(told, table); ours && err == nil {
			l.to.Hear(tenant)
		}
	}
}

// addressee reads a notification of a table: "TABLE" is about the Store itself, "TABLE/17" about
// the tenant with that number. ours: it is about this table.
func addressee(told, table string) (tenant int64, ours bool) {
	of, number, about := strings.Cut(told, "/")
	if about {
		var err error
		if tenant, err = strconv.ParseInt(number, 10, 64); err != nil {
			return 0, false
		}
	}
	return tenant, of == table
}

// itself is a Store without tenants as a hearer.
type itself struct{ *sqlstore.Store }

func (s itself) Hear(int64) { s.Store.Hear() }

// subscribe begins to listen. It returns the table whose notifications count. It asks the Store's
// other connections for the names: the hooks of a host's pool may give those another role.
func (l *listener) subscribe(ctx context.Context, conn *pgx.Conn) (table string, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var channel string
	names := l.dialect.Qualify(`SELECT (` + selectChannel + `), (` + selectTable + `)`)
	err = l.db.QueryRowContext(ctx, names).Scan(&channel, &table)
	if err == nil {
		_, err = conn.Exec(ctx, "LISTEN "+channel)
	}
	return table, err
}

// next waits for a notification.
func (l *listener) next(ctx context.Context, conn *pgx.Conn) (told string, err error) {
	for {
		silence, cancel := context.WithTimeout(ctx, l.heartbeat)
		notification, err := conn.WaitForNotification(silence)
		cancel()
		switch {
		case err == nil:
			return notification.Payload, nil
		case ctx.Err() != nil || !pgconn.Timeout(err):
			return "", err
		}
		if err := ping(ctx, conn); err != nil {
			return "", err
		}
	}
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return conn.Ping(ctx)
}

func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // it may be gone already
}
