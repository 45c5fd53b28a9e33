package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/slow"
)

// patience is how long anything may take before a test gives up. Nothing is measured by it.
const patience = time.Minute

// dial opens a connection on which a test says what no client would.
func (s *site) dial() *net.TCPConn {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn.(*net.TCPConn)
}

// talk sends a text as it is, and returns all that is answered until the server ends the connection.
func (s *site) talk(text string) []answer {
	s.t.Helper()
	conn := s.dial()
	defer conn.Close()
	_, _ = io.WriteString(conn, text) // the server may end it before
	return s.hear(conn, text)
}

// talkAndLeave is talk by a client that says that it has no more to send, which ends whatever is whole by then.
func (s *site) talkAndLeave(text string) []answer {
	s.t.Helper()
	conn := s.dial()
	defer conn.Close()
	_, _ = io.WriteString(conn, text)
	_ = conn.CloseWrite()
	return s.hear(conn, text)
}

func (s *site) hear(conn net.Conn, text string) (all []answer) {
	s.t.Helper()
	reader := bufio.NewReader(conn)
	method, _, _ := strings.Cut(text, " ")
	for {
		response, err := http.ReadResponse(reader, &http.Request{Method: method})
		if err, late := err.(net.Error); late && err.Timeout() {
			s.t.Fatalf("%q: not answered in %v", clip(text), patience)
		}
		if err != nil {
			return all
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		a := answer{t: s.t, request: fmt.Sprintf("%q", clip(text)), status: response.StatusCode, header: response.Header, body: body}
		if a.status != http.StatusContinue && !a.plain() {
			a.checkForm(method)
		}
		s.note(a)
		all = append(all, a)
	}
}

// plain reports whether it is net/http that answered, before it asked any handler.
func (a answer) plain() bool {
	kind := a.header.Get("Content-Type")
	refused := a.status == 400 || a.status == 413 || a.status == 417 || a.status == 431 || a.status == 501 || a.status == 505
	return refused && (kind == "text/plain; charset=utf-8" || kind == "")
}

// oneOf wants each of some answers, of which there are so many (0: one or more), to have one of these statuses.
func (s *site) oneOf(text string, answers []answer, count int, statuses ...int) {
	s.t.Helper()
	if len(answers) != count && (count > 0 || len(answers) == 0) {
		s.t.Errorf("%q: %d answers, want %d: %v", clip(text), len(answers), count, answers)
	}
	for _, a := range answers {
		if !slices.Contains(statuses, a.status) {
			s.t.Errorf("%s: answered %d, not one of %v: %s", a.request, a.status, statuses, clip(string(a.body)))
		}
	}
}

// unbroken wants nothing to have been at fault, whatever was sent.
func (s *site) unbroken() {
	s.t.Helper()
	said := s.said.String()
	for _, fault := range []string{"panic", "superfluous", `"level":"ERROR"`} {
		if at := strings.Index(said, fault); at >= 0 {
			s.t.Errorf("a fault: %s", clip(said[at:]))
		}
	}
	s.admin().get("/me/api-keys").is(200)
}

// harden serves the site as examples/server does, with what a test changes of that.
func (s *site) harden(change func(*http.Server)) {
	was := s.server
	s.server = httptest.NewUnstartedServer(was.Config.Handler)
	config := s.server.Config
	config.ErrorLog, config.DisableGeneralOptionsHandler, config.MaxHeaderBytes = was.Config.ErrorLog, true, 64<<10
	config.ReadHeaderTimeout, config.ReadTimeout, config.WriteTimeout, config.IdleTimeout = 5*time.Second, 20*time.Second, time.Minute, 2*time.Minute
	if change != nil {
		change(config)
	}
	was.Close()
	s.server.Start()
}

// lines are those of a request, by a bearer unless it is "", the last on its connection.
func (s *site) lines(first, bearer string, headers ...string) string {
	if bearer != "" {
		headers = append(headers, "Authorization: Bearer "+bearer)
	}
	return first + "\r\nHost: h\r\n" + strings.Join(append(headers, "Connection: close"), "\r\n") + "\r\n\r\n"
}

// everyByte are all bytes as they are, and escaped both ways.
func everyByte(do func(spelled string)) {
	for b := range 256 {
		do(string([]byte{byte(b)}))
		do(fmt.Sprintf("%%%02x", b))
		if b%slow.Times(4, 1) == 0 {
			do(fmt.Sprintf("%%%02X%%%02X", b, 0x80|b))
		}
	}
	for _, odd := range []string{"%", "%%", "%1", "%zz", "%u0041", "%-1", "% 41", "%4\x00", "%+4", "%c0%af", "%ed%a0%80", "%f4%90%80%80", "\xff\xfe", "\xc3\xbc", "%e2%80%ae", strings.Repeat("%00", 1000)} {
		do(odd)
	}
}

// Any byte at any place of a path is either refused or looked up. Nothing breaks or redirects.
func TestEveryByteInAPath(t *testing.T) {
	s := newSite(t, mounts["ahead of a mux"])
	key, before := s.key("admin"), s.everything(s.admin())
	everyByte(func(b string) {
		for _, path := range []string{"/admin/templates/a" + b, "/admin/templates/" + b + "/check-update", "/admin/template" + b + "s", "/users/" + b + "/api-keys", "/" + b, b} {
			target := "GET /ext/svc" + path + " HTTP/1.1"
			if path == b && b != "/" && !strings.HasPrefix(b, "?") {
				continue // another's
			}
			refused := s.talk(s.lines(target, ""))
			s.oneOf(target, refused, 1, 400, 401)
			a := s.talk(s.lines(target, key))
			switch {
			case strings.Contains(path, "/users/"):
				s.oneOf(target, a, 1, 200, 400, 404)
			default:
				s.oneOf(target, a, 1, 400, 404)
			}
			if refused[0].status == 401 && a[0].plain() {
				t.Errorf("%s: refused as malformed only with a bearer", target)
			}
		}
	})
	if after := s.everything(s.as(key)); len(after) < len(before) {
		t.Errorf("something is gone: %s", after)
	}
	s.unbroken()
}

func TestEveryByteInAQuery(t *testing.T) {
	s := newSite(t)
	key := s.key("admin")
	everyByte(func(b string) {
		for _, target := range []string{
			"/admin/templates?tag=" + b, "/admin/templates?category=x" + b + "&tag=a", "/admin/templates?" + b, "/admin/templates?limit=" + b, "/me/api-keys?cursor=" + b,
			"/debug/resolve?user_id=a&bank=" + b, "/debug/resolve?bank=b&sender=" + b + ":" + b, "/me/resolve?bank=" + b + "&topic=" + b, "/debug/who-can?bank=" + b, "/admin/source-templates?q=" + b, "/me/api-keys?view=" + b,
		} {
			first := "GET /ext/svc" + target + " HTTP/1.1"
			s.oneOf(first, s.talk(s.lines(first, key)), 1, 200, 400)
		}
		first := "POST /ext/svc/admin/templates/none/update?force=" + b + " HTTP/1.1"
		s.oneOf(first, s.talk(s.lines(first, key, "Content-Length: 0")), 1, 400, 404)
	})
	s.unbroken()
}

// Every byte in a header's name, in its value, and in a method.
func TestEveryByteInAHeader(t *testing.T) {
	s := newSite(t, mounts["ahead of a mux"])
	key := s.key("admin")
	const first = "GET /ext/svc/me/api-keys HTTP/1.1"
	everyByte(func(b string) {
		count := 1
		if b == "\n" {
			count = 0 // what follows is another request
		}
		for _, header := range []string{"X" + b + "Y: z", "X: a" + b + "z", b + ": x", "If-None-Match: \"" + b + "\"", "Content-Type: " + b} {
			s.oneOf(first+header, s.talk(s.lines(first, key, header)), count, 200, 400, 401) // the bearer may be left behind
		}
		for _, value := range []string{"Bearer " + key + b + "x", "Bearer" + b + key[1:], b + "Bearer x", "Basic " + b} {
			s.oneOf(first+value, s.talk(s.lines(first, "", "Authorization: "+value)), count, 400, 401)
		}
		if b == "E" {
			return
		}
		method := "G" + b + "T /ext/svc/me/api-keys HTTP/1.1"
		s.oneOf(method, s.talk(s.lines(method, key)), 1, 400, 404, 405)
	})
	s.unbroken()
}
