package adminpage

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/aead"
)

// cookieName is how the name of the cookie begins.
const cookieName = "svc-admin"

// securePrefix begins the name of a Secure cookie. Browsers then accept it over https only (RFC
// 6265bis), so that a sibling domain without TLS cannot set one. The prefix __Host- would need the
// path "/", which other parts of the host would get the cookie by.
const securePrefix = "__Secure-"

// maxBearer is the longest bearer that fits into a cookie: browsers keep 4,096 bytes, in which are
// the name and the attributes, the seal and base64.
const maxBearer = 2900

// minSessionKey is the least length of a session key, in bytes.
const minSessionKey = 32

// maxSignedOut is how many sign-outs are remembered: some 8 MiB, and the name of the tenant for
// each.
const maxSignedOut = 1 << 16

// sessions seals bearers into cookies, and remembers which of them have signed out.
type sessions struct {
	sealer   *aead.Sealer
	lifetime time.Duration
	now      func() time.Time

	mu        sync.Mutex
	signedOut map[sessionID]signedOut
	// since refuses the sessions of an owner that began before. It moves when the owner's sign-outs
	// are dropped because there are too many, so that none is ever forgotten.
	since map[string]time.Time
}

// signedOut is a session that has signed out.
type signedOut struct {
	owner string
	ends  time.Time // when the session would have ended
}

type sessionID [16]byte

const digestLength = 16

func digestOf(who svc.Identity) []byte {
	sum := sha256.Sum256([]byte(string(who.Kind) + "\x00" + who.ID))
	return sum[:digestLength]
}

// session is the content of a cookie.
type session struct {
	id     sessionID
	began  time.Time
	bearer string
	owner  string // a digest of the caller, and the tenant for which it is sealed
}

// sealedHead is the length of what comes before the bearer.
const sealedHead = len(sessionID{}) + 8 + digestLength

// newSessions returns sessions that the first key seals and every key opens. No key: a random one.
func newSessions(lifetime time.Duration, keys ...[]byte) *sessions {
	if len(keys) == 0 {
		keys = [][]byte{make([]byte, minSessionKey)}
		rand.Read(keys[0]) // it never fails
	}
	sealer := &aead.Sealer{}
	for i, key := range keys {
		if len(key) < minSessionKey {
			panic(fmt.Sprintf("adminpage: session key %d has %d bytes: it needs %d",
				i, len(key), minSessionKey))
		}
		derived := sha256.Sum256(append([]byte("svc admin page session\x00"), key...))
		var err error
		if sealer, err = sealer.WithOld(derived[:]); err != nil {
			panic(fmt.Sprintf("adminpage: session key %d %v", i, err))
		}
	}
	return &sessions{
		sealer: sealer, lifetime: lifetime, now: time.Now,
		signedOut: map[sessionID]signedOut{}, since: map[string]time.Time{},
	}
}

// encode returns the value of a cookie for a bearer of a principal that signs in to a tenant now.
func (s *sessions) encode(tenant string, who svc.Identity, bearer string) string {
	plain := make([]byte, len(sessionID{}), sealedHead+len(bearer))
	rand.Read(plain)
	plain = binary.BigEndian.AppendUint64(plain, uint64(s.now().UnixNano()))
	plain = append(append(plain, digestOf(who)...), bearer...)
	return base64.RawURLEncoding.EncodeToString(s.sealer.Seal(plain, []byte(tenant)))
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
	plain, err := s.sealer.Open(sealed, []byte(tenant))
	if err != nil || len(plain) < sealedHead {
		return session{}, false
	}
	in := session{bearer: string(plain[sealedHead:])}
	rest := plain[copy(in.id[:], plain):]
	in.began = time.Unix(0, int64(binary.BigEndian.Uint64(rest)))
	in.owner = string(plain[sealedHead-digestLength:sealedHead]) + tenant
	age := s.now().Sub(in.began)
	return in, 0 <= age && age < s.lifetime && !s.over(in)
}

func (s *sessions) over(in session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, out := s.signedOut[in.id]
	return out || in.began.Before(s.since[in.owner])
}

// end signs a session out. When too many sign-outs are remembered, all sessions up to now of the
// owner with the most of them end: so nobody signs others out.
func (s *sessions) end(in session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.signedOut) >= maxSignedOut {
		s.makeRoom(s.now())
	}
	s.signedOut[in.id] = signedOut{in.owner, in.began.Add(s.lifetime)}
}

// makeRoom drops what is over by itself, and if that is nothing, the sign-outs of one owner. The
// caller holds the lock.
func (s *sessions) makeRoom(now time.Time) {
	maps.DeleteFunc(s.signedOut, func(_ sessionID, out signedOut) bool {
		return !out.ends.After(now)
	})
	maps.DeleteFunc(s.since, func(_ string, began time.Time) bool {
		return now.Sub(began) >= s.lifetime
	})
	if len(s.signedOut) < maxSignedOut {
		return
	}
	count, most := map[string]int{}, ""
	for _, out := range s.signedOut {
		if count[out.owner]++; count[out.owner] > count[most] {
			most = out.owner
		}
	}
	maps.DeleteFunc(s.signedOut, func(_ sessionID, out signedOut) bool { return out.owner == most })
	s.since[most] = now
}

// session returns the session of a request by its cookie.
func (h *Handler) session(r *http.Request) (session, bool) {
	for _, cookie := range h.cookies(r) {
		if in, ok := h.sessions.decode(h.tenant, cookie.Value); ok {
			return in, true
		}
	}
	return session{}, false
}

// cookies returns the cookies of a request that can have a session. Those of the request's own port
// come first. Browsers share cookies among the ports of a host, and one of another port counts if
// the same key has sealed it.
func (h *Handler) cookies(r *http.Request) (found []*http.Cookie) {
	name, own := h.cookieNames(r)
	for _, cookie := range r.Cookies() {
		if cookie.Name == own {
			found = append([]*http.Cookie{cookie}, found...)
		} else if cookie.Name == name || strings.HasPrefix(cookie.Name, name+"-") {
			found = append(found, cookie)
		}
	}
	return found
}

// cookieNames returns how the names of cookies begin, and the name of the cookie that a request
// gets. That ends in the port of the request, so that two servers on one host do not replace each
// other's.
func (h *Handler) cookieNames(r *http.Request) (name, own string) {
	name = cookieName
	if h.isSecure(r) {
		name = securePrefix + cookieName
	}
	_, port, _ := net.SplitHostPort(r.Host) // "" is no number either
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return name, name
	}
	return name, name + "-" + port
}

// setCookie sets a cookie, or removes it with "". Browsers keep it until they are closed. Without a
// Path it is for the folder of the request's address as the browser sees it (RFC 6265, section
// 5.1.4), which is the prefix, whatever a proxy makes of it.
func (h *Handler) setCookie(w http.ResponseWriter, r *http.Request, name, value string) {
	cookie := &http.Cookie{
		Name: name, Value: value, HttpOnly: true, Secure: h.isSecure(r),
		SameSite: http.SameSiteStrictMode,
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// isSecure reports whether the cookie of a request is for https only.
func (h *Handler) isSecure(r *http.Request) bool { return h.options.Secure || !isLoopback(r.Host) }

// isLoopback reports whether a host is this machine. Browsers send no Secure cookie there without
// TLS.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		net.ParseIP(strings.Trim(host, "[]")).IsLoopback()
}
