package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

// helpEnd ends the help of the whole program.
const helpEnd = `
Run server COMMAND -help for the flags of a command. Every command but copy and version
reads a configuration file with -config, and server -print-config prints one with all defaults.

All commands work also while the server runs. The FILE of a bundle may be - for the standard input.

The first start prints a key of the user admin, once, and requests to try with it. If you lose the
key, or the first start breaks off before it prints the key, use the command key to make another.
`

// help writes the help of a command with those below it. A name that is not of's is a group of
// commands, which has no flags.
func help(to io.Writer, of subcommand, name string) error {
	var b strings.Builder
	b.WriteString("Usage:\n\n")
	for _, c := range subcommands {
		if name == "" || strings.HasPrefix(c.name+" ", name+" ") {
			c.list(&b)
		}
	}
	if name == of.name {
		b.WriteString("\nFlags:\n\n")
		of.flags().VisitAll(func(f *flag.Flag) { describe(&b, f) })
	}
	if of.name == "" {
		b.WriteString(helpEnd)
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// flags returns the flags of a command with their defaults.
func (c subcommand) flags() *flag.FlagSet {
	flags, of := flag.NewFlagSet("server", flag.ContinueOnError), call{config: defaults()}
	if !c.alone {
		of.commonFlags(flags)
	}
	c.setup(flags, &of)
	return flags
}

// list writes how to call the command, and what it does.
func (c subcommand) list(to *strings.Builder) {
	line := "server"
	for _, word := range []string{c.name, "[flags]", c.takes} {
		if word != "" {
			line += " " + word
		}
	}
	fmt.Fprintf(to, "  %s\n%s", line, wrapped(c.about, "      "))
}

func describe(to *strings.Builder, f *flag.Flag) {
	value, about := flag.UnquoteUsage(f)
	if value != "" {
		value = " " + value
	}
	if f.DefValue != "" && f.DefValue != "false" {
		about += " (default " + f.DefValue + ")"
	}
	fmt.Fprintf(to, "  -%s%s\n%s", f.Name, value, wrapped(about, "      "))
}

// wrapped returns text in lines of at most 100 bytes that begin with indent.
func wrapped(text, indent string) string {
	var b strings.Builder
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(indent)+len(line)+1+len(word) > 100 {
			b.WriteString(indent + line + "\n")
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	b.WriteString(indent + line + "\n")
	return b.String()
}
