package main

import (
	"context"
	"flag"
	"iter"

	"github.com/extsvc/svc"
)

// accountRow is a service account as the API shows it.
type accountRow struct {
	ID              string  `json:"id"`
	OwnerUserID     string  `json:"owner_user_id"`
	DisplayName     string  `json:"display_name"`
	IsActive        bool    `json:"is_active"`
	ScopingPolicyID *string `json:"scoping_policy_id"`
}

func ofAccount(a svc.ServiceAccount) accountRow {
	return accountRow{a.ID, a.OwnerUserID, a.DisplayName, !a.Inactive, orNil(a.ScopingPolicyID)}
}

func (a accountRow) cells() []any {
	return []any{a.ID, a.DisplayName, a.OwnerUserID, a.ScopingPolicyID, a.IsActive}
}

var accountCommands = []rows{
	listing(
		"account list", "list the service accounts", "ID\tNAME\tOWNER\tLIMITED BY\tACTIVE",
		target.accounts, ofAccount,
	),
	showing("account show", "ACCOUNT", "show a service account", target.account, ofAccount),
	{name: "account add", takes: "ACCOUNT", about: "add a service account", setup: addAccount},
	{name: "account set", takes: "ACCOUNT", about: "change a service account", setup: setAccount},
	removal(
		"account remove", "ACCOUNT", "remove a service account; its keys are revoked",
		"removed service account %s", target.removeAccount,
	),
}

func addAccount(flags *flag.FlagSet, c *call) rowsAction {
	name, scoping := nameFlag(flags), scopingFlag(flags)
	owner := flags.String("owner", "", "the `ID` of the user who owns it")
	return func(ctx context.Context, t target) error {
		account := svc.ServiceAccount{
			ID:              c.operand,
			DisplayName:     *name,
			OwnerUserID:     *owner,
			ScopingPolicyID: *scoping,
		}
		_, err := t.createAccount(ctx, account)
		return c.done(err, "added service account %s", c.operand)
	}
}

func setAccount(flags *flag.FlagSet, c *call) rowsAction {
	name, scoping, active := nameFlag(flags), scopingFlag(flags), activeFlag(flags)
	return func(ctx context.Context, t target) error {
		patch := svc.ServiceAccountPatch{
			DisplayName:     c.text("display-name", name),
			ScopingPolicyID: c.nullable("scoping-policy", scoping),
			Inactive:        c.inactive(active),
		}
		_, err := t.patchAccount(ctx, c.operand, patch)
		return c.done(err, "changed service account %s", c.operand)
	}
}

func (t target) accounts(ctx context.Context) iter.Seq2[svc.ServiceAccount, error] {
	if t.local != nil {
		return t.local.ServiceAccounts.List(ctx, t.by, svc.ServiceAccountQuery{})
	}
	return t.far.ServiceAccounts.List(ctx, svc.ServiceAccountQuery{})
}

func (t target) account(ctx context.Context, id string) (svc.ServiceAccount, error) {
	if t.local != nil {
		return t.local.ServiceAccounts.Read(ctx, t.by, id)
	}
	return t.far.ServiceAccounts.Read(ctx, id)
}

func (t target) createAccount(
	ctx context.Context, account svc.ServiceAccount,
) (svc.ServiceAccount, error) {
	if t.local != nil {
		return t.local.ServiceAccounts.Create(ctx, t.by, account)
	}
	return t.far.ServiceAccounts.Create(ctx, account)
}

func (t target) patchAccount(
	ctx context.Context, id string, patch svc.ServiceAccountPatch,
) (svc.ServiceAccount, error) {
	if t.local != nil {
		return t.local.ServiceAccounts.Patch(ctx, t.by, id, patch)
	}
	return t.far.ServiceAccounts.Patch(ctx, id, patch)
}

func (t target) removeAccount(ctx context.Context, id string) error {
	if t.local != nil {
		return t.local.ServiceAccounts.Delete(ctx, t.by, id)
	}
	return t.far.ServiceAccounts.Delete(ctx, id)
}
