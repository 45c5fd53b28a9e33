package storetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
		mutations(c.ctx, c.Store, func(call string, err error, _ ...svc.Target) {
			c.ok(err)
			after := c.generation()
			if after <= before {
				c.fail("the generation went from %d to %d with %s", before, after, call)
			}
			before = after
		})
	}},
	{"reads, refused calls and changes " +
		"that write nothing do not change the generation", func(c *checker) {
		prepare(c.ctx, c.Store, c.made)
		before := c.generation()
		check := func(call string, err error, _ ...svc.Target) {
			if err != nil && !errors.Is(err, svc.ErrNotFound) && !errors.Is(err, svc.ErrExists) &&
				!errors.Is(err, errRefused) {
				c.fail("%s: %v", call, err)
			}
			if after := c.generation(); after != before {
				c.fail("the generation went from %d to %d with %s", before, after, call)
			}
		}
		reads(c.ctx, c.Store, check)
		refusals(c.ctx, c.Store, check)
	}},
	{"every method with an ended context writes nothing and fails " +
		"with ctx.Err() or ErrUnavailable", func(c *checker) {
		prepare(c.ctx, c.Store, c.made)
		canceled, cancel := context.WithCancel(c.ctx)
		cancel()
		late, cancel := context.WithDeadline(c.ctx, time.Now().Add(-time.Second))
		defer cancel()
		before := c.generation()
		for _, ctx := range []context.Context{canceled, late} {
			check := func(call string, err error, _ ...svc.Target) {
				if !errors.Is(err, ctx.Err()) && !errors.Is(err, svc.ErrUnavailable) {
					c.fail("%s returned %v, want %v", call, err, ctx.Err())
				}
			}
			reads(ctx, c.Store, check)
			mutations(ctx, c.Store, check)
		}
		c.same("generation", c.generation(), before)
	}},
	{"concurrent readers and writers do not disturb each other", func(c *checker) {
		c.together(5, func(i, j int) {
			c.ok(everything(c.ctx, c.Store, fmt.Sprintf("%d-%d", i, j)))
		})
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
			c.ok(c.CreateAPIKey(c.ctx, newKey(id, asUser(id), at(0))))
			b.Users = append(b.Users, svc.User{
				ID: id, DisplayName: id, Channels: []svc.Channel{{Provider: id, SenderID: id}},
			})
		}
		c.apply(b)
		for _, id := range characters {
			c.same("template", c.template(templateKey(id)), handMade(id, id))
			c.same("templates by tag", templateIDs(c.templates(tagged(id))), []string{id})
			user := c.access(svc.AccessQuery{KeyID: id}).User
			c.same("holder of the key", user, &users(id)[0])
			user = c.access(svc.AccessQuery{Channel: svc.Channel{Provider: id, SenderID: id}}).User
			c.same("user", user.ID, id)
		}
		list := c.templates(svc.TemplateQuery{Limit: 100})
		c.same("templates in byte order", templateIDs(list), characters)
	}},
}

// made receives the outcome of each call of a store's method, and what a mutation changes.
type made func(call string, err error, targets ...svc.Target)

// made expects no error.
func (c *checker) made(call string, err error, _ ...svc.Target) {
	if err != nil {
		c.fail("%s: unexpected error: %v", call, err)
	}
}

// mutations makes calls that write.
func mutations(ctx context.Context, s svc.Store, made made) {
	prepare(ctx, s, made)
	rewrite(ctx, s, made)
}

// prepared is the number of mutations of prepare.
const prepared = 5

// prepare makes the first mutations. They fill the store for reads and refusals.
func prepare(ctx context.Context, s svc.Store, made made) {
	key, revoked := newKey("k", alice, at(0)), newKey("revoked", alice, at(0))
	revoked.RevokedAt = at(1)
	made("CreateSource", s.CreateSource(ctx, newSource(sourceKey("s"))), sourceKey("s").Target())
	made("CreateTemplate", s.CreateTemplate(ctx, fromServer("t")), templateKey("t").Target())
	made("CreateAPIKey and ChangeAPIKey", createAndChange(ctx, s, key, revoked), key.Target())
	made("KeepValue", second(s.KeepValue(ctx, "name", []byte("value"))))
	made("ChangeAccess", change(ctx, s, household()), household().Targets()...)
}

