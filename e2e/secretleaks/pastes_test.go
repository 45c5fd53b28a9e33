//go:build unix

package secretleaks

import (
	"net/http"
	"strings"

	"github.com/extsvc/svc"
)

// paste is a request with a key, written KEY, in a place where it does not belong.
type paste struct {
	status               int
	method, target, body string
}

var pastes = []paste{
	{404, "GET", "/KEY", ""},
	{404, "GET", "/KEY/KEY", ""},
	{404, "GET", "/admin/templates/chat/KEY", ""},
	{405, "PUT", "/admin/templates/KEY", "KEY"},
	{404, "GET", "/admin/templates/KEY", ""},
	{404, "DELETE", "/admin/templates/KEY", ""},
	{404, "PATCH", "/admin/templates/KEY", `{"name": "n"}`},
	{404, "POST", "/admin/templates/KEY/install", `{"source_name": "acme"}`},
	{404, "POST", "/admin/templates/KEY/update", ""},
	{404, "GET", "/admin/templates/KEY/check-update", ""},
	{404, "DELETE", "/admin/template-sources/KEY", ""},
	{404, "DELETE", "/me/api-keys/KEY", ""},
	{404, "PATCH", "/me/api-keys/KEY", `{"disabled": true}`},
	{404, "POST", "/me/api-keys/KEY/rotate", ""},
	{200, "GET", "/users/KEY/api-keys", ""},
	{400, "POST", "/users/KEY/api-keys", ""},
	{204, "DELETE", "/users/KEY/api-keys", ""},
	{404, "DELETE", "/users/alice/api-keys/KEY", ""},
	{404, "PATCH", "/users/alice/api-keys/KEY", `{"disabled": true}`},
	{404, "POST", "/users/alice/api-keys/KEY/rotate", ""},

	{400, "GET", "/debug/resolve?bank=b&user_id=KEY", ""},
	{400, "GET", "/debug/resolve?bank=b&sa_id=KEY", ""},
	{400, "GET", "/debug/resolve?bank=b&sender=KEY", ""},
	{400, "GET", "/debug/resolve?bank=KEY&user_id=alice", ""},
	{400, "GET", "/debug/resolve?bank=b&action=KEY&user_id=alice", ""},
	{200, "GET", "/debug/resolve?bank=b&sender=x:KEY&channel=KEY&topic=KEY", ""},
	{400, "POST", "/decide", `{"queries": [{"bank": "KEY", "action": "a"}]}`},
	{400, "POST", "/decide", `{"queries": [{"bank": "b", "action": "KEY", "user_id": "KEY"}]}`},
	{400, "POST", "/decide", `{"queries": [{"bank": "b", "action": "a", "sa_id": "KEY"}, {"KEY": "KEY"}]}`},
	{400, "POST", "/decide", `{"queries": [{"bank": "b", "action": "a", "sender": "KEY"}]}`},
	{200, "POST", "/decide", `{"queries": [{"bank": "b", "action": "a", "sender": "x:KEY", "channel": "KEY", "topic": "KEY"}]}`},
	{400, "GET", "/me/resolve?bank=KEY", ""},
	{400, "GET", "/me/resolve?bank=b&action=KEY", ""},
	{400, "GET", "/me/resolve?bank=b&user_id=KEY", ""},
	{200, "GET", "/me/resolve?bank=b&channel=KEY&topic=KEY", ""},
	{400, "GET", "/me/what-can?bank=KEY", ""},
	{400, "GET", "/debug/who-can?bank=KEY", ""},
	{400, "GET", "/debug/who-can?bank=b&action=KEY", ""},
	{400, "POST", "/debug/simulate", `{"bundle": {"users": [{"id": "KEY"}]}, "query": {"bank": "b", "user_id": "KEY"}}`},
	{400, "POST", "/debug/simulate", `{"bundle": {"KEY": []}, "query": {"bank": "b", "user_id": "alice"}}`},
	{400, "POST", "/debug/simulate", `{"bundle": {"policies": [{"id": "p", "document": {"version": "KEY", "KEY": 1}}]}, "query": {"bank": "b", "user_id": "alice"}}`},
	{400, "POST", "/debug/simulate", `{"bundle": {"attachments": [{"policy_id": "KEY", "principal_type": "KEY", "principal_id": "alice"}]}, "query": {"bank": "b", "user_id": "alice"}}`},
	{400, "POST", "/admin/access-bundle", `{"users": [{"id": "KEY"}]}`},
	{400, "POST", "/admin/access-bundle", `{"KEY": []}`},
	{400, "POST", "/admin/access-bundle", `{"attachments": [{"policy_id": "KEY", "principal_type": "KEY", "principal_id": "alice"}]}`},
	{400, "POST", "/admin/access-bundle?dry_run=KEY", `{}`},
	{400, "GET", "/admin/access-bundle?KEY", ""},
	{400, "GET", "/admin/api-keys?expires_before=KEY", ""},
	{400, "GET", "/admin/api-keys?cursor=KEY", ""},

	{400, "GET", "/me/api-keys?view=KEY", ""},
	{400, "GET", "/me/api-keys?view=full&view=KEY", ""},
	{400, "GET", "/me/api-keys?KEY=KEY", ""},
	{400, "GET", "/me/api-keys?%zzKEY", ""},
	{400, "GET", "/me/api-keys?a;KEY", ""},
	{200, "GET", "/admin/templates?tag=KEY", ""},
	{200, "GET", "/admin/templates?category=KEY", ""},
	{400, "GET", "/admin/templates?tag=KEY&tag=KEY", ""},
	{400, "POST", "/admin/templates/chat/update?force=KEY", ""},

	{400, "POST", "/admin/templates", `{"id": "KEY", "name": "n", "manifest": {"version": "1"}}`},
	{400, "POST", "/admin/templates", `{"id": ["KEY"], "name": "n"}`},
	{400, "POST", "/admin/templates", `{"id": "x", "name": "n", "manifest": {"KEY": "KEY"}}`},
	{400, "POST", "/admin/templates", `{"id": "x", "name": "n", "manifest": {"version": {"KEY": 1, "KEY": 1}}}`},
	{400, "POST", "/admin/templates", `{"id": "x", "name": {"KEY": "KEY"}}`},
	{404, "POST", "/admin/templates/other/install", `{"source_name": "KEY"}`},
	{400, "POST", "/admin/templates/other/install", `{"source_name": "acme", "alias_id": "KEY"}`},
	{400, "POST", "/admin/templates/other/install", `{"source_name": "acme", "source_scope": "KEY"}`},
	{400, "POST", "/admin/template-sources", `{"url": "https://example.com/acme", "alias": "KEY"}`},
	{400, "POST", "/admin/template-sources", `{"url": "https://example.com/KEY"}`},
	{400, "POST", "/admin/template-sources", `{"url": "https://KEY@example.com/acme"}`},
	{400, "POST", "/admin/template-sources", `{"url": "https://example.com/acme?key=KEY"}`},
	{400, "POST", "/admin/template-sources", `{"url": "KEY"}`},
	{400, "POST", "/me/api-keys", `KEY`},
	{400, "POST", "/me/api-keys", `"KEY"`},
	{400, "POST", "/me/api-keys", `["KEY"]`},
	{400, "POST", "/me/api-keys", `{"KEY": 1}`},
	{400, "POST", "/me/api-keys", `{"KEY": 1, "KEY": 2}`},
	{400, "POST", "/me/api-keys", `{"description": KEY}`},
	{400, "POST", "/me/api-keys", `{"description": "KEY`},
	{400, "POST", "/me/api-keys", `{"description": {"KEY": "KEY"}}`},
	{400, "POST", "/me/api-keys", `{"expires_at": "KEY"}`},
	{400, "POST", "/me/api-keys", "{\"description\": \"\xffKEY\"}"},
	{400, "POST", "/me/api-keys", strings.Repeat("[", 100) + `"KEY"` + strings.Repeat("]", 100)},
	{413, "POST", "/me/api-keys", `{"description": "` + strings.Repeat("KEY", 40_000) + `"}`},
	{400, "POST", "/me/api-keys", `{"description": "` + strings.Repeat("KEY", 100) + `"}`},

	{405, "KEY", "/me/api-keys", ""},
}

