package postgres

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// limit makes connections whose every read and write takes at most longest.
func limit(config *pgx.ConnConfig, longest time.Duration) {
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &limited{Conn: conn, longest: longest}, nil
	}
}

// limited is a connection to a server that may hang. The driver sets deadlines only for contexts
// that end.
type limited struct {
	net.Conn
	longest time.Duration

	mu  sync.Mutex
	end time.Time // the driver's deadline; zero means none
}

func (l *limited) Read(p []byte) (int, error) {
	if err := l.arm(l.Conn.SetReadDeadline); err != nil {
		return 0, err
	}
	return l.Conn.Read(p)
}

func (l *limited) Write(p []byte) (int, error) {
	if err := l.arm(l.Conn.SetWriteDeadline); err != nil {
		return 0, err
	}
	return l.Conn.Write(p)
}

// arm sets the deadline of the next read or write, never later than the driver's.
func (l *limited) arm(set func(time.Time) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := time.Now().Add(l.longest)
	if !l.end.IsZero() && l.end.Before(end) {
		end = l.end
	}
	return set(end)
}

// SetDeadline remembers the driver's deadline. The driver sets one to interrupt a call whose
// context ends.
func (l *limited) SetDeadline(end time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = end
	return l.Conn.SetDeadline(end)
}