// rewrite makes the mutations that come after prepare.
func rewrite(ctx context.Context, s svc.Store, made made) {
	bank := svc.Bundle{BankPolicies: []svc.BankPolicy{newBank("b", `{}`)}}
	grant := svc.Bundle{Attachments: []svc.Attachment{attach("a", svc.GrantedToUser, "alice", 7)}}
	source, template := sourceKey("s"), templateKey("t")
	key, next := newKey("k", alice, at(0)).Target(), newKey("next", alice, at(0))
	made("ChangeAccess of a bank policy", change(ctx, s, bank), bank.Targets()...)
	made("ChangeAccess of an attachment", change(ctx, s, grant), grant.Targets()...)
	made("ChangeSource", s.ChangeSource(ctx, source, move), source.Target())
	made("ChangeTemplate", s.ChangeTemplate(ctx, template, touch), template.Target())
	_, err := s.RebindTemplates(ctx, source, "https://moved.example")
	made("RebindTemplates", err, template.Target())
	made("ChangeAPIKey", s.ChangeAPIKey(ctx, alice, "k", disable), key)
	made("ChangeAPIKey, revoked", s.ChangeAPIKey(ctx, alice, "k", revokeAt(at(1))), key)
	created := s.CreateAPIKey(ctx, next)
	_, err = s.RevokeAPIKeys(ctx, alice, at(1), 10)
	made("CreateAPIKey and RevokeAPIKeys", cmp.Or(created, err), next.Target())
	made("DeleteTemplate", s.DeleteTemplate(ctx, template, nil), template.Target())
	made("DeleteSource", s.DeleteSource(ctx, source), source.Target())
}

// createAndChange creates keys, which is no mutation. Then it changes the first key.
func createAndChange(ctx context.Context, s svc.Store, keys ...svc.APIKey) (err error) {
	for _, key := range keys {
		err = cmp.Or(err, s.CreateAPIKey(ctx, key))
	}
	return cmp.Or(err, s.ChangeAPIKey(ctx, keys[0].Holder, keys[0].ID, edit(func(*svc.APIKey) {})))
}

// fromServer returns a template that was installed from the server's source "s".
func fromServer(id string) svc.Template {
	t := installed(id, "x")
	t.Origin.Source = sourceKey("s")
	return t
}

func change(ctx context.Context, s svc.Store, bundle svc.Bundle) error {
	return s.ChangeAccess(ctx, svc.AccessNames{Users: []string{"alice"}}, to(bundle))
}

// to returns a change function that returns a bundle.
func to(bundle svc.Bundle) func(svc.Bundle) (svc.AccessWrite, error) {
	return func(svc.Bundle) (svc.AccessWrite, error) { return bundle.Write(), nil }
}

// ignore is a yield function that takes no part.
func ignore(svc.Bundle) error { return nil }

