package main

import (
	"crypto/ed25519"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/matryer/is"

	"github.com/extsvc/svc/examples/internal/programtest"
	"github.com/extsvc/svc/internal/porttest"
)

func TestMain(m *testing.M) { programtest.Main(m, "SVC_EXAMPLE_JWT", main) }

// host is a running host, with the private key that signs its tokens.
type host struct {
	t      *testing.T
	url    string
	public ed25519.PublicKey
	key    ed25519.PrivateKey
}

func newTestHost(t *testing.T) host {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	is.New(t).NoErr(err)
	server := httptest.NewServer(newHost(public))
	t.Cleanup(server.Close)
	return host{t, server.URL, public, private}
}

func sign(t *testing.T, method jwt.SigningMethod, key any, c jwt.Claims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, c).SignedString(key)
	is.New(t).NoErr(err)
	return token
}

func (h host) session(user string, admin bool) string {
	h.t.Helper()
	return sign(h.t, jwt.SigningMethodEdDSA, h.key, newClaims(user, admin, soon()))
}

func soon() time.Time { return time.Now().Add(time.Minute) }

func (h host) ask(bearer, method, path string) (status int, body, later string) {
	h.t.Helper()
	answer, text := programtest.Ask(h.t, http.DefaultClient, method, h.url+path, "", "Authorization: Bearer "+bearer)
	return answer.StatusCode, text, answer.Header.Get("Retry-After")
}

func (h host) status(bearer, method, path string) int {
	h.t.Helper()
	return programtest.Status(h.t, method, h.url+path, bearer)
}

func TestSessions(t *testing.T) {
	is := is.New(t)
	h := newTestHost(t)
	status, body, _ := h.ask(h.session("ada", false), "GET", "/recall/diary")
	is.Equal(status, 200)
	is.Equal(body, "user ada recalls\n")
	is.Equal(h.status(h.session("ada", false), "GET", "/recall/secrets"), 403)
	is.Equal(h.status(h.session("grace", true), "GET", "/recall/diary"), 403) // the token's actions hold in the interface only
	is.Equal(h.status(h.session("ada", false), "GET", "/ext/svc/admin/templates"), 403)
	is.Equal(h.status(h.session("ada", true), "GET", "/ext/svc/admin/templates"), 200)
}

func with(change func(c *claims)) claims {
	c := newClaims("ada", true, soon())
	change(&c)
	return c
}

func TestNoSessions(t *testing.T) {
	h := newTestHost(t)
	_, strange, err := ed25519.GenerateKey(nil)
	is.New(t).NoErr(err)
	good, edDSA := h.session("ada", true), jwt.SigningMethodEdDSA
	head, payload, _ := strings.Cut(good, ".")
	for name, bearer := range map[string]string{
		"nobody":                 "",
		"nonsense":               "nonsense",
		"expired":                sign(t, edDSA, h.key, newClaims("ada", true, time.Now().Add(-time.Second))),
		"never expiring":         sign(t, edDSA, h.key, with(func(c *claims) { c.ExpiresAt = nil })),
		"not yet good":           sign(t, edDSA, h.key, with(func(c *claims) { c.NotBefore = jwt.NewNumericDate(soon()) })),
		"for somebody else":      sign(t, edDSA, h.key, with(func(c *claims) { c.Audience = jwt.ClaimStrings{"https://other.example.com"} })),
		"for nobody":             sign(t, edDSA, h.key, with(func(c *claims) { c.Audience = nil })),
		"by somebody else":       sign(t, edDSA, h.key, with(func(c *claims) { c.Issuer = "https://login.example.org" })),
		"by nobody":              sign(t, edDSA, h.key, with(func(c *claims) { c.Issuer = "" })),
		"of nobody":              sign(t, edDSA, h.key, with(func(c *claims) { c.Subject = "" })),
		"signed by another key":  sign(t, edDSA, strange, newClaims("ada", true, soon())),
		"alg none":               sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, newClaims("ada", true, soon())),
		"HMAC of the public key": sign(t, jwt.SigningMethodHS256, []byte(h.public), newClaims("ada", true, soon())),
		"not signed":             strings.TrimRight(good, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"),
		"changed":                head + "." + strings.Replace(payload, payload[10:11], "x", 1),
	} {
		for _, path := range []string{"/recall/diary", "/ext/svc/me/api-keys", "/ext/svc/admin/templates"} {
			if status := h.status(bearer, "GET", path); status != 401 {
				t.Errorf("%s: %s answers %d", name, path, status)
			}
		}
	}
	if status := h.status(good, "GET", "/recall/diary"); status != 200 {
		t.Errorf("a good one: answered %d", status)
	}
}

