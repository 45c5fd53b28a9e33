package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

// patience is how long these tests wait for a program that starts, on a busy machine.
const patience = time.Minute

func gatewaysPage(t *testing.T) string {
	return string(must(os.ReadFile("../docs/howto/gateways.md")))
}

// block returns the one block of a page that opens so.
func block(t *testing.T, page, opening string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, opening+"\n")
	text, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended || strings.Contains(rest, opening+"\n") {
		t.Fatalf("the page has not one block that opens with %q", opening)
	}
	return text
}

// gatewayKey applies the documented bundle and returns a key of the gateway.
func (s *site) gatewayKey() string {
	s.t.Helper()
	s.Apply(block(s.t, gatewaysPage(s.t), "<!-- example: gateway -->\n```json"))
	return s.keyOf(svc.KindServiceAccount, "gateway")
}

// need returns the path of a program. Without it the test is skipped; with SVC_REQUIRE_GATEWAYS=1 it fails instead.
func need(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	if os.Getenv("SVC_REQUIRE_GATEWAYS") == "1" {
		t.Fatal(err)
	}
	t.Skipf("SKIPPED: a recipe of docs/howto/gateways.md is not run: %v", err)
	return ""
}

// narrowed issues a key to alice that the policy "on call" narrows.
func (s *site) narrowed() string {
	s.t.Helper()
	s.Apply(`{"policies": [{"id": "on call", "document": {"version": "2026-03-24", "statements": []}}]}`)
	alice := svc.Identity{Kind: svc.KindUser, ID: "alice"}
	return string(must(s.Service.Keys.Issue(s.t.Context(), svc.Host, alice, svc.NewAPIKey{ScopingPolicyID: "on call"})).Key)
}

// The documented gateway needs its one right, and has no other.
func TestGatewayHasOneRight(t *testing.T) {
	s := newSite(t)
	gateway := s.as(s.gatewayKey())
	gateway.send("POST", "/introspect", "token=x").is(200)
	for name, row := range matrix {
		method, _, _ := strings.Cut(name, " ")
		if !strings.Contains(name, "/introspect") && row.statuses[2] == 403 {
			gateway.send(method, row.target, row.body).is(403)
		}
	}
}

func TestNginxRecipe(t *testing.T) {
	s := newSite(t)
	own := s.gatewayKey()
	g := newNginx(t, s, own)
	good, robot, narrowed := s.key("alice"), s.keyOf(svc.KindServiceAccount, "robot"), s.narrowed()
	admits := func(what string, r reply, want string) {
		t.Helper()
		if g.is(what, r, 200, 1); r.body != want {
			t.Errorf("%s: the application got %q, want %q", what, r.body, want)
		}
	}
	admits("a user", g.as(good), "GET / user=[alice] kind=[user] scope=[] key=[] body=")
	admits("a service account", g.as(robot), "GET / user=[robot] kind=[service_account] scope=[] key=[] body=")
	admits("a narrowed key", g.as(narrowed), "GET / user=[alice] kind=[user] scope=[policy:on%20call] key=[] body=")
	admits("a body", g.ask("POST", "/a?b=c", "token=x", "Authorization", "bearer  "+good, "Content-Type", "application/json"),
		"POST /a?b=c user=[alice] kind=[user] scope=[] key=[] body=token=x")
	admits("headers of the client", g.ask("PUT", "/", strings.Repeat("x", 20_000), "Authorization", "Bearer "+good,
		"X-User", "admin", "X-User-Scope", "policy:all", "X-Svc-Sub", "admin", "X-Svc-Active", "true", "Expect", "100-continue", "Content-Encoding", "gzip"),
		"PUT / user=[alice] kind=[user] scope=[] key=[] body="+strings.Repeat("x", 20_000))
	g.is("HEAD", g.ask("HEAD", "/", "", "Authorization", "Bearer "+good), 200, 1)

	g.is("nobody", g.ask("GET", "/", ""), 401, 0)
	g.is("the subrequest", g.ask("GET", "/_introspect", "", "Authorization", "Bearer "+good), 404, 0)
	g.is("a wrong key", g.as(mistyped(good)), 401, 1)
	g.is("no key", g.as("session"), 401, 1)
	g.is("the public", g.ask("HEAD", "/", "", "Authorization", "Bearer x"), 401, 1)
	for _, hostile := range []string{
		"x&token=" + good, good + "&token=x", "x%26token=" + good, "x\ttoken=" + good, `x" token="` + good, "x;token=" + good, good + "+", good + "é",
		good + " ", good + "%00", "{" + good + "}", "$bearer", "${bearer}", "=", "",
	} {
		r := g.as(hostile)
		if hostile != good+" " { // the end of a header is trimmed
			g.is("hostile "+hostile, r, 401, 0)
		}
	}
	g.is("another scheme", g.ask("GET", "/", "", "Authorization", "Basic "+good), 401, 0)
	g.is("a long token", g.as(strings.Repeat("x", 4000)), 401, 1)

	s.endKeys(good, robot)
	g.is("a disabled key", g.as(good), 401, 1)
	g.is("a revoked key", g.as(robot), 401, 1)
	admits("another", g.as(narrowed), "GET / user=[alice] kind=[user] scope=[policy:on%20call] key=[] body=")
	if log := g.log(); strings.Contains(log, good) || strings.Contains(log, own) {
		t.Errorf("a key is in the log of nginx: %s", log)
	}
	g.failsClosed(s, narrowed)
}

