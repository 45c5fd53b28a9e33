package main

import (
	"context"
	"fmt"
	"os"

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

// withTarget calls do with the server at an address, or with the database for the address "".
func (c *call) withTarget(
	ctx context.Context, address string, open opener, do func(target) error,
) error {
	if address != "" {
		far, err := c.remote(address)
		if err != nil {
			return err
		}
		return do(target{far: far})
	}
	return c.withAccess(ctx, open, func(service *svc.Service) error {
		return do(target{local: service, by: operator()})
	})
}

// done says what was done, unless err is set, which it returns.
func (c *call) done(err error, format string, args ...any) error {
	if err != nil || c.asJSON {
		return err
	}
	return printLine(c.stdout, format, args...)
}

// text returns the value of a flag; nil: it was not set.
func (c *call) text(name string, value *string) *string {
	if !c.flagged[name] {
		return nil
	}
	return value
}

// nullable returns the value of a flag as a patch: "" clears; nil: it was not set.
func (c *call) nullable(name string, value *string) *svc.TextPatch {
	switch {
	case !c.flagged[name]:
		return nil
	case *value == "":
		return &svc.TextPatch{}
	}
	return &svc.TextPatch{Value: value}
}

// inactive returns what -active says; nil: it was not set.
func (c *call) inactive(active *bool) *bool {
	if !c.flagged["active"] {
		return nil
	}
	return new(!*active)
}

// silent ends the program with an exit code and no further word.
type silent int

func (s silent) Error() string { return fmt.Sprintf("exit %d", int(s)) }
