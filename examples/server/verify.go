package main

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/extsvc/svc"
)

var verifyCommand = subcommand{
	name: "verify-audit",
	about: "check the chain of audit records, and print the mark of the newest one; exit with 1" +
		" and the number of the first bad record if the chain is broken",
	setup: func(flags *flag.FlagSet, c *call) job {
		var known []svc.AuditPosition
		flags.Func("mark", "a `MARK` that an earlier check printed, as NUMBER:HASH. The chain must"+
			" still have it. Repeat the flag for more", func(text string) error {
			mark, err := parseMark(text)
			known = append(known, mark)
			return err
		})
		return func(ctx context.Context) error {
			return c.withAccess(ctx, c.readDatabase, func(service *svc.Service) error {
				return c.verifyAudit(ctx, service, known)
			})
		}
	},
}

func parseMark(text string) (svc.AuditPosition, error) {
	number, digest, _ := strings.Cut(text, ":")
	n, err := strconv.ParseInt(number, 10, 64)
	hash, badHash := hex.DecodeString(digest)
	if err != nil || badHash != nil || n <= 0 || len(hash) != 32 {
		return svc.AuditPosition{}, errors.New("it must be NUMBER:HASH, as verify-audit prints it")
	}
	return svc.AuditPosition{Number: n, Hash: hash}, nil
}

func (c *call) verifyAudit(
	ctx context.Context, service *svc.Service, known []svc.AuditPosition,
) error {
	var check svc.AuditCheck
	err := c.busy("verify-audit", func() (err error) {
		check, err = service.Audit.Verify(ctx, svc.Host, known...)
		return err
	})
	switch {
	case err != nil:
		return err
	case check.Fault != nil:
		return fmt.Errorf("audit record %d %s", check.Fault.Number, check.Fault.Reason)
	case check.Newest.Number == 0:
		return c.done(nil, "There are no audit records.")
	}
	if check.Erased > 0 {
		fmt.Fprintf(c.stderr, "%d texts of the records were erased.\n", check.Erased)
	}
	return c.done(nil, "%d:%x", check.Newest.Number, check.Newest.Hash)
}
