package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/extsvc/svc"
)

var transactionRules = []rule{
	{"a transaction writes all its calls, " +
		"with the generations and changes of separate calls", func(c *checker) {
		calls, changed := 0, 0
		c.ok(c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
			calls, changed = 0, 0
			mutations(ctx, tx, func(call string, err error, targets ...svc.Target) {
				c.made(call, err)
				calls, changed = calls+1, changed+len(targets)
			})
			return nil
		}))
		c.same("generation", c.generation(), int64(calls))
		c.same("number of targets", len(c.changes(0).Targets), changed)
		c.same("user", c.access(svc.AccessQuery{Identity: alice}).User.ID, "alice")
	}},
	{"calls in a transaction see its writes, " +
		"and other calls see them after its end", func(c *checker) {
		c.ok(c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
			if err := everything(ctx, tx, "t"); err != nil {
				return err
			}
			return tx.ChangeTemplate(ctx, templateKey("t"), touch)
		}))
		c.same("updated at", c.template(templateKey("t")).UpdatedAt, at(1_000_000))
	}},
	{"when the function fails, " +
		"Atomically returns its error and undoes its writes", func(c *checker) {
		c.undone(func() error {
			err := c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
				c.ok(writeEverything(ctx, tx))
				return errRefused
			})
			c.is("Atomically", err, errRefused)
			return err
		})
	}},
	{"when the function panics, " +
		"Atomically undoes its writes and the panic goes on", func(c *checker) {
		c.undone(func() (err error) {
			defer func() {
				if seen := recover(); seen != errRefused {
					c.fail("got the panic %v, want %v", seen, errRefused)
				}
				err = errRefused
			}()
			return c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
				c.ok(writeEverything(ctx, tx))
				panic(errRefused)
			})
		})
	}},
	{"when the context ends before the function, Atomically undoes its writes", func(c *checker) {
		c.undone(func() error {
			ctx, cancel := context.WithCancel(c.ctx)
			defer cancel()
			return c.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
				c.ok(writeEverything(ctx, tx))
				cancel()
				return nil
			})
		})
	}},
	{"when the function returns the error of a refused call, " +
		"Atomically undoes the writes before it", func(c *checker) {
		c.undone(func() error {
			err := c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
				c.ok(writeEverything(ctx, tx))
				return tx.CreateAPIKey(ctx, newKey("revoked", alice, at(0)))
			})
			c.is("Atomically", err, svc.ErrExists)
			return err
		})
	}},
	{"a nested transaction is part of the outer transaction", func(c *checker) {
		c.undone(func() error {
			return c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
				c.ok(tx.Atomically(ctx, writeEverything))
				snapshot := must(tx.Access(ctx, svc.AccessQuery{Identity: asUser("new")}))
				c.same("user", snapshot.User.ID, "new")
				return errRefused
			})
		})
	}},
	{"when the function of a nested transaction fails, its writes are undone, " +
		"or the outer transaction fails", func(c *checker) {
		c.undone(func() (failed error) {
			outer := c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
				failed = tx.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
					c.ok(writeEverything(ctx, tx))
					return errRefused
				})
				return nil
			})
			return cmp.Or(outer, failed)
		})
	}},
	{"a transaction has the optional roles of the store", func(c *checker) {
		c.ok(c.Atomically(c.ctx, func(_ context.Context, tx svc.Store) error {
			c.same("roles in the transaction", rolesOf(tx).has(), c.has())
			return nil
		}))
	}},
	{"AwaitChange and ClaimEvents fail in a transaction", func(c *checker) {
		c.ok(c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
			if tx.AwaitChange(ctx, 0) == nil {
				c.fail("AwaitChange did not fail")
			}
			if outbox, has := tx.(svc.OutboxStore); has &&
				second(outbox.ClaimEvents(ctx, at(0), at(1), 1)) == nil {
				c.fail("ClaimEvents did not fail")
			}
			return nil
		}))
	}},
	{"a transaction that only reads does not raise the generation", func(c *checker) {
		c.ok(c.CreateTemplate(c.ctx, handMade("t")))
		c.ok(c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
			return second(tx.Template(ctx, templateKey("t")))
		}))
		c.same("generation", c.generation(), int64(1))
	}},
	{"of several concurrent transactions that create one template, " +
		"one wins and no row of a loser stays", func(c *checker) {
		c.oneWins(race(func(i int) error {
			return c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
				id := fmt.Sprint(i)
				if err := tx.CreateAPIKey(ctx, newKey(id, alice, at(0))); err != nil {
					return err
				}
				return tx.CreateTemplate(ctx, handMade("t", id))
			})
		}), svc.ErrExists)
		c.same("keys", keyIDs(c.keys(alice, 10)), c.template(templateKey("t")).Tags)
	}},
}

// writeEverything writes rows of each kind and deletes some. The prepared mutations come before it.
func writeEverything(ctx context.Context, tx svc.Store) error {
	err := everything(ctx, tx, "new")
	rewrite(ctx, tx, func(_ string, failed error, _ ...svc.Target) {
		err = errors.Join(err, failed)
	})
	return errors.Join(
		err,
		with(ctx, tx, func(tx svc.OutboxStore) error {
			return tx.AddEvents(ctx, []svc.Event{newEvent(7)})
		}),
		with(ctx, tx, func(tx svc.AnswerStore) error {
			return tx.KeepAnswer(ctx, newAnswer("new", "", at(100)), at(0))
		}),
	)
}

// undone expects that fails returns an error and changes nothing.
func (c *checker) undone(fails func() error) {
	prepare(c.ctx, c.Store, c.made)
	c.ok(keepAndRead(c.ctx, c.Store, sourceKey("s"), sourceFile("a", "data", at(1))))
	if c.AuditStore != nil {
		c.record(3)
	}
	before := c.inventory()
	if fails() == nil {
		c.fail("it did not fail")
	}
	c.same("what is there", c.inventory(), before)
	if c.OutboxStore != nil {
		c.same("events", c.claim(at(0), at(1), 10), []svc.Event{})
	}
	if c.AnswerStore != nil {
		c.noAnswer("new", at(0))
	}
	c.ok(c.Atomically(c.ctx, writeEverything)) // the store still works
}

// inventory returns all that a store holds, as text.
func (c *checker) inventory() []string {
	list := []string{
		show(c.allAccess()), show(c.versions("t", 100)), show(c.changes(0)),
		show(c.sources(svc.ScopeServer, "", 10)),
		show(c.template(templateKey("t"))), show(c.templates(svc.TemplateQuery{Limit: 10})),
		show(c.keys(alice, 10)), show(c.key("k")),
	}
	if c.SourceFileStore != nil {
		list = append(list, show(c.file(sourceKey("s"), "a")))
	}
	if c.AuditStore != nil {
		list = append(list, show(c.records(svc.AuditQuery{Limit: 10})))
	}
	return list
}
