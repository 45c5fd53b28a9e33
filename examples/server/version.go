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
	about: "print the version of this program; devel where it was built from a clone",
	setup: func(_ *flag.FlagSet, c *call) job {
		return func(context.Context) error {
			_, err := fmt.Fprintln(c.stdout, version())
			return err
		}
	},
}

func version() string {
	if program, ok := debug.ReadBuildInfo(); ok && program.Main.Version != "" && program.Main.Version != "(devel)" {
		return program.Main.Version
	}
	return "devel"
}
