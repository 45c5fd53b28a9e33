package linearizability_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

// history is a set of clients that call concurrently, and their answers.
type history struct {
	name    string
	seed    uint64
	began   time.Time
	ids     []string                  // of templates; few
	users   []string                  // few
	keys    []atomic.Pointer[heldKey] // keys in use; few
	clients []*client

	services []*svc.Service
	exact    bool // a commit by one of services counts at once in all of them
}

// newHistory lets 4 to 6 clients call the services, in turn, and waits for the answers. The seed
// determines the calls, but not their interleaving.
func newHistory(t *testing.T, seed uint64, name string, services []*svc.Service, exact bool) *history {
	ctx := t.Context()
	random := rand.New(rand.NewPCG(seed, 0))
	h := &history{name: name, seed: seed, keys: make([]atomic.Pointer[heldKey], 2), services: services, exact: exact}
	for i := range 2 {
		h.ids = append(h.ids, fmt.Sprintf("%s-%d", name, i))
		h.users = append(h.users, fmt.Sprintf("%s-user-%d", name, i))
	}
	for _, service := range services { // each then knows the administrators
		must(0, service.Access.Apply(ctx, svc.Host, administrators()))
	}
	for i, user := range h.users { // by its service, if it has one
		must(0, services[i%len(services)].Access.Apply(ctx, svc.Host, household([]string{user})))
	}
	calls := 12 + random.IntN(9)
	for i := range 4 + random.IntN(3) {
		h.clients = append(h.clients, &client{
			history: h, number: i, service: services[i%len(services)], random: rand.New(rand.NewPCG(seed, uint64(i+1))),
		})
	}
	var group sync.WaitGroup
	start := make(chan bool)
	for _, c := range h.clients {
		group.Go(func() {
			<-start
			for range calls {
				c.act(ctx)
			}
		})
	}
	h.began = time.Now()
	close(start)
	group.Wait()
	return h
}

// violation returns "", or the calls that no order explains.
func (h *history) violation(sum *tally) string {
	var templates []moment[templateCall, templateAnswer]
	var keys []moment[keyCall, keyAnswer]
	var access []moment[accessCall, accessAnswer]
	for _, c := range h.clients {
		templates, keys = slices.Concat(templates, c.templates), slices.Concat(keys, c.keys)
		access = slices.Concat(access, c.access)
	}
	sum.histories++
	found := check[row](templates, sum)
	for _, view := range views(keys) {
		if found == "" {
			found = check[keyState](view, sum)
		}
	}
	if found == "" {
		found = check[accessState](access, sum)
	}
	if found != "" {
		found = fmt.Sprintf("SVC_LINEAR_SEED=%d (history %s)\n%s", h.seed, h.name, found)
	}
	return found
}

type client struct {
	*history
	number    int
	service   *svc.Service
	random    *rand.Rand
	serial    int
	templates []moment[templateCall, templateAnswer]
	keys      []moment[keyCall, keyAnswer]
	access    []moment[accessCall, accessAnswer]
}

// act makes one call. It cancels one in twelve early.
func (c *client) act(ctx context.Context) {
	if c.random.IntN(12) == 0 {
		var end func()
		ctx, end = context.WithTimeout(ctx, rand.N(2*time.Millisecond))
		defer end()
	}
	switch c.random.IntN(6) {
	case 0, 1:
		c.actOnKey(ctx)
	case 2, 3:
		c.actOnAccess(ctx)
	default:
		c.actOnTemplate(ctx)
	}
}

func (c *client) actOnTemplate(ctx context.Context) {
	call := templateCall{
		id:      c.ids[c.random.IntN(len(c.ids))],
		do:      pick(c.random, "create", "read", "read", "read", "patch", "patch", "patch", "patch", "install", "install", "update", "update", "update", "update", "delete"),
		entry:   pick(c.random, entries...),
		version: c.random.IntN(3),
		force:   c.random.IntN(4) == 0,
		edit:    c.edit(),
	}
	if call.do == "create" {
		call.edit = edit{0, c.text()}
	}
	called := time.Since(c.began)
	answer := c.askTemplate(ctx, &call)
	c.templates = append(c.templates, moment[templateCall, templateAnswer]{c.number, call, answer, called, time.Since(c.began)})
}

