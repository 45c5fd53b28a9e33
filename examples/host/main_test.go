package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// TestMain lets a test run this binary as the program itself.
func TestMain(m *testing.M) {
	if os.Getenv("SVC_EXAMPLE_HOST") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// program is the program as a process of its own, with what it printed.
type program struct {
	*exec.Cmd
	url, session string
}

func startProgram(t *testing.T, db string) program {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // ends the read below
	t.Cleanup(cancel)
	p := program{Cmd: exec.CommandContext(ctx, os.Args[0], "-addr", "127.0.0.1:0", "-db", db)}
	p.Env, p.Stderr = append(os.Environ(), "SVC_EXAMPLE_HOST=1"), t.Output()
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = p.Process.Kill(), p.Wait() })
	for scanner := bufio.NewScanner(stdout); p.session == "" && scanner.Scan(); {
		if address, is := strings.CutPrefix(scanner.Text(), "listening on "); is {
			p.url = address
		}
		p.session, _ = strings.CutPrefix(scanner.Text(), "session of admin: ")
		if p.session == scanner.Text() {
			p.session = ""
		}
	}
	return p
}

// ask sends a request with a line of cookies, and returns its answer. The body is read.
func ask(t *testing.T, client *http.Client, method, target, cookies string, headers ...string) (*http.Response, string) {
	t.Helper()
	var body io.Reader
	if form, is := strings.CutPrefix(strings.Join(headers, "\n"), "form: "); is {
		body, headers = strings.NewReader(form), []string{"Content-Type: application/x-www-form-urlencoded"}
	}
	r, err := http.NewRequestWithContext(t.Context(), method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	if cookies != "" {
		r.Header.Set("Cookie", cookies)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
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
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	h, err := openHost(t.Context(), filepath.Join(t.TempDir(), "host.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h.handler(http.NewCrossOriginProtection(), log))
	t.Cleanup(func() {
		server.Close()
		if err := h.close(); err != nil {
			t.Error(err)
		}
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
	token, err := h.begin(t.Context(), administrator)
	is.NoErr(err)
	session := cookieName + "=" + token
	for _, path := range []string{"/sign-in", "/sign-out", "/ext/svc/me/api-keys"} {
		is.Equal(status(t, "POST", at+path, session, "Origin: https://evil.example", "Sec-Fetch-Site: cross-site"), 403)
	}
	is.Equal(status(t, "GET", at+"/ext/svc/me", session), 200)
}

// A user who is made inactive has no session any more, and a restart gives the rights back to nobody.
func TestInactiveAdministrator(t *testing.T) {
	is := is.New(t)
	h, at := newTestHost(t)
	token, err := h.begin(t.Context(), administrator)
	is.NoErr(err)
	_, err = h.service.Users.Patch(t.Context(), svc.Host, administrator, svc.UserPatch{Inactive: new(true)})
	is.NoErr(err)
	is.NoErr(h.prepare(t.Context()))
	is.Equal(status(t, "GET", at+"/ext/svc/me", cookieName+"="+token), 401)
}

func TestCookieIsSecureBeyondLoopback(t *testing.T) {
	is := is.New(t)
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
	is.Equal(h.sessions.Lifetime, 12*time.Hour)
}

// unread is a standard output without a reader. It ends the host with the first line.
type unread func()

func (end unread) Write([]byte) (int, error) {
	end()
	return 0, syscall.EPIPE
}

func TestServesWithoutReader(t *testing.T) {
	is := is.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	args := []string{"-addr", "127.0.0.1:0", "-db", filepath.Join(t.TempDir(), "host.db")}
	is.NoErr(run(ctx, args, unread(cancel), slog.New(slog.DiscardHandler)))
}
