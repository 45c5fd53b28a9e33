package adminpage

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc/internal/mount"
)

// cookieName is the name of the one cookie.
const cookieName = "svc-admin"

// maxBearer is the longest bearer that fits into a cookie: browsers keep 4,096 bytes.
const maxBearer = 2048

// maxSignedOut is how many sign-outs are remembered: some 6 MiB, and the name of the tenant for each.
const maxSignedOut = 1 << 16

// sessions seals bearers into cookies, and remembers which of them have signed out.
type sessions struct {
	seal     cipher.AEAD
	lifetime time.Duration
	now      func() time.Time

	mu        sync.Mutex
	signedOut map[sessionID]signedOut
	// since refuses the sessions of a tenant that began before. It moves when the tenant's sign-outs
	// are dropped because there are too many, so that none is ever forgotten.
	since map[string]time.Time
}

// signedOut is a session that has signed out.
type signedOut struct {
	tenant string
	ends   time.Time // when the session would have ended
}

type sessionID [16]byte

// session is the content of a cookie.
type session struct {
	id     sessionID
	began  time.Time
	bearer string
	tenant string // for which it is sealed
}

func newSessions(key []byte, lifetime time.Duration) *sessions {
	if len(key) == 0 {
		key = make([]byte, 32)
		rand.Read(key) // it never fails
	}
	derived := sha256.Sum256(append([]byte("svc admin page session\x00"), key...))
	block, err := aes.NewCipher(derived[:])
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // the block has 16 bytes
	}
	return &sessions{
		seal: seal, lifetime: lifetime, now: time.Now,
		signedOut: map[sessionID]signedOut{}, since: map[string]time.Time{},
	}
}

// encode returns the value of a cookie for a bearer that signs in to a tenant now.
func (s *sessions) encode(tenant, bearer string) string {
	plain := make([]byte, len(sessionID{}), len(sessionID{})+8+len(bearer))
	rand.Read(plain)
	plain = binary.BigEndian.AppendUint64(plain, uint64(s.now().UnixNano()))
	plain = append(plain, bearer...)
	return base64.RawURLEncoding.EncodeToString(s.seal.Seal(nil, nil, plain, []byte(tenant)))
}

// decode opens the value of a cookie; false: it is none of this tenant, it has expired, or it has
// signed out.
func (s *sessions) decode(tenant, value string) (session, bool) {
	if len(value) > 2*maxBearer {
		return session{}, false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return session{}, false
	}
	plain, err := s.seal.Open(nil, nil, sealed, []byte(tenant))
	if err != nil || len(plain) < len(sessionID{})+8 {
		return session{}, false
	}
	in := session{tenant: tenant}
	rest := plain[copy(in.id[:], plain):]
	in.began = time.Unix(0, int64(binary.BigEndian.Uint64(rest)))
	in.bearer = string(rest[8:])
	age := s.now().Sub(in.began)
	return in, 0 <= age && age < s.lifetime && !s.over(in)
}

func (s *sessions) over(in session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, out := s.signedOut[in.id]
	return out || in.began.Before(s.since[in.tenant])
}

// end signs a session out. When too many sign-outs are remembered, all sessions up to now of the
// tenant with the most of them end.
func (s *sessions) end(in session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.signedOut) >= maxSignedOut {
		s.makeRoom(s.now())
	}
	// The name is a part of the request's address, which must not be kept.
	s.signedOut[in.id] = signedOut{strings.Clone(in.tenant), in.began.Add(s.lifetime)}
}

// makeRoom drops what is over by itself, and if that is nothing, the sign-outs of one tenant. The
// caller holds the lock.
func (s *sessions) makeRoom(now time.Time) {
	maps.DeleteFunc(s.signedOut, func(_ sessionID, out signedOut) bool { return !out.ends.After(now) })
	maps.DeleteFunc(s.since, func(_ string, began time.Time) bool { return now.Sub(began) >= s.lifetime })
	if len(s.signedOut) < maxSignedOut {
		return
	}
	count, most := map[string]int{}, ""
	for _, out := range s.signedOut {
		if count[out.tenant]++; count[out.tenant] > count[most] {
			most = out.tenant
		}
	}
	maps.DeleteFunc(s.signedOut, func(_ sessionID, out signedOut) bool { return out.tenant == most })
	s.since[most] = now
}

// session returns the session of a request by its cookie.
func (h *Handler) session(r *http.Request) (session, bool) {
	for _, cookie := range r.CookiesNamed(cookieName) { // others may lie at other paths
		if in, ok := h.sessions.decode(h.tenant, cookie.Value); ok {
			return in, true
		}
	}
	return session{}, false
}

// setCookie sets the cookie; "" removes it. Browsers keep it for the session of the browser.
func (h *Handler) setCookie(w http.ResponseWriter, r *http.Request, value string) {
	cookie := &http.Cookie{
		Name: cookieName, Value: value, Path: h.cookiePath(r), HttpOnly: true,
		Secure: !isLoopback(r.Host), SameSite: http.SameSiteStrictMode,
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// cookiePath returns the prefix as the client sees it, also where the host has cut a part of it off.
func (h *Handler) cookiePath(r *http.Request) string {
	path := h.prefix.String()
	if asked, err := url.ParseRequestURI(r.RequestURI); err == nil {
		if before, ok := strings.CutSuffix(mount.EscapedPath(asked), h.relative(r)); ok {
			path = before
		}
	}
	return cmp.Or(path, "/")
}

// isLoopback reports whether a host is this machine. Browsers send no Secure cookie there without
// TLS.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}
