package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/strictjson"
)

// watcher records the observations.
type watcher struct {
	mu   sync.Mutex
	seen []httpapi.Observation
}

func (w *watcher) Observe(_ context.Context, o httpapi.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, o)
}

// last is the observation of the n-th request, the last one; it comes when the answer has been sent.
func (w *watcher) last(t *testing.T, n int) (o httpapi.Observation) {
	t.Helper()
	expect.Soon(t, "it never came", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.seen) >= n {
			o = w.seen[n-1]
			expect.Equal(t, "observations", len(w.seen), n)
		}
		return len(w.seen) >= n
	})
	return o
}

// newest is the last observation there is.
func (w *watcher) newest() httpapi.Observation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[len(w.seen)-1]
}

func TestObserver(t *testing.T) {
	is := is.New(t)
	w := &watcher{}
	s := newSite(t, func(u *setup) { u.Observer = w })
	admin := s.admin()
	user := svc.Identity{Kind: svc.KindUser, ID: "admin"}
	n := 0
	want := func(a answer, route string, code svc.Code, caller svc.Identity) httpapi.Observation {
		t.Helper()
		n++
		o := w.last(t, n)
		is.Equal(o.Route, route)
		is.Equal(o.Status, a.status)
		is.Equal(o.Code, code)
		is.Equal(o.Caller, caller)
		is.True(o.RequestID != "")
		if a.status == 401 { // all alike
			is.Equal(a.header.Get("X-Request-Id"), "")
		} else {
			is.Equal(o.RequestID, a.header.Get("X-Request-Id"))
		}
		if a.request[:4] != "HEAD" {
			is.Equal(o.Bytes, int64(len(a.body)))
		}
		is.True(!o.Began.IsZero() && o.Took > 0)
		return o
	}
	none := svc.Identity{}
	want(admin.get("/admin/templates").is(200), "GET /ext/svc/admin/templates", "", user)
	want(admin.get("/admin/templates/none").is(404), "GET /ext/svc/admin/templates/{template_id}", svc.CodeNotFound, user)
	want(admin.send("HEAD", "/admin/templates", ""), "GET /ext/svc/admin/templates", "", user)
	want(admin.get("/nothing").is(404), "", svc.CodeNotFound, user)
	want(admin.send("PUT", "/admin/templates", "").is(405), "", "method_not_allowed", user)
	want(s.as("").get("/admin/templates").is(401), "", svc.CodeUnauthenticated, none)
	want(s.as("session-of-plain").get("/admin/templates").is(403), "GET /ext/svc/admin/templates", svc.CodeForbidden, svc.Identity{Kind: svc.KindUser, ID: "plain"})
	want(s.as("").get("/openapi.json").is(200), "GET /ext/svc/openapi.json", "", none)
	o := want(admin.post("/admin/templates", "{").is(400), "POST /ext/svc/admin/templates", svc.CodeInvalid, user)
	is.Equal(o.Err, nil)
	s.store.Plant(in("Templates", func() error { return svc.ErrUnavailable }))
	o = want(admin.get("/admin/templates").is(503), "GET /ext/svc/admin/templates", svc.CodeUnavailable, user)
	is.True(o.Err != nil)
	s.store.Plant(func(call string) error { panic("in " + call) })
	o = want(admin.get("/admin/templates").is(500), "GET /ext/svc/admin/templates", svc.CodeInternal, user)
	is.True(o.Err != nil)
}

