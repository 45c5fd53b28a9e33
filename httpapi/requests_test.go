package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
)

const list = "GET /ext/svc/me/api-keys HTTP/1.1"

// Two credentials, or an incomplete one, give 401: a proxy and the server must not see different callers.
func TestAuthorizationHeadersOfAllKinds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.harden(nil)
	key, other := s.key("alice"), s.key("admin")
	vars := names{"key": key, "other": other, "upper": strings.ToUpper(key), "escaped": strings.Replace(key, "_", "%5F", 1)}
	for _, line := range raw("authorization", vars) {
		s.oneOf(line[1], s.talk(s.lines(list, "", line[1])), 1, statusesOf(line[0])...)
	}
	s.unbroken()
}

// create is the body of a good request, and templatesOf are its lines with other headers.
const create = `{"id": "made", "name": "n", "manifest": {"version": "1"}}`

func (s *site) creates(bearer string, headers ...string) string {
	return s.lines("POST /ext/svc/admin/templates HTTP/1.1", bearer, append(headers, "Content-Type: application/json")...)
}

func chunked(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }

func TestNobodyIsToldToContinueUnknown(t *testing.T) {
	s := newSite(t)
	admin := s.key("admin")
	for bearer, status := range map[string]int{"": 401, "wrong": 401, admin: 413} {
		a := s.talk(s.creates(bearer, "Content-Length: 2000000", "Expect: 100-continue"))
		s.oneOf(bearer, a, 1, status)
	}
	s.oneOf("text", s.talk(s.lines("POST /ext/svc/me/api-keys HTTP/1.1", admin, "Content-Length: 2", "Expect: 100-continue")), 1, 415)
}

func statusesOf(text string) (all []int) {
	for _, status := range strings.Split(text, ",") {
		all = append(all, must(strconv.Atoi(status)))
	}
	return all
}

func TestMethodsAndTargetsOfAllKinds(t *testing.T) {
	t.Parallel()
	s := newSite(t, mounts["alone"])
	s.harden(nil)
	key := s.key("admin")
	for _, line := range raw("first lines", nil) {
		first := line[1]
		a := s.talk(s.lines(first, key, "Content-Length: 0"))
		s.oneOf(first, a, 1, statusesOf(line[0])...)
		if a = s.talk(s.lines(first, "", "Content-Length: 0")); len(a) == 1 && a[0].status != 401 && !a[0].plain() {
			t.Errorf("%q: %d without a bearer", clip(first), a[0].status)
		}
	}
	s.oneOf("HTTP/1.0 without a host", s.talk("GET /ext/svc/me/api-keys HTTP/1.0\r\nAuthorization: Bearer "+key+"\r\n\r\n"), 1, 200)
	s.oneOf("HTTP/1.1 without a host", s.talk("GET /ext/svc/me/api-keys HTTP/1.1\r\nAuthorization: Bearer "+key+"\r\n\r\n"), 1, 400)
	expect.Holds(t, len(s.talk("GET /ext/svc/me/api-keys\r\n\r\n")) <= 1)
	s.unbroken()
}

// patience is how long anything may take before a test gives up. Nothing is measured by it.
const patience = time.Minute

// dial opens a connection on which a test says what no client would.
func (s *site) dial() *net.TCPConn {
	s.t.Helper()
	conn := must(net.Dial("tcp", s.server.Listener.Addr().String()))
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn.(*net.TCPConn)
}

// talk sends a text as it is, and returns all that is answered until the server ends the connection.
func (s *site) talk(text string) []answer {
	s.t.Helper()
	var conn net.Conn
	if pipes, is := s.server.Listener.(*pipes); is {
		conn = pipes.dial()
	} else {
		conn = s.dial()
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, text) // the server may end it before
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
	expect.Holds(s.t, len(answers) == count || count <= 0 && len(answers) != 0, clip(text), len(answers), count)
	for _, a := range answers {
		expect.Holds(s.t, slices.Contains(statuses, a.status), a.request, statuses)
	}
}

