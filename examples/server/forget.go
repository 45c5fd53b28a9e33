package main

import (
	"context"
	"flag"

	"github.com/extsvc/svc"
)

var forgetCommand = subcommand{
	name:  "forget-user",
	takes: "USER",
	about: "remove a user, as user remove does, and erase what the audit records have of the user," +
		" also of one who was removed before",
	setup: func(flags *flag.FlagSet, c *call) job {
		pseudonym := flags.String("as", "", "a meaningless `NAME` in place of the user's id in the"+
			" records; without it, ids stay")
		return func(ctx context.Context) error {
			return c.withAccess(ctx, c.openDatabase, func(service *svc.Service) error {
				return c.forgetUser(ctx, service, *pseudonym)
			})
		}
	},
}

// forgetUser erases first, so that a pseudonym that cannot be one is refused while nothing is done.
func (c *call) forgetUser(ctx context.Context, service *svc.Service, pseudonym string) error {
	by, who := operator(), svc.Identity{Kind: svc.KindUser, ID: c.operand}
	erase := func() (erased int64, err error) {
		err = c.busy("forget-user", func() (err error) {
			erased, err = service.Audit.Forget(ctx, by, who, pseudonym)
			return err
		})
		return erased, byFlags(err)
	}
	erased, err := erase()
	if err != nil {
		return err
	}
	left := service.ForgetUser(ctx, by, who.ID)
	if left == nil && pseudonym != "" { // the records of the removal have the id
		_, left = erase()
	}
	if svc.ErrorCode(left) == svc.CodeNotFound && erased > 0 {
		left = nil // the user was removed before
	}
	return c.done(left, "forgot user %s", who.ID)
}
