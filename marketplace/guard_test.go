package marketplace_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/marketplace"
)

// TestSpecialRanges has the addresses.
func TestGuardRefusesWhatIsNoAddress(t *testing.T) {
	client := newClient(t, marketplace.Config{})
	for _, address := range []string{"", "localhost:443", "127.0.0.1", "8.8.8.8", "8.8.8.8:x", "[fe80::1%eth0]:443"} {
		expect.Equal(t, address, errors.Is(client.Control(address), marketplace.ErrBlocked), true)
	}
}

func TestGuardAllowsCIDRs(t *testing.T) {
	client := newClient(t, marketplace.Config{AllowCIDRs: prefixes("10.1.2.3/16", "fe80::/10")})
	for address, want := range map[string]bool{"10.1.255.1": false, "10.2.0.1": true, "::ffff:10.1.0.1": true, "fe80::1": false, "fe80::1%lo": false, "127.0.0.1": true, "8.8.8.8": false} {
		expect.Equal(t, address, client.Forbids(netip.MustParseAddr(address)), want)
	}
}

// names is a DNS server. It answers the n-th query for IPv4, and the n-th for IPv6, with the n-th
// set, and repeats the last.
type names struct {
	mu      sync.Mutex
	answers [][]string
	asked   map[bool]int // how often, for IPv4 and for the others
	silent  bool         // it never answers
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go n.serve(server)
		return client, nil
	}}
}

func (n *names) serve(conn net.Conn) {
	defer conn.Close()
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return
	}
	if n.silent {
		_, _ = io.Copy(io.Discard, conn)
		return
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, query); err != nil {
		return
	}
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5
	var addresses []netip.Addr
	isA := binary.BigEndian.Uint16(query[end-4:]) == 1
	for _, address := range n.next(isA) {
		if a := netip.MustParseAddr(address); a.Is4() == isA {
			addresses = append(addresses, a)
		}
	}
	reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, byte(len(addresses)), 0, 0, 0, 0}, query[12:end]...)
	for _, a := range addresses {
		reply = append(reply, 0xc0, 12, query[end-4], query[end-3], 0, 1, 0, 0, 0, 0, 0, byte(len(a.AsSlice())))
		reply = append(reply, a.AsSlice()...)
	}
	_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
}

func (n *names) next(isA bool) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked == nil {
		n.asked = map[bool]int{}
	}
	set := n.answers[min(n.asked[isA], len(n.answers)-1)]
	n.asked[isA]++
	return set
}

var errNotConnected = errors.New("admitted, and not connected in this test")

// resolving returns a client whose names resolve to answers, and the addresses that its guard admits.
func resolving(t *testing.T, config marketplace.Config, answers ...[]string) (*marketplace.Client, *[]string) {
	t.Helper()
	client := newClient(t, config)
	var mu sync.Mutex
	var admitted []string
	client.SetResolver((&names{answers: answers}).resolver(), func(address string) error {
		mu.Lock()
		defer mu.Unlock()
		admitted = append(admitted, address)
		return errNotConnected
	})
	return client, &admitted
}

func TestNameInAllowedCIDR(t *testing.T) {
	client, admitted := resolving(t, marketplace.Config{AllowCIDRs: prefixes("10.0.0.0/8")}, []string{"10.0.0.1", "192.168.0.1"})
	refuses(t, client, upstream("https://corp.example"))
	expect.Equal(t, "admitted", *admitted, []string{"10.0.0.1:443"})
}

// The client reaches an allowed origin at any address, but only with that scheme, host and port.
func TestNameOfAllowedOrigin(t *testing.T) {
	server := httptest.NewServer(answer(oneEntry))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	client, _ := resolving(t, marketplace.Config{AllowOrigins: []string{"http://git.example:" + port}}, []string{"127.0.0.1"})
	version(t, client, upstream("http://git.example:"+port+"/"))
	refuses(t, client, upstream("https://git.example:"+port+"/"), "not public")
	refuses(t, client, upstream("https://git.example/"), "not public")
}

// personal returns the same source as one of a user.
func personal(from svc.Upstream) svc.Upstream {
	from.Source = svc.SourceKey{Scope: svc.ScopePersonal, Owner: "alice", Name: from.Source.Name}
	return from
}

