package marketplace_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/marketplace"
)

// special are the blocks that are not for hosts on the internet.
var special = prefixes(slices.Concat(slices.Collect(maps.Values(sections("special.txt")))...)...)

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
	return slices.ContainsFunc(special, func(block netip.Prefix) bool { return block.Contains(addr) })
}

// Each block is refused to its first and last address, at registration and at the dial, and nothing around it.
func TestSpecialRanges(t *testing.T) {
	client := newClient(t, marketplace.Config{})
	check := func(addr netip.Addr) {
		t.Helper()
		if !addr.IsValid() {
			return // beyond the first or last of all
		}
		want := isSpecial(addr)
		target := net.JoinHostPort(addr.String(), "443")
		refused := []bool{client.CheckURL("https://"+target) != nil, errors.Is(client.Control(target), marketplace.ErrBlocked)}
		expect.Equal(t, addr, refused, []bool{want, want}) // at registration, when it is dialled
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, block := range special {
		first, last := ends(block)
		for _, addr := range []netip.Addr{first, last, first.Prev(), last.Next(), first.Next(), last.Prev()} {
			check(addr)
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

// The client learns the address of a name when it dials. It then refuses the address, and only the log shows it.
func TestNamesInSpecialRanges(t *testing.T) {
	listener, err := net.Listen("tcp6", "[::1]:0")
	hasIPv6 := err == nil
	if hasIPv6 {
		_ = listener.Close()
	}
	for _, block := range special {
		first, last := ends(block)
		for _, addr := range []netip.Addr{first, last} {
			client, admitted := resolving(t, marketplace.Config{}, []string{addr.String()})
			expect.Equal(t, addr, client.CheckURL("https://inside.example"), nil)
			err := refuses(t, client, upstream("https://inside.example"))
			expect.Equal(t, addr, *admitted, nil)
			if !addr.Unmap().Is4() && !hasIPv6 {
				continue // it is not even tried
			}
			e, _ := errors.AsType[*svc.Error](err)
			expect.Equal(t, addr, e.Message, hiddenMessage)
			expect.Holds(t, errors.Is(err, marketplace.ErrBlocked) && strings.Contains(err.Error(), addr.Unmap().String()), block, err)
		}
	}
}

// The client refuses each spelling at registration, when it dials, and in redirects.
func TestSpellings(t *testing.T) {
	var location string
	redirect := func(w http.ResponseWriter, r *http.Request) { redirectTo(location, 302)(w, r) }
	web, asked := newWeb(t, hosts{"one.example/templates.json": redirect})
	client := newClient(t, marketplace.Config{})
	client.SetDial(func(address string) (net.Conn, error) {
		t.Errorf("%s is dialled", address)
		return nil, errors.New("not here")
	})
	for what, hosts := range sections("spellings.txt") {
		t.Run(what, func(t *testing.T) {
			for _, host := range hosts {
				location = "https://" + host + "/x"
				expect.Equal(t, location, client.CheckURL(location) != nil, true)
				refuses(t, client, upstream(location), "its address ")
				*asked = nil
				refuses(t, web, upstream("https://one.example"), "its catalogue redirects to a")
				expect.Equal(t, location, *asked, []string{"one.example/templates.json"})
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
		expect.Equal(t, address, client.CheckURL(address), nil)
	}
	for what, addresses := range sections("allowed.txt") {
		for _, address := range addresses {
			expect.Equal(t, "other "+what+address, client.CheckURL(address) != nil, true)
		}
	}
}
