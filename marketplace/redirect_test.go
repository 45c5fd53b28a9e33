package marketplace_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

func redirectTo(location string, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(status)
	}
}

// newWeb returns a client whose names all lead to one server on loopback, and the list of its
// requests: "host/path token".
func newWeb(t *testing.T, handlers map[string]http.HandlerFunc) (*marketplace.Client, *[]string) {
	t.Helper()
	client, server, asked := newServedWeb(t, marketplace.Config{}, handlers)
	client.SetDial(func(string) (net.Conn, error) { return net.Dial("tcp", server) })
	return client, asked
}

// newServedWeb returns the client of newWeb with its own dialer, and the address of the server.
func newServedWeb(t *testing.T, config marketplace.Config, handlers map[string]http.HandlerFunc) (client *marketplace.Client, address string, requests *[]string) {
	t.Helper()
	var asked []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("it is spoken to in %s", r.Proto)
		}
		asked = append(asked, strings.TrimRight(r.Host+r.URL.RequestURI()+" "+r.Header.Get("Authorization"), " "))
		if handler := handlers[r.Host+r.URL.Path]; handler != nil {
			handler(w, r)
		} else {
			http.NotFound(w, r)
		}
	}))
	var certificate tls.Certificate
	certificate, config.RootCAs = issue(t, "raw.githubusercontent.com", "gitlab.com", "one.example", "two.example", "sub.one.example")
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return newClient(t, config), server.Listener.Addr().String(), &asked
}

func issue(t *testing.T, names ...string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: names, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

func TestRedirectStatuses(t *testing.T) {
	for status, followed := range map[int]bool{301: true, 302: true, 303: true, 307: true, 308: true, 300: false, 304: false, 305: false, 306: false} {
		client, from := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RequestURI() == "/new?a=b" {
				answer(oneEntry)(w, r)
				return
			}
			redirectTo("/new?a=b#fragment", status)(w, r)
		}, marketplace.Limits{})
		_, err := client.Template(t.Context(), from, "a")
		if followed && err != nil {
			t.Errorf("%d: %v", status, err)
		}
		if !followed {
			wantError(t, err, svc.CodeSourceFailed, "answered "+strconv.Itoa(status))
		}
	}
}

func TestRedirectLimit(t *testing.T) {
	for limit, most := range map[int]int{0: 5, 2: 2, -1: 0} {
		for hops, good := range map[int]bool{most: true, most + 1: false, 1000: false} {
			client, from := serve(t, func(w http.ResponseWriter, r *http.Request) {
				n, _ := strconv.Atoi(r.URL.Query().Get("n"))
				if n == hops {
					answer(oneEntry)(w, r)
					return
				}
				redirectTo("?n="+strconv.Itoa(n+1), 302)(w, r)
			}, marketplace.Limits{Redirects: limit})
			_, err := client.Template(t.Context(), from, "a")
			if good && err != nil {
				t.Errorf("%d redirects of at most %d: %v", hops, most, err)
			}
			if !good {
				wantError(t, err, svc.CodeSourceFailed, "redirects too often")
			}
		}
	}
}

func TestRedirectRefused(t *testing.T) {
	var hit bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hit = true }))
	defer other.Close()
	for location, want := range map[string]string{
		other.URL: "is plain http",
		strings.Replace(other.URL, "http", "https", 1): "is not public",
		"http://one.example/x":                         "is plain http",
		"https://2130706433/":                          "four decimal numbers",
		"https://[::ffff:127.0.0.1]/":                  "is not public",
		"//localhost/x":                                "is not public",
		"https://u:p@two.example/":                     "user name",
		"https://user@127.0.0.1/":                      "user name",
		"fs://local/":                                  "http or https",
		"file:///etc/passwd":                           "absolute address",
		"data:application/json,{}":                     "absolute address",
		"https://１２７.0.0.1/":                           "ASCII",
		"https://%zz/":                                 "malformed address",
		"https://two.example:0/":                       "port",
	} {
		client, asked := newWeb(t, map[string]http.HandlerFunc{"one.example/templates.json": redirectTo(location, 302)})
		_, err := client.Template(t.Context(), upstream("https://one.example"), "a")
		wantError(t, err, svc.CodeSourceFailed, "its catalogue redirects to a", want)
		if len(*asked) != 1 || hit {
			t.Errorf("%s: asked %q", location, *asked)
		}
	}
}

