// Package isolation compares tenants of one pool with services that are alone.
package isolation_test

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/memstore"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlite"
)

// names are two tenants. All their users, templates, … have the same ids.
var names = []string{"a", "A"}

const policy = `{"version":"2026-03-24","statements":[{"effect":"%s","actions":["bank:%s"],"banks":["*"]}]}`

// step is a request of one tenant.
type step struct{ method, path, body string }

// steps returns random requests of a tenant. {key} is one of its keys, {id} the id of one. A user has
// one key at a time: the order of keys that go together is that of their ids, which chance has made.
func steps(random *rand.Rand, count int) (all []step) {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	hasKey := map[string]bool{}
	for len(all) < count {
		id, user := pick("x", "y"), pick("bob", "carol")
		next := []step{
			{"GET", "/admin/templates", ""},
			{"GET", "/admin/templates/" + id, ""},
			{"POST", "/admin/templates", fmt.Sprintf(`{"id":%q,"name":"N%d","manifest":{"version":"1"}}`, id, random.IntN(9))},
			{"PATCH", "/admin/templates/" + id, fmt.Sprintf(`{"description":"D%d"}`, random.IntN(9))},
			{"DELETE", "/admin/templates/" + id, ""},
			{"POST", "/admin/template-sources", `{"url":"fs://shelf","alias":"shelf"}`},
			{"DELETE", "/admin/template-sources/shelf", ""},
			{"POST", "/admin/templates/desk/install", `{"source":"shelf"}`},
			{"DELETE", "/admin/templates/desk", ""},
			{"POST", "/users", fmt.Sprintf(`{"id":%q}`, user)},
			{"DELETE", "/users/" + user, ""},
			{"POST", "/users/" + user + "/channels", `{"provider":"chat","sender_id":"7"}`},
			{"POST", "/groups", `{"id":"team"}`},
			{"POST", "/groups/team/members", fmt.Sprintf(`{"user_id":%q}`, user)},
			{"DELETE", "/groups/team/members/" + user, ""},
			{"POST", "/policies", fmt.Sprintf(`{"id":"rule","document":`+policy+`}`, pick("allow", "deny"), pick("recall", "*"))},
			{"DELETE", "/policies/rule", ""},
			{"PUT", "/policy-attachments", fmt.Sprintf(`{"policy_id":"rule","principal_type":"user","principal_id":%q}`, user)},
			{"PUT", "/policy-attachments", `{"policy_id":"rule","principal_type":"group","principal_id":"team"}`},
			{"GET", "/debug/resolve?bank=b&action=bank:recall&user_id=" + user, ""},
			{"GET", "/debug/resolve?bank=b&action=bank:recall&sender=chat:7", ""},
			{"GET", "/debug/who-can?bank=b&action=bank:recall", ""},
			{"GET", "/users", ""},
			{"POST", "/users/" + user + "/api-keys", `{"description":"k"}`},
			{"GET", "/users/" + user + "/api-keys", ""},
			{"DELETE", "/users/" + user + "/api-keys", ""},
			{"DELETE", "/me/api-keys/{id}", ""},
			{"POST", "/me/api-keys", `{"description":"mine"}`},
			{"POST", "/introspect", "token={key}"},
			{"GET", "/admin/events?limit=5", ""},
		}[random.IntN(30)]
		switch keys := "/users/" + user + "/api-keys"; next {
		case step{"POST", keys, next.body}:
			if hasKey[user] {
				continue
			}
			hasKey[user] = true
		case step{"DELETE", keys, ""}:
			hasKey[user] = false
		}
		all = append(all, next)
	}
	return append(all, step{"GET", "/admin/events", ""}, step{"GET", "/admin/access", ""}, step{"GET", "/admin/templates", ""},
		step{"GET", "/admin/api-keys", ""})
}

// side answers the requests of one tenant, and calls what is random in its answers by its order.
type side struct {
	api    http.Handler
	prefix string
	bearer string
	clock  *clock

	keys, ids []string // what was issued
	named     map[string]string
}

// clock shows a moment that its tenant sets.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(1_800_000_000+c.at.Load(), 0).UTC() }