func TestRequestID(t *testing.T) {
	is := is.New(t)
	s := newSite(t)
	admin := s.admin()
	seen := map[string]bool{}
	for id, taken := range map[string]bool{
		"a": true, "01-abc_D.e:f/g+h=@~": true, strings.Repeat("x", 128): true,
		"": false, " ": false, "a b": false, "a\tb": false, strings.Repeat("x", 129): false, "\u00e9": false, "a\nb": false, `"`: false, "<a>": false,
		s.key("alice"): false,
	} {
		for _, target := range []string{"/admin/templates", "/nothing", "/openapi.json"} {
			have := admin.with("X-Request-Id", id, "GET", target, "").header.Get("X-Request-Id")
			expect.Equal(t, id, have == id && id != "", taken)
			expect.Equal(t, have, have == "" || seen[have], false)
			seen[have] = !taken
		}
	}
	is.True(admin.with("X-Request-Id", "a\nb", "GET", "/nothing", "").header.Get("X-Request-Id") != "a") // two of them

	ahead := newSite(t, func(u *setup) {
		u.mount = func(h *httpapi.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Request-Id", "the host's")
				h.ServeHTTP(w, r)
			})
		}
	})
	is.Equal(ahead.admin().with("X-Request-Id", "mine", "GET", "/nothing", "").header.Get("X-Request-Id"), "the host's")
	is.Equal(ahead.as("").get("/nothing").is(401).header.Get("X-Request-Id"), "the host's")
	is.Equal(s.as("").with("X-Request-Id", "mine", "GET", "/nothing", "").is(401).header.Get("X-Request-Id"), "")
}

// logged is the record of a request.
type logged struct {
	Level, Msg, Method, Route, Code, Error string

	Status    int
	Bytes     int64
	Took      time.Duration
	RequestID string `json:"request_id"`
	Caller    struct{ Kind, ID string }
}

// records are those of requests in a log, each line of which must be one strict JSON object, and hold no control character.
func records(t *testing.T, log string) (all []logged) {
	t.Helper()
	for line := range strings.Lines(log) {
		expect.Holds(t, strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return r < ' ' }) < 0, clip(line))
		_, err := strictjson.Compact([]byte(line), 3)
		var record logged
		if err = errors.Join(err, json.Unmarshal([]byte(line), &record)); err != nil || !strings.HasSuffix(line, "}\n") {
			t.Errorf("no record: %q: %v", clip(line), err)
		}
		if strings.HasPrefix(record.Msg, "svc: request") {
			all = append(all, record)
		}
	}
	return all
}

// handled are the answers that a Handler gave.
func handled(answers []answer) (all []answer) {
	for _, a := range answers {
		if a.status != http.StatusContinue && !a.plain() {
			all = append(all, a)
		}
	}
	return all
}

