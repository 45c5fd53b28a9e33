package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

// patience is how long these tests wait for a program that starts, on a busy machine.
const patience = time.Minute

func gatewaysPage(t *testing.T) string {
	t.Helper()
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

// need returns the path of a program. Without it the test is skipped; with SVC_REQUIRE_GATEWAYS=1 it
// fails instead.
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

// endKeys disables a key of alice and revokes one of robot.
func (s *site) endKeys(disabled, revoked string) {
	s.t.Helper()
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
