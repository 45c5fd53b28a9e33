package marketplace_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

var hiddenAddresses = []string{
	"0.0.0.0", "0.255.255.255", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.254", "127.0.0.1", "127.1.2.3", "169.254.169.254", "172.16.0.1",
	"172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.7", "224.0.0.251",
	"239.255.255.255", "240.0.0.1", "255.255.255.255",
	"::", "::1", "::2", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::127.0.0.1", "64:ff9b::8.8.8.8", "64:ff9b:1::1", "100::1", "2001::1",
	"2001:2::1", "2001:10::1", "2001:db8::1", "2002:7f00:1::1", "3fff::1", "4000::1", "5f00::1", "fc00::1", "fdff::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
}

var publicAddresses = []string{
	"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0",
	"172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
	"2001:200::1", "2606:4700::1111", "2a00:1450::1", "2001:db9::1", "2003::1", "3ffe::1",
}

func TestGuard(t *testing.T) {
	client := newClient(t, marketplace.Config{})
	for _, address := range hiddenAddresses {
		if !client.Forbids(netip.MustParseAddr(address)) {
			t.Errorf("%s is admitted", address)
		}
		if err := client.Control(net.JoinHostPort(address, "443")); !errors.Is(err, marketplace.ErrBlocked) {
			t.Errorf("%s may be dialled: %v", address, err)
		}
	}
	for _, address := range publicAddresses {
		if err := client.Control(net.JoinHostPort(address, "443")); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"", "localhost:443", "127.0.0.1", "8.8.8.8", "8.8.8.8:x"} {
		if err := client.Control(address); !errors.Is(err, marketplace.ErrBlocked) {
			t.Errorf("%q may be dialled: %v", address, err)
		}
	}
}

func TestGuardAllowsCIDRs(t *testing.T) {
	client := newClient(t, marketplace.Config{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/16"), netip.MustParsePrefix("fe80::/10")}})
	for address, want := range map[string]bool{"10.1.255.1": false, "10.2.0.1": true, "::ffff:10.1.0.1": true, "fe80::1": false, "fe80::1%lo": false, "127.0.0.1": true, "8.8.8.8": false} {
		if got := client.Forbids(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: forbidden is %v, want %v", address, got, want)
		}
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

// resolving returns a client whose names resolve to answers, and the list of addresses that its
// guard admits.
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
	client, admitted := resolving(t, marketplace.Config{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, []string{"10.0.0.1", "192.168.0.1"})
	_, err := client.Template(t.Context(), upstream("https://corp.example"), "a")
	wantError(t, err, svc.CodeSourceFailed)
	if !slices.Equal(*admitted, []string{"10.0.0.1:443"}) {
		t.Errorf("admitted %q", *admitted)
	}
}

// The client reaches an allowed origin at any address, but only with that scheme, host and port.
func TestNameOfAllowedOrigin(t *testing.T) {
	server := httptest.NewServer(answer(oneEntry))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	client, _ := resolving(t, marketplace.Config{AllowOrigins: []string{"http://git.example:" + port}}, []string{"127.0.0.1"})
	if _, err := client.Template(t.Context(), upstream("http://git.example:"+port+"/"), "a"); err != nil {
		t.Error(err)
	}
	_, err := client.Template(t.Context(), upstream("https://git.example:"+port+"/"), "a")
	wantError(t, err, svc.CodeSourceFailed, "not public")
	_, err = client.Template(t.Context(), upstream("https://git.example/"), "a")
	wantError(t, err, svc.CodeSourceFailed, "not public")
}