// Each request leaves one record, which a program can read, whatever it was: fine, refused, or such that no client would send it.
func TestOneRecordOfEachRequest(t *testing.T) {
	t.Parallel()
	log := &record{}
	s := newSite(t, mounts["alone"], func(u *setup) { u.Options.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
	s.harden(nil)
	key := s.key("admin")
	lines := []string{
		key + list[3:], "GET /ext/svc/me/" + key + " HTTP/1.1", "GET /ext/svc/me/api-keys?q=" + key + " HTTP/1.1", "DELETE /ext/svc/me/api-keys/" + key + "%00x HTTP/1.1",
		"GET /ext/svc/%0d%0a%7b%22level%22:%22INFO%22%7d HTTP/1.1", "GET /ext/svc/%00%1b%5b31m\xff HTTP/1.1", "GET /ext/svc/\u2028\u202e{}\"\\ HTTP/1.1", "GET /ext/svc/%zz HTTP/1.1",
		"GET /ext/svc/openapi.json HTTP/1.1", "HEAD /ext/svc/openapi.json HTTP/1.1", "PUT /ext/svc/openapi.json HTTP/1.1", "HEAD /ext/svc/admin/templates HTTP/1.1",
	}
	for _, line := range raw("first lines", nil) {
		lines = append(lines, line[1])
	}
	for _, route := range httpapi.Routes() {
		lines = append(lines, route.Method+" /ext/svc"+route.Path+" HTTP/1.1")
	}
	told := 0
	for _, first := range lines {
		for _, bearer := range []string{key, "", "session-of-robot+sa", "svcu_\xff"} {
			was := len(log.String())
			answers := handled(s.talk(s.lines(first, bearer, "X-Request-Id: \xff\u2028\t"+key, "User-Agent: "+key+"\"\\", "Content-Length: 0")))
			all := records(t, log.String()[was:])
			if len(all) != len(answers) {
				t.Fatalf("%q: %d records of %d answers", clip(first), len(all), len(answers))
			}
			for i, a := range answers {
				a.isLogged(all[i])
			}
			told += len(all)
		}
	}
	expect.Equal(t, "records", told >= 250, true)
	expect.Equal(t, "the key is in the log", strings.Contains(log.String(), key), false)
}

// checkRecords wants one record of each answer that was noted, whatever a test was about. An answer of 401 has no id to find it by.
func (s *site) checkRecords() {
	told := map[string]int{}
	for _, record := range records(s.t, s.log.String()) {
		told[fmt.Sprint(record.RequestID, " ", record.Status)]++
	}
	for id, count := range s.answered {
		expect.Equal(s.t, "answers", told[id], count)
	}
}

// isLogged wants what a record says to be what was answered.
func (a answer) isLogged(r logged) {
	a.t.Helper()
	var problem struct{ Code string }
	_ = json.Unmarshal(a.body, &problem) // or it is none
	level, known := "INFO", a.status != 401 && !strings.HasSuffix(r.Route, "openapi.json")
	if a.status >= 500 {
		level = "ERROR"
	}
	if r.Level != level || r.Method == "" || r.Status != a.status || r.Took <= 0 || r.RequestID == "" || (r.Caller.ID != "") != known ||
		len(a.body) > 0 && (r.Code != problem.Code || r.Bytes != int64(len(a.body))) || (r.Error != "") != (a.status >= 500) {
		a.t.Errorf("%s: %d %s\nis logged as %+v", a.request, a.status, clip(string(a.body)), r)
	}
	if id := a.header.Get("X-Request-Id"); id != "" {
		expect.Equal(a.t, a.request, r.RequestID, id)
	}
}

// serveOnce is a request to a Handler that shares the site's service, and how it ended: with a panic, perhaps.
func (s *site) serveOnce(options httpapi.Options, method, target, bearer string, changes ...func(*http.Request)) (
	cut any, w *httptest.ResponseRecorder,
) {
	defer func() { cut = recover() }()
	return nil, recorded(httpapi.New(s.service, options), method, target, bearer, "", changes...)
}

// An answer that is cut off, and one whose client has left, also have a record.
func TestRecordsOfWhatWasCutOff(t *testing.T) {
	t.Parallel()
	s := many(t, 150)
	ended, end := context.WithCancel(t.Context())
	end()
	late, stop := context.WithTimeout(t.Context(), -1)
	defer stop()
	key := s.key("admin")
	for _, c := range []struct {
		name, level, code string
		status            int
		ctx               context.Context
		options           httpapi.Options
		plant             func()
	}{
		{"a list breaks off", "ERROR", "internal", 200, t.Context(), httpapi.Options{}, func() { s.beforeChunk(3, func() error { return errors.New("disk on fire") }) }},
		{"the host cuts it off", "ERROR", "", 0, t.Context(), httpapi.Options{Limit: func(*http.Request, svc.Principal) time.Duration { panic(http.ErrAbortHandler) }}, func() {}},
		{"the client has left", "INFO", "unavailable", 503, ended, httpapi.Options{}, func() { s.store.Plant(func(string) error { return svc.ErrUnavailable }) }},
		{"a middleware gives up", "ERROR", "unavailable", 503, late, httpapi.Options{}, func() { s.store.Plant(func(string) error { return svc.ErrUnavailable }) }},
		{"the Observer panics", "INFO", "", 200, t.Context(), httpapi.Options{Observer: panics{}}, func() {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			is := is.New(t)
			log := &record{}
			c.options.Logger = slog.New(slog.NewJSONHandler(log, nil))
			c.plant()
			defer s.store.Plant(nil)
			s.serveOnce(c.options, "GET", "/ext/svc/admin/templates", key, func(r *http.Request) { *r = *r.WithContext(c.ctx) })
			all := records(t, log.String())
			is.Equal(len(all), 1)
			is.Equal(all[0].Level, c.level)
			is.Equal(all[0].Status, c.status)
			is.Equal(all[0].Code, c.code)
			is.Equal(all[0].Error != "", c.status != 200 || c.code != "")
		})
	}
}

// A Logger that panics cuts off no answer: the change is made, and its key is shown only once.
func TestLoggerThatPanics(t *testing.T) {
	t.Parallel()
	is, s := is.New(t), newSite(t)
	cut, w := s.serveOnce(httpapi.Options{Logger: slog.New(panics{})}, "POST", "/ext/svc/me/api-keys", s.key("alice"))
	is.Equal(cut, nil)
	is.Equal(w.Code, 201)
}

type panics struct{ slog.Handler }

func (panics) Enabled(context.Context, slog.Level) bool { return true }

func (panics) Handle(context.Context, slog.Record) error { panic("in the Logger") }

func (panics) Observe(context.Context, httpapi.Observation) { panic("in the Observer") }

// Protect leaves a record of whom it does not let through, and of faults that WriteError answers; the rest is the host's own to log.
func TestRecordsOfProtect(t *testing.T) {
	is, s, log, seen := is.New(t), newSite(t), &record{}, &watcher{}
	key := s.key("alice")
	causes := []error{&svc.Error{Code: svc.CodeNotFound}, errors.New("no disk for " + key)}
	api := httpapi.New(s.service, httpapi.Options{Logger: slog.New(slog.NewJSONHandler(log, nil)), Observer: seen})
	protected := api.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpapi.WriteError(w, r, causes[0])
		causes = causes[1:]
	}))
	for _, bearer := range []string{"", "wrong", key, key} {
		r := httptest.NewRequest("GET", "/of/the/host", nil)
		r.Header.Set("Authorization", "Bearer "+bearer)
		w := httptest.NewRecorder()
		r.Pattern = "GET /of/the/{x}"       // as a mux sets it
		w.Header().Set("X-Request-Id", key) // by a careless host
		protected.ServeHTTP(w, r)
	}
	is.True(!strings.Contains(log.String(), key))
	all := records(t, log.String())
	is.True(len(all) == 3 && all[0].Status == 401 && all[1].Code == "unauthenticated")
	is.Equal(all[1].Route+all[2].Route, "GET /of/the/{x}GET /of/the/{x}")
	is.True(all[2].Status == 500 && strings.Contains(all[2].Error, "no disk for svc") && strings.Contains(seen.newest().Err.Error(), "no disk"))
}

