package marketplace_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         ed25519.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	return authority{sign(t, template, template, public, private), private}
}

func sign(t *testing.T, template, parent *x509.Certificate, public, key any) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// issue returns a certificate for one.example with the given defect.
func (a authority) issue(t *testing.T, wrong func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{"one.example"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if wrong != nil {
		wrong(template)
	}
	return tls.Certificate{Certificate: [][]byte{sign(t, template, a.certificate, key.Public(), a.key).Raw}, PrivateKey: key}
}

// over sends a speech over TLS.
func over(config *tls.Config, next speech) speech {
	return func(conn net.Conn) {
		secure := tls.Server(conn, config)
		defer secure.Close()
		if secure.Handshake() == nil {
			next(secure)
		}
	}
}

// with presents a certificate and would answer well.
func with(certificate tls.Certificate) speech {
	return over(&tls.Config{Certificates: []tls.Certificate{certificate}}, say(ok(length(len(oneEntry))), oneEntry))
}

// newSecure is newHostile over TLS for one.example.
func newSecure(t *testing.T, ca authority) (*rawSource, *marketplace.Client, svc.Upstream, svc.Catalog) {
	t.Helper()
	source := newRawSource(t, with(ca.issue(t, nil)))
	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	client := newClient(t, marketplace.Config{RootCAs: roots, Limits: patient})
	client.SetDial(func(string) (net.Conn, error) { return net.Dial("tcp", source.Addr().String()) })
	from := upstream("https://one.example")
	from.Token = "s3cr3t-s3cr3t" // each request has a connection of its own
	good, err := client.Catalog(t.Context(), from, 0)
	if err != nil || good.Failure != nil {
		t.Fatalf("got %+v, %v", good, err)
	}
	return source, client, from, good
}

// hello reads the first bytes of a client.
func hello(conn net.Conn) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(conn, head); err == nil {
		_, _ = io.CopyN(io.Discard, conn, int64(head[3])<<8|int64(head[4]))
	}
}

// handshakes are faults before the first request.
func handshakes(t *testing.T, ca authority) map[string]speech {
	good := ca.issue(t, nil)
	presented := func(certificate tls.Certificate) speech {
		return over(&tls.Config{Certificates: []tls.Certificate{certificate}}, func(conn net.Conn) {
			if head := heard(conn); head != "" {
				t.Errorf("it was told %q", head)
			}
		})
	}
	signed := func(wrong func(c *x509.Certificate)) speech { return presented(ca.issue(t, wrong)) }
	named := func(names ...string) speech { return signed(func(c *x509.Certificate) { c.DNSNames = names }) }
	honest := func(next speech, differently func(*tls.Config)) speech {
		config := &tls.Config{Certificates: []tls.Certificate{good}}
		if differently != nil {
			differently(config)
		}
		return over(config, next)
	}
	answered := func(text string, next speech) speech {
		return func(conn net.Conn) {
			hello(conn)
			_, _ = io.WriteString(conn, text)
			next(conn)
		}
	}
	hangUp := func(net.Conn) {}
	return map[string]speech{
		"unknown authority":   presented(newAuthority(t).issue(t, nil)),
		"an authority itself": presented(tls.Certificate{Certificate: [][]byte{ca.certificate.Raw}, PrivateKey: ca.key}),
		"expired":             signed(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
		"not valid yet":       signed(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }),
		"another name":        named("two.example", "one.example.evil.example", "xone.example", "*.one.example"),
		"too wide a name":     named("*", "*.*", "one.*"),
		"a common name":       signed(func(c *x509.Certificate) { c.DNSNames, c.Subject.CommonName = nil, "one.example" }),
		"an address":          signed(func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = nil, []net.IP{net.IPv4(127, 0, 0, 1)} }),
		"for clients only":    signed(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }),
		"of another key":      presented(tls.Certificate{Certificate: good.Certificate, PrivateKey: ca.issue(t, nil).PrivateKey}),
		"no certificate": honest(silence, func(c *tls.Config) {
			c.Certificates, c.GetCertificate = nil, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, io.EOF }
		}),
		"wants a certificate": honest(silence, func(c *tls.Config) { c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12 }),
		"TLS 1.1":             honest(silence, func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }),
		"another protocol":    honest(say("SSH-2.0-OpenSSH_9.9\r\n"), nil),
		"HTTP/2":              honest(then("\x00\x00\x00\x04\x00\x00\x00\x00\x00", forEver("\x00\x00\x00\xee\x00\x00\x00\x00\x01")), nil),
		"plain HTTP":          answered(ok(length(len(oneEntry)))+oneEntry, hangUp),
		"plain HTTP, endless": answered(ok(), forEver(" ")),
		"rubbish":             answered("", forEver("\x00")),
		"an alert":            answered("\x15\x03\x03\x00\x02\x02\x28", silence),
		"huge records":        answered("", forEver("\x16\x03\x03\xff\xff"+strings.Repeat("x", 65535))),
		"a huge message":      answered("", forEver("\x16\x03\x03\x40\x00\x02\xff\xff\xff"+strings.Repeat("x", 16380))),
		"empty records":       answered("", forEver("\x16\x03\x03\x00\x00")),
		"closed at once":      hangUp,
		"reset at once":       reset,
		"closed half way":     answered("\x16\x03\x03\x00\x50\x02", hangUp),
		"reset half way":      answered("\x16\x03\x03", reset),
	}
}

// A server that does not prove its identity gets no request and no token, and its answer is
// ignored.
func TestHostileHandshakes(t *testing.T) {
	ca, logged := newAuthority(t), captureLog(t)
	for name, bad := range handshakes(t, ca) {
		t.Run(name, func(t *testing.T) {
			source, client, from, good := newSecure(t, ca)
			source.turn(bad)
			wantStale(t, client, from, good, svc.CodeSourceFailed, unreachable)
			source.alone(t)
			source.turn(nil)
			version(t, client, from)
			if logged.String() != "" {
				t.Errorf("the process's log has %q", logged)
			}
		})
	}
}

func TestSlowHandshakes(t *testing.T) {
	ca := newAuthority(t)
	for name, bad := range map[string]speech{
		"silent":            silence,
		"silent after that": func(conn net.Conn) { hello(conn); silence(conn) },
		"silent half way": func(conn net.Conn) {
			hello(conn)
			_, _ = io.WriteString(conn, "\x16\x03\x03\x00\x50\x02")
			silence(conn)
		},
		"a byte at a time": func(conn net.Conn) {
			hello(conn)
			_, _ = io.WriteString(conn, "\x16\x03\x03\x40\x00\x02\x00\x3f\xf0")
			dripping("x")(conn)
		},
		"then silent": over(&tls.Config{Certificates: []tls.Certificate{ca.issue(t, nil)}}, silence),
	} {
		t.Run(name, func(t *testing.T) {
			source, client, from, good := newSecure(t, ca)
			source.turn(bad)
			client.Hurry(50*time.Millisecond, 5*time.Minute)
			began := time.Now()
			wantStale(t, client, from, good, svc.CodeSourceTimeout, late)
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
			source.alone(t)
			source.turn(nil)
			client.Hurry(time.Minute, time.Minute)
			version(t, client, from)
		})
	}
}
