package marketplace_test

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

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
				_, err := client.Template(t.Context(), upstream(location), "a")
				wantError(t, err, svc.CodeSourceFailed, "its address ")
				*asked = nil
				_, err = web.Template(t.Context(), upstream("https://one.example"), "a")
				wantError(t, err, svc.CodeSourceFailed, "its catalogue redirects to a")
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

// references are bad addresses of sources, with any host.
var references = map[string][]string{
	"other schemes": {"file:///etc/passwd", "file://one.example/x", "ftp://one.example/", "gopher://one.example:70/_x",
		"dict://one.example/", "ldap://one.example", "data:application/json,{}", "javascript:alert(1)", "jar:https://one.example!/x",
		"ws://one.example/", "about:blank", "blob:https://one.example/x", "unix:///run/x.sock", "httpss://one.example",
		"ht\ttps://one.example"},
	"no scheme": {"//one.example/x", "one.example", "one.example/x", "/x", "", ":", "://one.example"},
	"no authority": {"https:", "https:/one.example", "https:one.example", "https:///one.example", "https://", "https:////one.example",
		`https:\\one.example`, `https:/\one.example`},
}

func TestReferencesThatAreNoSource(t *testing.T) {
	client := newClient(t, marketplace.Config{})
	for what, addresses := range references {
		for _, address := range addresses {
			for _, address := range []string{address, strings.ToUpper(address), " " + address} {
				if client.CheckURL(address) == nil {
					t.Errorf("%s: %q may be registered", what, address)
				}
			}
		}
	}
}