// Without a logger there are errors in the default one, and nothing else; it costs nothing.
func TestNoLogger(t *testing.T) {
	is := is.New(t)
	log := &record{}
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewJSONHandler(log, nil)))
	s := newSite(t, func(u *setup) { u.Config.Logger, u.Config.Keys.Peppers = nil, nil }) // which would be warned of
	key := s.key("admin")
	allocated := func(logger *slog.Logger) float64 {
		api := httpapi.New(s.service, httpapi.Options{Logger: logger})
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/ext/svc/openapi.json", nil)
		api.ServeHTTP(w, r)
		r.Header.Set("If-None-Match", w.Header().Get("ETag"))
		return testing.AllocsPerRun(100, func() { api.ServeHTTP(w, r) })
	}
	none := allocated(nil)
	is.Equal(allocated(slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))), none)
	is.True(allocated(slog.New(slog.NewJSONHandler(io.Discard, nil))) <= none+4)
	s.store.Plant(func(string) error { return errors.New("disk on fire") })
	_, w := s.serveOnce(httpapi.Options{}, "GET", "/ext/svc/me/api-keys", key)
	is.Equal(w.Code, 500)
	all := records(t, log.String())
	is.Equal(len(all), 1)
	is.Equal(all[0].Level, "ERROR")
	is.True(strings.Contains(all[0].Error, "disk on fire"))
	s.serveOnce(httpapi.Options{}, "GET", "/ext/svc/me/api-keys", "wrong") // an answer of 401 is no error
	is.Equal(len(records(t, log.String())), 1)
}
