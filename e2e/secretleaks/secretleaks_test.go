//go:build unix

package secretleaks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/contract"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/token"
	"github.com/extsvc/svc/marketplace"
)

const access = `{
  "users": [{"id": "admin"}, {"id": "alice"}, {"id": "bob"}],
  "service_accounts": [{"id": "robot", "owner_user_id": "admin"}],
  "policies": [{"id": "all", "document": {"version": "2026-03-24", "statements": [
    {"effect": "allow", "actions": ["iam:*", "template:*"], "banks": ["*"]}]}}],
  "attachments": [{"policy_id": "all", "principal_type": "user", "principal_id": "admin"}]
}`

var (
	admin = svc.Principal{Kind: svc.KindUser, ID: "admin"}
	alice = svc.Principal{Kind: svc.KindUser, ID: "alice"}
	robot = svc.Principal{Kind: svc.KindServiceAccount, ID: "robot"}
)

// site is a Service over a database, served over HTTP. Tests keep everything that it sends and writes.
type site struct {
	t        *testing.T
	hunt     hunt
	evidence evidence
	secrets  int
	starts   int
	cached   []string // answers with a key that a cache on the way may keep
	db       database
	upstream *upstream

	config  svc.Config
	store   *talkative
	session atomic.Pointer[func(bearer string) error] // handles a bearer that is not the host's; nil: refuse it
	service *svc.Service
	client  *http.Client
	url     string
	stop    func()
}

func newSite(t *testing.T, db database, peppers ...svc.Pepper) *site {
	t.Helper()
	s := &site{t: t, db: db, upstream: newUpstream(t)}
	before := log.Writer()
	log.SetOutput(s.evidence.writer("the default log"))
	t.Cleanup(func() { log.SetOutput(before) })
	s.start(peppers...)
	t.Cleanup(func() { s.stop() })
	must(0, s.service.Access.Apply(t.Context(), svc.Host, must(svc.ParseBundle([]byte(access)))))
	return s
}

// start serves the database as a new run of the program does. Its clock is a minute later than the
// last, because uses of keys are noted by the minute.
func (s *site) start(peppers ...svc.Pepper) {
	s.t.Helper()
	s.starts++
	later := time.Duration(s.starts) * time.Minute
	logger := slog.New(slog.NewMultiHandler(
		slog.NewJSONHandler(s.evidence.writer("log, JSON"), &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}),
		slog.NewTextHandler(s.evidence.writer("log, text"), &slog.HandlerOptions{Level: slog.LevelDebug})))
	s.store = newTalkative(s.db.open())
	market := must(marketplace.New(marketplace.Config{AllowOrigins: []string{s.upstream.URL}}))
	s.config = svc.Config{
		Store: s.store, Logger: logger, Authenticator: svc.AuthenticatorFunc(s.authenticate),
		Events:  svc.EventConfig{OnEvent: func(_ context.Context, event svc.Event) { s.evidence.value("events", event) }},
		Now:     func() time.Time { return time.Now().Add(later) },
		Keys:    svc.KeyConfig{Peppers: peppers},
		Sources: svc.SourceConfig{Marketplace: market, SealingKey: bytes.Repeat([]byte("k"), 32)},
	}
	s.service = must(svc.New(s.config))
	api := httpapi.New(s.service, httpapi.Options{Logger: logger})
	mux := http.NewServeMux()
	mux.Handle("GET /own", api.Protect(http.HandlerFunc(own)))
	mux.HandleFunc("GET /echo", echo)
	server := httptest.NewUnstartedServer(api.Mount(mux))
	server.Config.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelError)
	server.Start()
	s.url = server.URL
	s.client = &http.Client{Transport: listener{s, contract.Transport(s.t, server.Client().Transport)}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	service, once := s.service, atomic.Bool{}
	s.stop = func() {
		if once.Swap(true) {
			return
		}
		server.Close()
		market.CloseIdleConnections()
		must(0, service.Close())
		s.db.close()
	}
}

// own is a route of the host that returns everything it knows of the caller.
func own(w http.ResponseWriter, r *http.Request) {
	who, _ := httpapi.PrincipalFrom(r.Context())
	_, _ = fmt.Fprintf(w, "%+v %#v", who, who)
}

// echo returns what the request asks for, including what an answer must never contain.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Echo", r.FormValue("header"))
	status, _ := strconv.Atoi(r.FormValue("status"))
	w.WriteHeader(cmp.Or(status, http.StatusOK))
	_, _ = io.WriteString(w, r.FormValue("body"))
}

// authenticate accepts the host's sessions.
func (s *site) authenticate(_ context.Context, bearer string) (svc.Principal, error) {
	if user, ours := strings.CutPrefix(bearer, "session-of-"); ours {
		return svc.Principal{Kind: svc.KindUser, ID: user}, nil
	}
	if fail := s.session.Load(); fail != nil {
		return svc.Principal{}, (*fail)(bearer)
	}
	return svc.Principal{}, svc.ErrUnauthenticated
}

// secret marks a text as a secret, which must not be found.
func (s *site) secret(what, secret string) string {
	s.secrets++
	s.hunt.seek(fmt.Sprintf("%s %d", what, s.secrets), secret)
	return secret
}

// key marks the secret part of a key.
func (s *site) key(key svc.Secret) string {
	s.secret("key", string(key[21:53]))
	return string(key)
}

// issue issues a key in Go and keeps the results.
func (s *site) issue(who svc.Principal) string {
	s.t.Helper()
	issued := must(s.service.Keys.Issue(s.t.Context(), svc.Host, who.Identity(), svc.NewAPIKey{}))
	s.seen(issued)
	return s.key(issued.Key)
}