var (
	issuedKey = regexp.MustCompile(`"key":"(svcu_[^"]+)"`)
	issuedID  = regexp.MustCompile(`"id":"([^"]+)","[^{}]*"key":"svcu_`)
	chance    = regexp.MustCompile(`svc[us]_[A-Za-z0-9_]{8,}|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{64}|"[A-Z2-7]{26}[^"]*"|[A-Za-z0-9]{16,}`)
	// elsewhere may differ: a revision counts the changes that were heard of when the answer was made, and the last use of a key is
	// written after the answer.
	elsewhere = regexp.MustCompile(`"tenant":"[aA]",|"revision":"[0-9]+"|"last_used_at":(null|"[^"]*")`)
)

// ask returns the answer to a request, without what is random.
func (s *side) ask(at int, request step) string {
	s.clock.at.Store(int64(at) + 1)
	last := func(list []string) string {
		if len(list) == 0 {
			return "none"
		}
		return list[at%len(list)]
	}
	path := strings.ReplaceAll(request.path, "{id}", last(s.ids))
	body := strings.ReplaceAll(request.body, "{key}", last(s.keys))
	r := httptest.NewRequest(request.method, s.prefix+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+s.bearer)
	r.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(body, "token=") {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	answer := w.Body.String()
	if found := issuedKey.FindStringSubmatch(answer); found != nil {
		s.keys = append(s.keys, found[1])
	}
	if found := issuedID.FindStringSubmatch(answer); found != nil {
		s.ids = append(s.ids, found[1])
	}
	tag := w.Header().Get("ETag")
	if strings.HasSuffix(path, "/templates") {
		tag = "" // a list has one from when it was read into memory on
	}
	answer = fmt.Sprintln(w.Code, tag, elsewhere.ReplaceAllString(answer, ""))
	return chance.ReplaceAllStringFunc(answer, func(word string) string {
		if s.named[word] == "" {
			s.named[word] = fmt.Sprint("<", len(s.named), ">")
		}
		return s.named[word]
	})
}

func (s *side) play(all []step) (answers []string) {
	for i, request := range all {
		answers = append(answers, s.ask(i, request))
	}
	return answers
}

// admin makes the administrator of a service, and returns a key.
func admin(ctx context.Context, s *svc.Service) string {
	to := svc.GrantedTo{Type: svc.GrantedToUser, ID: "ada"}
	must(0, s.Access.Apply(ctx, svc.Host, svc.Bundle{Users: []svc.User{{ID: "ada"}}, Attachments: []svc.Attachment{
		{PolicyID: svc.PolicyIAMAdmin, Principal: to}, {PolicyID: svc.PolicyTemplateAdmin, Principal: to},
	}}))
	return string(must(s.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "ada"}, svc.NewAPIKey{})).Key)
}

func config(c *clock) svc.Config {
	shelf := fstest.MapFS{"templates.json": {Data: []byte(`{"templates":[{"id":"desk","name":"Desk","manifest":{"version":"1"}}]}`)}}
	return svc.Config{
		Sources: svc.SourceConfig{Marketplace: must(marketplace.New(marketplace.Config{Files: map[string]fs.FS{"shelf": shelf}}))},
		Events:  svc.EventConfig{Keep: true}, Now: c.now,
		Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}}},
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// alone returns a service of its own for each tenant.
func alone(t *testing.T) (sides []*side) {
	for range names {
		c := &clock{}
		set := config(c)
		set.Store = memstore.New()
		service := must(svc.New(set))
		t.Cleanup(func() { _ = service.Close() })
		sides = append(sides, &side{
			api: httpapi.New(service, httpapi.Options{}), prefix: "/ext/svc", bearer: admin(t.Context(), service),
			clock: c, named: map[string]string{},
		})
	}
	return sides
}

