package marketplace_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/marketplace"
)

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         ed25519.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	private := ed25519.NewKeyFromSeed([]byte(rand.Text() + rand.Text())[:ed25519.SeedSize])
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	return authority{sign(t, template, template, private.Public(), private), private}
}

func sign(t *testing.T, template, parent *x509.Certificate, public, key any) *x509.Certificate {
	t.Helper()
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, parent, public, key))))
}

// issue returns a certificate for one.example with the given defect.
func (a authority) issue(t *testing.T, wrong func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{"one.example"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if wrong != nil {
		wrong(template)
	}
	return tls.Certificate{Certificate: [][]byte{sign(t, template, a.certificate, key.Public(), a.key).Raw}, PrivateKey: key}
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

func over(config *tls.Config, next speech) speech {
	return func(conn net.Conn) {
		secure := tls.Server(conn, config)
		defer secure.Close()
		if secure.Handshake() == nil {
			next(secure)
		}
	}
}

func with(certificate tls.Certificate) speech {
	return over(&tls.Config{Certificates: []tls.Certificate{certificate}}, say(ok(length(len(oneEntry))), oneEntry))
}

// newSecure is newHostile over TLS for one.example.
func newSecure(t *testing.T, ca authority) victim {
	t.Helper()
	source := newRawSource(t, with(ca.issue(t, nil)))
	client := newClient(t, marketplace.Config{RootCAs: ca.pool(), Limits: patient})
	client.SetDial(func(string) (net.Conn, error) { return net.Dial("tcp", source.Addr().String()) })
	from := upstream("https://one.example")
	from.Token = "s3cr3t-s3cr3t" // each request has a connection of its own
	good, err := client.Catalog(t.Context(), from, 0)
	if err != nil || good.Failure != nil {
		t.Fatalf("got %+v, %v", good, err)
	}
	return victim{source, client, from, good}
}

func hello(conn net.Conn) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(conn, head); err == nil {
		_, _ = io.CopyN(io.Discard, conn, int64(head[3])<<8|int64(head[4]))
	}
}

// handshakes are faults before the first request. crypto/tls and crypto/x509 have the others.
func handshakes(t *testing.T, ca authority) map[string]speech {
	presented := func(certificate tls.Certificate) speech {
		return over(&tls.Config{Certificates: []tls.Certificate{certificate}}, func(conn net.Conn) {
			expect.Equal(t, "what it was told", heard(conn), "")
		})
	}
	answered := func(text string, next speech) speech {
		return func(conn net.Conn) {
			hello(conn)
			_, _ = io.WriteString(conn, text)
			next(conn)
		}
	}
	old := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, nil)}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	return map[string]speech{
		"unknown authority":   presented(newAuthority(t).issue(t, nil)),
		"another name":        presented(ca.issue(t, func(c *x509.Certificate) { c.DNSNames = []string{"two.example"} })),
		"TLS 1.1":             over(old, silence),
		"plain HTTP, endless": answered(ok(), forEver(" ")),
		"an alert":            answered("\x15\x03\x03\x00\x02\x02\x28", silence),
		"huge records":        answered("", forEver("\x16\x03\x03\xff\xff"+strings.Repeat("x", 65535))),
		"closed at once":      func(net.Conn) {},
	}
}

// A server that does not prove its identity gets no request, and its answer is ignored.
func TestHostileHandshakes(t *testing.T) {
	ca, logged := newAuthority(t), captureLog(t)
	for name, bad := range handshakes(t, ca) {
		t.Run(name, func(t *testing.T) {
			newSecure(t, ca).endures(t, bad, svc.CodeSourceFailed, unreachable)
			expect.Equal(t, "log", logged.String(), "")
		})
	}
}

func TestSlowHandshakes(t *testing.T) {
	ca := newAuthority(t)
	for name, bad := range map[string]speech{
		"silent": silence,
		"a byte at a time": func(conn net.Conn) {
			hello(conn)
			_, _ = io.WriteString(conn, "\x16\x03\x03\x40\x00\x02\x00\x3f\xf0")
			dripping("x")(conn)
		},
		"then silent": over(&tls.Config{Certificates: []tls.Certificate{ca.issue(t, nil)}}, silence),
	} {
		t.Run(name, func(t *testing.T) {
			v := newSecure(t, ca)
			v.Hurry(50*time.Millisecond, 5*time.Minute)
			v.endures(t, bad, svc.CodeSourceTimeout, late)
		})
	}
}

// speech is what a source sends on a connection, which it then closes.
type speech func(conn net.Conn)

// rawSource is a source on loopback that sends raw bytes. It answers well until turn changes that.
type rawSource struct {
	net.Listener
	good speech

	mu   sync.Mutex
	bad  speech // nil: good
	open int    // connections
}

func newRawSource(t testing.TB, good speech) *rawSource {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	s := &rawSource{Listener: listener, good: good}
	t.Cleanup(func() { _ = listener.Close() })
	go s.accept()
	return s
}

func (s *rawSource) accept() {
	for {
		conn, err := s.Accept()
		if err != nil {
			return
		}
		say := s.opened()
		go func() {
			defer s.closed()
			defer conn.Close()
			say(conn)
		}()
	}
}

func (s *rawSource) opened() speech {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	if s.bad != nil {
		return s.bad
	}
	return s.good
}

func (s *rawSource) closed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

// turn makes the source send this speech from now on; nil: answer well.
func (s *rawSource) turn(bad speech) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad = bad
}

// alone waits until no client is connected.
func (s *rawSource) alone(t *testing.T) {
	t.Helper()
	until(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.open == 0
	})
}

// heard reads the head of a request.
func heard(conn net.Conn) string {
	lines, head := bufio.NewReader(conn), ""
	for {
		line, err := lines.ReadString('\n')
		if head += line; err != nil || strings.TrimSpace(line) == "" {
			return head
		}
	}
}

// say answers a request with these bytes.
func say(parts ...string) speech {
	return then(strings.Join(parts, ""), func(net.Conn) {})
}

// then answers a request with these bytes and continues with another speech.
func then(text string, next speech) speech {
	answer := []byte(text) // while it is said nothing is allocated: TestMemoryOfHostileAnswers counts
	return func(conn net.Conn) {
		heard(conn)
		_, _ = conn.Write(answer)
		next(conn)
	}
}

// forEver repeats these bytes as fast as the client reads them.
func forEver(text string) speech {
	again := []byte(strings.Repeat(text, max(1, 64<<10/len(text))))
	return func(conn net.Conn) {
		for {
			if _, err := conn.Write(again); err != nil {
				return
			}
		}
	}
}

// dripping repeats these bytes slowly.
func dripping(text string) speech {
	return func(conn net.Conn) {
		for {
			if _, err := io.WriteString(conn, text); err != nil {
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
}

func silence(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// reset ends a connection like a process that dies.
func reset(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) }

func ok(headers ...string) string { return okAs("application/json", headers...) }

func okAs(kind string, headers ...string) string {
	return "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: " + kind + "\r\n" + strings.Join(append(headers, "\r\n"), "\r\n")
}

func moved(location string) string {
	return "HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: " + location + "\r\n\r\n"
}

func length(n int) string { return fmt.Sprintf("Content-Length: %d", n) }

const chunked, gzipped = "Transfer-Encoding: chunked", "Content-Encoding: gzip"

func chunk(body string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(body), body) }

// zipped is one member of a gzip file.
func zipped(body string) string {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	_, _ = io.WriteString(z, body)
	_ = z.Close()
	return b.String()
}
