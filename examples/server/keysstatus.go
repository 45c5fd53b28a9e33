package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/extsvc/svc"
)

var keysStatusCommand = subcommand{
	name: "keys status",
	about: "print how many keys and tokens of sources are under which secrets of the keys file, and" +
		" which keys still have to be used before old secrets can go",
	setup: func(flags *flag.FlagSet, c *call) action {
		c.keysFlag(flags)
		limit := flags.Int("limit", 20,
			"print at most `N` keys that are under old secrets; 0 prints all")
		return func(ctx context.Context) error {
			return c.withKeys(ctx, func(known secrets, service *svc.Service) error {
				use, err := uses(ctx, known, service, *limit)
				if err != nil {
					return err
				}
				return c.printUsage(use)
			})
		}
	},
}

// usage says what is under the secrets.
type usage struct {
	rows []usageRow
	old  int          // keys that are not under the first secrets
	left []svc.APIKey // some of them
	lost int          // tokens that no sealing key opens
}

// usageRow says what is under one version.
type usageRow struct {
	version, state string
	keys, tokens   int
}

// row returns the row of a version. It adds one for a version that the keys file does not have: its
// keys are not accepted.
func (u *usage) row(version string) *usageRow {
	i := slices.IndexFunc(u.rows, func(r usageRow) bool { return r.version == version })
	if i < 0 {
		i = len(u.rows)
		u.rows = append(u.rows, usageRow{version: version, state: "unknown"})
	}
	return &u.rows[i]
}

// uses reads what is under which secrets. It collects at most limit keys under old ones; 0: all.
func uses(ctx context.Context, s secrets, service *svc.Service, limit int) (usage, error) {
	var u usage
	for i, p := range s.accepted() {
		state := "old"
		if i == 0 {
			state = "current"
		} else if i >= len(s.Pairs) {
			state = "next"
		}
		u.rows = append(u.rows, usageRow{version: p.Version, state: state})
	}
	for _, version := range s.Retired {
		u.rows = append(u.rows, usageRow{version: version, state: "retired"})
	}
	tokens, err := service.Sources.Sealed(ctx, svc.Host)
	if err != nil {
		return usage{}, err
	}
	u.lost = tokens.Lost
	for i, n := range tokens.Under {
		u.rows[i].tokens = n
	}
	for key, err := range service.Keys.List(ctx, svc.Host, svc.AllHolders, svc.KeyQuery{}) {
		if err != nil {
			return usage{}, err
		}
		u.add(key, limit)
	}
	return u, nil
}

func (u *usage) add(key svc.APIKey, limit int) {
	row := u.row(key.Pepper)
	if row.keys++; row.state != "old" {
		return
	}
	if u.old++; limit == 0 || u.old <= limit {
		u.left = append(u.left, key)
	}
}

func (c *call) printUsage(u usage) error {
	out := bufio.NewWriter(c.stdout)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VERSION\tSTATE\tKEYS\tTOKENS")
	for _, r := range u.rows {
		version := r.version
		if version == "" {
			version = "(no pepper)"
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\n", version, r.state, r.keys, r.tokens)
	}
	_ = table.Flush() // the error is that of out
	if u.lost > 0 {
		fmt.Fprintf(out, "\n%d tokens are under none of these sealing keys.\n", u.lost)
	}
	if u.old > 0 {
		fmt.Fprintln(out, "\nThese keys move to the current secrets when they are used:")
		for _, key := range u.left {
			fmt.Fprintf(out, "%s %s %s%s\n", key.Holder.Kind, key.Holder.ID, key.Prefix, used(key))
		}
		if more := u.old - len(u.left); more > 0 {
			fmt.Fprintf(out, "and %d more: see -limit\n", more)
		}
	}
	for _, r := range u.rows {
		if r.state == "old" && r.tokens > 0 {
			fmt.Fprintf(out, "\nTo move the tokens: server keys reseal\n")
		} else if r.state == "old" && r.keys == 0 {
			fmt.Fprintf(out, "\nNothing is under %[1]s: server keys retire %[1]s\n", r.version)
		}
	}
	return out.Flush()
}

// used says when a key was last used.
func used(key svc.APIKey) string {
	if key.LastUsedAt.IsZero() {
		return ", never used"
	}
	return ", last used " + key.LastUsedAt.Format("2006-01-02 15:04Z")
}
