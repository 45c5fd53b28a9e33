package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/extsvc/svc"
	svcclient "github.com/extsvc/svc/client"
)

// target is what a command works on: a database, or a server that is asked over HTTP.
type target struct {
	local *svc.Service // nil: far is asked
	by    svc.Principal
	far   *svcclient.Client
}

// operator is who records name for a command on a database: svc.Host, with the name of the user of
// the system.
func operator() svc.Principal {
	for _, name := range []string{"SUDO_USER", "USER", "LOGNAME"} {
		if user := os.Getenv(name); user != "" {
			return svc.Host.As(user)
		}
	}
	return svc.Host.As("server")
}

// ask calls the one of two functions that fits the target.
func ask[T any](
	t target, local func(s *svc.Service, by svc.Principal) T, far func(c *svcclient.Client) T,
) T {
	if t.local != nil {
		return local(t.local, t.by)
	}
	return far(t.far)
}

// result is what a call of the Service returns.
type result[T any] struct {
	value T
	err   error
}

func of[T any](value T, err error) result[T] { return result[T]{value, err} }

// rows is a command about rows, on a database or on a server.
type rows struct {
	name, takes, about string
	secrets            bool // it makes or checks keys or tokens, so a database needs its keys file
	setup              func(flags *flag.FlagSet, c *call) func(ctx context.Context, t target) error
}

// command returns the subcommand, with the flags that all commands about rows have.
func (r rows) command() subcommand {
	return subcommand{name: r.name, takes: r.takes, about: r.about, setup: func(flags *flag.FlagSet, c *call) job {
		address := urlFlag(flags)
		flags.BoolVar(&c.asJSON, "json", false, "print JSON")
		if r.secrets {
			c.keysFlag(flags)
		}
		do := r.setup(flags, c)
		return func(ctx context.Context) error {
			if *address != "" {
				far, err := c.remote(*address)
				if err != nil {
					return err
				}
				return do(ctx, target{far: far})
			}
			run := func(service *svc.Service) error {
				return do(ctx, target{local: service, by: operator()})
			}
			if r.secrets {
				return c.withSecrets(ctx, run)
			}
			return c.withAccess(ctx, c.openDatabase, run)
		}
	}}
}

// show prints rows: as a table for people, or as a JSON array.
func show[R, J any](
	c *call, all iter.Seq2[R, error], head string, cells func(J) []any, form func(R) J,
) error {
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
		fmt.Fprintln(table, joined(cells(row)))
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
		_, err = fmt.Fprintln(c.stdout, string(text))
	}
	return err
}

func joined(cells []any) string {
	words := make([]string, len(cells))
	for i, cell := range cells {
		switch cell := cell.(type) {
		case *string:
			if words[i] = "-"; cell != nil {
				words[i] = *cell
			}
		default:
			words[i] = fmt.Sprint(cell)
		}
	}
	return strings.Join(words, "\t")
}

// done says what was done.
func (c *call) done(format string, args ...any) error {
	if c.asJSON {
		return nil
	}
	_, err := fmt.Fprintf(c.stdout, format+"\n", args...)
	return err
}

// given reports whether a flag was set.
func (c *call) given(name string) bool { return c.flagged[name] }

// text returns the value of a flag; nil: it was not set.
func (c *call) text(name string, value *string) *string {
	if !c.given(name) {
		return nil
	}
	return value
}

// nullable returns the value of a flag as a patch: "" clears; nil: it was not set.
func (c *call) nullable(name string, value *string) *svc.TextPatch {
	switch {
	case !c.given(name):
		return nil
	case *value == "":
		return &svc.TextPatch{}
	}
	return &svc.TextPatch{Value: value}
}

// inactive returns what -active says; nil: it was not set.
func (c *call) inactive(active *bool) *bool {
	if !c.given("active") {
		return nil
	}
	return new(!*active)
}

// silent ends the program with an exit code and no further word.
type silent int

func (s silent) Error() string { return fmt.Sprintf("exit %d", int(s)) }

// first returns the first row for which is holds.
func first[R any](all iter.Seq2[R, error], is func(R) bool) (row R, found bool, err error) {
	for row, err := range all {
		if err != nil || is(row) {
			return row, err == nil, err
		}
	}
	return row, false, nil
}

// sequence yields the values of a slice.
func sequence[R any](all []R, err error) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		if err != nil {
			var none R
			yield(none, err)
			return
		}
		for row := range slices.Values(all) {
			if !yield(row, nil) {
				return
			}
		}
	}
}
