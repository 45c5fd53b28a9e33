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

  server [flags]
      serve
  server key [flags] -user ID|-service-account ID
      print a new API key, also while the server runs
  server export [-db FILE|URL]
      print all rows of access as a bundle: users, groups, policies and the rest
  server apply [-db FILE|URL] [-prune] FILE
      write the bundle in FILE, or nothing of it
  server diff [-db FILE|URL] [-prune] [-json] FILE
      print who would gain and lose which action where, and write nothing
  server migrate -print [-db FILE|URL]
      print the SQL that the database lacks, for a migration tool;
      without such a tool, the server creates and upgrades the tables when it starts
  server copy -from FILE|URL -to FILE|URL
      copy all rows of one database into another one, which must be new or empty
  server backup [-db FILE|URL] [-keys FILE] FILE
      write the database and the keys file into one FILE
  server restore [-db FILE|URL] [-keys FILE] FILE
      make a database and a keys file from a backup; an existing one stays as it is

Flags of all commands but copy:

  -db FILE|URL          a SQLite file (default svc.db), or a PostgreSQL database like
                        postgres://user@host:5432/database. Put the password into PGPASSWORD or
                        ~/.pgpass: other users of the machine may see command lines

Flags of the server, key, backup and restore:

  -keys FILE            the secrets that protect API keys and the tokens of sources. The first
                        start creates the file. Default: the name of the -db file and .keys, or
                        svc.keys with PostgreSQL. Servers that share a database need the same
                        file

Flags of the server:

  -addr HOST:PORT       where to listen (default 127.0.0.1:8080); port 0 takes a free port
  -bundle FILE          an access bundle; the server applies it at every start, and prints its
                        progress if that takes over a second. Without this flag, a database that was
                        never written to gets a demo
  -allow-source ORIGIN  a source that the server may ask although it uses plain http or is not
                        public, such as http://127.0.0.1:9999. Repeat the flag for more sources

Flags of key:

  -user ID              the key is for this user, who must have a row in the database
  -service-account ID   the key is for this service account

Export, apply and diff work also while the server runs. They need no keys file. FILE may be - for
the standard input; flags come before it.

Copy and backup work also while the server uses the database: they take one state of it. Start the
server on a new database when copy or restore is done.

Flags of copy:

  -from FILE|URL        the database to read; it stays as it is
  -to FILE|URL          the database to write. It works with the keys file of the first one

Flags of apply and diff:

  -prune                remove the rows that the bundle does not name. The keys of users and service
                        accounts that go are revoked. Without this flag, they stay
  -json                 diff: print one JSON object for each line of words

Flags of migrate:

  -print                print the SQL and change nothing
  -all                  print the SQL for an empty database; do not open a database

The first start prints a key of the user admin, once, and requests to try with it. If you lose the
key, or the first start breaks off before it prints the key, use the command key to make another.
`

// usageError is a mistake on the command line.
type usageError string

func (e usageError) Error() string { return string(e) }

// options are the parsed command line.
type options struct {
	db, keys string

	printMigrations bool // the command is migrate
	allMigrations   bool // print the migrations for an empty database

	addr, bundle string
	allowSources []string

	issueFor svc.Identity // set by the command key only

	access string // the command if it is export, apply or diff; else ""
	file   string // the bundle of apply and diff; "-": the standard input; or the backup
	prune  bool
	json   bool

	move     string // the command if it is copy, backup or restore; else ""
	from, to string // the databases of copy
}

// parse parses the command line. An error is a usageError or flag.ErrHelp.
func parse(args []string) (options, error) {
	switch append(args, "")[0] {
	case "key":
		return parseKey(args[1:])
	case "migrate":
		return parseMigrate(args[1:])
	case "export", "apply", "diff":
		return parseAccess(args[0], args[1:])
	case "copy":
		return parseCopy(args[1:])
	case "backup", "restore":
		return parseBackup(args[0], args[1:])
	}
	var o options
	err := o.complete(serveFlags(&o), args, nil)
	return o, err
}

func serveFlags(o *options) *flag.FlagSet {
	flags := newFlags(o)
	flags.StringVar(&o.keys, "keys", "", "")
	flags.StringVar(&o.addr, "addr", "127.0.0.1:8080", "")
	flags.StringVar(&o.bundle, "bundle", "", "")
	flags.Func("allow-source", "", func(origin string) error {
		config := marketplace.Config{AllowOrigins: []string{origin}}
		if _, err := marketplace.New(config); err != nil {
			return errors.New("it must be a scheme, host and port like http://127.0.0.1:9999")
		}
		o.allowSources = append(o.allowSources, origin)
		return nil
	})
	return flags
}

func parseKey(args []string) (options, error) {
	var o options
	var user, account string
	if err := o.complete(keyFlags(&o, &user, &account), args, nil); err != nil {
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
	if err := o.complete(migrateFlags(&o), args, nil); err != nil {
		return o, err
	}
	if !o.printMigrations {
		return o, usageError("migrate needs -print: without a migration tool," +
			" start the server, which creates the tables")
	}
	return o, nil
}

func parseAccess(command string, args []string) (options, error) {
	o := options{access: command}
	operand := &o.file
	if command == "export" {
		operand = nil
	}
	err := o.complete(accessFlags(&o), args, operand)
	return o, err
}

func accessFlags(o *options) *flag.FlagSet {
	flags := newFlags(o)
	if o.access != "export" {
		flags.BoolVar(&o.prune, "prune", false, "")
	}
	if o.access == "diff" {
		flags.BoolVar(&o.json, "json", false, "")
	}
	return flags
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

// complete parses args, checks the flags of all commands and sets the default of -keys. operand gets
// the one argument that the command needs after its flags; nil: the command takes none.
func (o *options) complete(flags *flag.FlagSet, args []string, operand *string) error {
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return usageError(err.Error())
	}
	rest := flags.Args()
	if operand != nil {
		if len(rest) == 0 || rest[0] == "" {
			return usageError(o.missingFile())
		}
		*operand, rest = rest[0], rest[1:]
	}
	if len(rest) > 0 {
		return usageError(
			fmt.Sprintf("unexpected argument %q: remove it; flags come first", rest[0]))
	}
	if err := checkDB("-db", o.db); err != nil {
		return err
	}
	if o.keys == "" {
		o.keys = o.usualKeys()
	}
	return nil
}

// checkDB checks a flag that names a database.
func checkDB(flag, db string) error {
	switch {
	case db == "":
		return usageError(flag + " must name a file or a database")
	case strings.Contains(db, "://") && !isPostgres(db):
		return usageError(flag + " must be the path of a SQLite file," +
			" or an address that starts with postgres://")
	}
	return nil
}

func (o *options) missingFile() string {
	if o.move != "" {
		return "name the FILE of the backup"
	}
	return "name the FILE of the bundle, or - for the standard input"
}

// usualKeys returns the default of -keys. It is next to a SQLite file; with PostgreSQL it is in the
// working directory.
func (o *options) usualKeys() string {
	if isPostgres(o.db) {
		return "svc.keys"
	}
	return o.db + ".keys"
}
