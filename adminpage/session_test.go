package adminpage_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

func TestSignIn(t *testing.T) {
	s := newSite(t, svc.Bundle{})
	for _, path := range []string{"", "why", "nothing", "templates/x"} {
		a := s.get(path)
		if a.StatusCode != 401 || !strings.Contains(a.body, `type="password"`) {
			t.Errorf("%q, signed out: %d", path, a.StatusCode)
		}
	}
	wrong := s.post("sign-in", url.Values{"key": {"svcu_" + strings.Repeat("x", 54)}})
	if wrong.StatusCode != 401 || !strings.Contains(wrong.body, "not accepted") || strings.Contains(wrong.body, "xxxx") {
		t.Errorf("a wrong key: %d: %s", wrong.StatusCode, wrong.body)
	}
	s.signIn()
	if a := s.get("nothing"); a.StatusCode != 404 {
		t.Errorf("no such page: %d", a.StatusCode)
	}
	cookies := s.client.Jar.Cookies(must(url.Parse(s.url)))
	if len(cookies) != 1 {
		t.Fatalf("cookies: %v", cookies)
	}
	s.post("sign-out", nil)
	request := must(http.NewRequest("GET", s.url+"nothing", nil))
	request.AddCookie(cookies[0])
	if a := s.read(http.DefaultClient.Do(request)); a.StatusCode != 401 {
		t.Errorf("the old cookie after signing out: %d", a.StatusCode)
	}
}