func pooled(t *testing.T, store svc.TenantStore) (sides []*side) {
	clocks := map[string]*clock{}
	for _, name := range names {
		clocks[name] = &clock{}
	}
	tenants := must(svc.NewTenants(svc.TenantsConfig{
		Store: store, Config: config(&clock{}),
		Each: func(tenant svc.Tenant, c *svc.Config) error {
			c.Now = clocks[tenant.Name].now
			return nil
		},
	}))
	t.Cleanup(func() { _ = tenants.Close() })
	api := httpapi.NewTenants(tenants, httpapi.Options{Prefix: "/t/{tenant}/ext/svc"})
	for _, name := range names {
		must(tenants.Create(t.Context(), name))
		s := &side{api: api, prefix: "/t/" + name + "/ext/svc", clock: clocks[name], named: map[string]string{}}
		must(0, tenants.Use(t.Context(), name, func(service *svc.Service) error {
			s.bearer = admin(t.Context(), service)
			return nil
		}))
		sides = append(sides, s)
	}
	return sides
}

// differ plays random requests of both tenants: side by side in one pool, and each alone. It returns
// the first difference of their answers.
func differ(t *testing.T, store svc.TenantStore, seed uint64, count int) string {
	random := rand.New(rand.NewPCG(seed, 1))
	want, have := alone(t), pooled(t, store)
	var all sync.WaitGroup
	differences := make([]string, len(names))
	for i, name := range names {
		requests := steps(random, count)
		all.Go(func() {
			expected, answers := want[i].play(requests), have[i].play(requests)
			for at, request := range requests {
				if expected[at] != answers[at] {
					from := same(expected[at], answers[at])
					differences[i] = fmt.Sprintf("seed %d, tenant %s, request %d: %s %s %s\nalone:       %s\nin the pool: %s", seed, name, at,
						request.method, request.path, request.body, around(expected[at], from), around(answers[at], from))
					return
				}
			}
		})
	}
	all.Wait()
	i := slices.IndexFunc(differences, func(d string) bool { return d != "" })
	if i < 0 {
		return ""
	}
	return differences[i]
}

// same returns the number of bytes with which both begin.
func same(a, b string) int {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return i
}

func around(text string, at int) string { return text[max(0, at-300):min(len(text), at+300)] }

var stores = map[string]func(t *testing.T) svc.TenantStore{
	"memory": func(*testing.T) svc.TenantStore { return memstore.NewTenants() },
	"SQLite": func(t *testing.T) svc.TenantStore {
		store := must(sqlite.OpenTenants(t.Context(), filepath.Join(t.TempDir(), "tenants"), sqlite.Options{}))
		t.Cleanup(func() { _ = store.Close() })
		return store
	},
	"PostgreSQL": func(t *testing.T) svc.TenantStore {
		store := must(postgres.OpenTenants(t.Context(), pgtest.Database(t), postgres.Options{Timeout: -1}))
		t.Cleanup(func() { _ = store.Close() })
		return store
	},
}

// Two tenants in one pool answer what two services of their own answer, byte for byte, but for what chance has made.
func TestApart(t *testing.T) {
	seeds := uint64(longtest.Times(1, 12))
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					if difference := differ(t, open(t), seed, longtest.Times(125, 250)); difference != "" {
						t.Fatal(difference)
					}
				})
			}
		})
	}
}

// leaky gives the second tenant something of the first.
type leaky struct {
	svc.TenantStore
	leak func(own, first svc.FullStore) svc.Store

	mu    sync.Mutex
	first svc.FullStore
}

func (l *leaky) OpenTenant(ctx context.Context, tenant svc.Tenant) (svc.Store, func() error, error) {
	own, end, err := l.TenantStore.OpenTenant(ctx, tenant)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || l.first == nil {
		l.first, _ = own.(svc.FullStore)
		return own, end, err
	}
	return l.leak(own.(svc.FullStore), l.first), end, nil
}

// of leaks the reads of one template.
type of struct {
	svc.FullStore
	templates svc.TemplateStore
}

func (o of) Template(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
	return o.templates.Template(ctx, key)
}

// TestLeaks: the comparison finds a store that is shared, or one of its methods.
func TestLeaks(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	for name, leak := range map[string]func(own, first svc.FullStore) svc.Store{
		"everything": func(_, first svc.FullStore) svc.Store { return first },
		"one read":   func(own, first svc.FullStore) svc.Store { return of{own, first} },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(5) {
				if differ(t, &leaky{TenantStore: memstore.NewTenants(), leak: leak}, seed, 250) != "" {
					return
				}
			}
			t.Error("nothing was found")
		})
	}
}
