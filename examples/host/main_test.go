package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/examples/internal/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, "SVC_EXAMPLE_HOST", main) }

// program is the program as a process of its own, with what it printed.
type program struct {
	programtest.Program
	url, session string
}

func startProgram(t *testing.T, db string) program {
	t.Helper()
	p := program{Program: programtest.Start(t, []string{"SVC_EXAMPLE_HOST=1"}, "-addr", "127.0.0.1:0", "-db", db)}
	for p.session == "" && p.Lines.Scan() {
		if address, is := strings.CutPrefix(p.Lines.Text(), "listening on "); is {
			p.url = address
		}
		if session, is := strings.CutPrefix(p.Lines.Text(), "session of admin: "); is {
			p.session = session
		}
	}
	return p
}

// ask sends a request with a line of cookies, and returns its answer. The body is read.
func ask(t *testing.T, client *http.Client, method, target, cookies string, headers ...string) (*http.Response, string) {
	t.Helper()
	form, is := strings.CutPrefix(strings.Join(headers, "\n"), "form: ")
	if is {
		headers = []string{"Content-Type: application/x-www-form-urlencoded"}
	} else {
		form = ""
	}
	if cookies != "" {
		headers = append(headers, "Cookie: "+cookies)
	}
	return programtest.Ask(t, client, method, target, form, headers...)
}

func status(t *testing.T, method, target, cookies string, headers ...string) int {
	t.Helper()
	answer, _ := ask(t, http.DefaultClient, method, target, cookies, headers...)
	return answer.StatusCode
}

// The program prints a session of an administrator, which ends with it. What it wrote stays.
func TestProgram(t *testing.T) {
	is := is.New(t)
	db := filepath.Join(t.TempDir(), "host.db")
	first := startProgram(t, db)
	is.Equal(strings.Count(first.session, "="), 1)
	users := first.url + "/ext/svc/users"
	is.Equal(status(t, "GET", users, first.session), 200)
	is.Equal(status(t, "GET", users, ""), 401)
	is.Equal(status(t, "GET", users, first.session[:len(first.session)-1]), 401)
	is.Equal(status(t, "GET", users, "a=b; "+first.session), 200)
	is.Equal(status(t, "GET", users, first.session, "Authorization: Bearer wrong"), 401)
	is.Equal(status(t, "POST", first.url+"/ext/svc/me/api-keys", first.session), 201)
	is.Equal(status(t, "POST", first.url+"/ext/svc/me/api-keys", first.session, "Sec-Fetch-Site: cross-site"), 403)
	is.NoErr(first.Process.Signal(syscall.SIGTERM))
	is.NoErr(first.Wait())

	second := startProgram(t, db)
	is.True(second.session != first.session)
	is.Equal(status(t, "GET", second.url+"/ext/svc/users", first.session), 401)
	_, keys := ask(t, http.DefaultClient, "GET", second.url+"/ext/svc/me/api-keys", second.session)
	is.Equal(strings.Count(keys, `"api_key_prefix"`), 1)
	is.NoErr(second.Process.Signal(os.Interrupt))
	is.NoErr(second.Wait())
}

// newTestHost serves a host over a new database.
func newTestHost(t *testing.T) (*host, string) {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	h := must(openHost(t.Context(), filepath.Join(t.TempDir(), "host.db"), log))
	server := httptest.NewServer(h.handler(http.NewCrossOriginProtection(), log))
	t.Cleanup(func() {
		server.Close()
		must(0, h.close())
	})
	return h, server.URL
}

func TestSignIn(t *testing.T) {
	is := is.New(t)
	h, at := newTestHost(t)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	form := func(user, password string) string {
		return "form: " + url.Values{"user": {user}, "password": {password}}.Encode()
	}
	_, page := ask(t, client, "GET", at+"/", "")
	is.True(strings.Contains(page, `action="/sign-in"`))
	for _, wrong := range []string{form("admin", "wrong"), form("alice", h.password), form("admin", ""), "form: "} {
		answer, page := ask(t, client, "POST", at+"/sign-in", "", wrong)
		is.Equal(answer.StatusCode, 403)
		is.Equal(len(answer.Cookies()), 0)
		is.True(strings.Contains(page, `role="alert"`))
	}
	answer, _ := ask(t, client, "POST", at+"/sign-in", "", form("admin", h.password))
	is.Equal(answer.StatusCode, 303)
	is.Equal(len(answer.Cookies()), 1)
	cookie := answer.Cookies()[0]
	is.True(cookie.HttpOnly && cookie.SameSite == http.SameSiteLaxMode && cookie.Path == "/" && !cookie.Secure)

	session := cookie.Name + "=" + cookie.Value
	_, page = ask(t, client, "GET", at+"/", session)
	is.True(strings.Contains(page, "signed in as admin"))
	is.Equal(status(t, "GET", at+"/me.js", ""), 200)
	own := []string{"Origin: " + at, "Sec-Fetch-Site: same-origin"}
	is.Equal(status(t, "POST", at+"/ext/svc/me/api-keys", session, own...), 201)

	answer, _ = ask(t, client, "POST", at+"/sign-out", session, own...)
	is.Equal(answer.Cookies()[0].MaxAge, -1)
	is.Equal(status(t, "GET", at+"/ext/svc/me", session), 401)
}

// No other page signs anybody in or out: it could sign them in as somebody else.
func TestForeignPages(t *testing.T) {
	is := is.New(t)
	h, at := newTestHost(t)
	session := cookieName + "=" + must(h.begin(t.Context(), administrator))
	for _, path := range []string{"/sign-in", "/sign-out", "/ext/svc/me/api-keys"} {
		is.Equal(status(t, "POST", at+path, session, "Origin: https://evil.example", "Sec-Fetch-Site: cross-site"), 403)
	}
	is.Equal(status(t, "GET", at+"/ext/svc/me", session), 200)
}

// A user who is made inactive has no session any more, and a restart gives the rights back to nobody.
func TestInactiveAdministrator(t *testing.T) {
	is := is.New(t)
	h, at := newTestHost(t)
	token := must(h.begin(t.Context(), administrator))
	must(h.service.Users.Patch(t.Context(), svc.Host, administrator, svc.UserPatch{Inactive: new(true)}))
	is.NoErr(h.prepare(t.Context()))
	is.Equal(status(t, "GET", at+"/ext/svc/me", cookieName+"="+token), 401)
}

func TestCookieIsSecureBeyondLoopback(t *testing.T) {
	h := &host{sessions: newSessions()}
	for name, secure := range map[string]bool{
		"localhost": false, "localhost:8080": false, "127.0.0.1": false, "127.0.0.1:80": false, "[::1]": false, "[::1]:8080": false,
		"example.com": true, "example.com:8080": true, "localhost.example.com": true, "10.0.0.1": true, "127.0.0.1.example.com": true, "": true,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Host = name
		h.setCookie(w, r, "token")
		if cookie := w.Result().Cookies()[0]; cookie.Secure != secure {
			t.Errorf("%q: Secure is %v", name, cookie.Secure)
		}
	}
	is.New(t).Equal(h.sessions.Lifetime, 12*time.Hour)
}

func TestServesWithoutReader(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	args := []string{"-addr", "127.0.0.1:0", "-db", filepath.Join(t.TempDir(), "host.db")}
	is.New(t).NoErr(run(ctx, args, programtest.Unread{End: cancel}, slog.New(slog.DiscardHandler)))
}

// must is the value of a call that does not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