// reads makes calls that are not mutations.
func reads(ctx context.Context, s svc.Store, made made) {
	page := svc.TemplatePage{Scope: svc.ScopeServer, TemplateQuery: svc.TemplateQuery{Limit: 10}}
	keys := svc.APIKeyPage{Holder: alice, KeyQuery: svc.KeyQuery{Limit: 10}}
	made("Source", second(s.Source(ctx, sourceKey("s"))))
	made("Sources", second(s.Sources(ctx, svc.SourcePage{Scope: svc.ScopeServer, Limit: 10})))
	made("Template", second(s.Template(ctx, templateKey("t"))))
	made("Templates", second(s.Templates(ctx, page)))
	made("TemplateVersions", second(s.TemplateVersions(ctx, templateKey("t"), 10, 10)))
	_, err := s.Installations(ctx, svc.InstallationPage{Scope: svc.ScopeServer, Limit: 10})
	made("Installations", err)
	made("Access of a key", second(s.Access(ctx, svc.AccessQuery{KeyID: "k"})))
	made("APIKeys", second(s.APIKeys(ctx, keys)))
	made("CreateAPIKey", s.CreateAPIKey(ctx, newKey(rand.Text(), asUser("other"), at(0))))
	made("Lock", s.Lock(ctx, svc.Locks{
		ChangeAccess: true, RelyOnAccess: true, Holder: alice, RelyOnKey: "k",
	}))
	made("Access", second(s.Access(ctx, svc.AccessQuery{Identity: alice})))
	made("ReadAccess", second(s.ReadAccess(ctx, svc.AccessRead{}, ignore)))
	made("Changes", second(s.Changes(ctx, 0)))
	made("AwaitChange", s.AwaitChange(ctx, 0))
	made("UseAPIKeys", s.UseAPIKeys(ctx, []svc.LastUse{{ID: "k", At: at(1)}}))
	made("Atomically", s.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		return second(tx.Template(ctx, templateKey("t")))
	}))
	made("KeepSourceFile", keepAndRead(ctx, s, sourceKey("s"), sourceFile("a", "data", at(1))))
	made("QueueAudit", with(ctx, s, func(s svc.AuditStore) error {
		return s.QueueAudit(ctx, []svc.Event{newEvent(0)}, behindAll)
	}))
	made("ChainAudit", with(ctx, s, func(s svc.AuditStore) error {
		return second(s.ChainAudit(ctx, behindAll))
	}))
	made("EraseAudit", with(ctx, s, func(s svc.AuditStore) error {
		return s.EraseAudit(ctx, []svc.AuditRecord{{Number: 1}})
	}))
	made("AuditRecords", readAudit(ctx, s))
	optionalReads(ctx, s, made)
}

// optionalReads makes calls of the optional roles that are not mutations.
func optionalReads(ctx context.Context, s svc.Store, made made) {
	made("SourceFile", with(ctx, s, func(s svc.SourceFileStore) error {
		return second(s.SourceFile(ctx, sourceKey("s"), "a"))
	}))
	made("AddEvents", with(ctx, s, func(s svc.OutboxStore) error {
		return s.AddEvents(ctx, []svc.Event{newEvent(0)})
	}))
	made("ClaimEvents", with(ctx, s, func(s svc.OutboxStore) error {
		return second(s.ClaimEvents(ctx, at(0), at(1), 10))
	}))
	made("DeleteEvents", with(ctx, s, func(s svc.OutboxStore) error {
		return s.DeleteEvents(ctx, []uuid.UUID{newEvent(0).ID})
	}))
	made("Answer", with(ctx, s, func(s svc.AnswerStore) error {
		return second(s.Answer(ctx, []byte("key"), at(0)))
	}))
	made("KeepAnswer", with(ctx, s, func(s svc.AnswerStore) error {
		return s.KeepAnswer(ctx, newAnswer("key", "", at(100)), at(0))
	}))
	made("CountAnswers", with(ctx, s, func(s svc.AnswerStore) error {
		return second(s.CountAnswers(ctx, []byte("caller"), at(0), 1))
	}))
	made("DeleteAnswers", with(ctx, s, func(s svc.AnswerStore) error {
		return s.DeleteAnswers(ctx, []byte("caller"))
	}))
}