// What the host allows holds for the server's sources: at registration, at each redirect and at each
// dial, also over a connection that is open. AllowPersonal extends it to the sources of users.
func TestAllowancesAreForTheServersSources(t *testing.T) {
	const plain = "its address is plain http, which this server does not allow for this origin"
	inside := netip.MustParsePrefix("10.0.0.0/8")
	for _, extended := range []bool{false, true} {
		t.Run(fmt.Sprint("AllowPersonal ", extended), func(t *testing.T) {
			is := is.New(t)
			config := marketplace.Config{AllowPersonal: extended, AllowCIDRs: []netip.Prefix{inside}}
			s, client, allowed := newShelf(t, config)
			for _, address := range []string{allowed.URL, "https://10.0.0.1/a"} {
				is.NoErr(client.CheckURL(address))
				is.NoErr(client.CheckSource(allowed.Source, address))
				is.Equal(client.CheckSource(personal(allowed).Source, address) == nil, extended)
			}
			must(client.Template(t.Context(), allowed, "a"))
			s.requests()
			_, err := client.Template(t.Context(), personal(allowed), "a")
			if is.Equal(err == nil, extended); !extended {
				wantError(t, err, svc.CodeSourceFailed, plain)
				is.Equal(len(s.requests()), 0)
			}

			web, server, asked := newServedWeb(t, marketplace.Config{AllowPersonal: extended, AllowCIDRs: config.AllowCIDRs, AllowOrigins: []string{allowed.URL}},
				hosts{"one.example/templates.json": answer(oneEntry), "two.example/m.json": answer(`{"version":"1"}`), "two.example/templates.json": redirectTo(allowed.URL+"/templates.json", 302)})
			web.SetWeb((&names{answers: [][]string{{"10.0.0.1"}}}).resolver(), server)
			from := upstream("https://one.example")
			must(web.Template(t.Context(), from, "a"))
			_, err = web.Template(t.Context(), personal(from), "a")
			if is.Equal(err == nil, extended); !extended {
				wantError(t, err, svc.CodeSourceFailed, hiddenMessage)
				is.Equal(len(*asked), 1)
			}
			web.CloseIdleConnections()
			web.SetWeb((&names{answers: [][]string{{"93.184.216.34"}}}).resolver(), server)
			_, err = web.Template(t.Context(), personal(upstream("https://two.example")), "a")
			is.Equal(err == nil, extended)
			is.Equal(len(s.requests()) > 0, extended)
		})
	}
}

// The client checks the address of a name again each time it dials.
func TestRebinding(t *testing.T) {
	for name, lines := range sections("rebinding.txt") {
		t.Run(name, func(t *testing.T) {
			handlers, more := scene(lines)
			client, server, asked := newServedWeb(t, marketplace.Config{}, handlers)
			var answers [][]string
			for _, address := range strings.Fields(more["resolves"][0]) {
				answers = append(answers, []string{address})
			}
			client.SetWeb((&names{answers: answers}).resolver(), server)
			from := upstream("https://one.example")
			from.Token = "s3cr3t-s3cr3t" // no connection is used again
			for _, want := range more["call"] {
				if want == "good" {
					must(client.Template(t.Context(), from, "a"))
				} else {
					refuses(t, client, from, strings.Replace(want, "hidden", hiddenMessage, 1))
				}
			}
			expect.Equal(t, *asked, fmt.Sprint(len(*asked)), more["asked"][0])
		})
	}
}

// An open connection leads to its admitted address. That of the next connection is checked.
func TestRebindingOfAKeptConnection(t *testing.T) {
	is := is.New(t)
	client, server, asked := newServedWeb(t, marketplace.Config{},
		hosts{"one.example/templates.json": answer(oneEntry)})
	client.SetWeb((&names{answers: [][]string{{"93.184.216.34"}, {"127.0.0.1"}}}).resolver(), server)
	from := upstream("https://one.example")
	version(t, client, from)
	version(t, client, from)
	is.Equal(len(*asked), 2)
	client.CloseIdleConnections()
	refuses(t, client, from, hiddenMessage)
	is.Equal(len(*asked), 2)
}
