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
)

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

// log is the error log of nginx.
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
