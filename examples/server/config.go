package main

import (
	"errors"
	"flag"
	"strings"

	"github.com/extsvc/svc/marketplace"
)

// config is what the program is told.
type config struct {
	DB      string
	Keys    string // "": usualKeys
	Addr    string
	Bundle  string // "": none
	Sources sourcesConfig
}

type sourcesConfig struct {
	AllowOrigins []string
}

func defaults() config { return config{DB: "svc.db", Addr: "127.0.0.1:8080"} }

// keysFlag adds the flag of commands that use the keys file.
func (c *config) keysFlag(flags *flag.FlagSet) {
	flags.StringVar(&c.Keys, "keys", c.Keys, "the `FILE` of the secrets that protect API keys and"+
		" the tokens of sources. The first start creates it. Without this flag it has the name of the"+
		" -db file and .keys, or svc.keys with PostgreSQL. Servers that share a database need the"+
		" same file")
}

func (c *config) serveFlags(flags *flag.FlagSet) {
	c.keysFlag(flags)
	flags.StringVar(&c.Addr, "addr", c.Addr,
		"where to listen, as `HOST:PORT`; port 0 takes a free port")
	flags.StringVar(&c.Bundle, "bundle", c.Bundle, "a `FILE` with an access bundle. The server"+
		" applies it at every start, and prints its progress if that takes over a second. Without"+
		" it, a database that was never written to gets a demo")
	var given []string
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

// complete checks c and sets the default of Keys.
func (c *config) complete() error {
	switch {
	case c.DB == "":
		return usageError("-db must name a file or a database")
	case strings.Contains(c.DB, "://") && !isPostgres(c.DB):
		return usageError("-db must be the path of a SQLite file," +
			" or an address that starts with postgres://")
	}
	if c.Keys == "" {
		c.Keys = c.usualKeys()
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
