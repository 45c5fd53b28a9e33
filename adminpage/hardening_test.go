package adminpage_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
)

// Fields suggest users: those that begin with what was asked, then the first, 20 at most.
func TestSuggestions(t *testing.T) {
	crowd := svc.Bundle{Users: []svc.User{{ID: "zoe"}}}
	for i := range 100 {
		crowd.Users = append(crowd.Users, svc.User{ID: fmt.Sprintf("user-%02d", i)})
	}
	s := newSite(t, crowd).signIn()
	for _, address := range []string{"why", "keys", "why?user_id=zo&bank=b&action=bank:recall", "keys?holder=zo"} {
		body := s.get(address).is(t, 200, `list="users"`, `<datalist id="users">`, `<option value="user-00">`).body
		_, list, _ := strings.Cut(body, `<datalist id="users">`)
		list, _, _ = strings.Cut(list, "</datalist>")
		if n := strings.Count(list, "<option"); n != 20 {
			t.Errorf("%s suggests %d users", address, n)
		}
		if asked := strings.Contains(address, "zo"); strings.Contains(list, `"zoe"`) != asked {
			t.Errorf("%s suggests %s", address, list)
		}
	}
	s.get("why").is(t, 200, `<datalist id="actions"><option value="bank:recall">`)
}

// A request with a method that an address does not take learns the methods. HEAD is GET without a
// body.
func TestMethods(t *testing.T) {
	s := newSite(t, office()).signIn()
	for path, allowed := range map[string]string{"keys": "GET, POST", "audit": "GET", "sign-out": "POST"} {
		request := must(http.NewRequest("DELETE", s.url+path, nil))
		if a := s.read(s.client.Do(request)).is(t, 405); a.Header.Get("Allow") != allowed {
			t.Errorf("%s allows %q", path, a.Header.Get("Allow"))
		}
	}
	for path, status := range map[string]int{"keys": 200, "": 200, "nothing": 404, "keys?which=expiring": 200} {
		if a := s.read(s.client.Head(s.url+path)).is(t, status); a.body != "" {
			t.Errorf("HEAD %q: %s", path, a.body)
		}
	}
}

// An expired session of the host does not stand in the way of a key.
func TestHostSession(t *testing.T) {
	bearer := "expired"
	s := newSite(t, office(), func(o *adminpage.Options) { o.Bearer = func(*http.Request) string { return bearer } })
	s.get("keys").is(t, 401, "API key")
	s.signIn().get("keys").is(t, 200, "Sign out")
	s.post("sign-out", nil).is(t, 401)
	bearer = s.key
	s.get("keys").is(t, 200, "<b>admin</b>", "", "Sign out") // the host signs out
}

// A caller who is not signed in sends no large body, and comes back to where the form was.
func TestSignedOutForms(t *testing.T) {
	s := newSite(t, office())
	s.post("keys?holder=bob", form("do", "revoke")).is(t, 401, `name="to" value="keys?holder=bob"`)
	s.post("sign-in", form("key", strings.Repeat("x", 100_000))).is(t, 413)
	s.post("sign-in", form("key", "wrong", "to", "keys?holder=bob")).is(t, 401, `name="to" value="keys?holder=bob"`)
	for _, to := range []string{"//evil.example/keys", "https://evil.example/keys", "keys/../../..//evil", `\\evil`, "/keys"} {
		a := s.post("sign-in", form("key", s.key, "to", to)).is(t, 200)
		if !strings.HasPrefix(a.Request.URL.String(), s.url) {
			t.Errorf("the sign-in leads from %q to %s", to, a.Request.URL)
		}
	}
}

// The pages work under any prefix, and show long and foreign texts.
func TestPrefixes(t *testing.T) {
	long := strings.Repeat("p", 100)
	bundle := office()
	bundle.Policies = append(bundle.Policies, svc.Policy{ID: long, Document: document(`{"effect":"deny","actions":["bank:*"],"banks":["*"]}`)})
	bundle.Users = append(bundle.Users, svc.User{ID: "経理部の利用者の識別子です🎉🎉🎉"})
	bundle.Attachments = append(bundle.Attachments, svc.Attachment{PolicyID: long, Principal: svc.GrantedTo{Type: "user", ID: "経理部の利用者の識別子です🎉🎉🎉"}})
	for prefix, path := range map[string]string{"/": "/", "/t/{tenant}/admin": "/t/acme/admin"} {
		s := newSite(t, bundle, func(o *adminpage.Options) { o.Prefix = prefix })
		s.url = strings.Replace(s.url, "{tenant}", "acme", 1)
		signed := s.signIn().get("keys").is(t, 200, `aria-current="page"`)
		for _, part := range assets(signed.body) {
			s.get(part).is(t, 200)
		}
		s.get("why?user_id=経理部の利用者の識別子です🎉🎉🎉&bank=b&action=bank:recall").is(t, 200, ">Denied<", "経理部の利用…", "<title>"+long, "pppp…")
		request := must(http.NewRequest("POST", s.url+"sign-in", strings.NewReader("key="+s.key)))
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if c := must(http.DefaultTransport.RoundTrip(request)).Cookies(); len(c) != 1 || c[0].Path != path {
			t.Errorf("prefix %s: cookies %v", prefix, c)
		}
	}
}