// edit returns a value for one field. It may equal the present value, or be null where the field allows that.
func (c *client) edit() edit {
	e := edit{c.random.IntN(len(fields)), c.text()}
	switch {
	case (e.field == 1 || e.field == 2) && c.random.IntN(4) == 0:
		e.value = "null"
	case e.field == 3 || e.field == 4:
		e.value = "[" + e.value + "]"
	case e.field == 5:
		e.value = `{"version":` + e.value + `}`
	}
	return e
}

// text returns a JSON text: often one that no other client writes, otherwise one of two.
func (c *client) text() string {
	if c.serial++; c.random.IntN(3) == 0 {
		return fmt.Sprintf(`"common %d"`, c.random.IntN(2))
	}
	return fmt.Sprintf(`"%d of %d"`, c.serial, c.number)
}

func pick[T any](random *rand.Rand, list ...T) T { return list[random.IntN(len(list))] }

func (c *client) askTemplate(ctx context.Context, call *templateCall) templateAnswer {
	var template svc.Template
	var err error
	switch call.do {
	case "create":
		template, err = c.service.Templates.Create(ctx, svc.Host, svc.NewTemplate{ID: call.id, Content: handMade(call.edit)})
	case "read":
		template, err = c.service.Templates.Read(ctx, svc.Host, call.id)
	case "patch":
		template, err = c.service.Templates.Patch(ctx, svc.Host, call.id, call.edit.patch())
	case "install":
		template, err = c.service.Templates.Install(asking(ctx, call), svc.Host,
			svc.Install{TemplateID: call.entry, SourceName: "shelf", AliasID: &call.id})
	case "update":
		return c.update(ctx, call)
	case "delete":
		err = c.service.Templates.Delete(ctx, svc.Host, call.id)
	}
	if err != nil || call.do == "delete" {
		return templateAnswer{code: svc.ErrorCode(err)}
	}
	return templateAnswer{row: rowOf(template)}
}

func (c *client) update(ctx context.Context, call *templateCall) templateAnswer {
	update, err := c.service.Templates.Update(asking(ctx, call), svc.Host, call.id, svc.UpdateRequest{LocalEdits: map[bool]svc.LocalEdits{true: svc.TakeTheirs}[call.force]})
	if err != nil {
		return templateAnswer{code: svc.ErrorCode(err), fields: fieldsOf(err)}
	}
	return templateAnswer{
		row: rowOf(update.Template), updated: update.Updated, before: update.PreviousRevision, after: update.NewRevision,
	}
}

var alice = svc.Identity{Kind: svc.KindUser, ID: "alice"}

// heldKey is a key and its Service. Unless the Services are exact, another one may accept the key
// for a moment after its revocation.
type heldKey struct {
	svc.IssuedKey
	service *svc.Service
	by      svc.Principal // who came by it when it was good; Kind "" when nobody has asked
}

func (c *client) actOnKey(ctx context.Context) {
	slot := &c.history.keys[c.random.IntN(len(c.history.keys))]
	key := slot.Load()
	do := pick(c.random, "issue", "authenticate", "authenticate", "issue by it", "issue by it", "revoke", "revoke another's")
	if key == nil || do == "issue by it" && key.by.Kind == "" {
		do = "issue"
	}
	if key != nil && c.exact {
		key = &heldKey{IssuedKey: key.IssuedKey, service: c.service, by: key.by}
	}
	called := time.Since(c.began)
	var err error
	switch do {
	case "issue":
		var issued svc.IssuedKey
		if issued, err = c.service.Keys.Issue(ctx, svc.Host, alice, svc.NewAPIKey{}); err != nil {
			return // whatever the outcome, nobody will use it
		}
		key = &heldKey{IssuedKey: issued, service: c.service}
		if by, err := c.service.Authenticate(ctx, string(issued.Key)); err == nil {
			key.by = by
		}
		slot.Store(key)
	case "authenticate":
		_, err = key.service.Authenticate(ctx, string(key.Key))
	case "issue by it": // in either service: the database decides
		_, err = c.service.Keys.Issue(ctx, key.by, svc.Me, svc.NewAPIKey{})
	case "revoke":
		err = key.service.Keys.Revoke(ctx, svc.Host, alice, key.ID)
	case "revoke another's":
		err = c.service.Keys.Revoke(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}, key.ID)
	}
	c.keys = append(c.keys, moment[keyCall, keyAnswer]{
		c.number, keyCall{key.ID, do, do == "issue by it" && c.service != key.service}, keyAnswer{svc.ErrorCode(err)}, called, time.Since(c.began),
	})
}

