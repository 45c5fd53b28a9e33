package main

import (
	"context"
	"flag"
	"iter"

	"github.com/extsvc/svc"
)

// userRow is a user as the API shows it.
type userRow struct {
	ID          string  `json:"id"`
	DisplayName string  `json:"display_name"`
	Email       *string `json:"email"`
	IsActive    bool    `json:"is_active"`
}

func ofUser(u svc.User) userRow { return userRow{u.ID, u.DisplayName, u.Email, !u.Inactive} }

func (u userRow) cells() []any { return []any{u.ID, u.DisplayName, u.Email, u.IsActive} }

var userCommands = []rows{
	listing("user list", "list the users", "ID\tNAME\tEMAIL\tACTIVE", target.users, ofUser),
	showing("user show", "USER", "show a user", target.user, ofUser),
	{name: "user add", takes: "USER", about: "add a user", setup: addUser},
	{name: "user set", takes: "USER", about: "change a user", setup: setUser},
	removal(
		"user remove", "USER", "remove a user with all that is the user's; its keys are revoked",
		"removed user %s", target.removeUser,
	),
}

func addUser(flags *flag.FlagSet, c *call) rowsAction {
	name, active := nameFlag(flags), activeFlag(flags)
	email := flags.String("email", "", "the `ADDRESS` of the user")
	return func(ctx context.Context, t target) error {
		user := svc.User{
			ID:          c.operand,
			DisplayName: *name,
			Email:       c.text("email", email),
			Inactive:    !*active,
		}
		_, err := t.createUser(ctx, user)
		return c.done(err, "added user %s", c.operand)
	}
}

func setUser(flags *flag.FlagSet, c *call) rowsAction {
	name, active := nameFlag(flags), activeFlag(flags)
	email := flags.String("email", "", "the `ADDRESS` of the user; empty for none")
	return func(ctx context.Context, t target) error {
		patch := svc.UserPatch{
			DisplayName: c.text("display-name", name),
			Email:       c.nullable("email", email),
			Inactive:    c.inactive(active),
		}
		_, err := t.patchUser(ctx, c.operand, patch)
		return c.done(err, "changed user %s", c.operand)
	}
}

func (t target) users(ctx context.Context) iter.Seq2[svc.User, error] {
	if t.local != nil {
		return t.local.Users.List(ctx, t.by, svc.UserQuery{})
	}
	return t.far.Users.List(ctx, svc.UserQuery{})
}

func (t target) user(ctx context.Context, id string) (svc.User, error) {
	if t.local != nil {
		return t.local.Users.Read(ctx, t.by, id)
	}
	return t.far.Users.Read(ctx, id)
}

func (t target) createUser(ctx context.Context, user svc.User) (svc.User, error) {
	if t.local != nil {
		return t.local.Users.Create(ctx, t.by, user)
	}
	return t.far.Users.Create(ctx, user)
}

func (t target) patchUser(ctx context.Context, id string, patch svc.UserPatch) (svc.User, error) {
	if t.local != nil {
		return t.local.Users.Patch(ctx, t.by, id, patch)
	}
	return t.far.Users.Patch(ctx, id, patch)
}

func (t target) removeUser(ctx context.Context, id string) error {
	if t.local != nil {
		return t.local.Users.Delete(ctx, t.by, id)
	}
	return t.far.Users.Delete(ctx, id)
}
