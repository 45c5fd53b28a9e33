package adminpage_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/internal/expect"
)

// The cookie of a browser that has signed out is none any more.
func TestSignOut(t *testing.T) {
	s := newSite(t, svc.Bundle{}).signIn()
	cookies := s.client.Jar.Cookies(must(url.Parse(s.url)))
	if len(cookies) != 1 || s.keysWith(cookies[0]) != 200 {
		t.Fatalf("cookies: %v", cookies)
	}
	s.post("sign-out", nil)
	expect.Equal(t, "the old cookie after signing out", s.keysWith(cookies[0]), 401)
	s.signIn().get("keys").is(t, 200)
	must(s.service.Keys.RevokeAll(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "admin"}))
	s.get("keys").is(t, 401, "API key")
}

// cutting is a proxy that serves a handler below a prefix, which it cuts off.
func cutting(t *testing.T, prefix, to string) *httptest.Server {
	proxy := httptest.NewServer(http.StripPrefix(prefix, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(must(url.Parse(to)))
			r.Out.Host = r.In.Host
		},
	}))
	t.Cleanup(proxy.Close)
	return proxy
}

func (s *site) origin() string {
	u := must(url.Parse(s.url))
	return u.Scheme + "://" + u.Host
}

// The pages work behind a proxy that cuts a prefix off, also a part of the pages' own, with links
// and redirects that stay below it.
func TestBehindAPrefix(t *testing.T) {
	for _, path := range []string{"/ops/ext/svc-admin/", "/a/b/"} {
		s := newSite(t, office())
		to, prefix := s.origin(), "/ops"
		if path == "/a/b/" {
			to, prefix = to+"/ext/svc-admin", "/a/b"
		}
		s.url = cutting(t, prefix, to).URL + path
		s.signIn()
		for _, address := range []string{"", "keys", "why?user_id=bob&bank=b", "templates"} {
			a := s.get(address).is(t, 200, "<b>admin</b>")
			expect.Holds(t, strings.HasPrefix(a.Request.URL.Path, path), address, " leads to ", a.Request.URL)
			for _, part := range assets(a.body) {
				s.read(s.client.Get(must(a.Request.URL.Parse(part)).String())).is(t, 200)
			}
		}
		s.post("sign-out", nil).is(t, 401)
		expect.Equal(t, "cookies after the sign-out", len(s.client.Jar.Cookies(must(url.Parse(s.url)))), 0)
	}
}

// Another spelling of the prefix has no page: a browser would send its forms elsewhere.
func TestSpellingsOfThePrefix(t *testing.T) {
	h := adminpage.New(newSite(t, office()).service, adminpage.Options{}).Mount(http.NotFoundHandler())
	for _, path := range []string{"//ext/svc-admin/keys", "/ext%2Fsvc-admin/keys", "/ext/x/../svc-admin/sign-in"} {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "http://h"+path, nil))
		expect.Holds(t, answer.Code == 404 && !strings.Contains(answer.Body.String(), "<") && answer.Header().Get("X-Frame-Options") != "", path, ": ", answer.Code, answer.Body)
	}
	answer := httptest.NewRecorder() // the host has cut the whole prefix off
	http.StripPrefix("/admin", adminpage.New(newSite(t, office()).service, adminpage.Options{Prefix: "/"})).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/admin", nil))
	expect.Holds(t, strings.Contains(answer.Body.String(), `href="./admin/style`), answer.Code, answer.Body)
}

// Two servers on one host, which browsers give the same cookies, do not end each other's sign-in.
func TestTwoPorts(t *testing.T) {
	a, b := newSite(t, office()), newSite(t, office())
	b.client = a.client
	a.signIn()
	b.signIn()
	a.get("keys").is(t, 200)
	b.post("sign-out", nil).is(t, 401)
	a.get("keys").is(t, 200)
}

