package marketplace

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// errBlocked: an address may not be dialled.
var errBlocked = errors.New("address is not public")

// guard decides which addresses may be dialled.
type guard struct {
	allow []netip.Prefix

	resolver *net.Resolver                          // of tests; nil: the system's
	admitted func(address string) error             // of tests: told what is about to be connected to
	dial     func(address string) (net.Conn, error) // of tests: instead of all else
}

// notPublic are the IPv4 blocks that are not globally reachable (IANA's special-purpose registry, RFC 6890).
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // carrier-grade NAT
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"), // link-local, and where clouds keep credentials
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),   // documentation
	netip.MustParsePrefix("192.88.99.0/24"), // 6to4 relays
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("224.0.0.0/3"),     // multicast, reserved, broadcast
}

// globalIPv6 is all of IPv6 that is assigned to hosts on the internet. What is outside it is private, link-local,
// multicast, unassigned, or holds an IPv4 address (mapped, compatible, NAT64); so do two of the blocks inside.
var (
	globalIPv6     = netip.MustParsePrefix("2000::/3")
	notPublicInIt6 = []netip.Prefix{
		netip.MustParsePrefix("2001::/23"), // protocols: Teredo, ORCHID, benchmarks …
		netip.MustParsePrefix("2001:db8::/32"),
		netip.MustParsePrefix("2002::/16"), // 6to4
		netip.MustParsePrefix("3fff::/20"), // documentation
	}
)

// forbids reports whether addr may not be dialled: it is not public, and the host does not allow it.
func (g *guard) forbids(addr netip.Addr) bool {
	addr = addr.WithZone("")
	if contains(g.allow, addr) {
		return false
	}
	if addr.Is4() {
		return contains(notPublic, addr)
	}
	return !globalIPv6.Contains(addr) || contains(notPublicInIt6, addr)
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, prefix := range prefixes {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// forbidsHost reports whether host, in its canonical spelling, is a forbidden address or a name of this machine.
func (g *guard) forbidsHost(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return g.forbids(addr)
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return g.forbids(netip.AddrFrom4([4]byte{127, 0, 0, 1})) && g.forbids(netip.IPv6Loopback())
	}
	return false
}

// control is the [net.Dialer]'s: it is called with each address that a name resolved to, before it is connected to.
func (g *guard) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q is none", errBlocked, address)
	}
	if g.forbids(to.Addr()) {
		return fmt.Errorf("%w: %s", errBlocked, address)
	}
	if g.admitted != nil {
		return g.admitted(address)
	}
	return nil
}

// transport speaks HTTP/1.1 over connections that control has admitted; nil admits all. It knows no proxy and no cookies. In
// HTTP/2 net/http writes a line to the process's log for each frame that it does not know: millions in a second.
func (c *Client) transport(roots *x509.CertPool, control func(network, address string, conn syscall.RawConn) error) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if c.guard.dial != nil {
				return c.guard.dial(address)
			}
			d := net.Dialer{Timeout: c.limits.HeaderTimeout, Control: control, Resolver: c.guard.resolver}
			return d.DialContext(ctx, network, address)
		},
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    c.limits.HeaderTimeout,
		Protocols:              &protocols,
		DisableCompression:     true, // decoded under our own limits
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConns:           16,
		IdleConnTimeout:        30 * time.Second,
	}
}