// mistyped returns a key with another last character.
func mistyped(key string) string {
	if begin, ends := strings.CutSuffix(key, "x"); ends {
		return begin + "y"
	}
	return key[:len(key)-1] + "x"
}

func (s *site) endKeys(disabled, revoked string) {
	alice, robot := svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.Identity{Kind: svc.KindServiceAccount, ID: "robot"}
	must(s.Service.Keys.Patch(s.t.Context(), svc.Host, alice, keyID(disabled), svc.APIKeyPatch{Disabled: new(true)}))
	must(0, s.Service.Keys.Revoke(s.t.Context(), svc.Host, robot, keyID(revoked)))
}

// failsClosed wants a good key to be refused, with words in the log of nginx, while its gateway has
// no rights, then no key, then no svc.
func (g *nginx) failsClosed(s *site, good string) {
	g.t.Helper()
	gateway := svc.Identity{Kind: svc.KindServiceAccount, ID: "gateway"}
	for _, fault := range []struct {
		what, logged string
		calls        int64
		plant        func() error
	}{
		{"no right", "unexpected status: 503", 1, func() error {
			return s.Service.Policies.Detach(g.t.Context(), svc.Host, svc.AttachmentKey{
				PolicyID: "gateways", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "operations"},
			})
		}},
		{"no key", "unexpected status: 503", 1, func() error {
			_, err := s.Service.Keys.RevokeAll(g.t.Context(), svc.Host, gateway)
			return err
		}},
		{"no svc", "unexpected status: 502", 0, func() error {
			g.svc.Close()
			return nil
		}},
	} {
		must(0, fault.plant())
		logged := strings.Count(g.log(), fault.logged)
		g.is(fault.what, g.as(good), http.StatusInternalServerError, fault.calls)
		if strings.Count(g.log(), fault.logged) != logged+1 {
			g.t.Errorf("%s: nginx does not log %q: %s", fault.what, fault.logged, g.log())
		}
	}
}

// The curl line and the Python program say whose key it is.
func TestGatewayPrograms(t *testing.T) {
	s := newSite(t)
	page := gatewaysPage(t)
	own, good := s.gatewayKey(), s.key("alice")
	curl := strings.ReplaceAll(block(t, page, "```sh"), "http://127.0.0.1:8080/ext/svc", s.url)
	for program, c := range map[string]struct {
		args           []string
		active, nobody string
	}{
		"curl":    {[]string{"sh", "-c", curl}, `{"active":true,"sub":"alice","kind":"user"}` + "\n", `{"active":false}`},
		"python3": {[]string{"python3", "-c", block(t, page, "<!-- example: python -->\n```python")}, "user alice\n", "nobody\n"},
	} {
		t.Run(program, func(t *testing.T) {
			need(t, program)
			for token, want := range map[string]string{good: c.active, good + "x": c.nobody, "a&b=c": c.nobody} {
				command := exec.CommandContext(t.Context(), c.args[0], c.args[1:]...)
				command.Env = append(os.Environ(), "SVC_URL="+s.url, "GATEWAY_KEY="+own, "TOKEN="+token, "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
				said, err := command.CombinedOutput()
				if err != nil || string(said) != want {
					t.Errorf("%s: %v: %s, want %s", program, err, said, want)
				}
			}
		})
	}
}

// The headers that recipes read are those of the answers.
func TestRecipesReadHeadersThatAreSent(t *testing.T) {
	s := newSite(t)
	gateway := s.as(s.gatewayKey())
	sent := gateway.send("POST", "/introspect?inactive=401", "token="+s.narrowed()).is(200).header
	page := strings.ToLower(gatewaysPage(t))
	for _, name := range []string{"active", "sub", "kind", "scope"} {
		for _, form := range []string{`["x-svc-%s"]`, "$upstream_http_x_svc_%s"} {
			if !strings.Contains(page, fmt.Sprintf(form, name)) {
				t.Errorf("the page does not read "+form, name)
			}
		}
		if sent.Get("X-Svc-"+name) == "" {
			t.Errorf("there is no X-Svc-%s: %v", name, sent)
		}
	}
}

// nginx is the documented gateway between its clients and an application.
type nginx struct {
	t     *testing.T
	dir   string
	calls atomic.Int64     // of svc
	svc   *httptest.Server // passes calls on to svc
}

// newNginx runs the documented configuration with a gateway's key, as a process and in a folder of its own.
func newNginx(t *testing.T, s *site, key string) *nginx {
	t.Helper()
	program := need(t, "nginx")
	g := &nginx{t: t, dir: must(os.MkdirTemp("", "svc"))} // not t.TempDir: the path of a socket has to be short
	t.Cleanup(func() { _ = os.RemoveAll(g.dir) })
	application := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(application.Close)
	there := httputil.NewSingleHostReverseProxy(must(url.Parse(strings.TrimSuffix(s.url, "/ext/svc"))))
	g.svc = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.calls.Add(1)
		there.ServeHTTP(w, r)
	}))
	t.Cleanup(g.svc.Close)
	config := block(t, gatewaysPage(t), "```nginx")
	for _, change := range [][2]string{
		{"http://127.0.0.1:9000", application.URL}, {"127.0.0.1:8080", strings.TrimPrefix(g.svc.URL, "http://")},
		{"listen 80;", "listen unix:" + g.path("socket") + ";"}, {"GATEWAY_KEY", key},
	} {
		if strings.Count(config, change[0]) != 1 {
			t.Fatalf("the documented configuration has not one %q", change[0])
		}
		config = strings.ReplaceAll(config, change[0], change[1])
	}
	config = "daemon off; master_process off; pid nginx.pid;\nevents {}\nhttp {\naccess_log off;\n" +
		"client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;\n" + config + "}\n"
	must(0, os.WriteFile(g.path("nginx.conf"), []byte(config), 0o600))
	g.run(exec.Command(program, "-p", g.dir, "-c", "nginx.conf", "-e", "error.log"))
	return g
}

