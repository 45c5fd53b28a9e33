package client

import (
	"context"
	"iter"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// List lists users by id, without their channels. It reads row by row, as [Templates.List] does.
// Errors: CodeInvalid (also for a Skip, which the interface does not have), CodeForbidden.
func (c *Users) List(ctx context.Context, query svc.UserQuery) iter.Seq2[svc.User, error] {
	r := at("GET /users").where("q", query.Text)
	return list(ctx, c.conn, r.rows(query.RowQuery, query.After, ""), "", user)
}

// Read returns a user without its channels. Errors: CodeInvalid, CodeForbidden, CodeNotFound.
func (c *Users) Read(ctx context.Context, id string) (svc.User, error) {
	return call(ctx, c.conn, at("GET /users/{user_id}", id), user)
}

// Create adds a user and returns it. Errors: CodeInvalid (also for Channels: see AddChannel),
// CodeForbidden, CodeExists.
func (c *Users) Create(ctx context.Context, in svc.User) (svc.User, error) {
	active := !in.Inactive
	r := at("POST /users").unless("/channels", len(in.Channels) > 0)
	return call(ctx, c.conn, r.with(wire.CreateUser{
		ID: in.ID, DisplayName: orAbsent(in.DisplayName), Email: in.Email, IsActive: &active,
	}), user)
}

// Patch changes some fields of a user and returns it. With ifMatch, it changes the user only if it
// has one of these ETags. Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodePrecondition,
// CodeLastAdministrator.
func (c *Users) Patch(
	ctx context.Context, id string, patch svc.UserPatch, ifMatch ...string,
) (svc.User, error) {
	r := at("PUT /users/{user_id}", id).match(ifMatch).with(wire.PatchUser{
		DisplayName: optional(patch.DisplayName), Email: optionalText(patch.Email),
		IsActive: wire.Not(optional(patch.Inactive)),
	})
	return call(ctx, c.conn, r, user)
}

// Delete removes a user and all that is the user's. With ifMatch, it removes the user only if it
// has one of these ETags. Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodePrecondition,
// CodeLastAdministrator.
func (c *Users) Delete(ctx context.Context, id string, ifMatch ...string) error {
	return c.do(ctx, at("DELETE /users/{user_id}", id).match(ifMatch))
}

// Channels lists the senders that are mapped to a user, by provider and sender. Errors:
// CodeInvalid, CodeForbidden, CodeNotFound.
func (c *Users) Channels(
	ctx context.Context, id string, query svc.RowQuery,
) iter.Seq2[svc.Channel, error] {
	provider, sender, _ := strings.Cut(query.After, ":")
	r := at("GET /users/{user_id}/channels", id).rows(query, provider, sender)
	return list(ctx, c.conn, r, "", channel)
}

// AddChannel maps a sender to a user. Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodeExists
// (the sender is mapped, to whichever user).
func (c *Users) AddChannel(ctx context.Context, id string, in svc.Channel) error {
	r := at("POST /users/{user_id}/channels", id).with(wire.Channel(in))
	_, err := call(ctx, c.conn, r, channel)
	return err
}

// RemoveChannel ends the mapping of a sender to a user. Errors: CodeInvalid, CodeForbidden,
// CodeNotFound (the user, or the sender is not mapped to it).
func (c *Users) RemoveChannel(ctx context.Context, id string, in svc.Channel) error {
	const route = "DELETE /users/{user_id}/channels/{provider}/{sender_id}"
	return c.do(ctx, at(route, id, in.Provider, in.SenderID))
}

// Me returns the caller, a user, with its channels. Errors: CodeForbidden (not a user).
func (c *Users) Me(ctx context.Context) (svc.User, error) {
	return call(ctx, c.conn, at("GET /me"), func(in wire.Me) svc.User {
		u := user(in.User)
		u.Channels = wire.Each(in.Channels, channel)
		return u
	})
}

func user(in wire.User) svc.User {
	return svc.User{
		ID: in.ID, DisplayName: in.DisplayName, Email: in.Email, Inactive: !in.IsActive,
	}
}

func channel(in wire.Channel) svc.Channel { return svc.Channel(in) }