// pasteKeys sends all pastes with a valid key.
func (s *site) pasteKeys() {
	s.t.Helper()
	root, key := s.issue(admin), s.issue(alice)
	for _, p := range pastes {
		put := strings.NewReplacer("KEY", key)
		for _, bearer := range []string{root, key, ""} {
			status := p.status
			if bearer != root {
				status = 0
			}
			s.ask(status, bearer, put.Replace(p.method), put.Replace(p.target), put.Replace(p.body))
		}
	}
	for name, value := range map[string]string{
		"X-Api-Key": key, "X-Request-Id": key, "Cookie": "key=" + key, "User-Agent": key, "Referer": "https://example.com/" + key, "Accept": key, "If-None-Match": key, "Idempotency-Key": key,
		"X-Forwarded-For": key, "Traceparent": key, "Authorization": "Basic " + key, "Proxy-Authorization": key, "Content-Type": key, "Content-Encoding": key, "Expect": key, key: key,
	} {
		for _, bearer := range []string{root, ""} {
			s.ask(0, bearer, "POST", "/me/api-keys/nothing/rotate", "{}", func(r *http.Request) { r.Header.Set(name, value) })
		}
	}
	s.pasteInGo(key)
	s.ask(401, "", "GET", "/me/api-keys", "", func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer " + key, "Bearer " + key} })
	s.ask(401, "", "GET", "/me/api-keys", "", func(r *http.Request) { r.Header.Set("Authorization", key) })
	s.ask(200, key, "GET", "/me/api-keys", "") // the key is still valid
}

// pasteInGo passes a key to Go methods in wrong places.
func (s *site) pasteInGo(key string) {
	ctx := s.t.Context()
	listed(s, s.service.Keys.List(ctx, admin, svc.Identity{Kind: svc.KindUser, ID: key}, svc.KeyQuery{}))
	for _, by := range []svc.Principal{svc.Host, admin, alice, robot, {Kind: svc.KindUser, ID: key}} {
		_, err := s.service.Templates.Read(ctx, by, key)
		s.evidence.fault(err)
		s.evidence.fault(s.service.Keys.Revoke(ctx, by, alice.Identity(), key))
		s.evidence.fault(s.service.Keys.Revoke(ctx, by, svc.Me, key))
		_, err = s.service.Keys.Rotate(ctx, by, svc.Me, key, svc.Rotation{Overlap: -1})
		s.evidence.fault(err)
		_, err = s.service.Policies.Resolve(ctx, by, svc.Question{Bank: "b", UserID: key})
		s.evidence.fault(err)
		_, err = s.service.Keys.RevokeLeaked(ctx, by, []string{"svcu_nonsense", key + "x"})
		s.evidence.fault(err)
		_, err = s.service.Keys.Issue(ctx, by, svc.Identity{Kind: svc.KindServiceAccount, ID: key}, svc.NewAPIKey{})
		s.evidence.fault(err)
	}
}