// Processes with one key have the same sessions, those of a key that is not the first count as well,
// and a sign-out ends all sessions that the browser has.
func TestSessionKeys(t *testing.T) {
	first, second := []byte(strings.Repeat("1", 32)), []byte(strings.Repeat("2", 32))
	with := func(key []byte, old ...[]byte) func(*adminpage.Options) {
		return func(o *adminpage.Options) { o.SessionKey, o.OldSessionKeys = key, old }
	}
	a := newSite(t, office(), with(first))
	jar := a.signIn().client.Jar
	for _, c := range []struct {
		set    func(*adminpage.Options)
		status int
	}{{with(first), 200}, {with(second, first), 200}, {with(second), 401}, {func(*adminpage.Options) {}, 401}} {
		options := adminpage.Options{}
		c.set(&options)
		page := adminpage.New(a.service, options)
		server := httptest.NewServer(page.Mount(http.NotFoundHandler()))
		t.Cleanup(server.Close)
		b := *a
		b.url, b.client = server.URL+adminpage.DefaultPrefix+"/", &http.Client{Jar: jar}
		b.get("keys").is(t, c.status)
		if c.status == 200 {
			b.signIn().post("sign-out", nil).is(t, 401)
			a.signIn()
		}
	}
	adminpage.New(a.service, adminpage.Options{OldSessionKeys: [][]byte{}}) // there are none
	endless := func(o *adminpage.Options) { o.SessionLifetime = -1 }
	pattern := func(o *adminpage.Options) { o.Actions = []string{"order:*"} }
	for _, bad := range []func(*adminpage.Options){with(first[:31]), with(nil, first), with(first, nil), with(first, first), endless, pattern} {
		options := adminpage.Options{}
		bad(&options)
		func() {
			defer func() {
				expect.Holds(t, recover() != nil, "New refuses ", options.SessionLifetime, append(options.OldSessionKeys, options.SessionKey))
			}()
			adminpage.New(a.service, options)
		}()
	}
}

func TestNoSessionKey(t *testing.T) {
	var log bytes.Buffer
	set := func(key []byte) func(*adminpage.Options) {
		return func(o *adminpage.Options) {
			o.SessionKey, o.Logger = key, slog.New(slog.NewTextHandler(&log, nil))
		}
	}
	newSite(t, svc.Bundle{}, set(make([]byte, 32)))
	expect.Equal(t, "log", log.String(), "")
	newSite(t, svc.Bundle{}, set(nil))
	expect.Equal(t, log.String(), strings.Count(log.String(), "SessionKey"), 1)
}

// A sign-in that the browser did not keep says so, and one that it kept has a plain address.
func TestCookieNotKept(t *testing.T) {
	s := newSite(t, office())
	kept := s.post("sign-in", form("key", s.key, "to", "why?user_id=bob&bank=b")).is(t, 200, "<b>admin</b>")
	expect.Equal(t, "the sign-in leads to", kept.Request.URL.RawQuery, "user_id=bob&bank=b")
	const says = "the browser did not keep the cookie"
	s.post("sign-out", nil).is(t, 401, "", says)

	blocked := *s
	blocked.client = &http.Client{}
	far := *s // another machine, over plain http
	here := strings.TrimPrefix(s.origin(), "http://")
	far.url = strings.Replace(s.url, here, "nas.lan:8080", 1)
	far.client = &http.Client{Jar: must(cookiejar.New(nil)), Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, here)
		},
	}}
	for _, s := range []*site{&blocked, &far} {
		for _, to := range []string{"", "keys", "keys?which=unused"} {
			a := s.post("sign-in", form("key", s.key, "to", to)).is(t, 401, says, `type="password"`)
			expect.Equal(t, "the sign-in comes back to", a.field(t, "to"), to)
		}
		s.get("keys").is(t, 401, "", says)
	}

	// A link of another site is asked again first, because the browser keeps the cookie back.
	r := must(http.NewRequest("GET", s.url+"keys?signed-in=1", nil))
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	blocked.read(blocked.client.Do(r)).is(t, 401, `http-equiv="refresh"`, "", says)

	// Another process, with another key, is another fault.
	r = must(http.NewRequest("GET", s.url+"keys?signed-in=1", nil))
	r.AddCookie(&http.Cookie{Name: "svc-admin", Value: "other"})
	blocked.read(blocked.client.Do(r)).is(t, 401, "SessionKey", "", says)
}

