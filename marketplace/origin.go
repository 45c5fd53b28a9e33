package marketplace

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// origin is the scheme, host and port of a request (RFC 6454), in canonical spelling.
type origin struct{ scheme, host, port string }

var defaultPorts = map[string]string{"https": "443", "http": "80"}

// badPorts lists the ports of other protocols. It is the Fetch standard's list without port 0.
// originOf refuses port 0.
var badPorts = strings.Fields(`
	1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95
	101 102 103 104 109 110 111 113 115 117 119 123 135 137 139 143 161 179
	389 427 465 512 513 514 515 526 530 531 532 540 548 554 556 563 587
	601 636 989 990 993 995 1719 1720 1723 2049 3659 4045 4190 5060 5061
	6000 6566 6665 6666 6667 6668 6669 6679 6697 10080`)

// hostport returns the host of an address with that origin. It omits the default port.
func (o origin) hostport() string {
	if o.port != defaultPorts[o.scheme] {
		return net.JoinHostPort(o.host, o.port)
	}
	if strings.Contains(o.host, ":") {
		return "[" + o.host + "]"
	}
	return o.host
}

// parseOrigin parses an origin of AllowOrigins.
func parseOrigin(text string) (origin, string) {
	u, problem := parseAddress(text)
	if problem != "" || u.Scheme == "fs" ||
		u.Path != "" && u.Path != "/" || strings.ContainsAny(text, "?#") {
		return origin{}, "must be a scheme, host and port like http://127.0.0.1:9999"
	}
	return originOf(u)
}

// originOf returns the origin of an http or https address.
func originOf(u *url.URL) (origin, string) {
	o := origin{scheme: u.Scheme, port: defaultPorts[u.Scheme]}
	if o.port == "" {
		return origin{}, "must be http or https"
	}
	if port := u.Port(); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return origin{}, "must have a port from 1 to 65535"
		}
		o.port = strconv.FormatUint(n, 10)
	}
	var problem string
	if strings.HasPrefix(u.Host, "[") {
		o.host, problem = canonicalIPv6(u.Hostname())
	} else {
		o.host, problem = canonicalName(u.Hostname())
	}
	return o, problem
}

func canonicalIPv6(text string) (string, string) {
	addr, _ := netip.ParseAddr(text) // an error leaves one that is not IPv6
	if !addr.Is6() || addr.Zone() != "" {
		return "", "must spell its host as an IPv6 address without a zone"
	}
	return addr.String(), ""
}

// canonicalName returns a name or IPv4 address in lower case without dots at its end. It refuses
// other spellings of an IPv4 address that resolvers accept (127.1, 0x7f000001, 017700000001,
// 2130706433): no name ends in a number.
func canonicalName(text string) (string, string) {
	name := strings.TrimRight(text, ".")
	if name == "" {
		return "", "must name a host"
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || strings.ContainsFunc(label, notInName) {
			return "", "must spell its host with ASCII letters, digits and -_. only"
		}
	}
	name = strings.ToLower(name) // after the check: ToLower turns the Kelvin sign into a k
	if !isNumber(name[strings.LastIndexByte(name, '.')+1:]) {
		return name, ""
	}
	if addr, err := netip.ParseAddr(name); err != nil || !addr.Is4() {
		return "", "must spell an IPv4 address as four decimal numbers"
	}
	return name, ""
}

func notInName(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
		r == '-' || r == '_')
}

// isNumber reports whether a label is a decimal, octal or hexadecimal number.
func isNumber(label string) bool {
	digits, set := label, "0123456789"
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		digits, set = hex, "0123456789abcdef"
	}
	return strings.Trim(digits, set) == ""
}

// webOrigin returns the origin of an address, or the reason why the Client must not ask it. It does
// not resolve names. AllowOrigins and AllowCIDRs hold for trusted sources only.
func (c *Client) webOrigin(u *url.URL, trusted bool) (origin, string) {
	o, problem := originOf(u)
	switch {
	case problem != "":
		return origin{}, problem
	case trusted && c.origins[o]:
		return o, ""
	case o.scheme == "http":
		return origin{}, "is plain http, which this server does not allow for this origin"
	case c.guard.forbidsHost(o.host, trusted):
		return origin{}, "is not public, and this server does not allow it"
	case slices.Contains(badPorts, o.port):
		return origin{}, "has the port " + o.port + " of another protocol," +
			" which this server does not allow for this origin"
	}
	return o, ""
}
