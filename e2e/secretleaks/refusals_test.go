//go:build unix

package secretleaks

import (
	"reflect"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/token"
)

// A refusal does not tell whether a bad key ever existed, or why it is bad.
func TestRefusalsAreAlike(t *testing.T) {
	databases(t, func(t *testing.T, db database) {
		s := newSite(t, db, older)
		pool, _ := db.db()
		good := s.issue(alice)
		bad := map[string]string{
			"wrong":   token.Token{Prefix: "svcu_", ID: s.issue(alice)[5:21], Secret: good[21:53]}.String(),
			"revoked": s.issue(alice), "revoked and deleted": s.issue(alice), "deleted": s.issue(alice), "expired": s.issue(alice), "disabled": s.issue(alice), "of nobody": s.issue(robot),
		}
		for name, statement := range map[string]string{
			"revoked and deleted": `DELETE FROM svc_api_keys WHERE id = $1`, "deleted": `DELETE FROM svc_api_keys WHERE id = $1`,
			"expired": `UPDATE svc_api_keys SET expires_at = 1 WHERE id = $1`, "disabled": `UPDATE svc_api_keys SET disabled = 1 WHERE id = $1`,
			"of nobody": `UPDATE svc_api_keys SET holder_id = 'nobody' WHERE id = $1`,
		} {
			if name[:3] == "rev" {
				s.revoke(bad[name])
			}
			execute(t, pool, statement, bad[name][5:21])
		}
		s.revoke(bad["revoked"])
		want, calls := s.count(bad["wrong"])
		if want.status != 401 || calls != 1 {
			t.Errorf("a wrong secret: answered %d after %d store calls", want.status, calls)
		}
		for name, key := range bad {
			if have, n := s.count(key); name != "wrong" && (!reflect.DeepEqual(have, want) || n != calls) {
				t.Errorf("%s: %d %v %s, %d store calls; a wrong secret: %d %v %s, %d", name, have.status, have.header, have.body, n, want.status, want.header, want.body, calls)
			}
		}
		if have, _ := s.count(good); have.status != 200 {
			t.Errorf("a good one: answered %d", have.status)
		}
	})
}

func (s *site) revoke(key string) {
	s.t.Helper()
	if err := s.service.Keys.Revoke(s.t.Context(), alice, svc.Me, key[5:21]); svc.ErrorCode(err) != "" {
		s.t.Fatal(err)
	}
}

// count sends a bearer and counts the calls of the store. The answer has no date.
func (s *site) count(bearer string) (answer, int64) {
	s.t.Helper()
	before := s.store.calls.Load()
	a := s.ask(0, bearer, "GET", "/me/api-keys", "")
	a.header.Del("Date")
	return a, s.store.calls.Load() - before
}
