//go:build unix

package secretleaks

import (
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/extsvc/svc"
)

// paste is a request with a key, written KEY, in a place where it does not belong.
type paste struct {
	status               int
	method, target, body string
}

// pastes are those of testdata/pastes.txt, and some that are no lines.
var pastes = func() []paste {
	all := []paste{
		{400, "POST", "/me/api-keys", "{\"description\": \"\xffKEY\"}"},
		{400, "POST", "/me/api-keys", strings.Repeat("[", 100) + `"KEY"` + strings.Repeat("]", 100)},
		{413, "POST", "/me/api-keys", `{"description": "` + strings.Repeat("KEY", 40_000) + `"}`},
		{400, "POST", "/me/api-keys", `{"description": "` + strings.Repeat("KEY", 100) + `"}`},
	}
	text, err := os.ReadFile("testdata/pastes.txt")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(text)) {
		if words := append(strings.SplitN(strings.TrimSpace(line), " ", 4), ""); words[0] != "#" {
			status, _ := strconv.Atoi(words[0])
			all = append(all, paste{status, words[1], words[2], words[3]})
		}
	}
	return all
}()

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
