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

// maxSignedOut is how many sign-outs are remembered: 16 bytes and a time each, some 4 MiB at most.
const maxSignedOut = 1 << 16

// sessions seals bearers into cookies, and remembers which of them have signed out.
type sessions struct {
	seal     cipher.AEAD
	lifetime time.Duration
	now      func() time.Time

	mu    sync.Mutex
	ended map[string]*ended // by tenant
	count int               // sign-outs in all of them
}

// ended are the sessions of a tenant that ended early.
type ended struct {
	signedOut map[sessionID]time.Time // when the session would have ended
	// since ends all sessions that began before it. It moves when the sign-outs are dropped because
	// there are too many, so that none is ever forgotten.
	since time.Time
}

type sessionID [16]byte

// session is the content of a cookie.
type session struct {
	id     sessionID
	began  time.Time
	bearer string
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
		seal: seal, lifetime: lifetime, now: time.Now, ended: map[string]*ended{},
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
	var in session
	rest := plain[copy(in.id[:], plain):]
	in.began = time.Unix(0, int64(binary.BigEndian.Uint64(rest)))
	in.bearer = string(rest[8:])
	age := s.now().Sub(in.began)
	return in, 0 <= age && age < s.lifetime && !s.over(tenant, in)
}

func (s *sessions) over(tenant string, in session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.ended[tenant]
	if of == nil {
		return false
	}
	_, out := of.signedOut[in.id]
	return out || in.began.Before(of.since)
}

// end signs a session out. When too many sign-outs are remembered, all sessions up to now of the
// tenant with the most of them end.
func (s *sessions) end(tenant string, in session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count >= maxSignedOut {
		s.makeRoom(s.now())
	}
	of := s.ended[tenant]
	if of == nil {
		of = &ended{signedOut: map[sessionID]time.Time{}}
		s.ended[tenant] = of
	}
	s.count -= len(of.signedOut)
	of.signedOut[in.id] = in.began.Add(s.lifetime)
	s.count += len(of.signedOut)
}

// makeRoom drops what is over by itself, and when that is nothing, the sign-outs of one tenant. The
// caller holds the lock.
func (s *sessions) makeRoom(now time.Time) {
	s.count = 0
	var most *ended
	for tenant, of := range s.ended {
		maps.DeleteFunc(of.signedOut, func(_ sessionID, ends time.Time) bool { return !ends.After(now) })
		if len(of.signedOut) == 0 && now.Sub(of.since) >= s.lifetime {
			delete(s.ended, tenant)
		}
		if most == nil || len(of.signedOut) > len(most.signedOut) {
			most = of
		}
		s.count += len(of.signedOut)
	}
	if s.count >= maxSignedOut {
		s.count -= len(most.signedOut)
		*most = ended{signedOut: map[sessionID]time.Time{}, since: now}
	}
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