// A redirect may lead to plain http only at origins that the host allows.
func TestDowngradeToAllowedOrigin(t *testing.T) {
	plain := httptest.NewServer(answer(oneEntry))
	defer plain.Close()
	secure := httptest.NewTLSServer(redirectTo(plain.URL, 302))
	defer secure.Close()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	client := newClient(t, marketplace.Config{AllowOrigins: []string{plain.URL, secure.URL}, RootCAs: roots})
	if _, err := client.Template(t.Context(), upstream(secure.URL), "a"); err != nil {
		t.Error(err)
	}
}

func TestTokenStaysHome(t *testing.T) {
	for name, test := range map[string]struct {
		url      string
		handlers map[string]http.HandlerFunc
		asked    []string
	}{
		"same place": {"https://one.example/dir", map[string]http.HandlerFunc{
			"one.example/dir/templates.json": redirectTo("/list", 302), "one.example/list": answer(fileEntry), "one.example/dir/m.json": answer(`{}`),
		}, []string{"one.example/dir/templates.json Bearer s3cr3t", "one.example/list Bearer s3cr3t", "one.example/dir/m.json Bearer s3cr3t"}},
		"other host, and back": {"https://one.example", map[string]http.HandlerFunc{
			"one.example/templates.json": redirectTo("https://two.example/x", 301), "two.example/x": redirectTo("https://one.example/y", 307), "one.example/y": answer(fileEntry),
			"one.example/m.json": answer(`{}`),
		}, []string{"one.example/templates.json Bearer s3cr3t", "two.example/x", "one.example/y", "one.example/m.json Bearer s3cr3t"}},
		"other port": {"https://one.example", map[string]http.HandlerFunc{
			"one.example/templates.json": redirectTo("https://one.example:8443/x", 301), "one.example:8443/x": answer(oneEntry),
		}, []string{"one.example/templates.json Bearer s3cr3t", "one.example:8443/x"}},
		"subdomain-like": {"https://one.example:444", map[string]http.HandlerFunc{
			"one.example:444/templates.json": redirectTo("https://ONE.example./x", 301), "one.example/x": answer(oneEntry),
		}, []string{"one.example:444/templates.json Bearer s3cr3t", "one.example/x"}},
		"same place, spelled otherwise": {"https://one.example", map[string]http.HandlerFunc{
			"one.example/templates.json": redirectTo("https://ONE.example.:0443/x", 301), "one.example/x": answer(oneEntry),
		}, []string{"one.example/templates.json Bearer s3cr3t", "one.example/x Bearer s3cr3t"}},
		"at home for a while, then away": {"https://one.example", map[string]http.HandlerFunc{
			"one.example/templates.json": redirectTo("/a", 301), "one.example/a": redirectTo("//ONE.EXAMPLE/b", 303), "one.example/b": redirectTo("https://two.example/x", 308), "two.example/x": answer(oneEntry),
		}, []string{"one.example/templates.json Bearer s3cr3t", "one.example/a Bearer s3cr3t", "one.example/b Bearer s3cr3t", "two.example/x"}},
		"away twice, and back": {"https://one.example", map[string]http.HandlerFunc{
			"one.example/templates.json": redirectTo("https://one.example:8443/x", 302), "one.example:8443/x": redirectTo("https://two.example/x", 302),
			"two.example/x": redirectTo("https://one.example/y", 302), "one.example/y": redirectTo("/z", 302), "one.example/z": answer(oneEntry),
		}, []string{"one.example/templates.json Bearer s3cr3t", "one.example:8443/x", "two.example/x", "one.example/y", "one.example/z"}},
		"name below": {"https://one.example", map[string]http.HandlerFunc{
			"one.example/templates.json": redirectTo("https://sub.one.example/x", 302), "sub.one.example/x": answer(oneEntry),
		}, []string{"one.example/templates.json Bearer s3cr3t", "sub.one.example/x"}},
		"name above": {"https://sub.one.example", map[string]http.HandlerFunc{
			"sub.one.example/templates.json": redirectTo("//one.example/x", 302), "one.example/x": answer(oneEntry),
		}, []string{"sub.one.example/templates.json Bearer s3cr3t", "one.example/x"}},
		"a manifest moved": {"https://one.example", map[string]http.HandlerFunc{
			"one.example/templates.json": answer(fileEntry), "one.example/m.json": redirectTo("https://two.example/m", 302), "two.example/m": redirectTo("https://one.example/n", 302), "one.example/n": answer(`{}`),
		}, []string{"one.example/templates.json Bearer s3cr3t", "one.example/m.json Bearer s3cr3t", "two.example/m", "one.example/n"}},
		"GitHub": {"https://github.com/acme/t/tree/v1/dir", map[string]http.HandlerFunc{
			"raw.githubusercontent.com/acme/t/v1/dir/templates.json": answer(fileEntry), "raw.githubusercontent.com/acme/t/v1/dir/m.json": redirectTo("https://two.example/m", 302), "two.example/m": answer(`{}`),
		}, []string{"raw.githubusercontent.com/acme/t/v1/dir/templates.json Bearer s3cr3t", "raw.githubusercontent.com/acme/t/v1/dir/m.json Bearer s3cr3t", "two.example/m"}},
		"GitLab": {"https://gitlab.com/g/s/p", map[string]http.HandlerFunc{
			"gitlab.com/g/s/p/-/raw/HEAD/templates.json": answer(oneEntry),
		}, []string{"gitlab.com/g/s/p/-/raw/HEAD/templates.json Bearer s3cr3t"}},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			client, asked := newWeb(t, test.handlers)
			from := upstream(test.url)
			from.Token = "s3cr3t"
			_, err := client.Template(t.Context(), from, "a")
			is.NoErr(err)
			is.Equal(*asked, test.asked)
		})
	}
}

