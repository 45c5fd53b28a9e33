package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
)

var generalRules = []rule{
	{"the generation of an empty store is 0", func(c *checker) {
		c.same("generation", c.generation(), int64(0))
		c.same("changes", c.changes(0), svc.StoreChanges{})
	}},
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
	{"reads, refused calls and changes " +
		"that write nothing do not change the generation", func(c *checker) {
		for _, call := range mutations()[:prepared] {
			c.ok(call.do(c.ctx, c.Store))
		}
		before := c.generation()
		for _, call := range slices.Concat(reads(), refusals()) {
			if err := call.do(c.ctx, c.Store); err != nil {
				if !errors.Is(err, svc.ErrNotFound) && !errors.Is(err, svc.ErrExists) &&
					!errors.Is(err, errRefused) {
					c.fail("%s: %v", call.name, err)
				}
			}
			if after := c.generation(); after != before {
				c.fail("the generation went from %d to %d with %s", before, after, call.name)
			}
		}
	}},
	{"every method with an ended context writes nothing and fails " +
		"with ctx.Err() or ErrUnavailable", func(c *checker) {
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
	{"concurrent readers and writers do not disturb each other", func(c *checker) {
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
		c.same("number of templates", len(c.templates(svc.TemplateQuery{Limit: 7})), racers*5)
		c.same("number of keys", len(c.keys(alice, 7)), racers*5)
	}},
}

// characterRules are slow: -short skips them.
var characterRules = []rule{
	{"every character that an id may hold is kept, " +
		"and no two characters are confused", func(c *checker) {
		var b svc.Bundle
		for _, id := range characters {
			c.ok(c.CreateTemplate(c.ctx, handMade(id, id)))
			c.ok(c.CreateAPIKey(c.ctx, newKey(id, svc.Identity{Kind: svc.KindUser, ID: id}, at(0))))
			b.Users = append(b.Users, svc.User{
				ID: id, DisplayName: id, Channels: []svc.Channel{{Provider: id, SenderID: id}},
			})
		}
		c.apply(b)
		for _, id := range characters {
			c.same("template", c.template(templateKey(id)), handMade(id, id))
			c.same("templates by tag", templateIDs(c.templates(tagged(id))), []string{id})
			c.same("holder of the key", c.access(svc.AccessQuery{KeyID: id}).User, &svc.User{
				ID: id, DisplayName: id,
			})
			c.same("user", c.access(svc.AccessQuery{Channel: svc.Channel{
				Provider: id, SenderID: id,
			}}).User.ID, id)
		}
		c.same("templates in byte order", templateIDs(c.templates(
			svc.TemplateQuery{Limit: 100},
		)), characters)
	}},
}

// call is one call of a store's method.
type call struct {
	name    string
	do      func(ctx context.Context, s svc.Store) error
	targets []svc.Target // what a mutation changes
}

// prepared is the number of first mutations that fill the store for reads and refusals.
const prepared = 6

// mutations returns calls that write, to be made once each and in this order.
func mutations() []call {
	bank := svc.Bundle{
		BankPolicies: []svc.BankPolicy{{BankID: "b", Document: json.RawMessage(`{}`)}},
	}
	grant := svc.Bundle{Attachments: []svc.Attachment{attach("a", svc.GrantedToUser, "alice", 7)}}
	source := []svc.Target{sourceKey("s").Target()}
	template := []svc.Target{templateKey("t").Target()}
	key, next := newKey("k", alice, at(0)), newKey("next", alice, at(0))
	revoked := newKey("revoked", alice, at(0))
	revoked.RevokedAt = at(1)
	return []call{
		{"CreateSource", func(ctx context.Context, s svc.Store) error {
			return s.CreateSource(ctx, newSource(sourceKey("s")))
		}, source},
		{"CreateTemplate", func(ctx context.Context, s svc.Store) error {
			return s.CreateTemplate(ctx, installed("t", "x"))
		}, template},
		{"CreateAPIKey", func(ctx context.Context, s svc.Store) error {
			return s.CreateAPIKey(ctx, key)
		}, []svc.Target{key.Target()}},
		{"CreateAPIKey, revoked", func(ctx context.Context, s svc.Store) error {
			return s.CreateAPIKey(ctx, revoked)
		}, []svc.Target{revoked.Target()}},
		{"KeepValue", func(ctx context.Context, s svc.Store) error {
			return second(s.KeepValue(ctx, "name", []byte("value")))
		}, nil},
		{"ChangeAccess", func(ctx context.Context, s svc.Store) error {
			return change(ctx, s, household())
		}, household().Targets()},
		{"ChangeAccess of a bank policy", func(ctx context.Context, s svc.Store) error {
			return change(ctx, s, bank)
		}, bank.Targets()},
		{"ChangeAccess of an attachment", func(ctx context.Context, s svc.Store) error {
			return change(ctx, s, grant)
		}, grant.Targets()},
		{"ChangeSource", func(ctx context.Context, s svc.Store) error {
			return s.ChangeSource(ctx, sourceKey("s"), move)
		}, source},
		{"ChangeTemplate", func(ctx context.Context, s svc.Store) error {
			return s.ChangeTemplate(ctx, templateKey("t"), touch)
		}, template},
		{"RebindTemplates", moveTemplates, template},
		{"ChangeAPIKey", func(ctx context.Context, s svc.Store) error {
			return s.ChangeAPIKey(ctx, alice, "k", disable)
		}, []svc.Target{key.Target()}},
		{"ChangeAPIKey, revoked", func(ctx context.Context, s svc.Store) error {
			return s.ChangeAPIKey(ctx, alice, "k", revokeAt(at(1)))
		}, []svc.Target{key.Target()}},
		{"CreateAPIKey, the next", func(ctx context.Context, s svc.Store) error {
			return s.CreateAPIKey(ctx, next)
		}, []svc.Target{next.Target()}},
		{"RevokeAPIKeys", func(ctx context.Context, s svc.Store) error {
			return second(s.RevokeAPIKeys(ctx, alice, at(1), 10))
		}, []svc.Target{next.Target()}},
		{"DeleteTemplate", func(ctx context.Context, s svc.Store) error {
			return s.DeleteTemplate(ctx, templateKey("t"), nil)
		}, template},
		{"DeleteSource", func(ctx context.Context, s svc.Store) error {
			return s.DeleteSource(ctx, sourceKey("s"))
		}, source},
	}
}

func change(ctx context.Context, s svc.Store, bundle svc.Bundle) error {
	return s.ChangeAccess(ctx, svc.AccessNames{Users: []string{
		"alice",
	}}, func(svc.Bundle) (svc.Bundle, error) { return bundle, nil })
}

// reads returns calls that are not mutations.
func reads() []call {
	return []call{
		{name: "Source", do: func(ctx context.Context, s svc.Store) error {
			return second(s.Source(ctx, sourceKey("s")))
		}},
		{name: "Sources", do: func(ctx context.Context, s svc.Store) error {
			return second(s.Sources(ctx, svc.SourcePage{Scope: svc.ScopeServer, Limit: 10}))
		}},
		{name: "Template", do: func(ctx context.Context, s svc.Store) error {
			return second(s.Template(ctx, templateKey("t")))
		}},
		{name: "Templates", do: func(ctx context.Context, s svc.Store) error {
			return second(s.Templates(ctx, svc.TemplatePage{
				Scope: svc.ScopeServer, TemplateQuery: svc.TemplateQuery{Limit: 10},
			}))
		}},
		{name: "TemplateVersions", do: func(ctx context.Context, s svc.Store) error {
			return second(s.TemplateVersions(ctx, templateKey("t"), 10, 10))
		}},
		{name: "Installations", do: func(ctx context.Context, s svc.Store) error {
			return second(s.Installations(ctx, svc.InstallationPage{
				Scope: svc.ScopeServer, Limit: 10,
			}))
		}},
		{name: "KeepSourceFile", do: func(ctx context.Context, s svc.Store) error {
			return with(ctx, s, func(s svc.SourceFileStore) error {
				return s.KeepSourceFile(ctx, sourceKey("s"), sourceFile("a", "data", at(1)))
			})
		}},
		{name: "SourceFile", do: func(ctx context.Context, s svc.Store) error {
			return with(ctx, s, func(s svc.SourceFileStore) error {
				return second(s.SourceFile(ctx, sourceKey("s"), "a"))
			})
		}},
		{name: "Access of a key", do: func(ctx context.Context, s svc.Store) error {
			return second(s.Access(ctx, svc.AccessQuery{KeyID: "k"}))
		}},
		{name: "APIKeys", do: func(ctx context.Context, s svc.Store) error {
			return second(s.APIKeys(ctx, svc.APIKeyPage{
				Holder: alice, KeyQuery: svc.KeyQuery{Limit: 10},
			}))
		}},
		{name: "LockAPIKeys", do: func(ctx context.Context, s svc.Store) error {
			return second(s.LockAPIKeys(ctx, alice, 10))
		}},
		{name: "Access", do: func(ctx context.Context, s svc.Store) error {
			return second(s.Access(ctx, svc.AccessQuery{Identity: alice}))
		}},
		{name: "AllAccess", do: func(ctx context.Context, s svc.Store) error {
			return second(s.AllAccess(ctx))
		}},
		{name: "Changes", do: func(ctx context.Context, s svc.Store) error {
			return second(s.Changes(ctx, 0))
		}},
		{name: "AwaitChange", do: func(ctx context.Context, s svc.Store) error {
			return s.AwaitChange(ctx, 0)
		}},
		{name: "AddEvents", do: func(ctx context.Context, s svc.Store) error {
			return with(ctx, s, func(s svc.OutboxStore) error {
				return s.AddEvents(ctx, []svc.Event{newEvent(0)})
			})
		}},
		{name: "UseAPIKeys", do: func(ctx context.Context, s svc.Store) error {
			return s.UseAPIKeys(ctx, []svc.KeyUse{{ID: "k", At: at(1)}})
		}},
		{name: "ClaimEvents", do: func(ctx context.Context, s svc.Store) error {
			return with(ctx, s, func(s svc.OutboxStore) error {
				return second(s.ClaimEvents(ctx, at(0), at(1), 10))
			})
		}},
		{name: "Answer", do: func(ctx context.Context, s svc.Store) error {
			return with(ctx, s, func(s svc.AnswerStore) error {
				return second(s.Answer(ctx, []byte("key"), at(0)))
			})
		}},
		{name: "KeepAnswer", do: func(ctx context.Context, s svc.Store) error {
			return with(ctx, s, func(s svc.AnswerStore) error {
				return s.KeepAnswer(ctx, newAnswer("key", "", at(100)), at(0))
			})
		}},
		{name: "AppendAudit", do: appendAudit},
		{name: "AuditRecords", do: readAudit},
		{name: "Atomically", do: func(ctx context.Context, s svc.Store) error {
			return s.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
				return second(tx.Template(ctx, templateKey("t")))
			})
		}},
		{name: "DeleteEvents", do: func(ctx context.Context, s svc.Store) error {
			return with(ctx, s, func(s svc.OutboxStore) error {
				return s.DeleteEvents(ctx, []uuid.UUID{newEvent(0).ID})
			})
		}},
	}
}

