package postgres

import (
	"context"
	"database/sql/driver"
	"slices"
	"sync"
	"time"
)

// dialFresh is how long a dial without a caller is kept, from its beginning.
const dialFresh = time.Second

// dialer makes connections. A dial goes on when its caller leaves, and the next caller gets the
// connection: callers with short deadlines make as few dials as patient ones.
type dialer struct {
	driver.Connector
	mu     sync.Mutex
	free   []*dial // without callers
	closed bool
}

type dial struct {
	began time.Time
	made  chan dialed
}

type dialed struct {
	conn driver.Conn
	err  error
}

// Connect implements [driver.Connector].
func (d *dialer) Connect(ctx context.Context) (driver.Conn, error) {
	for {
		one, mine := d.next(ctx)
		select {
		case got := <-one.made:
			if got.err == nil || mine {
				return got.conn, got.err
			}
		case <-ctx.Done():
			d.leave(one)
			return nil, ctx.Err()
		}
	}
}

// next returns a dial without a caller, or a new one: then it is mine.
func (d *dialer) next(ctx context.Context) (one *dial, mine bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.free) > 0 {
		one, d.free = d.free[0], d.free[1:]
		return one, false
	}
	one = &dial{time.Now(), make(chan dialed, 1)}
	go func() {
		conn, err := d.Connector.Connect(context.WithoutCancel(ctx)) // it has its own limit
		one.made <- dialed{conn, err}
	}()
	return one, true
}

// leave keeps a dial for the next caller while it is fresh.
func (d *dialer) leave(one *dial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := time.Until(one.began.Add(dialFresh))
	if d.closed || left <= 0 {
		go one.hangUp()
		return
	}
	d.free = append(d.free, one)
	time.AfterFunc(left, func() { d.expire(one) })
}

func (d *dialer) expire(one *dial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.free, one); i >= 0 {
		d.free = slices.Delete(d.free, i, i+1)
		go one.hangUp()
	}
}

// hangUp closes the connection once it is made.
func (o *dial) hangUp() {
	if got := <-o.made; got.err == nil {
		_ = got.conn.Close()
	}
}

// Close hangs up what no caller waits for.
func (d *dialer) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, one := range d.free {
		go one.hangUp()
	}
	d.free = nil
	return nil
}
