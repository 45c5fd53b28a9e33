package client

import (
	"context"
	"iter"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// List lists groups by id, without their members. It reads row by row, as [Templates.List] does.
// Errors: CodeInvalid (also for a Skip, which the interface does not have), CodeForbidden.
func (c *Groups) List(ctx context.Context, query svc.GroupQuery) iter.Seq2[svc.Group, error] {
	r := at("GET /groups").where("user_id", query.Member)
	return list(ctx, c.conn, r.rows(query.RowQuery, query.After, ""), "", group)
}

// Read returns a group without its members. Errors: CodeInvalid, CodeForbidden, CodeNotFound.
func (c *Groups) Read(ctx context.Context, id string) (svc.Group, error) {
	return call(ctx, c.conn, at("GET /groups/{group_id}", id), group)
}

// Create adds a group and returns it. Errors: CodeInvalid (also for Members: see AddMember),
// CodeForbidden, CodeExists.
func (c *Groups) Create(ctx context.Context, in svc.Group) (svc.Group, error) {
	r := at("POST /groups").unless("/members", len(in.Members) > 0)
	return call(ctx, c.conn, r.with(wire.CreateGroup{
		ID: in.ID, DisplayName: orAbsent(in.DisplayName),
	}), group)
}

// Patch changes the name of a group and returns the group. With ifMatch, it changes the group only
// if it has one of these ETags. Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodePrecondition.
func (c *Groups) Patch(
	ctx context.Context, id string, patch svc.GroupPatch, ifMatch ...string,
) (svc.Group, error) {
	r := at("PUT /groups/{group_id}", id).match(ifMatch)
	r = r.with(wire.Rename{DisplayName: optional(patch.DisplayName)})
	return call(ctx, c.conn, r, group)
}

// Delete removes a group, its memberships and the attachments to it. With ifMatch, it removes the
// group only if it has one of these ETags. Errors: CodeInvalid, CodeForbidden, CodeNotFound,
// CodePrecondition, CodeLastAdministrator.
func (c *Groups) Delete(ctx context.Context, id string, ifMatch ...string) error {
	return c.do(ctx, at("DELETE /groups/{group_id}", id).match(ifMatch))
}

// Members lists the user ids of a group's members. Errors: CodeInvalid, CodeForbidden,
// CodeNotFound.
func (c *Groups) Members(
	ctx context.Context, id string, query svc.RowQuery,
) iter.Seq2[string, error] {
	r := at("GET /groups/{group_id}/members", id).rows(query, query.After, "")
	return list(ctx, c.conn, r, "", func(in wire.Member) string { return in.UserID })
}

// AddMember makes a user a member of a group. A user who is a member already stays one. Errors:
// CodeInvalid (also for a user that does not exist), CodeForbidden, CodeNotFound.
func (c *Groups) AddMember(ctx context.Context, group, user string) error {
	r := at("POST /groups/{group_id}/members", group).with(wire.Member{UserID: user})
	_, err := call(ctx, c.conn, r, func(in wire.Membership) wire.Membership { return in })
	return err
}

// RemoveMember removes a member from a group. Errors: CodeInvalid, CodeForbidden, CodeNotFound (the
// group, or the user is no member), CodeLastAdministrator.
func (c *Groups) RemoveMember(ctx context.Context, group, user string) error {
	return c.do(ctx, at("DELETE /groups/{group_id}/members/{user_id}", group, user))
}

func group(in wire.Group) svc.Group { return svc.Group{ID: in.ID, DisplayName: in.DisplayName} }