// refusals returns calls of mutating methods that write nothing.
func refusals() []call {
	return []call{
		{name: "CreateSource of a taken key", do: func(ctx context.Context, s svc.Store) error {
			return s.CreateSource(ctx, newSource(sourceKey("s")))
		}},
		{name: "CreateTemplate of a taken key", do: func(ctx context.Context, s svc.Store) error {
			return s.CreateTemplate(ctx, handMade("t"))
		}},
		{name: "CreateAPIKey of a taken id", do: func(ctx context.Context, s svc.Store) error {
			return s.CreateAPIKey(ctx, newKey("k", alice, at(0)))
		}},
		{name: "KeepValue of a kept name", do: func(ctx context.Context, s svc.Store) error {
			return second(s.KeepValue(ctx, "name", []byte("other")))
		}},
		{name: "ChangeSource of an unknown", do: func(ctx context.Context, s svc.Store) error {
			return s.ChangeSource(ctx, sourceKey("unknown"), move)
		}},
		{name: "ChangeSource without a change", do: func(ctx context.Context, s svc.Store) error {
			return s.ChangeSource(ctx, sourceKey("s"), func(*svc.Source) (bool, error) {
				return false, nil
			})
		}},
		{name: "ChangeSource with an error", do: func(ctx context.Context, s svc.Store) error {
			return s.ChangeSource(ctx, sourceKey("s"), func(*svc.Source) (bool, error) {
				return true, errRefused
			})
		}},
		{name: "DeleteSource of an unknown", do: func(ctx context.Context, s svc.Store) error {
			return s.DeleteSource(ctx, sourceKey("unknown"))
		}},
		{name: "DeleteTemplate of an unknown", do: func(ctx context.Context, s svc.Store) error {
			return s.DeleteTemplate(ctx, templateKey("unknown"), nil)
		}},
		{name: "RevokeAPIKeys without keys", do: func(ctx context.Context, s svc.Store) error {
			return second(
				s.RevokeAPIKeys(ctx, svc.Identity{Kind: svc.KindUser, ID: "bob"}, at(1), 10),
			)
		}},
		{name: "ChangeAPIKey of an unknown", do: func(ctx context.Context, s svc.Store) error {
			return s.ChangeAPIKey(ctx, alice, "unknown", disable)
		}},
		{name: "ChangeAPIKey of another holder", do: func(ctx context.Context, s svc.Store) error {
			return s.ChangeAPIKey(ctx, others[0], "k", disable)
		}},
		{name: "ChangeAPIKey of a revoked key", do: func(ctx context.Context, s svc.Store) error {
			return s.ChangeAPIKey(ctx, alice, "revoked", disable)
		}},
		{name: "ChangeAPIKey without a change", do: func(ctx context.Context, s svc.Store) error {
			return s.ChangeAPIKey(ctx, alice, "k", func(*svc.APIKey) (bool, error) {
				return false, nil
			})
		}},
		{name: "a rotation to a taken id", do: func(ctx context.Context, s svc.Store) error {
			return rotate(ctx, s, "k", newKey("revoked", alice, at(0)))
		}},
		{name: "ChangeTemplate of an unknown", do: func(ctx context.Context, s svc.Store) error {
			return s.ChangeTemplate(ctx, templateKey("unknown"), touch)
		}},
		{name: "ChangeTemplate without a change", do: func(ctx context.Context, s svc.Store) error {
			return s.ChangeTemplate(ctx, templateKey("t"), func(*svc.Template) (bool, error) {
				return false, nil
			})
		}},
		{name: "ChangeTemplate with an error", do: func(ctx context.Context, s svc.Store) error {
			return s.ChangeTemplate(ctx, templateKey("t"), func(*svc.Template) (bool, error) {
				return true, errRefused
			})
		}},
		{name: "RebindTemplates to the same URL", do: func(ctx context.Context, s svc.Store) error {
			return second(s.RebindTemplates(ctx, acme, installed("t").Origin.URL))
		}},
		{name: "RebindTemplates of an unknown", do: func(ctx context.Context, s svc.Store) error {
			return second(s.RebindTemplates(ctx, sourceKey("unknown"), "https://moved.example"))
		}},
		{name: "KeepSourceFile of an unknown", do: func(ctx context.Context, s svc.Store) error {
			return with(ctx, s, func(s svc.SourceFileStore) error {
				return s.KeepSourceFile(ctx, sourceKey("unknown"), sourceFile("a", "data", at(1)))
			})
		}},
		{name: "ChangeAccess of nothing", do: func(ctx context.Context, s svc.Store) error {
			return change(ctx, s, svc.Bundle{})
		}},
		{name: "ChangeAccess with an error", do: func(ctx context.Context, s svc.Store) error {
			return s.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.Bundle, error) {
				return upheaval(), errRefused
			})
		}},
	}
}

