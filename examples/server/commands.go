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
	alone bool   // the command has neither -config nor -db
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
	copyCommand, backupCommand, restoreCommand,
	keysStatusCommand, keysRotateCommand, keysPrepareCommand, keysResealCommand, keysRetireCommand,
	lintCommand, whoCanCommand, verifyCommand,
	healthCommand, versionCommand,
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

// commandsOf returns the commands of two words that begin with a word.
func commandsOf(word string) (names []string) {
	for _, c := range subcommands {
		if strings.HasPrefix(c.name, word+" ") {
			names = append(names, c.name)
		}
	}
	return names
}

// parse reads the arguments of a command, and the configuration file that they name, into c. It
// returns what the command does. An error of the arguments is a usageError or flag.ErrHelp.
func (c *call) parse(of subcommand, args []string) (action, error) {
	c.config = defaults()
	if _, err := c.parseFlags(of, args); err != nil {
		return nil, err
	}
	var lines map[string]int
	if file := c.file; file != "" {
		c.config = defaults()
		c.file = file
		var err error
		if lines, err = c.readFile(); err != nil {
			return nil, err
		}
	}
	do, err := c.parseFlags(of, args) // once more: flags win over the file
	if err != nil {
		return nil, err
	}
	return do, c.complete(lines)
}

// parseFlags parses args over the values that c has.
func (c *call) parseFlags(of subcommand, args []string) (action, error) {
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	if !of.alone {
		c.commonFlags(flags)
	}
	do := of.setup(flags, c)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil, err
	} else if err != nil {
		return nil, usageError(err.Error())
	}
	c.flagged = map[string]bool{}
	flags.Visit(func(f *flag.Flag) { c.flagged[f.Name] = true })
	if hasControls(c.file) {
		return nil, usageError("-config " + noControls)
	}
	return do, c.takeOperand(of.takes, flags.Args())
}

func (c *call) takeOperand(takes string, rest []string) error {
	optional := strings.HasPrefix(takes, "[")
	switch {
	case takes == "":
	case len(rest) > 0 && hasControls(rest[0]):
		return usageError(strings.Trim(takes, "[]") + " " + noControls)
	case len(rest) > 0 && rest[0] != "":
		c.operand, rest = rest[0], rest[1:]
	case !optional:
		return usageError("name the " + takes + " after the flags")
	}
	if len(rest) > 0 {
		if names := commandsOf(rest[0]); names != nil {
			return usageError("name one of the commands " + strings.Join(names, ", "))
		}
		return usageError(
			fmt.Sprintf("unexpected argument %q: remove it; flags come first", rest[0]))
	}
	return nil
}

// usageError is a mistake on the command line.
type usageError string

func (e usageError) Error() string { return string(e) }
