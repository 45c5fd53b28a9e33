package main

import (
	"context"
	"flag"
	"iter"

	"github.com/extsvc/svc"
)

// groupRow is a group as the API shows it.
type groupRow struct {
	ID          string   `json:"id"`
	DisplayName string   `json:"display_name"`
	Members     []string `json:"members,omitempty"`
}

func ofGroup(g svc.Group) groupRow { return groupRow{g.ID, g.DisplayName, nil} }

func (g groupRow) cells() []any { return []any{g.ID, g.DisplayName} }

var groupCommands = []rows{
	listing("group list", "list the groups", "ID\tNAME", target.groups, ofGroup),
	{
		name: "group show", takes: "GROUP", about: "show a group with its members",
		reads: true,
		setup: flagless(showGroup),
	},
	{name: "group add", takes: "GROUP", about: "add a group", setup: addGroup},
	{name: "group set", takes: "GROUP", about: "give a group another name", setup: setGroup},
	removal("group remove", "GROUP", "remove a group", "removed group %s", target.removeGroup),
	membership(
		"group add-member", "add a user to a group", "added %s to group %s", target.addMember,
	),
	membership(
		"group remove-member", "take a user out of a group", "took %s out of group %s",
		target.removeMember,
	),
}

// membership returns a command that changes whether a user is a member of a group.
func membership(
	name, about, done string, change func(t target, ctx context.Context, group, user string) error,
) rows {
	do := func(ctx context.Context, c *call, t target) error {
		err := change(t, ctx, c.operand, c.second)
		return c.done(err, done, c.second, c.operand)
	}
	return rows{name: name, takes: "GROUP USER", about: about, setup: flagless(do)}
}

func showGroup(ctx context.Context, c *call, t target) error {
	group, err := t.group(ctx, c.operand)
	if err != nil {
		return err
	}
	row := ofGroup(group)
	for member, err := range t.members(ctx, c.operand) {
		if err != nil {
			return err
		}
		row.Members = append(row.Members, member)
	}
	return showOne(c, row)
}

func addGroup(flags *flag.FlagSet, c *call) rowsAction {
	name := nameFlag(flags)
	return func(ctx context.Context, t target) error {
		group := svc.Group{ID: c.operand, DisplayName: *name}
		_, err := t.createGroup(ctx, group)
		return c.done(err, "added group %s", c.operand)
	}
}

func setGroup(flags *flag.FlagSet, c *call) rowsAction {
	name := nameFlag(flags)
	return func(ctx context.Context, t target) error {
		patch := svc.GroupPatch{DisplayName: c.text("display-name", name)}
		_, err := t.patchGroup(ctx, c.operand, patch)
		return c.done(err, "changed group %s", c.operand)
	}
}

func (t target) groups(ctx context.Context) iter.Seq2[svc.Group, error] {
	if t.local != nil {
		return t.local.Groups.List(ctx, t.by, svc.GroupQuery{})
	}
	return t.far.Groups.List(ctx, svc.GroupQuery{})
}

func (t target) group(ctx context.Context, id string) (svc.Group, error) {
	if t.local != nil {
		return t.local.Groups.Read(ctx, t.by, id)
	}
	return t.far.Groups.Read(ctx, id)
}

func (t target) members(ctx context.Context, group string) iter.Seq2[string, error] {
	if t.local != nil {
		return t.local.Groups.Members(ctx, t.by, group, svc.RowQuery{})
	}
	return t.far.Groups.Members(ctx, group, svc.RowQuery{})
}

func (t target) createGroup(ctx context.Context, group svc.Group) (svc.Group, error) {
	if t.local != nil {
		return t.local.Groups.Create(ctx, t.by, group)
	}
	return t.far.Groups.Create(ctx, group)
}

func (t target) patchGroup(ctx context.Context, id string, patch svc.GroupPatch) (svc.Group, error) {
	if t.local != nil {
		return t.local.Groups.Patch(ctx, t.by, id, patch)
	}
	return t.far.Groups.Patch(ctx, id, patch)
}

func (t target) removeGroup(ctx context.Context, id string) error {
	if t.local != nil {
		return t.local.Groups.Delete(ctx, t.by, id)
	}
	return t.far.Groups.Delete(ctx, id)
}

func (t target) addMember(ctx context.Context, group, user string) error {
	if t.local != nil {
		return t.local.Groups.AddMembers(ctx, t.by, group, user)
	}
	return t.far.Groups.AddMember(ctx, group, user)
}

func (t target) removeMember(ctx context.Context, group, user string) error {
	if t.local != nil {
		return t.local.Groups.RemoveMembers(ctx, t.by, group, user)
	}
	return t.far.Groups.RemoveMember(ctx, group, user)
}
