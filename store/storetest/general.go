package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/extsvc/svc"
)

var generalRules = []rule{
	{"the generation grows with every mutation", func(c *checker) {
		before := c.generation()
		for _, call := range mutations() {
			c.ok(call.do(c.ctx, c.Store))
			after := c.generation()
			if after <= before {
				c.fail("the generation went from %d to %d with %s", before, after, call.name)
			}
			before = after
		}
	}},
	{"the generation stays where nothing was written: with reads, refusals and changes that change nothing", func(c *checker) {
		for _, call := range mutations()[:prepared] {
			c.ok(call.do(c.ctx, c.Store))
		}
		before := c.generation()
		for _, call := range slices.Concat(reads(), refusals()) {
			if err := call.do(c.ctx, c.Store); err != nil {
				if !errors.Is(err, svc.ErrNotFound) && !errors.Is(err, svc.ErrExists) && !errors.Is(err, errRefused) {
					c.fail("%s: %v", call.name, err)
				}
			}
			if after := c.generation(); after != before {
				c.fail("the generation went from %d to %d with %s", before, after, call.name)
			}
		}
	}},
	{"an ended context fails every method, with ctx.Err() or ErrUnavailable, and nothing is written", func(c *checker) {
		for _, call := range mutations()[:prepared] {
			c.ok(call.do(c.ctx, c.Store))
		}
		canceled, cancel := context.WithCancel(c.ctx)
		cancel()
		late, cancel := context.WithDeadline(c.ctx, time.Now().Add(-time.Second))
		defer cancel()
		before := c.generation()
		for _, ctx := range []context.Context{canceled, late} {
			for _, call := range slices.Concat(reads(), mutations()) {
				err := call.do(ctx, c.Store)
				if !errors.Is(err, ctx.Err()) && !errors.Is(err, svc.ErrUnavailable) {
					c.fail("%s returned %v, want %v", call.name, err, ctx.Err())
				}
			}
		}
		c.same("generation", c.generation(), before)
	}},
	{"readers and writers at once do not disturb each other", func(c *checker) {
		for _, err := range race(func(i int) error {
			for j := range 5 {
				id := fmt.Sprintf("%d-%d", i, j)
				if err := everything(c.ctx, c.Store, id); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			return nil
		}) {
			c.ok(err)
		}
		c.same("number of templates", len(c.templates(svc.TemplatePage{Limit: 7})), racers*5)
		c.same("number of keys", len(c.keys(alice, 7)), racers*5)
	}},
}

// call is one call of a store's method.
type call struct {
	name string
	do   func(ctx context.Context, s svc.Store) error
}

// prepared is how many of mutations fill the store for reads and refusals.
const prepared = 6

// mutations write, each once, in this order.
func mutations() []call {
	return []call{
		{"CreateSource", func(ctx context.Context, s svc.Store) error { return s.CreateSource(ctx, newSource(sourceKey("s"))) }},
		{"CreateTemplate", func(ctx context.Context, s svc.Store) error { return s.CreateTemplate(ctx, installed("t", "x")) }},
		{"CreateAPIKey", func(ctx context.Context, s svc.Store) error { return s.CreateAPIKey(ctx, newKey("k", alice, at(0))) }},
		{"CreateAPIKey, revoked", func(ctx context.Context, s svc.Store) error {
			key := newKey("revoked", alice, at(0))
			key.RevokedAt = at(1)
			return s.CreateAPIKey(ctx, key)
		}},
		{"KeepValue", func(ctx context.Context, s svc.Store) error {
			_, err := s.KeepValue(ctx, "name", []byte("value"))
			return err
		}},
		{"ChangeAccess", func(ctx context.Context, s svc.Store) error { return change(ctx, s, household()) }},
		{"ChangeAccess of a bank policy", func(ctx context.Context, s svc.Store) error {
			return change(ctx, s, svc.Bundle{BankPolicies: []svc.BankPolicy{{BankID: "b", Document: json.RawMessage(`{}`)}}})
		}},
		{"ChangeAccess of an attachment", func(ctx context.Context, s svc.Store) error {
			return change(ctx, s, svc.Bundle{Attachments: []svc.Attachment{attach("a", svc.GrantedToUser, "alice", 7)}})
		}},
		{"ChangeTemplate", func(ctx context.Context, s svc.Store) error { return s.ChangeTemplate(ctx, templateKey("t"), touch) }},
		{"RevokeAPIKey", func(ctx context.Context, s svc.Store) error { return s.RevokeAPIKey(ctx, alice, "k", at(1)) }},
		{"DeleteTemplate", func(ctx context.Context, s svc.Store) error { return s.DeleteTemplate(ctx, templateKey("t")) }},
		{"DeleteSource", func(ctx context.Context, s svc.Store) error { return s.DeleteSource(ctx, sourceKey("s")) }},
	}
}

func change(ctx context.Context, s svc.Store, bundle svc.Bundle) error {
	return s.ChangeAccess(ctx, svc.AccessNames{Users: []string{"alice"}}, func(svc.Bundle) (svc.Bundle, error) { return bundle, nil })
}

func reads() []call {
	return []call{
		{"Source", func(ctx context.Context, s svc.Store) error { return second(s.Source(ctx, sourceKey("s"))) }},
		{"Sources", func(ctx context.Context, s svc.Store) error {
			return second(s.Sources(ctx, svc.SourcePage{Scope: svc.ScopeServer, Limit: 10}))
		}},
		{"Template", func(ctx context.Context, s svc.Store) error { return second(s.Template(ctx, templateKey("t"))) }},
		{"Templates", func(ctx context.Context, s svc.Store) error {
			return second(s.Templates(ctx, svc.TemplatePage{Scope: svc.ScopeServer, Limit: 10}))
		}},
		{"Credential", func(ctx context.Context, s svc.Store) error { return second(s.Credential(ctx, "k")) }},
		{"APIKeys", func(ctx context.Context, s svc.Store) error {
			return second(s.APIKeys(ctx, svc.APIKeyPage{Holder: alice, Limit: 10}))
		}},
		{"User", func(ctx context.Context, s svc.Store) error { return second(s.User(ctx, "alice")) }},
		{"ServiceAccount", func(ctx context.Context, s svc.Store) error { return second(s.ServiceAccount(ctx, "bot")) }},
		{"Access", func(ctx context.Context, s svc.Store) error {
			return second(s.Access(ctx, svc.AccessQuery{Identity: alice}))
		}},
	}
}

// refusals are calls that could write and do not.
func refusals() []call {
	return []call{
		{"CreateSource of a taken key", func(ctx context.Context, s svc.Store) error { return s.CreateSource(ctx, newSource(sourceKey("s"))) }},
		{"CreateTemplate of a taken key", func(ctx context.Context, s svc.Store) error { return s.CreateTemplate(ctx, handMade("t")) }},
		{"CreateAPIKey of a taken id", func(ctx context.Context, s svc.Store) error { return s.CreateAPIKey(ctx, newKey("k", alice, at(0))) }},
		{"KeepValue of a kept name", func(ctx context.Context, s svc.Store) error { return second(s.KeepValue(ctx, "name", []byte("other"))) }},
		{"DeleteSource of an unknown", func(ctx context.Context, s svc.Store) error { return s.DeleteSource(ctx, sourceKey("unknown")) }},
		{"DeleteTemplate of an unknown", func(ctx context.Context, s svc.Store) error { return s.DeleteTemplate(ctx, templateKey("unknown")) }},
		{"RevokeAPIKey of an unknown", func(ctx context.Context, s svc.Store) error { return s.RevokeAPIKey(ctx, alice, "unknown", at(1)) }},
		{"RevokeAPIKey of another's", func(ctx context.Context, s svc.Store) error {
			return s.RevokeAPIKey(ctx, svc.Identity{Kind: svc.KindUser, ID: "bob"}, "k", at(1))
		}},
		{"RevokeAPIKey of a revoked key", func(ctx context.Context, s svc.Store) error { return s.RevokeAPIKey(ctx, alice, "revoked", at(1)) }},
		{"ChangeTemplate of an unknown", func(ctx context.Context, s svc.Store) error {
			return s.ChangeTemplate(ctx, templateKey("unknown"), touch)
		}},
		{"ChangeTemplate without a change", func(ctx context.Context, s svc.Store) error {
			return s.ChangeTemplate(ctx, templateKey("t"), func(*svc.Template) (bool, error) { return false, nil })
		}},
		{"ChangeTemplate with an error", func(ctx context.Context, s svc.Store) error {
			return s.ChangeTemplate(ctx, templateKey("t"), func(*svc.Template) (bool, error) { return true, errRefused })
		}},
		{"ChangeAccess of nothing", func(ctx context.Context, s svc.Store) error { return change(ctx, s, svc.Bundle{}) }},
		{"ChangeAccess with an error", func(ctx context.Context, s svc.Store) error {
			return s.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.Bundle, error) { return upheaval(), errRefused })
		}},
	}
}

func second[T any](_ T, err error) error { return err }

// everything writes, reads and changes one row of each kind.
func everything(ctx context.Context, s svc.Store, id string) error {
	for _, do := range []func() error{
		func() error { return s.CreateSource(ctx, newSource(sourceKey(id))) },
		func() error { return second(s.Sources(ctx, svc.SourcePage{Scope: svc.ScopeServer, Limit: 50})) },
		func() error { return s.CreateTemplate(ctx, installed(id, "x")) },
		func() error { return s.ChangeTemplate(ctx, templateKey(id), touch) },
		func() error { return second(s.Template(ctx, templateKey(id))) },
		func() error {
			page := tagged("x")
			page.Scope = svc.ScopeServer
			return second(s.Templates(ctx, page))
		},
		func() error { return s.CreateAPIKey(ctx, newKey(id, alice, at(0))) },
		func() error { return second(s.Credential(ctx, id)) },
		func() error { return change(ctx, s, svc.Bundle{Users: users(id)}) },
		func() error { return second(s.User(ctx, id)) },
		func() error { return second(s.Access(ctx, svc.AccessQuery{Identity: alice, BankID: "b"})) },
		func() error { return s.DeleteSource(ctx, sourceKey(id)) },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}
