package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	svcclient "github.com/extsvc/svc/client"
)

var lintCommand = subcommand{
	name:  "lint",
	takes: "[FILE]",
	about: "print the mistakes, redundant rows and accidental results in the bundle in FILE, or" +
		" in the access of the database; exit with 1 if one is an error",
	setup: func(flags *flag.FlagSet, c *call) job {
		address := urlFlag(flags)
		var known []string
		flags.Func("known", "an `ACTION` that the host asks about. Repeat the flag for all of"+
			" them: then patterns that cover none are reported", func(action string) error {
			known = append(known, action)
			return nil
		})
		return func(ctx context.Context) error {
			if *address != "" && c.operand != "" {
				return usageError("lint takes a FILE or -url, not both")
			}
			var findings []svc.Finding
			err := c.busy("lint", func() error {
				bundle, err := c.toLint(ctx, *address)
				if err == nil {
					findings = svc.Lint(bundle, known)
				}
				return err
			})
			if err != nil {
				return err
			}
			return c.printFindings(findings)
		}
	},
}

var whoCanCommand = subcommand{
	name:  "who-can",
	about: "print who may do an action on a bank",
	setup: func(flags *flag.FlagSet, c *call) job {
		address := urlFlag(flags)
		action := flags.String("action", action.Recall, "the `ACTION`")
		bank := flags.String("bank", "", "the id of the `BANK`")
		asJSON := flags.Bool("json", false, "print one JSON object")
		return func(ctx context.Context) error {
			if *bank == "" {
				return usageError("who-can needs -bank BANK")
			}
			return c.withTarget(ctx, *address, c.readDatabase, func(t target) error {
				reach, err := t.whoCan(ctx, *action, *bank)
				if err != nil {
					return err
				}
				return c.printReach(reach, *asJSON)
			})
		}
	},
}

func urlFlag(flags *flag.FlagSet) *string {
	address := new(string)
	flags.Func("url", "ask the server at this `URL`, such as https://example.com/ext/svc or"+
		" unix:PATH, and not the database. The variable SVC_KEY of the environment holds an API key",
		func(text string) error {
			if text == "" { // of an unset variable: the database here is not meant
				return errors.New("must not be empty")
			}
			*address = text
			return nil
		})
	return address
}

// remote returns a client for a server. On a socket, the interface has the prefix of c.
func (c *call) remote(address string) (*svcclient.Client, error) {
	key := os.Getenv("SVC_KEY")
	if key == "" {
		return nil, usageError("-url needs an API key in the variable SVC_KEY of the environment")
	}
	config := svcclient.Config{BaseURL: address, Token: svc.Secret(key)}
	if path, is := socketOf(address); is {
		config.BaseURL = "http://localhost" + c.HTTP.Prefix
		config.HTTPClient = &http.Client{Transport: dialing(path)}
	}
	client, err := svcclient.New(config)
	if err != nil {
		return nil, usageError(ofCommand.Replace(err.Error()))
	}
	return client, nil
}

// ofCommand puts the names of the command line in place of the client's fields.
var ofCommand = strings.NewReplacer(
	"client: Config.BaseURL", "-url", "client: Config.Token", "SVC_KEY", "set Token", "set SVC_KEY",
)

// toLint returns the bundle that the command line names.
func (c *call) toLint(ctx context.Context, address string) (bundle svc.Bundle, err error) {
	if c.operand != "" {
		return readBundle(ctx, c.operand)
	}
	err = c.withTarget(ctx, address, c.readDatabase, func(t target) error {
		bundle, err = t.export(ctx)
		return err
	})
	return bundle, err
}

func (t target) export(ctx context.Context) (svc.Bundle, error) {
	if t.local != nil {
		return t.local.Access.Export(ctx, t.by)
	}
	return t.far.Access.Export(ctx)
}

func (c *call) printFindings(list []svc.Finding) error {
	out := bufio.NewWriter(c.stdout)
	faults := 0
	for _, f := range list {
		if f.Severity == svc.SeverityError {
			faults++
		}
		_ = printLine(out, "%s %s %s: %s", f.Severity, cmp.Or(f.Pointer, "/"), f.Code, f.Message)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if faults > 0 {
		return fmt.Errorf("lint found %d errors", faults)
	}
	return nil
}

func (t target) whoCan(ctx context.Context, action, bank string) (svc.WhoCanAnswer, error) {
	if t.local != nil {
		return t.local.Policies.WhoCan(ctx, t.by, action, bank)
	}
	return t.far.Policies.WhoCan(ctx, action, bank)
}

// who is a line of the command who-can.
type who struct {
	Kind, ID string
	Allowed  bool
}

// reached returns the lines of a reach: users, service accounts, then unmapped senders, by the
// overrides of public access and where none matches.
func reached(r svc.WhoCanAnswer) (all []who) {
	for _, id := range r.Users {
		all = append(all, who{string(svc.KindUser), id, true})
	}
	for _, id := range r.ServiceAccounts {
		all = append(all, who{string(svc.KindServiceAccount), id, true})
	}
	if r.Public.Default {
		all = append(all, who{"unmapped", "*", true})
	}
	for _, o := range r.Public.Overrides {
		all = append(all, who{"unmapped", o.Scope + ":" + o.Value, o.Allowed})
	}
	return all
}

// unnamed says that no statement allows anybody the request: its names may be mistakes.
func unnamed(r svc.WhoCanAnswer) string {
	for _, s := range r.Statements {
		if s.Effect == svc.EffectAllow {
			return ""
		}
	}
	return ": no policy allows it, check the names of bank and action"
}

func (c *call) printReach(r svc.WhoCanAnswer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(c.stdout).Encode(map[string]any{
			"users": r.Users, "service_accounts": r.ServiceAccounts,
			"public": map[string]any{"default": r.Public.Default, "overrides": overrides(r.Public)},
		})
	}
	all := reached(r)
	if !slices.ContainsFunc(all, func(w who) bool { return w.Allowed }) {
		return printLine(c.stdout, "nobody%s", unnamed(r))
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tID\tALLOWED")
	for _, w := range all {
		fmt.Fprintf(table, "%s\t%s\t%t\n", w.Kind, plain(w.ID), w.Allowed)
	}
	return table.Flush()
}

func overrides(p svc.PublicReach) []map[string]any {
	all := []map[string]any{}
	for _, o := range p.Overrides {
		all = append(all, map[string]any{"scope": o.Scope, "value": o.Value, "allowed": o.Allowed})
	}
	return all
}
