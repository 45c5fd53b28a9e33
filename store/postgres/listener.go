package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// How the listener keeps its connection.
const (
	firstPause   = 100 * time.Millisecond // before it connects again
	longestPause = 3 * time.Second        // each pause is twice the one before, up to this
	heartbeat    = 30 * time.Second       // how long there may be silence before it asks whether the server is there
)

// listener wakes whoever waits for changes when another process commits one. It is a convenience: who waits asks each second
// anyway.
type listener struct {
	config    *pgx.ConnConfig
	wake      func()
	heartbeat time.Duration
	cancel    context.CancelFunc
	ended     chan struct{}
}

// listen starts a listener. It connects, and connects again, until it is closed, and wakes at least once each time: nobody
// knows what was notified in between.
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

// hear connects and wakes for as long as the connection holds.
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
		if err := isThere(ctx, conn); err != nil {
			return err
		}
	}
}

func isThere(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return conn.Ping(ctx)
}

func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // it may be gone already
}