// seen keeps what fmt, encoding/json and log/slog make of a value.
func (s *site) seen(values ...any) {
	for _, value := range values {
		s.evidence.value("values", value)
		s.config.Logger.Info("a value", "value", value, slog.Group("in", slog.Any("a group", value)))
	}
}

func (s *site) keep(err error, values ...any) {
	s.evidence.fault(err)
	s.seen(values...)
	if err != nil {
		s.config.Logger.Error("an error", "error", err)
	}
}

// listener keeps every answer, but not the key in the answer that issues it.
type listener struct {
	site *site
	next http.RoundTripper
}

func (l listener) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	l.site.evidence.add("answers", fmt.Appendf(nil, "%s %v %v\n%s", response.Status, response.Header, response.Trailer, l.withoutKey(response, body)))
	return response, err
}

// withoutKey removes the key from the one field where it belongs.
func (l listener) withoutKey(response *http.Response, body []byte) []byte {
	var issued struct {
		Key svc.Secret `json:"api_key"`
	}
	if response.StatusCode != http.StatusCreated || json.Unmarshal(body, &issued) != nil || issued.Key == "" {
		return body
	}
	if kept := response.Header.Values("Cache-Control"); !slices.Equal(kept, []string{"no-store"}) {
		l.site.cached = append(l.site.cached, fmt.Sprintf("%s: Cache-Control %q", response.Request.URL.Opaque, kept))
	}
	return bytes.Replace(body, []byte(`"api_key":"`+l.site.key(issued.Key)+`"`), nil, 1)
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) text(key string) string {
	var object map[string]any
	_ = json.Unmarshal(a.body, &object)
	text, _ := object[key].(string)
	return text
}

// ask sends a request and checks its status; 0 accepts any. The target follows the prefix and goes out unchanged.
func (s *site) ask(status int, bearer, method, target, body string, edits ...func(*http.Request)) answer {
	s.t.Helper()
	r := must(http.NewRequestWithContext(s.t.Context(), method, s.url, strings.NewReader(body)))
	r.URL = &url.URL{Scheme: "http", Host: r.URL.Host, Opaque: httpapi.DefaultPrefix + target}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	for _, edit := range edits {
		edit(r)
	}
	response, err := s.client.Do(r)
	if err != nil {
		s.t.Errorf("%s %s: %v", method, target, err)
		return answer{}
	}
	defer response.Body.Close()
	a := answer{status: response.StatusCode, header: response.Header}
	if a.body, err = io.ReadAll(response.Body); err != nil {
		s.t.Fatalf("%s %s: %v", method, target, err)
	}
	if status != cmp.Or(a.status, status) && status != 0 {
		s.t.Errorf("%s %.200s %.100s: answered %d, want %d: %s", method, target, body, a.status, status, a.body)
	}
	return a
}

// clean fails the test for every secret found.
func (s *site) clean() {
	s.t.Helper()
	for _, answer := range s.cached {
		s.t.Errorf("an answer with a key may be cached: %s", answer)
	}
	leaks := s.evidence.leaks(&s.hunt)
	for _, place := range slices.Sorted(maps.Keys(leaks)) {
		for _, leak := range leaks[place] {
			s.t.Errorf("found in %s: %s", place, leak)
		}
	}
}

// stored tries the stored values of a key as credentials: a reader of the database must not get one.
func (s *site) stored(key string) {
	s.t.Helper()
	snapshot, err := s.store.Access(s.t.Context(), svc.AccessQuery{KeyID: key[5:21]})
	if err != nil || snapshot.Key == nil {
		s.t.Fatalf("the key is not stored: %v", err)
	}
	for _, form := range forms(*snapshot.Key) {
		if s.accepted(form) {
			s.t.Errorf("%q is accepted, made of what is stored", form)
		}
	}
	if !s.accepted(key) {
		s.t.Error("nothing is accepted")
	}
}

// forms returns the credentials that a reader could build from a row: the hash in every encoding,
// alone and as the secret of a well-formed key.
func forms(key svc.APIKey) []string {
	var forms []string
	for _, text := range []string{
		string(key.Hash), hex.EncodeToString(key.Hash), strings.ToUpper(hex.EncodeToString(key.Hash)), `\x` + hex.EncodeToString(key.Hash),
		base64.StdEncoding.EncodeToString(key.Hash), base64.RawStdEncoding.EncodeToString(key.Hash), base64.URLEncoding.EncodeToString(key.Hash), base64.RawURLEncoding.EncodeToString(key.Hash),
		"", key.ID, key.Prefix, key.Pepper,
	} {
		forms = append(forms, text)
		for _, prefix := range []string{"svcu_", "svcs_"} {
			forms = append(forms, prefix+text, prefix+key.ID+text, token.Token{Prefix: prefix, ID: key.ID, Secret: text}.String())
			for _, secret := range cuts(text) {
				forms = append(forms, token.Token{Prefix: prefix, ID: key.ID, Secret: secret}.String())
			}
		}
	}
	return forms
}

// cuts returns the pieces of a text that have the length of a secret, without characters that no key has.
func cuts(text string) (pieces []string) {
	text = strings.NewReplacer("+", "", "/", "", "-", "", "_", "", "=", "", `\`, "").Replace(text)
	for i := range max(0, len(text)-token.SecretLength+1) {
		pieces = append(pieces, text[i:i+token.SecretLength])
	}
	return pieces
}

// accepted reports whether the Service accepts a bearer, in Go or over HTTP.
func (s *site) accepted(bearer string) bool {
	_, err := s.service.Authenticate(s.t.Context(), bearer)
	if strings.ContainsFunc(bearer, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return err == nil
	}
	return err == nil || s.ask(0, bearer, "GET", "/me/api-keys", "").status != http.StatusUnauthorized
}
