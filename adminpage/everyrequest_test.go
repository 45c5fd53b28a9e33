package adminpage_test

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/limits"
)

// The bounds of each request. An answer has at most perByte bytes for each byte of the request, or the floor: a list
// of differences may be long whatever the request. Where an answer shows rows, what was sent to store the long list
// counts as well, perStored times: a list repeats the names of its members.
const (
	perByte     = 100
	perStored   = 8
	floor       = 300 << 10
	differences = 3 << 19
	maxHeap     = 64 << 20 // allocated meanwhile, live or not
	maxCPU      = 2.0      // seconds; more is judged by maxReads, because a machine may be slow
	maxReads    = 120      // times what it takes to decode a body of the largest size
)

// TestEveryRequestEnds asks every route of httpapi and every page, with each list grown to its limit,
// one at a time: stored, and then in the request itself. Here the lists are a tenth as long as in
// CI. The bound of memory is then a fifth, for all that is allocated.
func TestEveryRequestEnds(t *testing.T) {
	if longtest.Raced {
		t.Skip("what is allocated means nothing with the race detector, and it takes long")
	}
	tenth := 10 / longtest.Times(1, 10)
	for _, name := range slices.Sorted(maps.Keys(longLists)) {
		long := longLists[name]
		t.Run(name, func(t *testing.T) {
			s := newFull(t)
			n := max(1, long.most/tenth)
			if long.grow != nil {
				s.stored = long.grow(s, n)
			} else {
				bundle := long.bundle(n)
				if len(bundle) > httpapi.DefaultMaxBody {
					t.Fatalf("the list has %d bytes", len(bundle))
				}
				s.tryBundle(bundle, tenth) // the rows are not stored yet
				must(0, s.service.Access.Apply(t.Context(), svc.Host, must(svc.ParseBundle([]byte(bundle)))))
				s.stored = len(bundle)
			}
			statuses := s.askAll(tenth)
			for request, status := range statuses {
				expect.Holds(t, status < 500 || status == http.StatusServiceUnavailable, request, ": ", status)
				if long.most == 0 && status >= 400 { // the request itself is right
					t.Errorf("%s: %d, without a long list", request, status)
				}
			}
		})
	}
}

// full is a shop with a row of every kind.
type full struct {
	*shop
	handler http.Handler // the routes and the pages
	cookies []*http.Cookie
	stored  int               // the bytes of the long list
	ids     map[string]string // of keys, by their place in a path
}

func newFull(t *testing.T) *full {
	world := `{"users":[{"id":"big","channels":[{"provider":"p","sender_id":"s"}]}],"groups":[{"id":"g","members":["big"]}],
		"service_accounts":[{"id":"sa","owner_user_id":"big"},{"id":"mine","owner_user_id":"admin"}],
		"policies":[{"id":"p","document":` + string(document("")) + `},{"id":"spare","document":` + string(document("")) + `}],
		"attachments":[{"policy_id":"p","principal_type":"user","principal_id":"big"},{"policy_id":"template:user","principal_type":"user","principal_id":"admin"},
		{"policy_id":"bank:admin","principal_type":"user","principal_id":"admin"},{"policy_id":"iam:self-service","principal_type":"user","principal_id":"admin"}],
		"bank_policies":[{"bank_id":"b","document":{"version":"2026-03-24"}}]}`
	config := svc.Config{Templates: svc.TemplateConfig{Banks: bankMaker{}}}
	s := &full{shop: newShopWith(t, config, must(svc.ParseBundle([]byte(world)))), ids: map[string]string{}}
	for place, holder := range map[string]svc.Identity{
		"/users/": {Kind: svc.KindUser, ID: "big"}, "/me/api-keys": {Kind: svc.KindUser, ID: "admin"},
		"/service-accounts/": {Kind: svc.KindServiceAccount, ID: "sa"}, "/me/service-accounts/": {Kind: svc.KindServiceAccount, ID: "mine"},
	} {
		s.ids[place] = must(s.service.Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{})).ID
	}
	s.ids["/keys/"] = s.ids["/users/"]
	s.edit("It has a history.")
	s.cookies = s.client.Jar.Cookies(must(url.Parse(s.url)))
	s.handler = s.page.Mount(httpapi.New(s.service, httpapi.Options{}).Mount(http.NotFoundHandler()))
	return s
}

