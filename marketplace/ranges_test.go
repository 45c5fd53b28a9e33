package marketplace_test

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
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
				is.New(t).NoErr(client.CheckURL("https://inside.example"))
				err := refuses(t, client, upstream("https://inside.example"))
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
			e, _ := errors.AsType[*svc.Error](refuses(t, client, upstream("https://"+name+"/x")))
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
			refuses(t, client, upstream("https://mixed.example"))
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

// spellings are ways to write a forbidden host or port, or one that looks like a forbidden one.
var spellings = []struct {
	what  string
	hosts []string
}{
	{"as it is", []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1:8443", "[::1]", "[fd00::1]:443", "localhost",
		"a.localhost"}},
	{"decimal", []string{"2130706433", "3232235777", "2852039166", "0", "4294967295", "00002130706433", "6425673729", "2130706433:443"}},
	{"hexadecimal", []string{"0x7f000001", "0X7F000001", "0x7f.0.0.1", "0x7f.0x0.0x0.0x1", "127.0.0.0x1", "0x7f.1", "0xa9fea9fe",
		"0x00000000007f000001", "0x"}},
	{"octal", []string{"0177.0.0.1", "017700000001", "0177.0.0.01", "00177.1", "0000127.0.0.1", "127.0.0.01", "0251.0376.0251.0376"}},
	{"mixed", []string{"0x7f.0.1", "0177.0x0.1", "127.0x1", "0x7f.0177.1.01"}},
	{"short", []string{"127.1", "127.0.1", "10.1", "169.254.43518", "192.168.257"}},
	{"too long, too large", []string{"127.0.0.1.1", "256.0.0.1", "127.0.0.256", "127.0.0.1.0x0", "1.2.3.4.5.6.7.8"}},
	{"IPv4 mapped into IPv6", []string{"[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]", "[::FFFF:A9FE:A9FE]",
		"[::ffff:8.8.8.8]"}},
	{"IPv4-compatible", []string{"[::127.0.0.1]", "[::7f00:1]", "[0::10.0.0.1]", "[::8.8.8.8]"}},
	{"IPv4 translated", []string{"[::ffff:0:127.0.0.1]", "[::ffff:0:7f00:1]"}},
	{"6to4", []string{"[2002:7f00:1::]", "[2002:a00:1::1]", "[2002:c0a8:101::]", "[2002:a9fe:a9fe::]", "[2002:808:808::]"}},
	{"Teredo", []string{"[2001:0:7f00:1::]", "[2001::1]", "[2001:0:4136:e378:8000:63bf:80ff:fffe]"}},
	{"NAT64", []string{"[64:ff9b::7f00:1]", "[64:ff9b::10.0.0.1]", "[64:ff9b:0:0:0:0:127.0.0.1]", "[64:ff9b:1::7f00:1]",
		"[64:ff9b:1:ffff::1]", "[64:ff9b::8.8.8.8]"}},
	{"ISATAP", []string{"[fe80::5efe:127.0.0.1]", "[fe80::200:5efe:10.0.0.1]"}},
	{"with a zone", []string{"[fe80::1%25eth0]", "[::1%25lo]", "[fe80::1%eth0]", "[2606:4700::1111%251]", "[::1%25]", "127.0.0.1%25lo"}},
	{"fullwidth", []string{"１２７.０.０.１", "127．0．0．1", "127。0。0。1", "127｡0｡0｡1", "ｌｏｃａｌｈｏｓｔ", "０ｘ７ｆ.1", "［::1］",
		"%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1"}},
	{"circled and other digits", []string{"①②⑦.⓪.⓪.①", "𝟏𝟐𝟕.𝟎.𝟎.𝟏", "¹²⁷.⁰.⁰.¹", "₁₂₇.₀.₀.₁", "⒈⒉.1", "١٢٧.٠.٠.١", "१२७.०.०.१",
		"%E2%91%A0%E2%91%A1%E2%91%A6.0.0.1"}},
	{"other letters", []string{"ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "𝐥𝐨𝐜𝐚𝐥𝐡𝐨𝐬𝐭", "lоcalhost", "ℓocalhost", "loca\u00adlhost", "local\u200bhost",
		"localhos\u0074\u0301", "\u202elocalhost", "ſvc.localhost"}},
	{"punycode before a number", []string{"xn--8g7ccp.0.0.1", "xn--orhcp.0.0.1", "xn--127001-rr3ebb.0x1"}},
	{"dots at the end", []string{"127.0.0.1.", "127.0.0.1..", "127.0.0.1...:443", "localhost.", "localhost....", "2130706433.",
		"0x7f.1.", "127.1..", "[::1]."}},
	{"upper case", []string{"LOCALHOST", "LocalHost", "A.LOCALHOST.", "[::FFFF:7F00:1]", "[FE80::1]", "[FD00::A]", "0X7F.1"}},
	{"empty labels", []string{"127..1", ".127.0.0.1", "127.0.0..1", "a..localhost", ".localhost", ".", "..", "localhost..localhost",
		"one..example"}},
	{"percent-encoded", []string{"%31%32%37.0.0.1", "127.0.0.%31", "127%2e0%2e0%2e1", "%6c%6f%63%61%6c%68%6f%73%74", "localhost%00",
		"localhost%2e", "%5b::1%5d", "[%3a%3a1]", "one.example%00.localhost", "one.example%0d%0a", "one.example%20",
		"one.example%2f@127.0.0.1", "one.example%23", "%"}},
	{"user names", []string{"one.example@127.0.0.1", "one.example:443@127.0.0.1", "127.0.0.1@one.example", "user:password@one.example",
		"@one.example", ":@one.example", "a@b@one.example", "one.example%40127.0.0.1"}},
	{"read in two ways", []string{`one.example\@127.0.0.1`, `127.0.0.1\@one.example`, `one.example\.127.0.0.1`, "127.0.0.1;one.example",
		"one.example;127.0.0.1", "127.0.0.1,one.example", "one.example&127.0.0.1", "one.example 127.0.0.1", "127.0.0.1 ",
		"one.example\t", "[::1]one.example", "one.example[::1]", "[one.example]", "[127.0.0.1]", "::1", "[::1", "::1]", "[]",
		"[::1]:443:443", "one.example:443:443"}},
	{"look-alikes of slashes, dots and letters", []string{"one.example∕x", "one.example⁄x", "one.example⧸x", "127.0.0.1∕.one.example",
		"one.example⧵x", "one.example∖x", "one.example%E2%88%95x", "one・example", "one·example", "one․example", "\u212aub.example",
		"%E2%84%AAub.example"}},
	{"ports of other protocols", []string{"one.example:22", "one.example:25", "one.example:00025", "8.8.8.8:53", "[2606:4700::1111]:6667",
		"one.example:1", "one.example:10080", "github.com:22", "ONE.example.:6000"}},
	{"ports", []string{"one.example:0", "one.example:65536", "one.example:99999999999999999999", "one.example:-1", "one.example:+443",
		"one.example:0x1bb", "one.example:443x", "one.example: 443", "one.example:４４３", "one.example:4%343",
		"one.example:1e3", ":443", "127.0.0.1:0443", "127.0.0.1:"}},
}

