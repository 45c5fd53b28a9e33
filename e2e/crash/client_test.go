//go:build linux

package crash

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

// client is one goroutine of a worker. It uses only objects that it made itself, so each object has
// one operation under way at most.
type client struct {
	*worker
	number, made int
	keys         []liveKey
	templates    []*liveTemplate
	bundles      []*liveBundle
	people       []*person
}

type liveKey struct{ holder, id string }

type liveTemplate struct {
	id      string
	state   templateState
	there   bool
	version int // the last version used
}

type liveBundle struct {
	id      string
	version int
}

// The states of keys.
const (
	stateGood    = "good"
	stateRevoked = "revoked"
	stateHosted  = "hosted" // a valid key and the host's row with it
)

// outboxAction is an action whose event waits for the host's commit.
const outboxAction = string(event.APIKeyIssued) + "+outbox"

func newClient(w *worker, number int) *client {
	c := &client{worker: w, number: number}
	for i, id := range slices.Sorted(maps.Keys(w.People)) {
		if i%w.Clients == number {
			c.people = append(c.people, &person{id, partsOf(w.People[id])})
		}
	}
	return c
}

func (c *client) run() {
	for {
		operations := []func(){
			c.issueKey, c.issueKey, c.revokeKey, c.hosted, c.applyNew, c.applyAgain,
			c.newTemplate, c.patch, c.patch, c.update, c.deleteTemplate, c.recreate,
			c.visit, c.visit, c.visit, c.visit,
		}
		operations[rand.N(len(operations))]()
	}
}

// name returns an id that is new.
func (c *client) name(kind string) string {
	c.made++
	return fmt.Sprintf("%s-%s-%d-%d", kind, c.Run, c.number, c.made)
}

func (c *client) do(object string, action event.Action, state string, operation func(ctx context.Context) error) bool {
	return c.worker.run(object, string(action), state, func(ctx context.Context) (string, error) { return "", operation(ctx) })
}

func (c *client) issueKey() {
	holder := c.name("k")
	var issued svc.IssuedKey
	ok := c.worker.run(holder, string(event.APIKeyIssued), stateGood, func(ctx context.Context) (string, error) {
		var err error
		issued, err = c.service.Keys.Issue(ctx, svc.Host, user(holder), svc.NewAPIKey{Description: &holder})
		return string(issued.Key), err
	})
	if ok {
		c.keys = append(c.keys, liveKey{holder, issued.ID})
	}
}

func (c *client) revokeKey() {
	if len(c.keys) == 0 {
		return
	}
	i := rand.N(len(c.keys))
	key := c.keys[i]
	ok := c.do(key.holder, event.APIKeyRevoked, stateRevoked, func(ctx context.Context) error {
		return c.revoke(ctx, key.holder, key.id)
	})
	if ok || c.outcomeUnknown() {
		c.keys = slices.Delete(c.keys, i, i+1)
	}
}

func (c *client) hosted() {
	holder := c.name("h")
	c.worker.run(holder, outboxAction, stateHosted, func(ctx context.Context) (string, error) {
		return "", c.issueHosted(ctx, holder)
	})
}

func (c *client) applyNew() { c.apply(&liveBundle{id: c.name("b")}) }

func (c *client) applyAgain() {
	if len(c.bundles) > 0 {
		i := rand.N(len(c.bundles))
		again := c.bundles[i]
		c.bundles = slices.Delete(c.bundles, i, i+1)
		c.apply(again)
	}
}

func (c *client) apply(b *liveBundle) {
	b.version++
	ok := c.do(b.id, event.AccessWritten, versioned(b.version), func(ctx context.Context) error {
		return c.service.Access.Apply(ctx, svc.Host, bundle(b.id, b.version))
	})
	if ok {
		c.bundles = append(c.bundles, b)
	}
}

func (c *client) newTemplate() { c.add(&liveTemplate{id: c.name("t")}) }

// recreate adds a template under the id of a deleted one.
func (c *client) recreate() { c.withTemplate(false, c.add) }

// add creates a template by hand or installs it.
func (c *client) add(t *liveTemplate) {
	t.version++
	if rand.N(2) == 0 {
		c.change(t, event.TemplateCreated, templateState{t.version, t.version, 0}, func(ctx context.Context) error {
			return failure(c.service.Templates.Create(ctx, svc.Host, svc.NewTemplate{ID: t.id, Content: content(t.id, t.version, t.version)}))
		})
		return
	}
	c.market.versions.Store(t.id, t.version)
	c.change(t, event.TemplateInstalled, templateState{t.version, t.version, t.version}, func(ctx context.Context) error {
		return failure(c.service.Templates.Install(ctx, svc.Host, svc.Install{TemplateID: t.id, SourceName: "s-" + c.Run}))
	})
}

func (c *client) patch() {
	c.withTemplate(true, func(t *liveTemplate) {
		t.version++
		after, next := t.state, content(t.id, t.version, 0)
		after.texts = t.version
		c.change(t, event.TemplatePatched, after, func(ctx context.Context) error {
			return failure(c.service.Templates.Patch(ctx, svc.Host, t.id, svc.TemplatePatch{
				Name: &next.Name, Description: &svc.TextPatch{Value: next.Description}, Category: &svc.TextPatch{Value: next.Category},
				Integrations: &next.Integrations, Tags: &next.Tags,
			}))
		})
	})
}

func (c *client) update() {
	c.withTemplate(true, func(t *liveTemplate) {
		if t.state.base == 0 {
			c.templates = append(c.templates, t)
			return
		}
		t.version++
		c.market.versions.Store(t.id, t.version)
		c.change(t, event.TemplateUpdated, templateState{t.version, t.version, t.version}, func(ctx context.Context) error {
			return failure(c.service.Templates.Update(ctx, svc.Host, t.id, svc.UpdateRequest{LocalEdits: svc.TakeTheirs}))
		})
	})
}

func (c *client) deleteTemplate() {
	c.withTemplate(true, func(t *liveTemplate) {
		ok := c.do(t.id, event.TemplateDeleted, absent, func(ctx context.Context) error {
			return c.service.Templates.Delete(ctx, svc.Host, t.id)
		})
		t.there = t.there && !ok
		c.keep(t, ok)
	})
}

// withTemplate takes a random template out of the list and passes it to fn. there selects existing
// or deleted templates.
func (c *client) withTemplate(there bool, fn func(*liveTemplate)) {
	if len(c.templates) == 0 {
		return
	}
	i := rand.N(len(c.templates))
	if t := c.templates[i]; t.there == there {
		c.templates = slices.Delete(c.templates, i, i+1)
		fn(t)
	}
}

func (c *client) change(t *liveTemplate, action event.Action, after templateState, operation func(ctx context.Context) error) {
	ok := c.do(t.id, action, after.String(), operation)
	if ok {
		t.state, t.there = after, true
	}
	c.keep(t, ok)
}

// keep puts a template back into the list, unless the outcome of its operation is unknown.
func (c *client) keep(t *liveTemplate, acknowledged bool) {
	if acknowledged || !c.outcomeUnknown() {
		c.templates = append(c.templates, t)
	}
}