// The cookie of a host that is not this machine is for https alone, in its name as well, and so is
// every cookie with the option Secure.
func TestSecureCookies(t *testing.T) {
	plain := newSite(t, office())
	secure := newSite(t, office(), func(o *adminpage.Options) { o.Secure = true })
	for _, c := range []struct {
		*site
		host, name string
	}{
		{plain, "", "svc-admin-"}, {plain, "localhost", "svc-admin"}, {plain, "[::1]:80", "svc-admin-80"},
		{plain, "nas.lan", "__Secure-svc-admin"}, {plain, "nas.lan:8443", "__Secure-svc-admin-8443"},
		{plain, "nas.lan:x", "__Secure-svc-admin"}, {secure, "127.0.0.1", "__Secure-svc-admin"}, {plain, "192.0.2.1", "__Secure-svc-admin"},
	} {
		at := func(r *http.Request) { r.Host = cmp.Or(c.host, r.Host) }
		got := c.send(c.page, "/sign-in", strings.NewReader("key="+c.key), -1, at).Result().Cookies()
		if len(got) != 1 || !strings.HasPrefix(got[0].Name, c.name) || got[0].Path != "" ||
			got[0].Secure != strings.HasPrefix(c.name, "__Secure-") || !got[0].HttpOnly {
			t.Fatalf("%s: %v", c.host, got)
		}
		expect.Equal(t, c.host+" with the cookie", c.keysWith(got[0], at), 200)
		if got[0].Secure { // what a sibling domain could set
			got[0].Name = strings.TrimPrefix(got[0].Name, "__Secure-")
			expect.Equal(t, c.host+" with a cookie of another name", c.keysWith(got[0], at), 401)
		}
	}
}

// keysWith returns the status of the page of keys for a browser with a cookie, and two that are none of these pages.
func (s *site) keysWith(cookie *http.Cookie, set ...func(*http.Request)) int {
	r, w := httptest.NewRequest("GET", s.url+"keys", nil), httptest.NewRecorder()
	for _, value := range []string{"%", cookie.Value, "%"} {
		r.AddCookie(&http.Cookie{Name: cookie.Name, Value: value})
	}
	for _, f := range set {
		f(r)
	}
	s.page.ServeHTTP(w, r)
	return w.Code
}

// A bearer may be as long as a cookie holds; a longer one is not called wrong.
func TestLongBearers(t *testing.T) {
	config := svc.Config{Authenticator: svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) {
		return svc.Principal{Kind: svc.KindUser, ID: "admin"}, nil
	})}
	s := newSiteWith(t, config, office(), func(o *adminpage.Options) { o.Secure = true })
	sign := func(n int) *http.Response {
		return s.send(s.page, "/sign-in", strings.NewReader("key="+strings.Repeat("x", n)), -1).Result()
	}
	for _, n := range []int{2049, 2900, adminpage.MaxBearer} {
		a := sign(n)
		size := len(a.Header.Get("Set-Cookie"))
		expect.Holds(t, a.StatusCode == 303 && size <= 4096, "a bearer, its status and its cookie: ", n, a.StatusCode, size)
		expect.Equal(t, n, s.keysWith(a.Cookies()[0]), 200)
	}
	body := string(must(io.ReadAll(sign(adminpage.MaxBearer + 1).Body)))
	expect.Holds(t, strings.Contains(body, "This bearer is too long for the page") && !strings.Contains(body, "not accepted"), body)
}

func TestCrossOrigin(t *testing.T) {
	trusting := http.NewCrossOriginProtection()
	must(0, trusting.AddTrustedOrigin("https://console.example"))
	for status, s := range map[int]*site{403: newSite(t, office()), 200: newSite(t, office(), func(o *adminpage.Options) { o.CrossOrigin = trusting })} {
		r := must(http.NewRequest("POST", s.url+"sign-in", strings.NewReader("key="+s.key)))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "https://console.example")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		s.read(s.client.Do(r)).is(t, status)
	}
}

// A request with a method that an address does not take learns the methods. HEAD is GET without a body.
func TestMethods(t *testing.T) {
	s := newSite(t, office()).signIn()
	for path, allowed := range map[string]string{"keys": "GET, HEAD, POST", "audit": "GET, HEAD", "sign-out": "POST"} {
		request := must(http.NewRequest("DELETE", s.url+path, nil))
		expect.Equal(t, path, s.read(s.client.Do(request)).is(t, 405).Header.Get("Allow"), allowed)
	}
	for path, status := range map[string]int{"keys": 200, "": 200, "nothing": 404, "keys?which=expiring": 200} {
		expect.Equal(t, "HEAD "+path, s.read(s.client.Head(s.url+path)).is(t, status).body, "")
	}
}

