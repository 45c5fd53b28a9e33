package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"strings"
	"text/tabwriter"

	"github.com/extsvc/svc"
)

// rows is a command about rows, on a database or on a server.
type rows struct {
	name, takes, about string
	reads              bool // it only reads, so a standby or a file of others will do
	secrets            bool // it makes or checks keys or tokens, so a database needs its keys file
	setup              func(flags *flag.FlagSet, c *call) rowsAction
}

// rowsAction is what a command about rows does with its target.
type rowsAction func(ctx context.Context, t target) error

// command returns the subcommand, with the flags that all commands about rows have.
func (r rows) command() subcommand {
	setup := func(flags *flag.FlagSet, c *call) job {
		address := urlFlag(flags)
		flags.BoolVar(&c.asJSON, "json", false, "print JSON")
		if r.secrets {
			c.keysFlag(flags)
		}
		do := r.setup(flags, c)
		return func(ctx context.Context) error {
			run := func(t target) error { return byFlags(do(ctx, t)) }
			if r.secrets && *address == "" {
				return c.withSecrets(ctx, func(h *host) error {
					return run(target{local: h.service, by: operator()})
				})
			}
			open := c.openDatabase
			if r.reads {
				open = c.readDatabase
			}
			return c.withTarget(ctx, *address, open, run)
		}
	}
	return subcommand{name: r.name, takes: r.takes, about: r.about, setup: setup}
}

// rowFlags are the flags that set the fields of a row.
var rowFlags = map[string]string{
	"/alias_id":          "-as",
	"/display_name":      "-display-name",
	"/email":             "-email",
	"/expires_at":        "-expires-in",
	"/owner_user_id":     "-owner",
	"pseudonym":          "-as",
	"/scoping_policy_id": "-scoping-policy",
	"/source_name":       "-source",
}

// byFlags returns err with the flags in place of the fields that they set.
func byFlags(err error) error {
	for _, e := range svc.Errors(err) {
		if rowFlags[e.Field] != "" {
			return svc.MapFields(err, func(e *svc.Error) string {
				return cmp.Or(rowFlags[e.Field], e.Field)
			})
		}
	}
	return err
}

// flagless returns the setup of a command that adds no flags.
func flagless(
	do func(ctx context.Context, c *call, t target) error,
) func(*flag.FlagSet, *call) rowsAction {
	return func(_ *flag.FlagSet, c *call) rowsAction {
		return func(ctx context.Context, t target) error { return do(ctx, c, t) }
	}
}

// listing returns a command that lists rows.
func listing[R any, J row](
	name, about, head string, list func(target, context.Context) iter.Seq2[R, error],
	form func(R) J,
) rows {
	do := func(ctx context.Context, c *call, t target) error {
		return show(c, list(t, ctx), head, form)
	}
	return rows{name: name, about: about, reads: true, setup: flagless(do)}
}

// showing returns a command that shows the row of its operand.
func showing[R, J any](
	name, takes, about string, read func(target, context.Context, string) (R, error),
	form func(R) J,
) rows {
	do := func(ctx context.Context, c *call, t target) error {
		found, err := read(t, ctx, c.operand)
		if err != nil {
			return err
		}
		return showOne(c, form(found))
	}
	return rows{name: name, takes: takes, about: about, reads: true, setup: flagless(do)}
}

// removal returns a command that removes the row of its operand.
func removal(
	name, takes, about, done string, remove func(target, context.Context, string) error,
) rows {
	do := func(ctx context.Context, c *call, t target) error {
		return c.done(remove(t, ctx, c.operand), done, c.operand)
	}
	return rows{name: name, takes: takes, about: about, setup: flagless(do)}
}

// row is a row as the API shows it.
type row interface {
	cells() []any // of the table
}

// show prints rows: as a table for people, or as a JSON array.
func show[R any, J row](c *call, all iter.Seq2[R, error], head string, form func(R) J) error {
	list := []J{}
	for row, err := range all {
		if err != nil {
			return err
		}
		list = append(list, form(row))
	}
	if c.asJSON {
		return json.NewEncoder(c.stdout).Encode(list)
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, head)
	for _, row := range list {
		fmt.Fprintln(table, joined(row.cells()))
	}
	return table.Flush()
}

// showOne prints one row: a line for each field, or a JSON object.
func showOne(c *call, row any) error {
	if c.asJSON {
		return json.NewEncoder(c.stdout).Encode(row)
	}
	text, err := json.MarshalIndent(row, "", "  ")
	if err == nil {
		_, err = fmt.Fprintln(c.stdout, plainLines(string(text)))
	}
	return err
}

func joined(cells []any) string {
	words := make([]string, len(cells))
	for i, cell := range cells {
		switch text, is := cell.(*string); {
		case !is:
			words[i] = plain(fmt.Sprint(cell))
		case text == nil:
			words[i] = "-"
		default:
			words[i] = plain(*text)
		}
	}
	return strings.Join(words, "\t")
}

// sequence yields the values of a slice.
func sequence[R any](all []R, err error) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		if err != nil {
			var none R
			yield(none, err)
			return
		}
		for _, row := range all {
			if !yield(row, nil) {
				return
			}
		}
	}
}

func orNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func nameFlag(flags *flag.FlagSet) *string {
	return flags.String("display-name", "", "the `NAME` to show; without it, the id")
}

func activeFlag(flags *flag.FlagSet) *bool {
	return flags.Bool("active", true, "whether it may act; -active=false suspends it")
}

func scopingFlag(flags *flag.FlagSet) *string {
	return flags.String("scoping-policy", "", "the `ID` of a policy that limits it; empty for none")
}