func (s *full) change(c svc.Content) int {
	must(s.service.Templates.Patch(s.t.Context(), svc.Host, "desk", svc.TemplatePatch{
		Name: &c.Name, Tags: &c.Tags, Integrations: &c.Integrations, Manifest: c.Manifest}))
	return len(must(json.Marshal(c)))
}

type bankMaker struct{}

func (bankMaker) MakeBank(context.Context, svc.Principal, svc.NewBank) (svc.CreatedBank, error) {
	return svc.CreatedBank{Created: true, ImportResult: json.RawMessage(`{}`)}, nil
}

type request struct{ route, target, body string }

// requests are those of testdata/requests.txt: what shows rows, what adds some, what changes and what removes them.
var requests = func() (all []request) {
	for line := range strings.Lines(string(must(os.ReadFile("testdata/requests.txt")))) {
		words := append(strings.SplitN(strings.TrimSpace(line), " ", 3), "")
		if line[0] == '#' || words[0] == "" {
			continue
		}
		path, query, asks := strings.Cut(words[1], "?")
		if asks {
			query = "?" + query
		}
		all = append(all, request{words[0] + " " + path, query, words[2]})
	}
	return all
}()

// names stand for the parameters of paths.
var names = strings.NewReplacer(
	"users/{id}", "users/big", "groups/{id}", "groups/g", "policies/{id}", "policies/p", "accounts/{id}", "accounts/sa", "banks/{id}", "banks/b",
	"{user_id}", "big", "{group_id}", "g", "{policy_id}", "p", "{bank_id}", "b", "{provider}", "p", "{sender_id}", "s",
	"{principal_type}", "user", "{principal_id}", "big", "{template_id}", "desk", "{name}", "acme", "{sa_id}", "sa",
)

// A new route and a new page need a request.
func TestEveryRouteHasARequest(t *testing.T) {
	var have, want []string
	for _, r := range requests {
		have = append(have, r.route)
	}
	for _, r := range httpapi.Routes() {
		want = append(want, r.Method+" "+r.Path)
	}
	for _, path := range adminpage.Posts() {
		want = append(want, "FORM "+path)
	}
	for _, path := range adminpage.Gets() {
		want = append(want, "PAGE "+path)
	}
	slices.Sort(have)
	slices.Sort(want)
	expect.Equal(t, "requests of routes and pages", have, want)
}

func (s *full) askAll(tenth int) map[string]int {
	statuses := map[string]int{}
	queries := list(limits.Questions/tenth, `{"bank":"b","user_id":"big","action":"bank:recall"}`)
	statuses["many questions"] = s.ask("POST /decide", "", `{"queries":[`+queries+`]}`, s.stored, tenth)
	for _, r := range requests {
		statuses[r.route] = s.ask(r.route, r.target, r.body, s.stored, tenth)
	}
	return statuses
}

func (s *full) tryBundle(bundle string, tenth int) {
	s.ask("POST /admin/access-bundle", "?dry_run=true", bundle, 0, tenth)
	s.ask("POST /debug/simulate", "", `{"bundle":`+bundle+`,"query":{"bank":"b","user_id":"big","action":"bank:recall"}}`, 0, tenth)
	s.ask("FORM /why", "", form("user_id", "big", "bank", "b", "action", "bank:recall", "bundle", bundle).Encode(), 0, tenth)
}

