package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// subcommand is something that the program does. To add a command, add it to subcommands.
type subcommand struct {
	name  string // one or two words; "": the program is called without a command
	takes string // the argument after the flags; "": none. One in brackets may be left out
	about string // what the command does, for the help
	// setup registers the flags of the command in addition to -db, and returns what the command
	// does once c is complete. An error of mistaken flags is a usageError.
	setup func(flags *flag.FlagSet, c *call) action
}

type action func(ctx context.Context) error

// subcommands are all commands, in the order of the help.
var subcommands = []subcommand{
	serveCommand,
	keyCommand,
	exportCommand, applyCommand, diffCommand,
	migrateCommand,
}

// call is one call of a command.
type call struct {
	config
	operand        string // the argument after the flags; "": none
	stdout, stderr io.Writer
	log            *slog.Logger
}

// find returns the command that args begin with, and the arguments after its name.
func find(args []string) (subcommand, []string) {
	for _, c := range subcommands[1:] {
		words := strings.Fields(c.name)
		if len(args) >= len(words) && strings.Join(args[:len(words)], " ") == c.name {
			return c, args[len(words):]
		}
	}
	return subcommands[0], args
}

// parse reads the arguments of a command into c, and returns what the command does. An error is a
// usageError or flag.ErrHelp.
func (c *call) parse(of subcommand, args []string) (action, error) {
	c.config = defaults()
	flags := c.flags()
	do := of.setup(flags, c)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil, err
	} else if err != nil {
		return nil, usageError(err.Error())
	}
	if err := c.takeOperand(of.takes, flags.Args()); err != nil {
		return nil, err
	}
	return do, c.complete()
}

// flags returns the flags that every command has.
func (c *call) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&c.DB, "db", c.DB, "a `FILE` of SQLite, or the URL of a PostgreSQL database like"+
		" postgres://user@host:5432/database. Put the password into PGPASSWORD or ~/.pgpass:"+
		" other users of the machine may see command lines")
	return flags
}

func (c *call) takeOperand(takes string, rest []string) error {
	optional := strings.HasPrefix(takes, "[")
	switch {
	case takes == "":
	case len(rest) > 0 && rest[0] != "":
		c.operand, rest = rest[0], rest[1:]
	case !optional:
		return usageError("name the " + takes + " after the flags")
	}
	if len(rest) > 0 {
		return usageError(
			fmt.Sprintf("unexpected argument %q: remove it; flags come first", rest[0]))
	}
	return nil
}

// usageError is a mistake on the command line.
type usageError string

func (e usageError) Error() string { return string(e) }
