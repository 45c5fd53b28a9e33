package linearizability_test

import (
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

// client is one of the concurrent clients.
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

// edit returns a value for one field. It may equal the present value, or be null where the field
// allows that.
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
