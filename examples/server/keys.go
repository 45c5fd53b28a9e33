package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"

	"github.com/extsvc/svc"
)

var keysRotateCommand = subcommand{
	name: "keys rotate",
	about: "put new secrets first in the keys file: those of keys prepare, or else new ones. The" +
		" secrets before stay accepted. A running server takes the file within two seconds",
	setup: func(flags *flag.FlagSet, c *call) job {
		c.keysFlag(flags)
		return func(context.Context) error {
			err := c.changeKeys(func(s *secrets) error {
				next := newPair()
				if s.Next != nil {
					next, s.Next = *s.Next, nil
				}
				s.Pairs = slices.Insert(s.Pairs, 0, next)
				return nil
			})
			return c.done(err, "A running server takes the new secrets within two seconds. Then run"+
				" server keys reseal, and see server keys status for the old secrets.")
		}
	},
}

var keysPrepareCommand = subcommand{
	name: "keys prepare",
	about: "add new secrets to the keys file, which servers accept and do not use yet. With" +
		" several servers, give the file to all before you run keys rotate",
	setup: func(flags *flag.FlagSet, c *call) job {
		c.keysFlag(flags)
		return func(context.Context) error {
			err := c.changeKeys(func(s *secrets) error {
				if s.Next != nil {
					return errors.New("new secrets are prepared already: run server keys rotate")
				}
				next := newPair()
				s.Next = &next
				return nil
			})
			return c.done(err, "Give the keys file to all servers, which take it within two"+
				" seconds. Then run server keys rotate, and give them the file again.")
		}
	},
}

var keysResealCommand = subcommand{
	name: "keys reseal",
	about: "seal the tokens of all sources under the first sealing key. Run it when all servers" +
		" use the new secrets",
	setup: func(flags *flag.FlagSet, c *call) job {
		c.keysFlag(flags)
		return func(ctx context.Context) error {
			return c.withKeys(ctx, c.openDatabase, func(h *host) error {
				n, err := h.service.Sources.Reseal(ctx, svc.Host)
				return errors.Join(c.done(nil, "Resealed %d tokens.", n), err)
			})
		}
	},
}

var keysRetireCommand = subcommand{
	name:  "keys retire",
	takes: "VERSION",
	about: "remove old secrets from the keys file, unless keys or tokens are under them",
	setup: func(flags *flag.FlagSet, c *call) job {
		c.keysFlag(flags)
		force := flags.Bool("force", false,
			"remove them anyway: the keys under them end, and the tokens under them are lost")
		return func(ctx context.Context) error { return c.retire(ctx, *force) }
	},
}

// retire removes the secrets of the version that the command line names.
func (c *call) retire(ctx context.Context, force bool) error {
	return c.withKeys(ctx, c.readDatabase, func(h *host) error {
		use, err := c.uses(ctx, h, 1)
		if err != nil {
			return err
		}
		under := use.row(c.operand)
		if !force && (under.keys > 0 || under.tokens > 0) {
			stuck := ""
			if under.stuck > 0 {
				stuck = fmt.Sprintf("; %d of the keys are not accepted and cannot move:"+
					" revoke them", under.stuck)
			}
			return fmt.Errorf("%d keys and %d tokens are under %s%s: see server keys status;"+
				" with -force they are lost", under.keys, under.tokens, c.operand, stuck)
		}
		err = c.changeKeys(func(s *secrets) error {
			i := slices.IndexFunc(s.Pairs, func(p pair) bool { return p.Version == c.operand })
			switch {
			case i < 0:
				return fmt.Errorf("the keys file has no secrets %q: see server keys status",
					c.operand)
			case i == 0:
				return errors.New("these secrets are in use: run server keys rotate first")
			}
			s.Pairs = slices.Delete(s.Pairs, i, i+1)
			s.Retired = append(s.Retired, c.operand)
			return nil
		})
		return c.done(err, "Give the keys file to all servers, which take it within two seconds."+
			" Keep the old one with the backups from before.")
	})
}

// changeKeys changes the keys file.
func (c *call) changeKeys(change func(s *secrets) error) error {
	return changeSecrets(c.Keys, c.log, change)
}

// withKeys calls do with a host that has the secrets of the keys file. It creates neither the
// database nor the file.
func (c *call) withKeys(ctx context.Context, open opener, do func(*host) error) (err error) {
	if err := exists(c.DB); err != nil {
		return err
	}
	keys, err := readSecrets(c.Keys, c.log)
	if err != nil {
		return err
	}
	h, err := openStore(ctx, open)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	if err := h.use(c.config, keys, nil, c.log); err != nil {
		return err
	}
	return do(h)
}
