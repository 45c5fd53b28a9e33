package main

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/extsvc/svc"
)

// cookieName is the name of the cookie. Its value is a random token that leads to the session.
const cookieName = "session"

// newSessions keeps sessions in memory, so they end with the program. scs has stores for databases.
func newSessions() *scs.SessionManager {
	sessions := scs.New()
	sessions.Lifetime = 12 * time.Hour
	sessions.HashTokenInStore = true
	return sessions
}

// signedIn returns the user of the session in a request's cookie.
func (h *host) signedIn(r *http.Request) (svc.Principal, error) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return svc.Principal{}, svc.ErrUnauthenticated
	}
	session, err := h.sessions.Load(r.Context(), cookie.Value)
	if err != nil {
		return svc.Principal{}, err // answers 503, not 401
	}
	user := h.sessions.GetString(session, "user")
	if user == "" {
		return svc.Principal{}, svc.ErrUnauthenticated
	}
	return svc.Principal{Kind: svc.KindUser, ID: user}, nil
}

// begin begins a session of a user, and returns its token. The token is always a new one: a page
// of somebody else cannot have chosen it.
func (h *host) begin(ctx context.Context, user string) (string, error) {
	session, err := h.sessions.Load(ctx, "")
	if err != nil {
		return "", err
	}
	h.sessions.Put(session, "user", user)
	token, _, err := h.sessions.Commit(session)
	return token, err
}

// end ends the session of a request, if it has one.
func (h *host) end(r *http.Request) error {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	session, err := h.sessions.Load(r.Context(), cookie.Value)
	if err != nil {
		return err
	}
	return h.sessions.Destroy(session)
}

// setCookie sends the token of a session; "" removes the cookie. No script can read it, and the
// browser sends it with no request of another site, except when a user follows a link.
func (h *host) setCookie(w http.ResponseWriter, r *http.Request, token string) {
	cookie := &http.Cookie{
		Name: cookieName, Value: token, Path: "/", MaxAge: int(h.sessions.Lifetime.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: !onLoopback(r),
	}
	if token == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// onLoopback reports whether the browser addresses its own machine. That needs no TLS, and some
// browsers keep no Secure cookie without TLS.
func onLoopback(r *http.Request) bool {
	name, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		name = r.Host
	}
	ip, _ := netip.ParseAddr(strings.Trim(name, "[]"))
	return name == "localhost" || ip.IsLoopback()
}
