package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The listener reconnects after pauses, and checks a silent connection.
const (
	firstPause   = 100 * time.Millisecond // before it connects again
	longestPause = 3 * time.Second        // each pause is twice the previous one, up to this
	heartbeat    = 30 * time.Second       // after so much silence it pings the server
)

// listener wakes the callers that wait for changes when another process commits one. It only saves
// time: the callers also poll every second.
type listener struct {
	config    *pgx.ConnConfig
	wake      func()
	heartbeat time.Duration
	cancel    context.CancelFunc
	ended     chan struct{}
}

// listen starts a listener, which connects, and reconnects, until it is closed. It wakes the
// callers after each connect, because it may have missed notifications.
func listen(config *pgx.ConnConfig, wake func()) *listener {
	return newListener(config, wake).start()
}

func newListener(config *pgx.ConnConfig, wake func()) *listener {
	return &listener{config: config, wake: wake, heartbeat: heartbeat, ended: make(chan struct{})}
}

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

// hear connects, and wakes the callers for as long as the connection holds.
func (l *listener) hear(ctx context.Context) {
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return
	}
	defer hangUp(conn)
	for err = subscribe(ctx, conn); err == nil; err = l.next(ctx, conn) {
		l.wake()
	}
}

func subscribe(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, "LISTEN "+channel)
	return err
}

// next waits for a notification.
func (l *listener) next(ctx context.Context, conn *pgx.Conn) error {
	for {
		silence, cancel := context.WithTimeout(ctx, l.heartbeat)
		_, err := conn.WaitForNotification(silence)
		cancel()
		if err == nil || ctx.Err() != nil || !pgconn.Timeout(err) {
			return err
		}
		if err := ping(ctx, conn); err != nil {
			return err
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