// From https to http of the same name and back. The host allows both.
func TestTokenToOtherScheme(t *testing.T) {
	is := is.New(t)
	var tokens []string
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, "http "+r.Header.Get("Authorization"))
		redirectTo("https://one.example/back", 302)(w, r)
	}))
	defer plain.Close()
	client, server, asked := newServedWeb(t, marketplace.Config{AllowOrigins: []string{"http://one.example"}}, map[string]http.HandlerFunc{
		"one.example/templates.json": redirectTo("http://one.example/x", 302), "one.example/back": answer(oneEntry),
	})
	client.SetDial(func(address string) (net.Conn, error) {
		if address == "one.example:80" {
			return net.Dial("tcp", plain.Listener.Addr().String())
		}
		return net.Dial("tcp", server)
	})
	from := upstream("https://one.example")
	from.Token = "s3cr3t"
	_, err := client.Template(t.Context(), from, "a")
	is.NoErr(err)
	is.Equal(tokens, []string{"http "})
	is.Equal(*asked, []string{"one.example/templates.json Bearer s3cr3t", "one.example/back"})
}

// Plain http between two ports of loopback, like two sources on one machine.
func TestTokenToOtherPortOfLoopback(t *testing.T) {
	var tokens []string
	record := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			tokens = append(tokens, r.Header.Get("Authorization"))
			next(w, r)
		}
	}
	second := httptest.NewServer(record(answer(oneEntry)))
	defer second.Close()
	first := httptest.NewServer(record(redirectTo(second.URL, 302)))
	defer first.Close()
	client := newClient(t, marketplace.Config{AllowOrigins: []string{first.URL, second.URL}})
	from := upstream(first.URL)
	from.Token = "s3cr3t"
	if _, err := client.Template(t.Context(), from, "a"); err != nil {
		t.Error(err)
	}
	if !slices.Equal(tokens, []string{"Bearer s3cr3t", ""}) {
		t.Errorf("got %q", tokens)
	}
}

// No error shows the token.
func TestTokenInNoError(t *testing.T) {
	for _, handler := range []http.HandlerFunc{status(401), redirectTo("http://evil.example/?s", 302), answer("{"), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }} {
		client, from := serve(t, handler, marketplace.Limits{})
		for _, token := range []svc.Secret{"s3cr3t", "s3cr3t\r\nX: y"} {
			from.Token = token
			_, err := client.Template(t.Context(), from, "a")
			if wantError(t, err, svc.CodeSourceFailed); strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("%v", err)
			}
		}
	}
}
