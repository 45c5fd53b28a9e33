package main

import (
	"context"
	"flag"

	"github.com/extsvc/svc"
)

var keyCommand = subcommand{
	name:  "key",
	about: "print a new API key, also while the server runs",
	setup: func(flags *flag.FlagSet, c *call) job {
		c.keysFlag(flags)
		user := flags.String("user", "",
			"the `ID` of the user that the key is for, who must have a row in the database")
		account := flags.String("service-account", "",
			"the `ID` of the service account that the key is for")
		return func(ctx context.Context) error {
			holder := svc.Identity{Kind: svc.KindUser, ID: *user}
			if (*user == "") == (*account == "") {
				return usageError("key needs exactly one of -user ID and -service-account ID")
			} else if *user == "" {
				holder = svc.Identity{Kind: svc.KindServiceAccount, ID: *account}
			}
			// A running server would not accept a key that other secrets protect.
			return c.withSecrets(ctx, func(h *host) error {
				issued, err := h.issue(ctx, byKey, holder, "made with the command key")
				if err != nil {
					return err
				}
				return c.printNew(ctx, target{local: h.service, by: byKey}, issued)
			})
		}
	},
}
