package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/store/memstore"
)

func TestSlowBodiesAreCutOff(t *testing.T) { synctest.Test(t, slowBodiesAreCutOff) }

func slowBodiesAreCutOff(t *testing.T) {
	s := newSite(t)
	s.usePipes(func(server *http.Server) {
		server.ReadHeaderTimeout, server.ReadTimeout = 5*time.Second, 20*time.Second
	})
	admin := s.admin()
	unchanged := admin.keeps()
	for _, framing := range []string{fmt.Sprint("Content-Length: ", len(create)+1), "Transfer-Encoding: chunked"} {
		for _, body := range []string{"", "{", create, fmt.Sprintf("%x\r\n%s\r\n", len(create), create)} {
			s.oneOf(framing+body, s.talk(s.creates(admin.bearer, framing)+body), 1, 400)
		}
	}
	for _, text := range []string{"", "P", "POST /ext/svc", s.creates(admin.bearer)[:40]} {
		a := s.talk(text)
		expect.Holds(t, len(a) == 0 || len(a) == 1 && (a[0].status == 400 || a[0].status == 408), text, a)
	}
	unchanged()
	s.unbroken()
}

// However long the store takes, each route answers before the server stops writing.
func TestAnswersComeInTime(t *testing.T) { synctest.Test(t, answersComeInTime) }

func answersComeInTime(t *testing.T) {
	var hangs atomic.Bool
	s, admin := stocked(t, func(u *setup) {
		u.Store = &intercept.Store{FullStore: memstore.New(), Around: func(ctx context.Context, call intercept.Call) error {
			if hangs.Load() {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(2 * time.Minute): // longer than any limit
				}
			}
			return call.Do()
		}}
	})
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	bodies := wholesome(admin.post("/users/alice/api-keys", "").is(201).text("id"))
	for _, limit := range []time.Duration{2 * time.Second, 10 * time.Second, time.Minute} {
		s.usePipes(func(server *http.Server) { server.WriteTimeout = limit })
		for request, body := range bodies {
			s.clock.tick() // what is kept of the caller is old
			hangs.Store(true)
			expect.Holds(t, admin.request(request, body).status == 503, request, limit)
			hangs.Store(false)
		}
	}
}

// Clients that send nothing, or not everything, do not delay other clients.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.harden(func(server *http.Server) { server.ReadHeaderTimeout, server.ReadTimeout = 2*patience, 2*patience })
	admin := s.admin()
	half := s.creates(admin.bearer, "Content-Length: 1000000") + create
	idle := make([]net.Conn, 500)
	for i := range idle {
		idle[i] = s.dial()
		defer idle[i].Close()
		_, _ = io.WriteString(idle[i], half[:len(half)*(i%5)/4])
	}
	for range 20 {
		s.oneOf(list, s.talk(s.lines(list, admin.bearer)), 1, 200)
		admin.post("/admin/templates", create).is(200)
		admin.delete("/admin/templates/made").is(204)
	}
	for _, conn := range idle {
		_ = conn.(*net.TCPConn).SetLinger(0) // gone without a word
		_ = conn.Close()
	}
	s.harden(nil)
	admin.get("/admin/templates").is(200).json(`{"templates": []}`)
}

// A body over the limit is answered before it is read to its end, whether it says how long it is or not.
func TestBodiesWithoutEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	admin := s.admin()
	unchanged := admin.keeps()
	for _, length := range []string{"1048577", "100000000", "9223372036854775807"} {
		s.oneOf(length, s.talk(s.creates(admin.bearer, "Content-Length: "+length)), 1, 413)
	}
	for _, inside := range []string{" ", `{"description":"`} {
		conn := s.dial()
		text := s.creates(admin.bearer, "Transfer-Encoding: chunked")
		_, _ = io.WriteString(conn, text+fmt.Sprintf("%x\r\n%s\r\n", len(inside), inside))
		answers := make(chan []answer)
		go func() { answers <- s.hear(conn, text) }()
		chunk := "10000\r\n" + strings.Repeat(" ", 0x10000) + "\r\n"
		sent := 0
		for ; sent < 1000; sent++ {
			if _, err := io.WriteString(conn, chunk); err != nil {
				break
			}
		}
		if a := <-answers; sent == 1000 || len(a) > 1 || len(a) == 1 && a[0].status != 413 { // the answer may be lost when the connection is reset
			t.Errorf("%q without end: %d MB were taken, answered %v", inside, sent/16, a)
		}
		_ = conn.Close()
	}
	unchanged()
	s.unbroken()
}