// A key issued with a session opens the same routes until it is revoked, but has none of the session's actions.
func TestKeys(t *testing.T) {
	is := is.New(t)
	h := newTestHost(t)
	session := h.session("ada", true)
	status, body, _ := h.ask(session, "POST", "/ext/svc/me/api-keys")
	is.Equal(status, 201)
	var issued struct {
		ID  string `json:"id"`
		Key string `json:"api_key"`
	}
	is.NoErr(json.Unmarshal([]byte(body), &issued))
	status, body, _ = h.ask(issued.Key, "GET", "/recall/diary")
	is.Equal(status, 200)
	is.Equal(body, "user ada recalls\n")
	is.Equal(h.status(issued.Key, "GET", "/recall/secrets"), 403)
	is.Equal(h.status(issued.Key, "GET", "/ext/svc/admin/templates"), 403)
	is.Equal(h.status(session, "DELETE", "/ext/svc/me/api-keys/"+issued.ID), 204)
	is.Equal(h.status(issued.Key, "GET", "/recall/diary"), 401)
	is.Equal(h.status(session, "GET", "/recall/diary"), 200)
}

// A limit counts all bearers of one principal together, and each principal apart.
func TestLimit(t *testing.T) {
	is := is.New(t)
	h := newTestHost(t)
	refused := 0
	for i := 0; i < 60 || refused == 0 && i < 600; i++ { // a slow machine gives the rate time to add more
		path := []string{"/recall/diary", "/ext/svc/me/api-keys"}[i%2]
		status, body, later := h.ask(h.session("ada", i%3 == 0), "GET", path)
		if status == 429 {
			refused++
			is.Equal(later, "1")
			is.True(strings.Contains(body, `"code":"rate_limited"`))
		} else {
			is.Equal(status, 200)
		}
	}
	is.True(refused > 0)
	is.Equal(h.status(h.session("grace", false), "GET", "/ext/svc/me/api-keys"), 200)
	time.Sleep(400 * time.Millisecond)
	is.Equal(h.status(h.session("ada", false), "GET", "/recall/diary"), 200)
}

func TestProgramRuns(t *testing.T) {
	programtest.Need(t, "curl", "the lines that the program prints")
	address := porttest.Free(t)
	program := programtest.Start(t, []string{"SVC_EXAMPLE_JWT=1", "ADDR=" + address})
	var lines []string
	for len(lines) < 6 && program.Lines.Scan() {
		lines = append(lines, program.Lines.Text())
	}
	is.New(t).Equal(programtest.Status(t, "GET", "http://"+address+"/ext/svc/me", ""), 401)
	for i, part := range []string{"user ada recalls\n", `"api_key":"svcu_`, `"api_key_prefix":"svcu_`, `{"templates":[]}`} {
		answer, err := exec.CommandContext(t.Context(), "sh", "-c", strings.Join(append(lines[:2:2], lines[2+i]), "\n")).CombinedOutput()
		if err != nil || !strings.Contains(string(answer), part) {
			t.Errorf("%s\nanswered %s, which lacks %s: %v", lines[2+i], answer, part, err)
		}
	}
}