// The client refuses each spelling at registration, when it dials, and in redirects.
func TestSpellings(t *testing.T) {
	var location string
	redirect := func(w http.ResponseWriter, r *http.Request) { redirectTo(location, 302)(w, r) }
	web, asked := newWeb(t, map[string]http.HandlerFunc{"one.example/templates.json": redirect})
	client := newClient(t, marketplace.Config{})
	client.SetDial(func(address string) (net.Conn, error) {
		t.Errorf("%s is dialled", address)
		return nil, errors.New("not here")
	})
	for _, spelling := range spellings {
		t.Run(spelling.what, func(t *testing.T) {
			for _, host := range spelling.hosts {
				location = "https://" + host + "/x"
				if client.CheckURL(location) == nil {
					t.Errorf("%q may be registered", location)
				}
				refuses(t, client, upstream(location), "its address ")
				*asked = nil
				refuses(t, web, upstream("https://one.example"), "its catalogue redirects to a")
				if !slices.Equal(*asked, []string{"one.example/templates.json"}) {
					t.Errorf("%q: asked for %q", location, *asked)
				}
			}
		})
	}
}

// The client allows an origin or address exactly as configured, and no similar spelling.
func TestSpellingsOfWhatIsAllowed(t *testing.T) {
	config := marketplace.Config{AllowOrigins: []string{"https://127.0.0.1:8443", "http://intra.example:8080"},
		AllowCIDRs: prefixes("10.1.0.0/16", "fd00:1::/32")}
	client := newClient(t, config)
	// Later changes to the host's lists have no effect.
	config.AllowOrigins[0], config.AllowCIDRs[0] = "https://127.0.0.1:9443", prefixes("127.0.0.0/8")[0]
	for _, address := range []string{"https://127.0.0.1:8443", "https://127.0.0.1.:08443/x", "http://INTRA.example.:8080",
		"https://10.1.2.3:444/x", "https://[fd00:1::1]", "https://[FD00:0001:0::1]"} {
		if err := client.CheckURL(address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for what, addresses := range map[string][]string{
		"scheme": {"http://127.0.0.1:8443", "http://10.1.2.3", "http://[fd00:1::1]"},
		"port": {"https://10.1.2.3:22", "https://127.0.0.1", "https://127.0.0.1:8444", "https://127.0.0.1:9443", "http://intra.example",
			"http://intra.example:80800"},
		"name": {"https://localhost:8443", "http://xintra.example:8080", "http://intra.example.evil.example:8080",
			"http://a.intra.example:8080"},
		"spelling": {"https://127.1:8443", "https://2130706433:8443", "https://[::ffff:127.0.0.1]:8443", "https://0x7f.1:8443",
			"https://１２７.0.0.1:8443", "https://127.0.0.2:8443"},
		"embedded": {"https://[::ffff:10.1.2.3]", "https://[::10.1.2.3]", "https://[64:ff9b::10.1.2.3]", "https://[2002:a01:203::1]",
			"https://[2001:0:a01:203::]", "https://167838211", "https://10.66051"},
		"range": {"https://10.0.255.255", "https://10.2.0.0", "https://[fd00:2::]", "https://[fd00:0:ffff::1]", "https://127.0.0.3"},
	} {
		for _, address := range addresses {
			if client.CheckURL(address) == nil {
				t.Errorf("other %s: %s may be registered", what, address)
			}
		}
	}
}
