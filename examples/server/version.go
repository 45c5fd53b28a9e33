package main

import (
	"context"
	"flag"
	"fmt"
	"runtime/debug"
)

var versionCommand = subcommand{
	name:  "version",
	alone: true,
	about: "print the version of this program; devel where Go recorded none, as with go run",
	setup: func(_ *flag.FlagSet, c *call) job {
		return func(context.Context) error {
			_, err := fmt.Fprintln(c.stdout, version())
			return err
		}
	},
}

func version() string {
	program, ok := debug.ReadBuildInfo()
	if !ok || program.Main.Version == "" || program.Main.Version == "(devel)" {
		return "devel"
	}
	return program.Main.Version
}