func TestHeaders(t *testing.T) {
	s := newSite(t, office()).signIn()
	style := regexp.MustCompile(`style-[0-9a-f]+\.css`).FindString(s.get("keys").body)
	for address, of := range map[string][2]string{"keys": {"no-store", "html"}, style: {"public, max-age=31536000, immutable", "css"}} {
		header := s.get(address).Header
		header.Del("Content-Length")
		header.Del("Date")
		want := "map[Cache-Control:[" + of[0] + "] Content-Security-Policy:[default-src 'none'; style-src 'self'; script-src 'self';" +
			" form-action 'self'; base-uri 'none'; frame-ancestors 'none'] Content-Type:[text/" + of[1] + "; charset=utf-8]" +
			" Cross-Origin-Opener-Policy:[same-origin] Cross-Origin-Resource-Policy:[same-origin] Referrer-Policy:[same-origin]" +
			" Vary:[Accept-Encoding] X-Content-Type-Options:[nosniff] X-Frame-Options:[DENY]]"
		expect.Equal(t, address, fmt.Sprint(header), want)
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

// The log has no credential of a request, also when a function of the host panics with it. The page
// names the request by an id that the log has, and that is no credential either.
func TestLogHasNoCredentials(t *testing.T) {
	var log bytes.Buffer
	s := newSite(t, office(), func(o *adminpage.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.Bearer = func(r *http.Request) string {
			cookie, err := r.Cookie("session")
			if err != nil {
				return ""
			}
			panic("cannot read " + cookie.Value + " of " + fmt.Sprint(r.Header))
		}
	})
	s.signIn()
	r := must(http.NewRequest("GET", s.url+"keys", nil))
	r.AddCookie(&http.Cookie{Name: "session", Value: "canary-session"})
	r.Header.Set("Authorization", "Bearer canary-of-a-proxy")
	for sent, shown := range map[string]string{"id-of-a-proxy": "id-of-a-proxy", "": "", s.key: "", "a b": ""} {
		r.Header.Set("X-Request-Id", sent)
		failed := s.read(s.client.Do(r))
		id := failed.Header.Get("X-Request-Id")
		failed.is(t, 500, "Something failed. Request id "+id+" is in the server&#39;s log.")
		expect.Holds(t, len(id) >= 10 && (shown == "" && id != sent || shown != "" && id == shown) && strings.Contains(log.String(), "request_id="+id+" "), "the id for ", sent, " is ", id, ": ", log.String())
	}
	own := s.client.Jar.Cookies(r.URL)[0].Value
	text := log.String()
	expect.Holds(t, strings.Contains(text, "cannot read ***") && !strings.Contains(text, "canary") && !strings.Contains(text, own), text)
}

// The pages work under any prefix, and show long and foreign texts.
func TestPrefixes(t *testing.T) {
	long := strings.Repeat("p", 100)
	bundle := office()
	bundle.Policies = append(bundle.Policies, svc.Policy{ID: long, Document: document(`{"effect":"deny","actions":["bank:*"],"banks":["*"]}`)})
	bundle.Users = append(bundle.Users, svc.User{ID: "経理部の利用者の識別子です🎉🎉🎉"})
	bundle.Attachments = append(bundle.Attachments, svc.Attachment{PolicyID: long, Principal: svc.GrantedTo{Type: "user", ID: "経理部の利用者の識別子です🎉🎉🎉"}})
	for _, prefix := range []string{"/", "/t/{tenant}/admin"} {
		s := newSite(t, bundle, func(o *adminpage.Options) { o.Prefix = prefix })
		s.url = strings.Replace(s.url, "{tenant}", "acme", 1)
		signed := s.signIn().get("keys").is(t, 200, `aria-current="page"`)
		for _, part := range assets(signed.body) {
			s.get(part).is(t, 200)
		}
		s.get("why?user_id=経理部の利用者の識別子です🎉🎉🎉&bank=b&action=bank:recall").is(t, 200, ">Denied<", "経理部の利用…", "<title>"+long, "pppp…")
		request := must(http.NewRequest("POST", s.url+"sign-in", strings.NewReader("key="+s.key)))
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		c := must(http.DefaultTransport.RoundTrip(request)).Cookies()
		expect.Holds(t, len(c) == 1 && c[0].Path == "", "prefix ", prefix, ": cookies: ", c)
	}
}
