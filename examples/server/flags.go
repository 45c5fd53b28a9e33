package main

import (
	"errors"
	"flag"

	"github.com/extsvc/svc/marketplace"
)

// flagOf has the flags that set a key of the configuration.
var flagOf = map[string]string{
	"db": "db", "keys": "keys", "addr": "addr", "bundle": "bundle",
	"read_only":  "read-only",
	"backup.dir": "backup-dir", "backup.every": "backup-every", "backup.keep": "backup-keep",
	"sources.allow_origins": "allow-source",
}

// commonFlags adds the flags that every command has.
func (c *config) commonFlags(flags *flag.FlagSet) {
	flags.StringVar(&c.file, "config", c.file,
		"a `FILE` of TOML with the configuration; other flags win over it")
	flags.StringVar(&c.DB, "db", c.DB, "a `FILE` of SQLite, or the URL of a PostgreSQL database"+
		" like postgres://user@host:5432/database. Put the password into PGPASSWORD or ~/.pgpass:"+
		" other users of the machine may see command lines")
}

// keysFlag adds the flag of commands that use the keys file.
func (c *config) keysFlag(flags *flag.FlagSet) {
	flags.StringVar(&c.Keys, "keys", c.Keys, "the `FILE` of the secrets that protect API keys and"+
		" the tokens of sources. The first start creates it. Without this flag it has the name of"+
		" the -db file and .keys, or svc.keys with PostgreSQL. Servers that share a database need"+
		" the same file")
}

// addrFlag adds the flag of commands that need the address of the server.
func (c *config) addrFlag(flags *flag.FlagSet) {
	flags.StringVar(&c.Addr, "addr", c.Addr,
		"where the server listens, as `HOST:PORT`; port 0 takes a free port. unix:PATH is a socket"+
			" that only the user and the group of the server can reach")
}

// serveFlags adds the flags of the server.
func (c *config) serveFlags(flags *flag.FlagSet) {
	c.keysFlag(flags)
	c.addrFlag(flags)
	flags.StringVar(&c.Bundle, "bundle", c.Bundle, "a `FILE` with an access bundle. The server"+
		" applies it at every start, and prints its progress if that takes over a second. Without"+
		" it, a database that was never written to gets a demo")
	flags.BoolVar(&c.ReadOnly, "read-only", c.ReadOnly, "write nothing, also no bundle and no use"+
		" of a key, and answer requests to write with 403. The database must have its tables; it"+
		" may be a standby")
	flags.StringVar(&c.Backup.Dir, "backup-dir", c.Backup.Dir, "make backups in this `FOLDER`"+
		" while the server runs, as server backup does")
	flags.StringVar((*string)(&c.Backup.Every), "backup-every", string(c.Backup.Every),
		"the `TIME` from one backup to the next, such as 6h")
	flags.IntVar(&c.Backup.Keep, "backup-keep", c.Backup.Keep,
		"the `NUMBER` of backups to keep in that folder; the oldest are removed")
	var given []string // replaces the origins of the configuration file
	flags.Func("allow-source", "the `ORIGIN` of a source that the server may ask although it uses"+
		" plain http or is not public, such as http://127.0.0.1:9999. Repeat the flag for more"+
		" sources", func(origin string) error {
		given = append(given, origin)
		c.Sources.AllowOrigins = given
		return checkOrigin(origin)
	})
}

func checkOrigin(origin string) error {
	config := marketplace.Config{AllowOrigins: []string{origin}}
	if _, err := marketplace.New(config); err != nil {
		return errors.New("it must be a scheme, host and port like http://127.0.0.1:9999")
	}
	return nil
}

// usualKeys returns the default of Keys. It is next to a SQLite file; with PostgreSQL it is in the
// working directory.
func (c *config) usualKeys() string {
	if isPostgres(c.DB) {
		return "svc.keys"
	}
	return c.DB + ".keys"
}
