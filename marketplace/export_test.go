package marketplace

import (
	"net"
	"net/http"
	"net/netip"
)

var (
	Confined   = confined
	ErrBlocked = errBlocked
)

func ParseCatalog(data []byte) (Catalog, error) {
	limits, _ := Limits{}.orDefaults()
	return parseCatalog(data, limits)
}

// SetResolver makes the guarded dialer resolve names with r, and stop short of connecting: admitted is called instead
// with what would have been connected to.
func (c *Client) SetResolver(r *net.Resolver, admitted func(address string) error) {
	c.guard.resolver, c.guard.admitted = r, admitted
}

// SetDial replaces dialling, the guard included.
func (c *Client) SetDial(dial func(address string) (net.Conn, error)) { c.guard.dial = dial }

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
