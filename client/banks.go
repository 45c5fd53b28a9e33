package client

import (
	"context"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// atBank returns a request for the policy of a bank. A bank with a slash or a percent sign, or of
// dots, is in the query: proxies between here and the server may unescape or clean a path.
func atBank(method, bank string) request {
	if strings.ContainsAny(bank, `/\%`) || bank == "." || bank == ".." {
		return at(method+" /banks/policy").where("bank", bank)
	}
	return at(method+" /banks/{bank_id}/policy", bank)
}

// Policy returns the policy of a bank. Errors: CodeInvalid, CodeForbidden, CodeNotFound.
func (c *Banks) Policy(ctx context.Context, bank string) (svc.BankPolicy, error) {
	return call(ctx, c.conn, atBank("GET", bank), policyOfBank)
}

// SetPolicy gives a bank a policy, or replaces the one that it has, and returns it. With ifMatch,
// the bank must have a policy with one of these ETags. Errors: CodeInvalid, CodeForbidden,
// CodePrecondition.
func (c *Banks) SetPolicy(
	ctx context.Context, in svc.BankPolicy, ifMatch ...string,
) (svc.BankPolicy, error) {
	r := atBank("PUT", in.BankID).match(ifMatch)
	return call(ctx, c.conn, r.with(wire.PutPolicyOfBank{Document: in.Document}), policyOfBank)
}

// RemovePolicy removes the policy of a bank. With ifMatch, it removes the policy only if it has one
// of these ETags. Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodePrecondition.
func (c *Banks) RemovePolicy(ctx context.Context, bank string, ifMatch ...string) error {
	return c.do(ctx, atBank("DELETE", bank).match(ifMatch))
}

// Create makes a bank from a template. It ignores the Manifest. Errors: CodeNotFound (the server
// makes no banks, or there is no such template), CodeInvalid, CodeForbidden, CodeExists, and others
// of the host.
func (c *Banks) Create(ctx context.Context, in svc.NewBank) (svc.CreatedBank, error) {
	r := at("POST /banks").with(wire.CreateBank{
		BankID: in.ID, Template: in.Template, Name: orAbsent(in.Name),
	})
	return call(ctx, c.conn, r, func(in wire.CreatedBank) svc.CreatedBank {
		return svc.CreatedBank{Created: in.BankCreated, ImportResult: in.ImportResult}
	})
}

func policyOfBank(in wire.PolicyOfBank) svc.BankPolicy {
	return svc.BankPolicy{BankID: in.BankID, Document: in.Document}
}
