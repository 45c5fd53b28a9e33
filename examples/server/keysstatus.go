package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/extsvc/svc"
)

var keysStatusCommand = subcommand{
	name: "keys status",
	about: "print how many keys and tokens of sources are under which secrets of the keys file," +
		" and which keys still have to be used before old secrets can go",
	setup: func(flags *flag.FlagSet, c *call) job {
		c.keysFlag(flags)
		limit := flags.Int("limit", 20,
			"print at most `N` keys that are under old secrets; 0 prints all")
		return func(ctx context.Context) error {
			return c.withKeys(ctx, c.readDatabase, func(h *host) error {
				use, err := c.uses(ctx, h, *limit)
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
	rows  []usageRow
	moves keyList // keys under old secrets, which move when they are used
	stuck keyList // those under old secrets that cannot be used
	lost  int     // tokens that no sealing key opens
}

// usageRow says what is under one version.
type usageRow struct {
	version, state string
	keys, tokens   int
	stuck          int // the keys that cannot be used
}

// keyList is a number of keys, and the lines of some of them.
type keyList struct {
	n     int
	lines []string
}

// add adds a key. It keeps at most limit lines; 0: all.
func (l *keyList) add(key svc.APIKey, remark string, limit int) {
	if l.n++; limit == 0 || l.n <= limit {
		l.lines = append(l.lines, fmt.Sprintf("%s %s %s, %s",
			key.Holder.Kind, key.Holder.ID, key.Prefix, remark))
	}
}

func (l keyList) print(out io.Writer, title string) {
	if l.n == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s:\n", title)
	for _, line := range l.lines {
		fmt.Fprintln(out, line)
	}
	if more := l.n - len(l.lines); more > 0 {
		fmt.Fprintf(out, "and %d more: see -limit\n", more)
	}
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

// uses reads what is under which secrets. Of each list it keeps at most limit keys; 0: all.
func (c *call) uses(ctx context.Context, h *host, limit int) (usage, error) {
	var u usage
	for i, p := range h.secrets.accepted() {
		state := "old"
		if i == 0 {
			state = "current"
		} else if i >= len(h.secrets.Pairs) {
			state = "next"
		}
		u.rows = append(u.rows, usageRow{version: p.Version, state: state})
	}
	for _, version := range h.secrets.Retired {
		u.rows = append(u.rows, usageRow{version: version, state: "retired"})
	}
	tokens, err := h.service.Sources.Sealed(ctx, svc.Host)
	if err != nil {
		return usage{}, err
	}
	u.lost = tokens.Lost
	for i, n := range tokens.Under {
		u.rows[i].tokens = n
	}
	for key, err := range h.service.Keys.List(ctx, svc.Host, svc.AllHolders, svc.KeyQuery{}) {
		if err != nil {
			return usage{}, err
		}
		u.add(key, c.unusable(key), limit)
	}
	return u, nil
}

func (u *usage) add(key svc.APIKey, unusable string, limit int) {
	row := u.row(key.Pepper)
	if row.keys++; row.state != "old" {
		return
	}
	if unusable == "" {
		u.moves.add(key, used(key), limit)
		return
	}
	row.stuck++
	u.stuck.add(key, unusable, limit)
}

// unusable says why a key is not accepted, and what to do; "": it is, as far as its row says.
func (c *call) unusable(key svc.APIKey) string {
	prefix := strings.TrimSuffix(key.Prefix, key.ID)
	switch at := key.ExpiresAt; {
	case !at.IsZero() && !at.After(time.Now()):
		return "expired " + minute(at) + ": revoke it, or prolong and use it"
	case key.Disabled:
		return "disabled: revoke it, or enable and use it"
	case !slices.Contains(c.APIKeys.prefixes(), prefix):
		return "its prefix is not accepted: revoke it, or add " + prefix +
			" to the earlier prefixes"
	}
	return ""
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
	u.moves.print(out, "These keys move to the current secrets when they are used")
	u.stuck.print(out, "These keys are not accepted, so they do not move")
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
		return "never used"
	}
	return "last used " + minute(key.LastUsedAt)
}

func minute(at time.Time) string { return at.UTC().Format("2006-01-02 15:04Z") }
