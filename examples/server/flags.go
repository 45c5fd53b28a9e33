package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

const usage = `Usage:

  server [flags]                                   serve
  server key [flags] -user ID|-service-account ID  print a new API key, also while the server runs
  server migrate -print [-db FILE|URL]             print the SQL that the database lacks, for a tool of your own;
                                                   otherwise the server makes and upgrades the tables when
                                                   it starts

Flags of all:

  -db FILE|URL          the SQLite file (default svc.db), or a PostgreSQL database like
                        postgres://user@host:5432/database; its password is better left to PGPASSWORD
                        or ~/.pgpass: everybody on a machine may see its command lines

Flags of the server and of key:

  -keys FILE            the secrets that API keys and the tokens of sources are protected with, made at
                        the first start (default: the -db file, and .keys; svc.keys with PostgreSQL).
                        Servers that share a database need the same file

Flags of the server:

  -addr HOST:PORT       where to listen (default 127.0.0.1:8080); port 0 takes a free one
  -bundle FILE          an access bundle, applied at every start; without one, a database to which
                        nothing was ever written gets a demo
  -allow-source ORIGIN  a source to fetch from although it is plain http or no public address, such as
                        http://127.0.0.1:9999; may be repeated

Flags of key:

  -user ID              for this user, who must have a row
  -service-account ID   for this service account

Flags of migrate:

  -print                print, and change nothing
  -all                  print what an empty database lacks, and open none

The first start prints a key of the user admin, once, and what to try with it. When the key is lost, or that start
was broken off before it was printed, the command key makes another.
`

// usageError is a mistake on the command line.
type usageError string

func (e usageError) Error() string { return string(e) }

// options are what the command line says.
type options struct {
	db, keys string

	printMigrations bool // all that the command migrate does
	allMigrations   bool // whatever the database has

	addr, bundle string
	allowSources []string

	issueFor svc.Identity // of the command key; zero: serve
}

// parse reads the command line. Errors are usageErrors, and flag.ErrHelp.
func parse(args []string) (options, error) {
	if len(args) > 0 {
		switch args[0] {
		case "key":
			return parseKey(args[1:])
		case "migrate":
			return parseMigrate(args[1:])
		}
	}
	var o options
	err := o.complete(serveFlags(&o), args)
	return o, err
}

func serveFlags(o *options) *flag.FlagSet {
	flags := newFlags(o)
	flags.StringVar(&o.keys, "keys", "", "")
	flags.StringVar(&o.addr, "addr", "127.0.0.1:8080", "")
	flags.StringVar(&o.bundle, "bundle", "", "")
	flags.Func("allow-source", "", func(origin string) error {
		if _, err := marketplace.New(marketplace.Config{AllowOrigins: []string{origin}}); err != nil {
			return errors.New("it must be a scheme, host and port like http://127.0.0.1:9999")
		}
		o.allowSources = append(o.allowSources, origin)
		return nil
	})
	return flags
}

func parseKey(args []string) (options, error) {
	var (
		o             options
		user, account string
	)
	if err := o.complete(keyFlags(&o, &user, &account), args); err != nil {
		return o, err
	}
	switch {
	case (user == "") == (account == ""):
		return o, usageError("key needs exactly one of -user ID and -service-account ID")
	case user != "":
		o.issueFor = svc.Identity{Kind: svc.KindUser, ID: user}
	default:
		o.issueFor = svc.Identity{Kind: svc.KindServiceAccount, ID: account}
	}
	return o, nil
}

func parseMigrate(args []string) (options, error) {
	var o options
	if err := o.complete(migrateFlags(&o), args); err != nil {
		return o, err
	}
	if !o.printMigrations {
		return o, usageError("migrate needs -print: it is the server that makes the tables, when it starts")
	}
	return o, nil
}

func migrateFlags(o *options) *flag.FlagSet {
	flags := newFlags(o)
	flags.BoolVar(&o.printMigrations, "print", false, "")
	flags.BoolVar(&o.allMigrations, "all", false, "")
	return flags
}

func keyFlags(o *options, user, account *string) *flag.FlagSet {
	flags := newFlags(o)
	flags.StringVar(&o.keys, "keys", "", "")
	flags.StringVar(user, "user", "", "")
	flags.StringVar(account, "service-account", "", "")
	return flags
}

func newFlags(o *options) *flag.FlagSet {
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.db, "db", "svc.db", "")
	return flags
}

// complete parses args, checks what all commands share and fills in what depends on it.
func (o *options) complete(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return usageError(err.Error())
	}
	if flags.NArg() > 0 {
		return usageError(fmt.Sprintf("do not know what to do with %q", flags.Arg(0)))
	}
	switch {
	case o.db == "":
		return usageError("-db must name a file or a database")
	case strings.Contains(o.db, "://") && !isPostgres(o.db):
		return usageError("-db must be the path of a SQLite file, or an address that starts with postgres://")
	}
	if o.keys == "" {
		o.keys = o.usualKeys()
	}
	return nil
}

// usualKeys is the keys file when none is named: beside the database, where that is a file.
func (o *options) usualKeys() string {
	if isPostgres(o.db) {
		return "svc.keys"
	}
	return o.db + ".keys"
}