func (g *nginx) path(name string) string { return filepath.Join(g.dir, name) }

// run starts nginx and waits until it listens. It ends with the test.
func (g *nginx) run(process *exec.Cmd) {
	g.t.Helper()
	must(0, process.Start())
	ended := make(chan struct{})
	go func() {
		_ = process.Wait()
		close(ended)
	}()
	g.t.Cleanup(func() {
		_ = process.Process.Kill()
		<-ended
	})
	for began := time.Now(); time.Since(began) < patience; time.Sleep(10 * time.Millisecond) {
		if connection, err := net.Dial("unix", g.path("socket")); err == nil {
			_ = connection.Close()
			return
		}
		select {
		case <-ended:
			g.t.Fatalf("nginx has ended: %s", g.log())
		default:
		}
	}
	g.t.Fatalf("nginx does not listen: %s", g.log())
}

func (g *nginx) log() string {
	text, _ := os.ReadFile(g.path("error.log")) // it may not be there yet
	return string(text)
}

// echo is an application that says what has reached it.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h := r.Header
	fmt.Fprintf(w, "%s %s user=%s kind=%s scope=%s key=%s body=%s", r.Method, r.URL,
		h.Values("X-User"), h.Values("X-User-Kind"), h.Values("X-User-Scope"), h.Values("Authorization"), body)
}

// reply is what a client of the gateway gets.
type reply struct {
	status    int
	body      string
	challenge []string // WWW-Authenticate
	calls     int64    // of svc
}

// ask sends a request through nginx. The headers are pairs.
func (g *nginx) ask(method, target, body string, headers ...string) reply {
	g.t.Helper()
	r := must(http.NewRequestWithContext(g.t.Context(), method, "http://gateway"+target, strings.NewReader(body)))
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = append(r.Header[headers[i]], headers[i+1]) // as it is
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", g.path("socket"))
		},
	}}
	before := g.calls.Load()
	answer, err := client.Do(r)
	if err != nil {
		g.t.Fatalf("%s %s: %v: %s", method, target, err, g.log())
	}
	defer answer.Body.Close()
	text := must(io.ReadAll(answer.Body))
	return reply{answer.StatusCode, string(text), answer.Header["Www-Authenticate"], g.calls.Load() - before}
}

// as sends GET with a bearer.
func (g *nginx) as(bearer string) reply {
	g.t.Helper()
	return g.ask("GET", "/", "", "Authorization", "Bearer "+bearer)
}

// is wants a status after so many calls of svc.
func (g *nginx) is(what string, r reply, status int, calls int64) {
	g.t.Helper()
	if r.status != status || r.calls != calls || (status == http.StatusUnauthorized) != (len(r.challenge) == 1) {
		g.t.Errorf("%s: %+v, want %d after %d calls", what, r, status, calls)
	}
}