// leave sends part of a request, and is gone.
func (s *site) leave(text string) {
	conn := s.dial()
	_, _ = io.WriteString(conn, text)
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

func TestClientsThatLeaveWhileSending(t *testing.T) {
	t.Parallel()
	s, admin, bodies := forWholesome(t)
	unchanged := admin.keeps()
	for request, body := range bodies {
		for _, headers := range [][]string{{fmt.Sprint("Content-Length: ", len(body)+1)}, {"Transfer-Encoding: chunked"}, {"Transfer-Encoding: chunked", "Expect: 100-continue"}} {
			whole := s.lines(strings.Replace(request, " ", " /ext/svc", 1)+" HTTP/1.1", admin.bearer, append(headers, "Content-Type: application/json")...)
			if strings.HasPrefix(headers[0], "T") {
				body = fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
			}
			for _, share := range []int{0, 1, 2, 3} {
				s.leave(whole + body[:len(body)*share/3])
				s.leave(whole[:len(whole)*share/3])
			}
		}
	}
	s.harden(nil) // when all of the former server's requests have ended
	unchanged()
}

// Whatever clients do, nothing is left of it once the server is closed.
func TestNothingIsLeftRunning(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("hostile", func(t *testing.T) {
		s := many(t, 100)
		key := s.key("admin")
		for i := range 60 {
			switch read := s.lines("GET /ext/svc/admin/templates HTTP/1.1", key); i % 4 {
			case 0:
				s.leave(read)
			case 1:
				s.leave(s.creates(key, "Content-Length: 100") + create)
			case 2:
				s.open().Body.Close()
			case 3:
				conn := s.dial()
				_, _ = io.WriteString(conn, read)
				_, _ = io.ReadFull(conn, make([]byte, 64<<10))
				_ = conn.Close()
			}
		}
		s.admin().get("/admin/templates").is(200)
	})
	stop := time.Now().Add(patience)
	for runtime.NumGoroutine() > before && time.Now().Before(stop) {
		time.Sleep(time.Millisecond)
	}
	if after := runtime.NumGoroutine(); after > before {
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines, and %d before:\n%s", after, before, stacks[:runtime.Stack(stacks, true)])
	}
}

// A bearer that ends while its request's body is on the way does nothing, on no route.
func TestBodiesHeldBack(t *testing.T) {
	t.Parallel()
	const session = "session-of-admin"
	var over atomic.Bool
	admitted := make(chan struct{}, 1)
	s, admin := stocked(t, func(u *setup) {
		u.Authenticator = svc.AuthenticatorFunc(func(ctx context.Context, bearer string) (svc.Principal, error) {
			if over.Load() && bearer == session {
				return svc.Principal{}, svc.ErrUnauthenticated
			}
			return sessions(ctx, bearer)
		})
		u.Limit = func(*http.Request, svc.Principal) time.Duration {
			select {
			case admitted <- struct{}{}:
			default:
			}
			return 0
		}
	})
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	key := admin.post("/users/alice/api-keys", "").is(201).text("id")
	bodies := wholesome(key)
	path := strings.NewReplacer("{template_id}", "chat", "{name}", "acme", "{user_id}", "alice", "{key_id}", key)
	byKey := func() (string, func()) {
		bearer := s.key("admin")
		id := bearer[len("svcu_"):][:16]
		return bearer, func() {
			admin := svc.Identity{Kind: svc.KindUser, ID: "admin"}
			expect.Equal(t, id, s.service.Keys.Revoke(t.Context(), svc.Host, admin, id), nil)
		}
	}
	bySession := func() (string, func()) {
		over.Store(false)
		return session, func() { over.Store(true) }
	}
	tried := 0
	for _, route := range httpapi.Routes() {
		if route.Method == "GET" || route.Method == "DELETE" {
			continue // reads no body
		}
		target := path.Replace(route.Path)
		body, known := bodies[route.Method+" "+target]
		if !known {
			body = "{}"
		}
		for _, framed := range [][2]string{
			{fmt.Sprint("Content-Length: ", len(body)), body}, {"Transfer-Encoding: chunked", chunked(body)}, {"Transfer-Encoding: chunked", "0\r\n\r\n"},
		} {
			for _, caller := range []func() (string, func()){byKey, bySession} {
				bearer, end := caller()
				kind := "application/json"
				if route.Path == "/introspect" {
					kind = "application/x-www-form-urlencoded"
				}
				text := s.lines(route.Method+" "+s.prefix+target+" HTTP/1.1", bearer, framed[0], "Content-Type: "+kind) + framed[1]
				select {
				case <-admitted: // an earlier request
				default:
				}
				conn := s.dial()
				_, _ = io.WriteString(conn, text[:len(text)-1])
				<-admitted
				end()
				unchanged := admin.keeps()
				_, _ = io.WriteString(conn, text[len(text)-1:])
				s.oneOf(text, s.hear(conn, text), 1, 401)
				unchanged()
				_ = conn.Close()
				tried++
			}
		}
	}
	expect.Holds(t, tried >= 50, tried)
}
