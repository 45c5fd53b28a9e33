package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
)

// readTests reads the tests of a bundle, and the rows besides them.
func readTests(ctx context.Context, file string) (tests []svc.AccessTest, rows svc.Bundle, err error) {
	if rows, err = readBundle(ctx, file); err != nil {
		return nil, rows, err
	}
	tests, rows.Tests = rows.Tests, nil
	if len(tests) == 0 {
		return nil, rows, fmt.Errorf(`%s: "tests" must be a list of questions with "allowed"`, file)
	}
	for _, f := range svc.Lint(svc.Bundle{Tests: tests}, nil) {
		if f.Severity == svc.SeverityError {
			return nil, rows, fmt.Errorf("%s: %s %s", file, f.Pointer, f.Message)
		}
	}
	return tests, rows, nil
}

var testCommand = subcommand{
	name:  "test",
	takes: "FILE",
	about: "ask the questions of the \"tests\" in FILE; exit with 1 if an answer is another one." +
		" A FILE with other rows is judged alone;" +
		" one without asks the database, or the server of -url",
	setup: func(flags *flag.FlagSet, c *call) job {
		address := urlFlag(flags)
		return func(ctx context.Context) error {
			tests, rows, err := readTests(ctx, c.operand)
			if err != nil {
				return err
			}
			if rows.Empty() {
				return c.withTarget(ctx, *address, c.readDatabase, func(t target) error {
					return c.judge(ctx, t, tests)
				})
			}
			alone, err := judgedAlone(ctx, rows)
			if err != nil {
				return inFile(c.operand, err)
			}
			return c.judge(ctx, alone, tests)
		}
	},
}

// judgedAlone returns a target over the rows of a bundle, without a database.
func judgedAlone(ctx context.Context, rows svc.Bundle) (target, error) {
	service, err := svc.New(svc.Config{Store: memstore.New()})
	if err == nil {
		err = service.Access.Apply(ctx, svc.Host, rows)
	}
	return target{local: service, by: svc.Host}, err
}

// judge asks all questions, and prints why each answer that is another one is so.
func (c *call) judge(ctx context.Context, t target, tests []svc.AccessTest) error {
	turned := 0
	for _, e := range tests {
		q := svc.Question{
			UserID: e.UserID, ServiceAccountID: e.ServiceAccountID, Sender: e.Sender,
			Action: e.Action, Bank: e.Bank, Channel: e.Channel, Topic: e.Topic,
		}
		answer, err := t.resolve(ctx, q)
		if err != nil {
			return fmt.Errorf("%s: %w", said(e), err)
		}
		if allowed := answer.Outcome == svc.Allow; allowed != e.Allowed {
			turned++
			err := errors.Join(printLine(c.stdout, "%s", said(e)),
				printLine(c.stdout, "  is %s", answer.Reason))
			if err != nil {
				return err
			}
		}
	}
	if turned > 0 {
		return fmt.Errorf("%d of %d answers differ", turned, len(tests))
	}
	return c.done(nil, "%d answers are as expected", len(tests))
}

// said says a test as a bundle has it.
func said(t svc.AccessTest) string {
	text, _ := svc.Bundle{Tests: []svc.AccessTest{t}}.JSON() // it was read from a bundle
	return strings.TrimSuffix(strings.TrimPrefix(string(text), `{"tests":[`), `]}`)
}
