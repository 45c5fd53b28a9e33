package client

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// Export returns all rows of access, as Write takes them, without the built-in policies. Errors:
// CodeForbidden.
func (c *Access) Export(ctx context.Context) (svc.Bundle, error) {
	text, err := call(ctx, c.conn, at("GET /admin/access-bundle"),
		func(in json.RawMessage) json.RawMessage { return in })
	if err != nil {
		return svc.Bundle{}, err
	}
	bundle, err := svc.ParseBundle(text)
	if err != nil {
		return svc.Bundle{}, &svc.Error{
			Code: svc.CodeInternal, Message: "the server's answer is not a bundle", Err: err,
		}
	}
	return bundle, nil
}

// Write writes a bundle in one transaction. The server limits its rows (10,000) and its bytes. With
// DryRun, Write is a Preview whose answer is dropped.
//
// Errors: CodeInvalid (also for Detach, which a server does not take), CodeForbidden, CodeExists,
// CodeInUse, CodeLastAdministrator, CodePrecondition.
func (c *Access) Write(ctx context.Context, bundle svc.Bundle, how svc.BundleWrite) error {
	if how.DryRun {
		_, err := c.Preview(ctx, bundle, how)
		return err
	}
	r, err := writing(bundle, how)
	if err != nil {
		return err
	}
	return c.do(ctx, r)
}

// Preview returns what a Write of a bundle would change in what all principals may do, and writes
// nothing. The server refuses what it would refuse to write. The caller needs the rights for the
// Write, and [action.UsersRead]. Turned has no
// IDs. Errors: those of Write.
func (c *Access) Preview(
	ctx context.Context, bundle svc.Bundle, how svc.BundleWrite,
) (svc.AccessDiff, error) {
	how.DryRun = true
	r, err := writing(bundle, how)
	if err != nil {
		return svc.AccessDiff{}, err
	}
	var etag string
	r.etag = &etag
	diff, err := call(ctx, c.conn, r, accessDiff)
	diff.Revision = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
	return diff, err
}

// writing returns the request to write a bundle.
func writing(bundle svc.Bundle, how svc.BundleWrite) (request, error) {
	text, err := bundle.JSON()
	if err != nil {
		return request{}, err
	}
	r := at("POST /admin/access-bundle").unless("detach", len(how.Detach) > 0)
	r = r.with(json.RawMessage(text))
	return r.where("dry_run", strconv.FormatBool(how.DryRun),
		"prune", strconv.FormatBool(how.Prune), "revision", how.Revision), nil
}

func accessDiff(in wire.AccessDiff) (out svc.AccessDiff) {
	out.Omitted = in.Omitted
	for _, p := range in.Principals {
		out.Principals = append(out.Principals, svc.PrincipalsDiff{
			Principals:  wire.Each(p.Principals, identity),
			Differences: wire.Each(p.Differences, difference),
		})
	}
	for _, p := range in.Public {
		out.Public = append(out.Public, svc.PublicDiff{
			Bank: p.Bank, Context: svc.Context(p.Context),
			Differences: wire.Each(p.Differences, difference),
		})
	}
	for _, s := range in.Strategies {
		out.Strategies = append(out.Strategies, svc.StrategyDiff{
			Bank: s.Bank, Context: svc.Context(s.Context), Before: s.Before, After: s.After,
		})
	}
	for _, t := range in.Turned {
		out.Turned = append(out.Turned, svc.AccessTest{
			UserID: t.UserID, ServiceAccountID: t.ServiceAccountID, Sender: t.Sender,
			Action: t.Action, Bank: t.Bank, Channel: t.Channel, Topic: t.Topic, Allowed: t.Allowed,
		})
	}
	return out
}

func difference(in wire.Difference) svc.Difference {
	return svc.Difference{
		Action: in.Action, Bank: in.Bank, Change: svc.ChangeKind(in.Change),
		Before: in.Before.Parameters, After: in.After.Parameters,
	}
}