func appendAudit(ctx context.Context, s svc.Store) error {
	return with(ctx, s, func(s svc.AuditStore) error {
		return s.AppendAudit(ctx, func(last svc.AuditRecord) []svc.AuditRecord {
			return behind(last, newEvent(0))
		})
	})
}

func readAudit(ctx context.Context, s svc.Store) error {
	return with(ctx, s, func(s svc.AuditStore) error {
		return second(s.AuditRecords(ctx, svc.AuditQuery{Limit: 10}))
	})
}

func second[T any](_ T, err error) error { return err }

// everything writes, reads and changes one row of each kind.
func everything(ctx context.Context, s svc.Store, id string) error {
	for _, do := range []func() error{
		func() error { return s.CreateSource(ctx, newSource(sourceKey(id))) },
		func() error {
			return second(s.Sources(ctx, svc.SourcePage{Scope: svc.ScopeServer, Limit: 50}))
		},
		func() error { return s.ChangeSource(ctx, sourceKey(id), move) },
		func() error { return keepAndRead(ctx, s, sourceKey(id), sourceFile(id, id, at(1))) },
		func() error { return s.CreateTemplate(ctx, installed(id, "x")) },
		func() error { return s.ChangeTemplate(ctx, templateKey(id), touch) },
		func() error { return second(s.Template(ctx, templateKey(id))) },
		func() error {
			page := svc.TemplatePage{Scope: svc.ScopeServer, TemplateQuery: tagged("x")}
			return second(s.Templates(ctx, page))
		},
		func() error {
			return second(s.Installations(ctx, svc.InstallationPage{
				Scope: svc.ScopeServer, Limit: 50,
			}))
		},
		func() error { return second(s.RebindTemplates(ctx, acme, "https://"+id)) },
		func() error { return s.CreateAPIKey(ctx, newKey(id, alice, at(0))) },
		func() error { return second(s.Access(ctx, svc.AccessQuery{KeyID: id})) },
		func() error { return s.ChangeAPIKey(ctx, alice, id, disable) },
		func() error { return s.UseAPIKeys(ctx, []svc.KeyUse{{ID: id, At: at(1)}}) },
		func() error { return change(ctx, s, svc.Bundle{Users: users(id)}) },
		func() error {
			return second(s.Access(ctx, svc.AccessQuery{Identity: alice, BankID: "b"}))
		},
		func() error { return second(s.AllAccess(ctx)) },
		func() error { return s.DeleteSource(ctx, sourceKey(id)) },
		func() error { return appendAudit(ctx, s) },
		func() error { return readAudit(ctx, s) },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// keepAndRead keeps a file of a source, and reads it.
func keepAndRead(
	ctx context.Context, s svc.Store, key svc.SourceKey, file svc.SourceFile,
) error {
	return with(ctx, s, func(s svc.SourceFileStore) error {
		if err := s.KeepSourceFile(ctx, key, file); err != nil {
			return err
		}
		return second(s.SourceFile(ctx, key, file.Path))
	})
}
