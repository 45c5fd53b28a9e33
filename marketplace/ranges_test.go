package marketplace_test

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

// special are the blocks that are not for hosts on the internet, by purpose: the registries of
// special-purpose and multicast addresses, some formerly special blocks, and unassigned IPv6.
var special = map[string][]netip.Prefix{
	"this network":         prefixes("0.0.0.0/8"),
	"private":              prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
	"carrier-grade NAT":    prefixes("100.64.0.0/10"),
	"loopback":             prefixes("127.0.0.0/8", "::1/128"),
	"link-local":           prefixes("169.254.0.0/16", "fe80::/10"),
	"protocols":            prefixes("192.0.0.0/24", "2001::/23"),
	"documentation":        prefixes("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
	"6to4":                 prefixes("192.88.99.0/24", "2002::/16"),
	"benchmarks":           prefixes("198.18.0.0/15", "2001:2::/48"),
	"multicast":            prefixes("224.0.0.0/4", "ff00::/8"),
	"reserved":             prefixes("240.0.0.0/4"),
	"broadcast":            prefixes("255.255.255.255/32"),
	"unspecified":          prefixes("::/128"),
	"IPv4-compatible":      prefixes("::/96"),
	"IPv4-mapped":          prefixes("::ffff:0:0/96"),
	"IPv4-translated":      prefixes("::ffff:0:0:0/96"),
	"NAT64":                prefixes("64:ff9b::/96", "64:ff9b:1::/48"),
	"discard":              prefixes("100::/64", "100:0:0:1::/64"),
	"Teredo":               prefixes("2001::/32"),
	"ORCHID, drone ids":    prefixes("2001:10::/28", "2001:20::/28", "2001:30::/28"),
	"segment routing":      prefixes("5f00::/16"),
	"unique local":         prefixes("fc00::/7"),
	"site-local":           prefixes("fec0::/10"),
	"not assigned to date": prefixes("::/3", "4000::/2", "8000::/1"),
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// ends returns the first and the last address of a block.
func ends(block netip.Prefix) (first, last netip.Addr) {
	first = block.Masked().Addr()
	bytes := first.AsSlice()
	for bit := block.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ = netip.AddrFromSlice(bytes)
	return first, last
}

func isSpecial(addr netip.Addr) bool {
	for _, blocks := range special {
		for _, block := range blocks {
			if block.Contains(addr) {
				return true
			}
		}
	}
	return false
}

// The client refuses each block from its first to its last address, at registration and when it
// dials. It accepts the addresses around the block.
func TestSpecialRanges(t *testing.T) {
	client := newClient(t, marketplace.Config{})
	check := func(addr netip.Addr) {
		t.Helper()
		if !addr.IsValid() {
			return // beyond the first or last of all
		}
		want := isSpecial(addr)
		target := net.JoinHostPort(addr.String(), "443")
		if got := client.CheckURL("https://"+target) != nil; got != want {
			t.Errorf("%s: refused at registration is %v", addr, got)
		}
		if got := errors.Is(client.Control(target), marketplace.ErrBlocked); got != want {
			t.Errorf("%s: refused when dialled is %v", addr, got)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, blocks := range special {
		for _, block := range blocks {
			first, last := ends(block)
			for _, addr := range []netip.Addr{first, last, first.Prev(), last.Next(), first.Next(), last.Prev()} {
				check(addr)
			}
		}
	}
	for range 20_000 {
		var four [4]byte
		var sixteen [16]byte
		for i := range sixteen {
			sixteen[i] = byte(random.Uint32())
		}
		copy(four[:], sixteen[:])
		check(netip.AddrFrom4(four))
		check(netip.AddrFrom16(sixteen))
		sixteen[0] = 0x20 | sixteen[0]&0x1f // in the part that is assigned
		check(netip.AddrFrom16(sixteen))
	}
}

const hiddenMessage = `source "acme": its catalogue is at an address that is not public, and this server does not allow it`

// The client learns the address of a name when it dials. It then refuses the address, and only the
// log shows it.
func TestNamesInSpecialRanges(t *testing.T) {
	listener, err := net.Listen("tcp6", "[::1]:0")
	hasIPv6 := err == nil
	if hasIPv6 {
		_ = listener.Close()
	}
	for purpose, blocks := range special {
		for _, block := range blocks {
			first, last := ends(block)
			for _, addr := range []netip.Addr{first, last} {
				client, admitted := resolving(t, marketplace.Config{}, []string{addr.String()})
				if err := client.CheckURL("https://inside.example"); err != nil {
					t.Fatal(err)
				}
				_, err := client.Template(t.Context(), upstream("https://inside.example"), "a")
				wantError(t, err, svc.CodeSourceFailed)
				if len(*admitted) > 0 {
					t.Errorf("%s: %s is dialled", purpose, *admitted)
				}
				if !addr.Unmap().Is4() && !hasIPv6 {
					continue // it is not even tried
				}
				if e, _ := errors.AsType[*svc.Error](err); e.Message != hiddenMessage {
					t.Errorf("%s: %s: %s", purpose, addr, e.Message)
				}
				if logged := addr.Unmap().String(); !errors.Is(err, marketplace.ErrBlocked) || !strings.Contains(err.Error(), logged) {
					t.Errorf("%s: the log is not told of %s: %v", purpose, logged, err)
				}
			}
		}
	}
}

// A name can look like an address. It can be registered, and is refused if it leads to a forbidden
// address.
func TestNamesThatAreSeenOnlyAtTheDial(t *testing.T) {
	for what, name := range map[string]string{
		"punycode of fullwidth letters": "xn--mi7cdqncpe6aj",
		"punycode of circled letters":   "xn--vuhdqncpe6aj.example",
		"punycode of a Cyrillic letter": "xn--lcalhost-nbh",
		"punycode of an address":        "xn--127001-rr3ebb",
		"an address in a name":          "127.0.0.1.nip.example",
		"a number in a name":            "2130706433.example",
		"one label":                     "intranet",
		"of a hosts file":               "localhost.localdomain",
		"of a cloud":                    "metadata.google.internal",
		"of a network at home":          "router.home.arpa",
		"with an underscore":            "_http._tcp.example",
		"in capitals, dots at the end":  "INSIDE.Example..",
		"with a port":                   "inside.example:8022",
	} {
		t.Run(what, func(t *testing.T) {
			is := is.New(t)
			client, admitted := resolving(t, marketplace.Config{}, []string{"169.254.169.254"})
			is.NoErr(client.CheckURL("https://" + name + "/x"))
			_, err := client.Template(t.Context(), upstream("https://"+name+"/x"), "a")
			wantError(t, err, svc.CodeSourceFailed)
			e, _ := errors.AsType[*svc.Error](err)
			is.Equal(e.Message, hiddenMessage)
			is.Equal(len(*admitted), 0)
		})
	}
}

// A name has several addresses in any order. The client dials only the public ones.
func TestNamesWithSeveralAddresses(t *testing.T) {
	const public, other = "93.184.216.34", "1.1.1.1"
	for what, test := range map[string]struct {
		answer []string
		dialed int
	}{
		"a private one last":        {[]string{public, "10.0.0.1"}, 1},
		"a private one first":       {[]string{"10.0.0.1", public}, 1},
		"loopback between":          {[]string{public, "127.0.0.1", other}, 2},
		"one public among many":     {[]string{"10.0.0.1", "192.168.0.1", "169.254.169.254", "0.0.0.0", public}, 1},
		"of the other family":       {[]string{public, "::1", "fd00::1"}, 1},
		"mapped":                    {[]string{public, "::ffff:127.0.0.1"}, 1},
		"no public one":             {[]string{"10.0.0.1", "172.16.0.1", "::1"}, 0},
		"public by another mapping": {[]string{"64:ff9b::5db8:d822", "2002:5db8:d822::1"}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			client, admitted := resolving(t, marketplace.Config{}, test.answer)
			_, err := client.Template(t.Context(), upstream("https://mixed.example"), "a")
			wantError(t, err, svc.CodeSourceFailed)
			if len(*admitted) != test.dialed {
				t.Errorf("%q are dialled", *admitted)
			}
			for _, address := range *admitted {
				if address != public+":443" && address != other+":443" {
					t.Errorf("%s is dialled", address)
				}
			}
		})
	}
}
