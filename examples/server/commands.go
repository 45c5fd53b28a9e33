package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// subcommand is something that the program does. To add a command, add it to subcommands.
type subcommand struct {
	name  string // one or two words; "": the program is called without a command
	alone bool   // the command has neither -config nor -db
	takes string // the argument after the flags; "": none. One in brackets may be left out
	about string // what the command does, for the help
	// setup registers the flags of the command in addition to -db, and returns what the command
	// does once c is complete. An error of mistaken flags is a usageError.
	setup func(flags *flag.FlagSet, c *call) job
}

type job func(ctx context.Context) error

// subcommands are all commands, in the order of the help.
var subcommands = slices.Concat([]subcommand{
	serveCommand,
	keyCommand,
	exportCommand, applyCommand, diffCommand,
	migrateCommand,
	copyCommand, backupCommand, restoreCommand,
	keysStatusCommand, keysRotateCommand, keysPrepareCommand, keysResealCommand, keysRetireCommand,
	lintCommand, testCommand, whoCanCommand, verifyCommand, forgetCommand,
	healthCommand, diagnoseCommand, versionCommand,
}, tenantCommands, commandsOf(
	[]rows{whyCommand, whatCanCommand, auditCommand}, userCommands, groupCommands, policyCommands,
	accountCommands, bankCommands, keyCommands, sourceCommands, templateCommands,
))

// commandsOf returns the commands about rows.
func commandsOf(lists ...[]rows) (all []subcommand) {
	for _, r := range slices.Concat(lists...) {
		all = append(all, r.command())
	}
	return all
}

// call is one call of a command.
type call struct {
	config
	args           []string // the command line
	operand        string   // the argument besides the flags; "": none
	second         string   // the second one
	asJSON         bool     // -json of a command about rows
	stdout, stderr io.Writer
	log            *slog.Logger
	level          slog.LevelVar // of log
	// again reads the configuration once more.
	again func() (config, error)
}

// program returns the commands as cobra has them. A command that is found runs with its arguments
// in c, and leaves what it does in do.
func (c *call) program(do *job) *cobra.Command {
	root := c.command(subcommands[0], do)
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	early(root)
	for _, of := range subcommands[1:] {
		parent := root
		words := strings.Fields(of.name)
		for _, word := range words[:len(words)-1] {
			parent = group(parent, word)
		}
		parent.AddCommand(c.command(of, do))
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if words := cmd.Flags().Args(); len(words) > 0 && cmd.HasSubCommands() {
			return unknown(cmd, words) // whose flag is not unknown
		}
		return usageError(err.Error())
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	root.InitDefaultCompletionCmd()
	completion := group(root, "completion")
	grouped(completion)
	for _, shell := range completion.Commands() {
		shell.Args = func(_ *cobra.Command, args []string) error { return unexpected(args) }
	}
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "print the help of a command",
		RunE: func(_ *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			switch {
			case err != nil:
				return usageError(err.Error())
			case len(rest) > 0 && found.HasSubCommands():
				return unknown(found, rest)
			case len(rest) > 0:
				return unexpected(rest)
			}
			return found.Help()
		},
	})
	return root
}

// command returns a command with its flags. cobra reads the flags wherever they are; parse reads
// them again, over the configuration file and the environment.
func (c *call) command(of subcommand, do *job) *cobra.Command {
	words := strings.Fields("server " + of.name)
	cmd := &cobra.Command{
		Use: words[len(words)-1], Short: of.about, Args: cobra.ArbitraryArgs,
		SilenceErrors: true, SilenceUsage: true, DisableFlagsInUseLine: true,
	}
	cmd.Flags().AddGoFlagSet(of.flags())
	cmd.Flags().SortFlags = false
	cmd.SetHelpFunc(func(asked *cobra.Command, _ []string) { // also of a group below
		_, name, _ := strings.Cut(asked.CommandPath(), " ")
		*do = func(context.Context) error { return help(c.stdout, of, name) }
	})
	cmd.RunE = func(cmd *cobra.Command, operands []string) (err error) {
		if of.name == "" && len(operands) > 0 {
			return unknown(cmd, operands)
		}
		_, given, _ := cmd.Root().Find(c.args) // it was found before
		var args []string
		err = cmd.Flags().ParseAll(given, func(f *pflag.Flag, value string) error {
			args = append(args, "-"+f.Name+"="+value)
			return nil
		})
		if err == nil {
			*do, err = c.parse(of, append(append(args, "--"), operands...))
		}
		return err
	}
	return cmd
}

// group returns the command below parent that has only its own commands.
func group(parent *cobra.Command, word string) *cobra.Command {
	for _, cmd := range parent.Commands() {
		if cmd.Name() == word {
			return cmd
		}
	}
	cmd := &cobra.Command{Use: word, SilenceErrors: true, SilenceUsage: true}
	grouped(cmd)
	early(cmd)
	parent.AddCommand(cmd)
	return cmd
}

