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
	"slices"
	"strings"
	"syscall"
	"time"
)

// errBlocked means that the Client must not dial an address.
var errBlocked = errors.New("address is not public")

// guard decides which addresses the Client may dial.
type guard struct {
	allow []netip.Prefix

	// Tests set these.
	resolver *net.Resolver                          // nil: the system's
	admitted func(address string) error             // gets each address before the connection
	dial     func(address string) (net.Conn, error) // replaces the dialer and the check
}

// notPublic lists the IPv4 blocks that are not globally reachable (IANA's special-purpose registry,
// RFC 6890).
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

// globalIPv6 is the part of IPv6 that is assigned to hosts on the internet. Addresses outside it
// are private, link-local, multicast or unassigned, or hold an IPv4 address (mapped, compatible,
// NAT64). Two of the blocks in notPublicInIt6 hold IPv4 addresses as well.
var (
	globalIPv6     = netip.MustParsePrefix("2000::/3")
	notPublicInIt6 = []netip.Prefix{
		netip.MustParsePrefix("2001::/23"), // protocols: Teredo, ORCHID, benchmarks …
		netip.MustParsePrefix("2001:db8::/32"),
		netip.MustParsePrefix("2002::/16"), // 6to4
		netip.MustParsePrefix("3fff::/20"), // documentation
	}
)

// forbids reports whether addr is neither public nor, for a trusted source, in AllowCIDRs. The
// Client must not dial it.
func (g *guard) forbids(addr netip.Addr, trusted bool) bool {
	addr = addr.WithZone("")
	if trusted && contains(g.allow, addr) {
		return false
	}
	if addr.Is4() {
		return contains(notPublic, addr)
	}
	return !globalIPv6.Contains(addr) || contains(notPublicInIt6, addr)
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// forbidsHost reports whether host is a forbidden address or a forbidden name of this machine. host
// must have its canonical spelling.
func (g *guard) forbidsHost(host string, trusted bool) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return g.forbids(addr, trusted)
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return g.forbids(netip.AddrFrom4([4]byte{127, 0, 0, 1}), trusted) &&
			g.forbids(netip.IPv6Loopback(), trusted)
	}
	return false
}

// control refuses the addresses that are forbidden for trusted sources.
func (g *guard) control(_, address string, _ syscall.RawConn) error {
	return g.check(address, true)
}

// controlPublic refuses the addresses that are forbidden for other sources.
func (g *guard) controlPublic(_, address string, _ syscall.RawConn) error {
	return g.check(address, false)
}

// check refuses forbidden addresses. The [net.Dialer] calls it after it resolves the name and
// before it connects, with each address.
func (g *guard) check(address string, trusted bool) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q is not an address and port", errBlocked, address)
	}
	if g.forbids(to.Addr(), trusted) {
		return fmt.Errorf("%w: %s", errBlocked, address)
	}
	if g.admitted != nil {
		return g.admitted(address)
	}
	return nil
}

// transport returns an HTTP/1.1 transport over connections that control admits. A nil control
// admits all. The transport uses no proxy and no cookies. It does not use HTTP/2, in which net/http
// logs a line for each unknown frame: a source can cause millions of lines a second.
func (c *Client) transport(
	roots *x509.CertPool,
	control func(network, address string, conn syscall.RawConn) error,
) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if c.guard.dial != nil {
				return c.guard.dial(address)
			}
			d := net.Dialer{
				Timeout:  c.limits.HeaderTimeout,
				Control:  control,
				Resolver: c.guard.resolver,
			}
			return d.DialContext(ctx, network, address)
		},
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    c.limits.HeaderTimeout,
		Protocols:              &protocols,
		DisableCompression:     true, // readAnswer decodes with its own limits
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConns:           16,
		IdleConnTimeout:        30 * time.Second,
	}
}
