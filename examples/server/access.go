package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/extsvc/svc"
)

var exportCommand = subcommand{
	name:  "export",
	about: "print all rows of access as a bundle: users, groups, policies and the rest",
	setup: func(_ *flag.FlagSet, c *call) job {
		return func(ctx context.Context) error {
			return c.withAccess(ctx, c.readDatabase, func(service *svc.Service) error {
				bundle, err := service.Access.Export(ctx, svc.Host.As("server export"))
				if err != nil {
					return err
				}
				out := bufio.NewWriter(c.stdout)
				if err := bundle.WriteJSON(out); err != nil {
					return err
				}
				_ = out.WriteByte('\n') // Flush reports the error
				return out.Flush()
			})
		}
	},
}

var applyCommand = subcommand{
	name:  "apply",
	takes: "FILE",
	about: "write the bundle in FILE, or nothing of it",
	setup: func(flags *flag.FlagSet, c *call) job {
		prune := pruneFlag(flags)
		return func(ctx context.Context) error {
			return c.withAccess(ctx, c.openDatabase, func(service *svc.Service) error {
				bundle, err := readBundle(ctx, c.operand)
				if err != nil {
					return err
				}
				by, how := svc.Host.As("server apply"), svc.BundleWrite{Prune: *prune}
				return inFile(c.operand, c.busy("apply", func() error {
					return service.Access.Write(ctx, by, bundle, how)
				}))
			})
		}
	},
}

var diffCommand = subcommand{
	name:  "diff",
	takes: "FILE",
	about: "print who would gain and lose which action where, and write nothing; exit with 2 if" +
		" somebody would, and with 1 if only the answer to a kept question is unexpected",
	setup: func(flags *flag.FlagSet, c *call) job {
		prune := pruneFlag(flags)
		asJSON := flags.Bool("json", false, "print one JSON object for each line of words")
		return func(ctx context.Context) error {
			return c.withAccess(ctx, c.readDatabase, func(service *svc.Service) error {
				bundle, err := readBundle(ctx, c.operand)
				if err != nil {
					return err
				}
				by, how := svc.Host.As("server diff"), svc.BundleWrite{Prune: *prune}
				var diff svc.AccessDiff
				err = c.busy("diff", func() error {
					diff, err = service.Access.Preview(ctx, by, bundle, how)
					return err
				})
				if err != nil {
					return inFile(c.operand, err)
				}
				return printDiff(c.stdout, diff, *asJSON)
			})
		}
	},
}

func pruneFlag(flags *flag.FlagSet) *bool {
	return flags.Bool("prune", false, "remove the rows that the bundle does not name. The keys of"+
		" users and service accounts that go are revoked. Without this flag, they stay")
}

// withAccess calls do with a Service on the database. It creates no SQLite file. The Service makes
// and checks no key, so it needs no keys file. Without a Logger it logs errors only, and does not
// warn about the missing pepper.
func (c *call) withAccess(
	ctx context.Context, open opener, do func(service *svc.Service) error,
) (err error) {
	if err := exists(c.DB); err != nil {
		return err
	}
	h, err := openStore(ctx, open)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	config := svc.Config{Store: h.store, Events: svc.EventConfig{Keep: c.Events.Keep}}
	if h.service, err = svc.New(config); err != nil {
		return err
	}
	return do(h.service)
}

// readBundle reads the bundle in a file; "-" is the standard input.
func readBundle(ctx context.Context, file string) (svc.Bundle, error) {
	data, err := textOf(ctx, file)
	if err != nil {
		return svc.Bundle{}, fmt.Errorf("bundle: %w", err)
	}
	bundle, err := svc.ParseBundle(data)
	return bundle, inFile(file, err)
}

func inFile(file string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("bundle %s: %w", file, err)
}
