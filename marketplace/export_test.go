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
	Confined   = confined
	ErrBlocked = errBlocked
)

func ParseCatalog(data []byte) (svc.Catalog, error) {
	limits, _ := Limits{}.orDefaults()
	return parseCatalog(data, limits, false)
}

// SetResolver makes the guarded dialer resolve names with r, and stop short of connecting: admitted is called instead
// with what would have been connected to.
func (c *Client) SetResolver(r *net.Resolver, admitted func(address string) error) {
	c.guard.resolver, c.guard.admitted = r, admitted
}

// SetNow replaces the clock.
func (c *Client) SetNow(now func() time.Time) { c.now = now }

// SetDial replaces dialling, the guard included.
func (c *Client) SetDial(dial func(address string) (net.Conn, error)) { c.guard.dial = dial }

// SetWeb makes the guarded dialer resolve names with r and judge what they resolve to, as ever, and then connect to the server
// that listens at to instead of what it admitted.
func (c *Client) SetWeb(r *net.Resolver, to string) {
	guarded := c.guarded.DialContext
	c.SetResolver(r, func(string) error { return errAdmitted })
	c.guarded.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := guarded(ctx, network, address)
		if errors.Is(err, errAdmitted) {
			return net.Dial("tcp", to)
		}
		return conn, err
	}
}

// SlowHeaders returns what becomes of err when the headers of an answer did not come in time.
func SlowHeaders(err error) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errSlowHeaders)
	return ended(ctx, "", err)
}

var errAdmitted = errors.New("admitted")

// Hurry changes the time limits, between two calls.
func (c *Client) Hurry(headers, all time.Duration) {
	c.limits.HeaderTimeout, c.limits.Timeout, c.flights.timeout = headers, all, all
	c.guarded.TLSHandshakeTimeout, c.allowed.TLSHandshakeTimeout = headers, headers
}

func (c *Client) Control(address string) error { return c.guard.control("tcp", address, nil) }

func (c *Client) Forbids(addr netip.Addr) bool { return c.guard.forbids(addr) }

func (c *Client) Transports() []*http.Transport { return []*http.Transport{c.guarded, c.allowed} }

// URL returns where a file of a source is, or "" for a bad address.
func (c *Client) URL(address, name string) string {
	at, problem := c.place(address)
	if problem != "" || at.base == nil {
		return ""
	}
	return at.url(name).String()
}

// Waiting returns how many calls wait for a flight now.
func (c *Client) Waiting() int {
	c.flights.mu.Lock()
	defer c.flights.mu.Unlock()
	n := 0
	for _, one := range c.flights.all {
		n += one.waiting
	}
	return n
}

// Kept returns all that is kept, as text.
func (c *Client) Kept() string { return fmt.Sprintf("%+v", c.copies.byKey) }

// FlightThatPanics returns what those are told who share a flight that panics.
func FlightThatPanics() error {
	f := flights{timeout: time.Minute, all: map[flightKey]*flight{}}
	_, err := f.share(context.Background(), flightKey{}, func(context.Context) (*fileCopy, error) { panic("broken") })
	return err
}

// PutLate keeps an answer that was asked for an age before another, after that, and returns the one that is kept.
func PutLate(before time.Duration) (manifest string) {
	c, key, now := newCopies(0), fileKey{}, time.Now()
	for _, file := range []*fileCopy{
		{document: document{manifest: []byte("first")}, asked: now},
		{document: document{manifest: []byte("second")}, asked: now.Add(-before)},
	} {
		c.put(key, file, false)
	}
	return string(c.get(key).manifest)
}