// refusals makes calls of mutating methods that write nothing.
func refusals(ctx context.Context, s svc.Store, made made) {
	source, template, taken := sourceKey("s"), templateKey("t"), newKey("revoked", alice, at(0))
	made("CreateSource of a taken key", s.CreateSource(ctx, newSource(source)))
	made("CreateTemplate of a taken key", s.CreateTemplate(ctx, handMade("t")))
	made("CreateAPIKey of a taken id", s.CreateAPIKey(ctx, newKey("k", alice, at(0))))
	made("KeepValue of a kept name", second(s.KeepValue(ctx, "name", []byte("other"))))
	made("ChangeSource without a change", s.ChangeSource(ctx, source, leave))
	made("ChangeSource with an error", s.ChangeSource(ctx, source, refuse))
	made("RevokeAPIKeys without keys", second(s.RevokeAPIKeys(ctx, asUser("bob"), at(1), 10)))
	made("ChangeAPIKey of an unknown", s.ChangeAPIKey(ctx, alice, "unknown", disable))
	made("ChangeAPIKey of another holder", s.ChangeAPIKey(ctx, others[0], "k", disable))
	made("ChangeAPIKey of a revoked key", s.ChangeAPIKey(ctx, alice, "revoked", disable))
	made("ChangeAPIKey without a change", s.ChangeAPIKey(ctx, alice, "k", leave))
	made("a rotation to a taken id", rotate(ctx, s, "k", taken))
	made("ChangeTemplate without a change", s.ChangeTemplate(ctx, template, leave))
	made("ChangeTemplate with an error", s.ChangeTemplate(ctx, template, refuse))
	_, err := s.RebindTemplates(ctx, source, fromServer("t").Origin.URL)
	made("RebindTemplates to the same URL", err)
	made("ChangeAccess of nothing", change(ctx, s, svc.Bundle{}))
	err = s.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
		return upheaval().Write(), errRefused
	})
	made("ChangeAccess with an error", err)

	source, template = sourceKey("unknown"), templateKey("unknown")
	made("ChangeSource of an unknown", s.ChangeSource(ctx, source, move))
	made("DeleteSource of an unknown", s.DeleteSource(ctx, source))
	made("DeleteTemplate of an unknown", s.DeleteTemplate(ctx, template, nil))
	made("ChangeTemplate of an unknown", s.ChangeTemplate(ctx, template, touch))
	_, err = s.RebindTemplates(ctx, source, "https://moved.example")
	made("RebindTemplates of an unknown", err)
	err = keepAndRead(ctx, s, source, sourceFile("a", "data", at(1)))
	made("KeepSourceFile of an unknown", err)
}

func appendAudit(ctx context.Context, s svc.Store) error {
	return with(ctx, s, func(s svc.AuditStore) error {
		return chained(ctx, s, newEvent(0))
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
	source, template := sourceKey(id), templateKey(id)
	return errors.Join(
		s.CreateSource(ctx, newSource(source)),
		second(s.Sources(ctx, svc.SourcePage{Scope: svc.ScopeServer, Limit: 50})),
		s.ChangeSource(ctx, source, move),
		keepAndRead(ctx, s, source, sourceFile(id, id, at(1))),
		s.CreateTemplate(ctx, fromServer(id)),
		s.ChangeTemplate(ctx, template, touch),
		second(s.Template(ctx, template)),
		second(s.Templates(ctx, svc.TemplatePage{
			Scope: svc.ScopeServer, TemplateQuery: tagged("x"),
		})),
		second(s.Installations(ctx, svc.InstallationPage{Scope: svc.ScopeServer, Limit: 50})),
		second(s.RebindTemplates(ctx, sourceKey("s"), "https://"+id)),
		s.CreateAPIKey(ctx, newKey(id, alice, at(0))),
		second(s.Access(ctx, svc.AccessQuery{KeyID: id})),
		s.ChangeAPIKey(ctx, alice, id, disable),
		s.UseAPIKeys(ctx, []svc.LastUse{{ID: id, At: at(1)}}),
		change(ctx, s, svc.Bundle{Users: users(id)}),
		second(s.Access(ctx, svc.AccessQuery{Identity: alice, BankID: "b"})),
		second(s.ReadAccess(ctx, svc.AccessRead{}, ignore)),
		s.DeleteSource(ctx, source),
		appendAudit(ctx, s),
		readAudit(ctx, s),
	)
}

// keepAndRead keeps a file of a source, and reads it.
func keepAndRead(ctx context.Context, s svc.Store, key svc.SourceKey, file svc.SourceFile) error {
	return with(ctx, s, func(s svc.SourceFileStore) error {
		if err := s.KeepSourceFile(ctx, key, file); err != nil {
			return err
		}
		return second(s.SourceFile(ctx, key, file.Path))
	})
}
