package client

import (
	"context"
	"iter"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// List lists service accounts by id. It reads row by row, as [Templates.List] does. Errors:
// CodeInvalid (also for a Skip, which the interface does not have, and for an Owner in the own
// half), CodeForbidden.
func (c *ServiceAccounts) List(
	ctx context.Context, query svc.ServiceAccountQuery,
) iter.Seq2[svc.ServiceAccount, error] {
	r := c.at("GET /service-accounts").where("owner_user_id", query.Owner)
	return list(ctx, c.conn, r.rows(query.RowQuery, query.After, ""), "", serviceAccount)
}

// Read returns a service account. Errors: CodeInvalid, CodeForbidden, CodeNotFound.
func (c *ServiceAccounts) Read(ctx context.Context, id string) (svc.ServiceAccount, error) {
	return call(ctx, c.conn, c.at("GET /service-accounts/{sa_id}", id), serviceAccount)
}

// Create adds a service account and returns it. In the own half, OwnerUserID must be "". Errors:
// CodeInvalid (also for Inactive: a new account is active), CodeForbidden, CodeExists, CodeLimit.
func (c *ServiceAccounts) Create(
	ctx context.Context, in svc.ServiceAccount,
) (svc.ServiceAccount, error) {
	mine := wire.CreateMyServiceAccount{
		ID: in.ID, DisplayName: orAbsent(in.DisplayName),
		ScopingPolicyID: orAbsent(in.ScopingPolicyID),
	}
	r := c.at("POST /service-accounts").unless("/is_active", in.Inactive).with(mine)
	if c.half == all || in.OwnerUserID != "" {
		r.body = wire.CreateServiceAccount{
			ID: mine.ID, OwnerUserID: in.OwnerUserID, DisplayName: mine.DisplayName,
			ScopingPolicyID: mine.ScopingPolicyID,
		}
	}
	return call(ctx, c.conn, r, serviceAccount)
}

// Patch changes some fields of a service account and returns it. Of an own one, only DisplayName
// can be changed. With ifMatch, it changes the account only if it has one of these ETags. Errors:
// CodeInvalid, CodeForbidden, CodeNotFound, CodePrecondition.
func (c *ServiceAccounts) Patch(
	ctx context.Context, id string, patch svc.ServiceAccountPatch, ifMatch ...string,
) (svc.ServiceAccount, error) {
	r := c.at("PUT /service-accounts/{sa_id}", id).match(ifMatch).with(wire.PatchServiceAccount{
		DisplayName:     optional(patch.DisplayName),
		ScopingPolicyID: optionalText(patch.ScopingPolicyID),
		IsActive:        wire.Not(optional(patch.Inactive)),
	})
	return call(ctx, c.conn, r, serviceAccount)
}

// Delete removes a service account and revokes its keys. With ifMatch, it removes the account only
// if it has one of these ETags. Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodePrecondition.
func (c *ServiceAccounts) Delete(ctx context.Context, id string, ifMatch ...string) error {
	return c.do(ctx, c.at("DELETE /service-accounts/{sa_id}", id).match(ifMatch))
}

func serviceAccount(in wire.ServiceAccount) svc.ServiceAccount {
	return svc.ServiceAccount{
		ID: in.ID, DisplayName: in.DisplayName, OwnerUserID: in.OwnerUserID,
		ScopingPolicyID: orZero(in.ScopingPolicyID), Inactive: !in.IsActive,
	}
}