// grouped makes a command refuse all but its own commands.
func grouped(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return unknown(cmd, args) }
}

// early lets -json stand before the name of a command: cobra must know that no value follows it.
func early(cmd *cobra.Command) {
	cmd.Flags().Bool("json", false, "")
	_ = cmd.Flags().MarkHidden("json")
}

// unknown says which commands there are, or which one may be meant.
func unknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError("name one of the commands " + names(cmd))
	}
	if near := meant(cmd, args[0]); near != "" {
		return usageError(fmt.Sprintf("unknown command %q%s", args[0], near))
	}
	return usageError(fmt.Sprintf("unknown command %q: name one of %s", args[0], names(cmd)))
}

// meant asks for the commands with names like a misspelled one; "": there are none.
func meant(of *cobra.Command, name string) string {
	of.SuggestionsMinimumDistance = 2
	near := of.SuggestionsFor(name)
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near, ", ") + "?"
}

func names(cmd *cobra.Command) string {
	var all []string
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			all = append(all, strings.TrimPrefix(c.CommandPath(), "server "))
		}
	}
	return strings.Join(all, ", ")
}

// doubled gives flags of several letters two dashes: one and two are the same. Values of flags
// stay, also those that begin with a dash.
func doubled(args []string) (all []string) {
	takes := map[string]bool{} // the flags that a value follows
	for _, of := range subcommands {
		of.flags().VisitAll(func(f *flag.Flag) { takes[f.Name] = !isSwitch(f) })
	}
	value := false
	for i, arg := range args {
		if !value && arg == "--" {
			return append(all, args[i:]...)
		}
		if !value && len(arg) > 2 && arg[0] == '-' && arg[1] != '-' {
			arg = "-" + arg
		}
		value = !value && strings.HasPrefix(arg, "--") && takes[arg[2:]]
		all = append(all, arg)
	}
	return all
}

// isSwitch reports whether a flag is true without a value.
func isSwitch(f *flag.Flag) bool {
	b, is := f.Value.(interface{ IsBoolFlag() bool })
	return is && b.IsBoolFlag()
}

// isNegative reports whether the value of a flag is a negative number or time.
func isNegative(f *flag.Flag) bool {
	getter, _ := f.Value.(flag.Getter)
	if getter == nil {
		return false
	}
	number, _ := getter.Get().(int)
	span, _ := getter.Get().(time.Duration)
	return number < 0 || span < 0
}

// parse reads the arguments of a command, and the configuration file that they name, into c. It
// returns what the command does. An error of the arguments is a usageError or flag.ErrHelp.
func (c *call) parse(of subcommand, args []string) (job, error) {
	c.config = defaults()
	if _, err := c.parseFlags(of, args); err != nil {
		return nil, err
	}
	var lines map[string]int
	if c.file == "" && !of.alone {
		c.file = os.Getenv("SVC_CONFIG")
	}
	if file := c.file; file != "" {
		c.config = defaults()
		c.file = file
		var err error
		if lines, err = c.readKeys(); err != nil {
			return nil, err
		}
	}
	if err := c.readEnvironment(); err != nil {
		return nil, err
	}
	do, err := c.parseFlags(of, args) // once more: flags win over the file and the environment
	if err != nil {
		return nil, err
	}
	return do, c.complete(lines)
}

// parseFlags parses args over the values that c has.
func (c *call) parseFlags(of subcommand, args []string) (job, error) {
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
	var wrong error
	flags.Visit(func(f *flag.Flag) {
		c.flagged[f.Name] = true
		if isNegative(f) && f.Name != "priority" {
			wrong = usageError("-" + f.Name + " must not be negative")
		}
	})
	if wrong != nil {
		return nil, wrong
	}
	if hasControls(c.file) {
		return nil, usageError("-config " + noControls)
	}
	return do, c.takeOperand(of.takes, flags.Args())
}

// takeOperand takes the arguments besides the flags: one, or two of those that takes names.
func (c *call) takeOperand(takes string, rest []string) error {
	optional := strings.HasPrefix(takes, "[")
	for i, name := range strings.Fields(takes) {
		to := []*string{&c.operand, &c.second}[i]
		switch {
		case len(rest) > 0 && hasControls(rest[0]):
			return usageError(strings.Trim(name, "[]") + " " + noControls)
		case len(rest) > 0 && rest[0] != "":
			*to, rest = rest[0], rest[1:]
		case !optional:
			return usageError("name the " + name)
		}
	}
	return unexpected(rest)
}

// unexpected refuses arguments that a command does not take.
func unexpected(rest []string) error {
	if len(rest) == 0 {
		return nil
	}
	return usageError(fmt.Sprintf("unexpected argument %q: remove it", rest[0]))
}

// usageError is a mistake on the command line.
type usageError string

func (e usageError) Error() string { return string(e) }
