package marketplace_test

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/marketplace"
)

func redirectTo(location string, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(status)
	}
}

// hosts are handlers by host and path.
type hosts map[string]http.HandlerFunc

func (h hosts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if handler := h[r.Host+r.URL.Path]; handler != nil {
		handler(w, r)
	} else {
		http.NotFound(w, r)
	}
}

// newWeb returns a client whose names all lead to one server, and its requests: "host/path token".
func newWeb(t *testing.T, handlers hosts) (*marketplace.Client, *[]string) {
	t.Helper()
	client, server, asked := newServedWeb(t, marketplace.Config{}, handlers)
	client.SetDial(func(string) (net.Conn, error) { return net.Dial("tcp", server) })
	return client, asked
}

// newServedWeb returns the client of newWeb with its own dialer, and the address of the server.
func newServedWeb(t *testing.T, config marketplace.Config, handler http.Handler) (client *marketplace.Client, address string, requests *[]string) {
	t.Helper()
	var asked []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		expect.Holds(t, r.ProtoMajor == 1, r.Proto)
		asked = append(asked, strings.TrimRight(r.Host+r.URL.RequestURI()+" "+r.Header.Get("Authorization"), " "))
		handler.ServeHTTP(w, r)
	}))
	ca := newAuthority(t)
	config.RootCAs = ca.pool()
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue(t, func(c *x509.Certificate) {
		c.DNSNames = []string{"raw.githubusercontent.com", "gitlab.com", "one.example", "two.example", "sub.one.example"}
	})}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return newClient(t, config), server.Listener.Addr().String(), &asked
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
			if good {
				version(t, client, from)
			} else {
				refuses(t, client, from, "redirects too often")
			}
		}
	}
}

// scene is a section of a script: the answers of addresses, and the other lines by their first word.
func scene(lines []string) (handlers hosts, more map[string][]string) {
	handlers, more = hosts{}, map[string][]string{}
	catalogues := map[string]string{"entry": oneEntry, "file": fileEntry}
	for _, line := range lines {
		what, rest, _ := strings.Cut(line, " ")
		code, location, moved := strings.Cut(rest, " ")
		switch {
		case !strings.Contains(what, "/"):
			more[what] = append(more[what], rest)
		case moved:
			handlers[what] = redirectTo(location, must(strconv.Atoi(code)))
		default:
			handlers[what] = answer(cmp.Or(catalogues[rest], rest))
		}
	}
	return handlers, more
}

func TestTokenStaysHome(t *testing.T) {
	for name, lines := range sections("redirects.txt") {
		t.Run(name, func(t *testing.T) {
			handlers, more := scene(lines)
			client, asked := newWeb(t, handlers)
			from := upstream(more["from"][0])
			from.Token = "s3cr3t"
			must(client.Template(t.Context(), from, "a"))
			is.New(t).Equal(*asked, more["asked"])
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
	client, server, asked := newServedWeb(t, marketplace.Config{AllowOrigins: []string{"http://one.example"}}, hosts{
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
	must(client.Template(t.Context(), from, "a"))
	is.Equal(tokens, []string{"http "})
	is.Equal(*asked, []string{"one.example/templates.json Bearer s3cr3t", "one.example/back"})
}

func TestTokenInNoError(t *testing.T) {
	for _, handler := range []http.HandlerFunc{status(401), redirectTo("http://evil.example/?s", 302), answer("{"), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }} {
		client, from := serve(t, handler, marketplace.Limits{})
		for _, token := range []svc.Secret{"s3cr3t", "s3cr3t\r\nX: y"} {
			from.Token = token
			err := refuses(t, client, from)
			expect.Equal(t, err, strings.Contains(err.Error(), "s3cr3t"), false)
		}
	}
}

// The client checks each hop, from the first to the last.
func TestRedirectsAstray(t *testing.T) {
	var hops int // good ones, before the bad one
	var location string
	hop := func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		if n == hops {
			redirectTo(location, 302)(w, r)
			return
		}
		redirectTo("https://"+[]string{"two.example", "one.example"}[n%2]+"/templates.json?n="+strconv.Itoa(n+1), 307)(w, r)
	}
	client, asked := newWeb(t, hosts{"one.example/templates.json": hop, "two.example/templates.json": hop})
	from := upstream("https://one.example")
	from.Token = "s3cr3t"
	for what, locations := range sections("astray.txt") {
		t.Run(what, func(t *testing.T) {
			for _, location = range locations {
				for _, hops = range []int{0, 1, 4} {
					*asked = nil
					err := refuses(t, client, from, "its catalogue redirects to a")
					expect.Equal(t, *asked, len(*asked), hops+1)
					expect.Equal(t, err, strings.Contains(err.Error(), "hunter2"), false) // a password
				}
			}
		})
	}
}
