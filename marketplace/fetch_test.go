package marketplace_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/marketplace"
)

const oneEntry = `{"templates":[{"id":"a","name":"A","manifest":{"version":"1"}}]}`

// TestHostileAnswers has the others.
func TestAnswers(t *testing.T) {
	large := strings.Repeat(" ", 10_000-len(oneEntry))
	most, none := 10_000+10_000/8+64<<10-len(zipped(oneEntry)), zipped("")
	members := most/len(none) - 1
	empty := strings.Repeat(none, members) + none[:3] + "\x08" + none[4:10] + // the last has a name
		strings.Repeat("x", most-(members+1)*len(none)-1) + "\x00" + none[10:]
	for name, handler := range map[string]http.HandlerFunc{
		"text":     header("Content-Type", "text/plain; charset=utf-8", answer(oneEntry)),
		"identity": header("Content-Encoding", "identity", answer(oneEntry)),
		"gzip":     header("Content-Encoding", "GZIP", answer(zipped(oneEntry)+empty)),
		"exact":    answer(oneEntry + large),
		"too long": answer(oneEntry + large + " "),
	} {
		client, from := serve(t, handler, marketplace.Limits{Catalog: 10_000})
		if name != "too long" {
			version(t, client, from)
		} else {
			refuses(t, client, from, "is larger than 10000 bytes")
		}
	}
}

func header(key, value string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(key, value)
		next(w, r)
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestRequest(t *testing.T) {
	is := is.New(t)
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		_, _ = io.WriteString(w, oneEntry)
	}))
	defer server.Close()
	client := newClient(t, marketplace.Config{AllowOrigins: []string{server.URL}, UserAgent: "mine/1 ~"})
	for range 2 {
		must(client.Template(t.Context(), upstream(server.URL), "a"))
		is.Equal(got, http.Header{"Accept": {"application/json, */*;q=0.5"}, "Accept-Encoding": {"gzip"}, "User-Agent": {"mine/1 ~"}})
	}
}

// TestSlowAnswers has the others.
func TestTimeouts(t *testing.T) {
	hangInManifest := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/m.json" {
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, `{"templates":[{"id":"a","name":"A","manifest_file":"m.json"}]}`)
	}
	redirectSlowly := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		http.Redirect(w, r, "/again", http.StatusFound)
	}
	for want, test := range map[string]struct {
		handler http.HandlerFunc
		limits  marketplace.Limits
	}{
		"the manifest_file of entry 0 of the catalogue": {hangInManifest, marketplace.Limits{HeaderTimeout: 50 * time.Millisecond}},
		"its catalogue": {redirectSlowly, marketplace.Limits{Redirects: 1000, Timeout: 100 * time.Millisecond}},
	} {
		t.Run(want, func(t *testing.T) {
			client, from := serve(t, test.handler, test.limits)
			want += " did not arrive in time"
			var err error
			var took time.Duration
			for try := 0; try < 11 && (err == nil || !strings.Contains(err.Error(), want)); try++ { // a busy machine may be late with what comes before
				start := time.Now()
				_, err = client.Template(t.Context(), from, "a")
				took = time.Since(start)
			}
			wantError(t, err, svc.CodeSourceTimeout, want)
			expect.Equal(t, took, took < time.Minute, true)
		})
	}
}

// A timeout does not look like a cancellation by the caller: that caller would get no older copy.
func TestTimeoutIsNoCancellation(t *testing.T) {
	for _, err := range []error{context.Canceled, fmt.Errorf("read: %w", context.Canceled), io.ErrUnexpectedEOF} {
		got := marketplace.SlowHeaders(err)
		expect.Holds(t, !errors.Is(got, context.Canceled) && strings.Contains(got.Error(), "did not arrive in time: "), err, got)
	}
}

// A connection that carries a token ends with its request: net/http would log what a source sends on an idle one.
func TestTokenIsNotLoggedByHTTP(t *testing.T) {
	closes := map[string]bool{}
	client, from := serve(t, func(w http.ResponseWriter, r *http.Request) {
		closes[r.Header.Get("Authorization")] = r.Close
		_, _ = io.WriteString(w, oneEntry)
	}, marketplace.Limits{})
	must(client.Template(t.Context(), from, "a"))
	from.Token = "the-token-canary"
	must(client.Template(t.Context(), from, "a"))
	is.New(t).Equal(closes, map[string]bool{"": false, "Bearer the-token-canary": true})
	further := func(w http.ResponseWriter, r *http.Request) { closes["further"] = r.Close }
	client, _ = newWeb(t, hosts{"one.example/templates.json": redirectTo("https://two.example/?t=the-token-canary", 302), "two.example/": further})
	from = upstream("https://one.example")
	from.Token = "the-token-canary"
	_, _ = client.Template(t.Context(), from, "a")
	is.New(t).True(closes["further"])
}

func captureLog(t *testing.T) *syncBuffer {
	t.Helper()
	var logged syncBuffer
	before := log.Writer()
	log.SetOutput(&logged)
	t.Cleanup(func() { log.SetOutput(before) })
	return &logged
}

// syncBuffer is a buffer for concurrent use.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

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
