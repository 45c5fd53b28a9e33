package main

import (
	"cmp"
	"context"
	"flag"
	"io"
)

var migrateCommand = subcommand{
	name: "migrate",
	about: "print the SQL that the database lacks, for a migration tool. Without such a tool, the" +
		" server creates and upgrades the tables when it starts",
	setup: func(flags *flag.FlagSet, c *call) job {
		print := flags.Bool("print", false, "print the SQL and change nothing")
		all := flags.Bool("all", false,
			"print the SQL for an empty database; do not open a database")
		return func(ctx context.Context) error {
			if !*print {
				return usageError("migrate needs -print: without a migration tool," +
					" start the server, which creates the tables")
			}
			script, err := c.migrations(ctx, *all)
			if err != nil {
				return err
			}
			// A script is never empty.
			_, err = io.WriteString(c.stdout, cmp.Or(script, "-- The tables are up to date.\n"))
			return err
		}
	},
}