// unbroken wants nothing to have been at fault, whatever was sent.
func (s *site) unbroken() {
	s.t.Helper()
	said := s.said.String()
	for _, fault := range []string{"panic", "superfluous", `"level":"ERROR"`} {
		expect.Holds(s.t, !strings.Contains(said, fault), said)
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

// dull reports whether a byte is one of many alike: letters, digits, and bytes that are not ASCII.
func dull(b int) bool {
	return b >= 0x80 || b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z'
}

// everyByte are all bytes as they are, and escaped both ways; some of the dull ones, all in CI.
func everyByte(do func(spelled string)) {
	for b := range 256 {
		if dull(b) && b%longtest.Times(16, 1) != 0 {
			continue
		}
		do(string([]byte{byte(b)}))
		do(fmt.Sprintf("%%%02x", b))
		if b%longtest.Times(4, 1) == 0 {
			do(fmt.Sprintf("%%%02X%%%02X", b, 0x80|b))
		}
	}
	for _, odd := range []string{"%", "%%", "%1", "%zz", "%u0041", "%-1", "% 41", "%4\x00", "%+4", "%c0%af", "%ed%a0%80", "%f4%90%80%80", "\xff\xfe", "\xc3\xbc", "%e2%80%ae", strings.Repeat("%00", 1000)} {
		do(odd)
	}
}

// Any byte at any place of a path or a query is either refused or looked up. Nothing breaks or redirects.
func TestEveryByteOfATarget(t *testing.T) {
	t.Parallel()
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
			expect.Holds(t, refused[0].status != 401 || !a[0].plain(), target)
		}
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
	expect.Holds(t, len(s.everything(s.as(key))) >= len(before), "something is gone")
	s.unbroken()
}

// eachQuery calls do with every route, at a path of a site, and with the keys of its query as the document has them.
func eachQuery(t *testing.T, do func(route httpapi.Route, path string, known []string)) {
	t.Helper()
	fill := strings.NewReplacer("{name}", "acme", "{template_id}", "chat", "{user_id}", "alice", "{key_id}", "3kP0xUaB7cJ5t0Qz")
	keys := documentedKeys(t)
	for _, route := range httpapi.Routes() {
		do(route, fill.Replace(route.Path), keys[route])
	}
}

// A mistyped filter does not answer everything: each route refuses a key that it does not know, and names those it knows.
func TestUnknownQueryKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	admin, plain := s.admin(), s.as("session-of-plain")
	eachQuery(t, func(route httpapi.Route, path string, known []string) {
		for _, wrong := range []string{"categry", "Category", "a b", "limit[]", "x/y", "ü"} {
			for _, value := range []string{"", "=", "=x"} {
				a := admin.send(route.Method, path+"?"+url.QueryEscape(wrong)+value, "")
				a.refuses(wrong)
				_, named, _ := strings.Cut(a.text("detail"), "which takes ")
				takes := strings.Split(strings.Replace(strings.TrimSuffix(named, "."), "none", "", 1), ", ")
				slices.Sort(takes)
				expect.Equal(t, a.request, strings.Join(takes, ", "), strings.Join(known, ", "))
			}
		}
		plain.send(route.Method, path+"?categry=x", "").refuses("categry") // before rights
		s.as("").send(route.Method, path+"?categry=x", "").fails(401, "unauthenticated")
		admin.send("BREW", path+"?categry=x", "").fails(405, "method_not_allowed")
	})
	admin.get("/nothing?categry=x").fails(404, "not_found")
}

// Each route reads the keys that it knows: each of them at most once, in any order of the query.
func TestKnownQueryKeys(t *testing.T) {
	t.Parallel()
	admin := newSite(t).admin()
	eachQuery(t, func(route httpapi.Route, path string, known []string) {
		for _, key := range known {
			for _, values := range []string{"=x&" + key + "=x", "&" + key, "=&" + key + "=x", "=x&" + key + "="} {
				admin.send(route.Method, path+"?"+key+values, "").refuses(key)
			}
		}
		for _, query := range []string{"a;b", "a=%zz", ";", "%"} {
			admin.send(route.Method, path+"?"+query, "").refuses("query")
		}
	})
}

// documentedKeys are the keys of the queries of all routes, in order.
func documentedKeys(t *testing.T) map[httpapi.Route][]string {
	d := readDocument(t)
	keys := map[httpapi.Route][]string{}
	for _, route := range httpapi.Routes() {
		for _, p := range d.of(route).Parameters {
			if name, is := strings.CutPrefix(p.Ref, "#/components/parameters/"); is {
				p = d.Components.Parameters[name]
			}
			if p.In == "query" {
				keys[route] = append(keys[route], p.Name)
			}
		}
		slices.Sort(keys[route])
	}
	return keys
}

func (c caller) with(header, value, method, target, body string) answer {
	c.t.Helper()
	return c.sendWith(method, target, body, func(r *http.Request) { r.Header[header] = strings.Split(value, "\n") })
}

// Of many who have seen the same one is let through.
func TestIfMatchAtOnce(t *testing.T) {
	admin := newSite(t).admin()
	tag := admin.post("/admin/templates", `{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}`).is(200).header.Get("ETag")
	statuses, count := make(chan int), map[int]int{}
	for i := range 16 {
		go func() {
			statuses <- admin.with("If-Match", tag, "PATCH", "/admin/templates/chat", fmt.Sprintf(`{"name": "%d"}`, i)).status
		}()
	}
	for range 16 {
		count[<-statuses]++
	}
	expect.Equal(t, "answers", count, map[int]int{200: 1, 412: 15})
}

// A PUT, PATCH or DELETE takes a condition, as its document says, or refuses it: it never ignores one.
func TestNoConditionIsIgnored(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	d, refused := readDocument(t), 0
	for _, route := range httpapi.Routes() {
		if method := route.Method; method == "GET" || method == "POST" {
			continue
		}
		target := strings.NewReplacer("{", "", "}", "").Replace(route.Path)
		for header, value := range map[string]string{"If-Match": `"x"`, "If-None-Match": "*"} {
			a := admin.with(header, value, route.Method, target, "{}")
			switch names := strings.Contains(string(a.body), `"parameter":"`+header+`"`); {
			case d.of(route).takes("IfMatch"):
				expect.Equal(t, a.request, header == "If-Match" && names, false)
			case a.status != 400 || !names:
				t.Errorf("%s %s with %s: %d %s", route.Method, route.Path, header, a.status, a.body)
			default:
				refused++
			}
		}
	}
	expect.Equal(t, "refused", refused >= 40, true)
}
