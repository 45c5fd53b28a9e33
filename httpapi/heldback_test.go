package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// A bearer that ends while its request's body is on the way does nothing: on no route, however the
// body is framed, and whether the bearer is a key or the host's.
func TestBodiesHeldBack(t *testing.T) {
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
			if err := s.service.Keys.Revoke(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "admin"}, id); err != nil {
				t.Error(err)
			}
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
		for _, chunked := range []bool{false, true} {
			for _, caller := range []func() (string, func()){byKey, bySession} {
				bearer, end := caller()
				framing, sent := fmt.Sprint("Content-Length: ", len(body)), body
				if chunked {
					framing, sent = "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
				}
				kind := "application/json"
				if route.Path == "/introspect" {
					kind = "application/x-www-form-urlencoded"
				}
				text := s.lines(route.Method+" "+s.prefix+target+" HTTP/1.1", bearer, framing, "Content-Type: "+kind) + sent
				select {
				case <-admitted: // an earlier request
				default:
				}
				conn := s.dial()
				_, _ = io.WriteString(conn, text[:len(text)-1])
				<-admitted
				end()
				before := s.everything(admin)
				_, _ = io.WriteString(conn, text[len(text)-1:])
				s.oneOf(text, s.hear(conn, text), 1, 401)
				if after := s.everything(admin); after != before {
					t.Errorf("%s %s did something:\nbefore %s\nafter %s", route.Method, target, before, after)
				}
				_ = conn.Close()
				tried++
			}
		}
	}
	if tried < 50 {
		t.Errorf("only %d requests were tried", tried)
	}
}

// An empty body that is held back is one as well.
func TestEmptyBodyHeldBack(t *testing.T) {
	admitted := make(chan struct{}, 1)
	s := newSite(t, func(u *setup) {
		u.Limit = func(*http.Request, svc.Principal) time.Duration { admitted <- struct{}{}; return 0 }
	})
	bearer := s.key("admin")
	conn := s.dial()
	defer conn.Close()
	text := s.lines("POST "+s.prefix+"/me/api-keys HTTP/1.1", bearer, "Transfer-Encoding: chunked") + "0\r\n\r\n"
	_, _ = io.WriteString(conn, text[:len(text)-1])
	<-admitted
	if _, err := s.service.Keys.RevokeAll(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "admin"}); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, text[len(text)-1:])
	s.oneOf(text, s.hear(conn, text), 1, 401)
}
