package adminpage

import (
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// No sign-out is forgotten when there are too many. Those of one caller end no session of another, of its tenant or of others, and
// cost no more memory.
func TestTooManySignOuts(t *testing.T) {
	is, s := is.New(t), newSessions(time.Hour)
	now := time.Now()
	s.now = func() time.Time { return now }
	signIn := func(tenant string) (cookie string, in session) {
		cookie = s.encode(tenant, svc.Identity{Kind: svc.KindUser, ID: tenant}, "key")
		in, ok := s.decode(tenant, cookie)
		is.True(ok)
		return cookie, in
	}
	beside := s.encode("storm", svc.Identity{Kind: svc.KindServiceAccount, ID: "storm"}, "key")
	quiet, _ := signIn("quiet")
	out, in := signIn("quiet")
	s.end(in)
	signedIn, _ := signIn("storm")
	first, in := signIn("storm")
	s.end(in)
	s.end(in)
	now = now.Add(time.Minute)
	for range maxSignedOut {
		_, in := signIn("storm")
		s.end(in)
		is.True(len(s.signedOut) <= maxSignedOut)
	}
	fresh, _ := signIn("storm")
	for _, of := range []struct {
		tenant, cookie string
		in             bool
	}{{"quiet", quiet, true}, {"quiet", out, false}, {"storm", signedIn, false}, {"storm", first, false}, {"storm", fresh, true}, {"storm", beside, true}} {
		_, ok := s.decode(of.tenant, of.cookie)
		is.Equal(ok, of.in)
	}
	now = now.Add(time.Hour)
	s.makeRoom(now)
	is.Equal(len(s.signedOut)+len(s.since), 0)
}