// keyState is the state of a key: "" before it is issued, "good" or "revoked".
type keyState string

type keyCall struct {
	id string
	do string // issue, authenticate, issue by it, revoke or revoke another's

	elsewhere bool // not in the process in which the key is authenticated and revoked
}

// views returns the sets of calls that each have an order. Where Services are not exact, a call that
// follows a revocation in another process may see it before the revoking call returns, while the
// revoking process still accepts the key from memory. So there one order explains the calls of the
// key's own process, and another one all calls that the database decides.
func views(keys []moment[keyCall, keyAnswer]) [][]moment[keyCall, keyAnswer] {
	var own, decided []moment[keyCall, keyAnswer]
	for _, m := range keys {
		if !m.call.elsewhere {
			own = append(own, m)
		}
		if m.call.do != "authenticate" {
			decided = append(decided, m)
		}
	}
	if len(own) == len(keys) {
		return [][]moment[keyCall, keyAnswer]{keys}
	}
	return [][]moment[keyCall, keyAnswer]{own, decided}
}

func (c keyCall) subject() string { return c.id }
func (c keyCall) kind() string    { return c.do }
func (c keyCall) reads() bool     { return c.do == "authenticate" || c.do == "issue by it" } // as for this key
func (c keyCall) String() string  { return c.do }

// keyAnswer is the result of a call.
type keyAnswer struct{ code svc.Code }

func (a keyAnswer) unknown() bool { return a.code == svc.CodeUnavailable }

func (a keyAnswer) kind() string   { return cmp.Or(string(a.code), "ok") }
func (a keyAnswer) String() string { return a.kind() }

// step returns the possible states after a call with this answer, or none.
func (s keyState) step(call keyCall, have keyAnswer) []keyState {
	after, want := s.after(call)
	return possible(s, after, have, want)
}

// after holds the rules: the new state and the answer of a call.
func (s keyState) after(call keyCall) (keyState, keyAnswer) {
	switch {
	case call.do == "issue":
		return "good", keyAnswer{}
	case s == "good" && (call.do == "authenticate" || call.do == "issue by it"):
		return s, keyAnswer{}
	case s == "good" && call.do == "revoke":
		return "revoked", keyAnswer{}
	case call.do == "authenticate", call.do == "issue by it":
		return s, keyAnswer{svc.CodeUnauthenticated}
	}
	return s, keyAnswer{svc.CodeNotFound}
}

// While a call revokes a key, processes may differ; after it, none may accept the key.
func TestRevocationUnderWay(t *testing.T) {
	at := func(do, from string, called, answered time.Duration, code svc.Code) moment[keyCall, keyAnswer] {
		return moment[keyCall, keyAnswer]{0, keyCall{"k", do, from == "elsewhere"}, keyAnswer{code}, called, answered}
	}
	until := func(last moment[keyCall, keyAnswer]) []moment[keyCall, keyAnswer] {
		return []moment[keyCall, keyAnswer]{
			at("issue", "here", 0, 1, ""), at("revoke", "here", 2, 9, ""),
			at("issue by it", "elsewhere", 3, 4, svc.CodeUnauthenticated), last,
		}
	}
	for _, c := range []struct {
		last     moment[keyCall, keyAnswer]
		violates bool
	}{
		{at("authenticate", "here", 5, 6, ""), false},
		{at("authenticate", "here", 10, 11, ""), true},
		{at("issue by it", "here", 5, 6, ""), true},
		{at("issue by it", "elsewhere", 5, 6, ""), true},
	} {
		h := &history{clients: []*client{{keys: until(c.last)}}}
		if found := h.violation(newTally()); (found != "") != c.violates {
			t.Errorf("%v at %s: violation %q", c.last.call, c.last.called, found)
		}
	}
}
