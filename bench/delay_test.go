package bench_test

import (
	"io"
	"net"
	"net/url"
	"testing"
	"time"
)

// network is the time that a delayed connection adds to a round trip.
const network = time.Millisecond

// delayed returns an address that leads to the same database through a proxy. The proxy delays all
// bytes by half of network, in each direction. It ends with the benchmark.
func delayed(tb testing.TB, address string) string {
	tb.Helper()
	to, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = proxy.Close() })
	server := to.Host
	go func() {
		for {
			client, err := proxy.Accept()
			if err != nil {
				return
			}
			if conn, err := net.Dial("tcp", server); err == nil {
				go carry(conn, client)
				go carry(client, conn)
			}
		}
	}()
	to.Host = proxy.Addr().String()
	return to.String()
}

// late is a piece of a stream, and when it arrives.
type late struct {
	bytes []byte
	at    time.Time
}

// carry copies a stream until it ends. Each piece arrives half of network after it was sent.
func carry(to io.WriteCloser, from io.Reader) {
	pieces := make(chan late, 1024)
	go func() {
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.at))
			if _, err := to.Write(p.bytes); err != nil {
				break
			}
		}
		for range pieces { // until the reader ends
		}
	}()
	defer close(pieces)
	for {
		bytes := make([]byte, 16<<10)
		n, err := from.Read(bytes)
		if err != nil {
			return
		}
		pieces <- late{bytes[:n], time.Now().Add(network / 2)}
	}
}
