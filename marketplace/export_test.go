package marketplace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/extsvc/svc"
)

var (
	Confined   = relativePath
	ErrBlocked = errBlocked
)

func ParseCatalog(data []byte) (svc.Catalog, error) {
	limits, _ := Limits{}.orDefaults()
	return parseCatalog(data, limits, false)
}

// SetResolver makes the guarded dialer resolve names with r, and call admitted instead of connecting.
func (c *Client) SetResolver(r *net.Resolver, admitted func(address string) error) {
	c.guard.resolver, c.guard.admitted = r, admitted
}

// SetNow replaces the clock.
func (c *Client) SetNow(now func() time.Time) { c.now = now }

// SetDial replaces the dialer and the guard.
func (c *Client) SetDial(dial func(address string) (net.Conn, error)) { c.guard.dial = dial }

// SetWeb makes the guarded dialer resolve names with r, check the addresses, and connect to another one.
func (c *Client) SetWeb(r *net.Resolver, to string) {
	c.SetResolver(r, func(string) error { return errAdmitted })
	for _, transport := range []*http.Transport{c.guarded, c.public} {
		guarded := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := guarded(ctx, network, address)
			if errors.Is(err, errAdmitted) {
				return net.Dial("tcp", to)
			}
			return conn, err
		}
	}
}

// SlowHeaders returns the fault for err after HeaderTimeout.
func SlowHeaders(err error) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errSlowHeaders)
	return explain(ctx, "", err)
}

var errAdmitted = errors.New("admitted")

// Hurry changes the time limits. Call it between two calls of the Client.
func (c *Client) Hurry(headers, all time.Duration) {
	c.limits.HeaderTimeout, c.limits.Timeout, c.flights.timeout = headers, all, all
	for _, transport := range c.Transports() {
		transport.TLSHandshakeTimeout = headers
	}
}

func (c *Client) Control(address string) error { return c.guard.control("tcp", address, nil) }

func (c *Client) Forbids(addr netip.Addr) bool { return c.guard.forbids(addr, true) }

func (c *Client) Transports() []*http.Transport {
	return []*http.Transport{c.guarded, c.allowed, c.public}
}

// URL returns the address of a file of a source, or "" for a bad address.
func (c *Client) URL(address, name string) string {
	at, problem := c.place(address, true)
	if problem != "" || at.base == nil {
		return ""
	}
	return at.url(name).String()
}

// Waiting returns the number of calls that wait for a flight.
func (c *Client) Waiting() int {
	c.flights.mu.Lock()
	defer c.flights.mu.Unlock()
	n := 0
	for _, one := range c.flights.all {
		n += one.waiting
	}
	return n
}

// Kept returns the whole cache as text.
func (c *Client) Kept() string { return fmt.Sprintf("%+v", c.copies.byKey) }

// FlightThatEnds returns the error for the callers of a flight that calls end and does not return.
func FlightThatEnds(end func()) error {
	f := flights{timeout: time.Minute, all: map[flightKey]*sharedFetch{}}
	_, err := f.share(context.Background(), flightKey{}, func(context.Context) (*fileCopy, error) { end(); return nil, nil })
	return err
}

// PutLate puts an answer after one whose request began later, and returns the copy in the cache.
func PutLate(before time.Duration) (manifest string) {
	c, key, now := newCopies(0), fileKey{}, time.Now()
	c.put(key, &fileCopy{document: document{manifest: []byte("first")}, asked: now}, false)
	c.put(key, &fileCopy{document: document{manifest: []byte("second")}, asked: now.Add(-before)}, false)
	return string(c.get(key).manifest)
}

// MostRead returns the most bytes of answers that were being read at once.
func (c *Client) MostRead() int64 {
	c.reading.mu.Lock()
	defer c.reading.mu.Unlock()
	return c.reading.peak
}

// HoldParsing lets no answer of the server's sources, or of users', be parsed until release.
func (c *Client) HoldParsing(users bool) (release func()) {
	slots := map[bool]chan struct{}{false: c.parsing.server, true: c.parsing.users}[users]
	for range cap(slots) {
		slots <- struct{}{}
	}
	return func() {
		for range cap(slots) {
			<-slots
		}
	}
}

// NextTurn has a reader take all bytes after another one had them. It returns how many are in use
// when it has read all and a third one wants it to hurry, and the errors of both.
func NextTurn(ctx context.Context) string {
	r := newReading(10, time.Second)
	_, first := r.turn(ctx, svc.SourceKey{})
	reading, second := r.turn(ctx, svc.SourceKey{})
	err := first.take(ctx, 10)
	second.bytes, second.granted, r.queue = 10, make(chan struct{}), []*turn{second}
	r.grant()
	first.end()
	second.keep(10)
	r.wait = 0
	r.hurry(first)
	return fmt.Sprint(r.used, errors.Join(err, reading.Err()))
}

// Read returns the bytes of answers that are being read, and the number of readers that wait.
func (c *Client) Read() [2]int {
	c.reading.mu.Lock()
	defer c.reading.mu.Unlock()
	return [2]int{int(c.reading.used), len(c.reading.queue)}
}

// SetWait changes the time that a reader waits for its turn.
func (c *Client) SetWait(d time.Duration) { c.reading.wait = d }