// ask sends one request and checks its bounds. stored is how many bytes its answer may show.
func (s *full) ask(route, query, body string, stored, tenth int) int {
	s.t.Helper()
	method, path, _ := strings.Cut(route, " ")
	for place, id := range s.ids {
		if strings.HasPrefix(path, place) {
			path = strings.ReplaceAll(path, "{key_id}", id)
		}
	}
	if strings.HasPrefix(path, "/me/") && !strings.HasSuffix(path, "/install") {
		path = strings.NewReplacer("{sa_id}", "mine", "{template_id}", "mine").Replace(path)
	}
	if strings.Contains(body, "{etag}") {
		desk := must(s.service.Templates.Read(s.t.Context(), svc.Host, "desk"))
		body = strings.ReplaceAll(body, "{etag}", url.QueryEscape(desk.ETag()))
	}
	body = strings.ReplaceAll(body, "{key}", s.key)
	prefix, kind := httpapi.DefaultPrefix, "application/json"
	if method == "PAGE" || method == "FORM" {
		prefix, kind = strings.TrimSuffix(adminpage.DefaultPrefix, "/"), "application/x-www-form-urlencoded"
		method = map[string]string{"PAGE": "GET", "FORM": "POST"}[method]
	} else if path == "/introspect" {
		kind = "application/x-www-form-urlencoded"
	}
	target := prefix + names.Replace(path) + query
	r := must(http.NewRequestWithContext(s.t.Context(), method, s.origin()+target, strings.NewReader(body)))
	r.RequestURI = target
	if prefix == httpapi.DefaultPrefix {
		r.Header.Set("Authorization", "Bearer "+s.key)
	} else {
		for _, cookie := range s.cookies {
			r.AddCookie(cookie)
		}
		r.Header.Set("Origin", s.origin())
	}
	if body != "" {
		r.Header.Set("Content-Type", kind)
	}
	w := &counted{header: http.Header{}}
	cost := measure(func() { s.handler.ServeHTTP(w, r) })
	in := len(target) + len(body)
	least := floor
	if route == "POST /admin/access-bundle" {
		least = differences
	}
	if limit := max(least, perByte*in) + perStored*stored; w.bytes > limit {
		s.t.Errorf("%s: %d bytes in, %d stored, %d bytes out", route, in, stored, w.bytes)
	}
	expect.Holds(s.t, cost.heap <= maxHeap/max(1, tenth/2), route, ": ", in, " bytes in, ", stored, " stored, ", cost.heap>>20, " MB of heap")
	if cost.cpu > maxCPU && cost.cpu > maxReads*decodingTime() {
		s.t.Errorf("%s: %d bytes in, %d stored, %.1f s", route, in, stored, cost.cpu)
	}
	return w.status
}

type counted struct {
	header        http.Header
	status, bytes int
}

func (c *counted) Header() http.Header { return c.header }

func (c *counted) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
}

func (c *counted) Write(p []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	c.bytes += len(p)
	return len(p), nil
}

// cost is what a request takes: the most bytes of heap that it adds at a time, and seconds of a processor.
type cost struct {
	heap int
	cpu  float64
}

// measure does something. What it allocates in all is the most that it may hold: only when that is
// too much, and in CI, the heap is watched, garbage included.
func measure(do func()) cost {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := cpuTime()
	watched := watch(before.HeapAlloc)
	do()
	peak := watched()
	runtime.ReadMemStats(&after)
	spent := cpuTime() - begin
	return cost{min(int(after.TotalAlloc-before.TotalAlloc), peak), spent.Seconds()}
}

// decodingTime returns the seconds of a processor that it takes to decode a body of the largest size.
func decodingTime() float64 {
	const times = 5
	body, value := []byte("["+list(httpapi.DefaultMaxBody/40, `{"bank":"b","action":"bank:recall"}`)+"]"), any(nil)
	return measure(func() {
		for range times {
			must(0, json.Unmarshal(body, &value))
		}
	}).cpu / times
}

// watch samples the heap, until the function that it returns is called: that returns how far the
// heap was above a size. Without CI it watches nothing, and returns a large number.
func watch(from uint64) (peak func() int) {
	if !longtest.InCI() {
		return func() int { return math.MaxInt }
	}
	stop, most := make(chan bool), make(chan uint64)
	go func() {
		sample, high := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}, from
		for {
			metrics.Read(sample)
			high = max(high, sample[0].Value.Uint64())
			select {
			case <-stop:
				most <- high
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() int { close(stop); return int(<-most - from) }
}
