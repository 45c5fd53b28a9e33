package main

import (
	"context"
	"encoding/json"
	"flag"
	"iter"

	"github.com/extsvc/svc"
)

// The rows of policies as the API shows them.
type (
	policyRow struct {
		ID          string          `json:"id"`
		DisplayName string          `json:"display_name"`
		Document    json.RawMessage `json:"document"`
		IsBuiltin   bool            `json:"is_builtin"`
	}
	attachmentRow struct {
		PolicyID      string `json:"policy_id"`
		PrincipalType string `json:"principal_type"`
		PrincipalID   string `json:"principal_id"`
		Priority      int64  `json:"priority"`
	}
)

func ofPolicy(p svc.Policy) policyRow {
	return policyRow{p.ID, p.DisplayName, p.Document, p.Builtin()}
}

func (p policyRow) cells() []any { return []any{p.ID, p.DisplayName, p.IsBuiltin} }

func ofAttachment(a svc.Attachment) attachmentRow {
	return attachmentRow{a.PolicyID, a.Principal.Type, a.Principal.ID, a.Priority}
}

func (a attachmentRow) cells() []any {
	return []any{a.PolicyID, a.PrincipalType, a.PrincipalID, a.Priority}
}

var policyCommands = []rows{
	listing(
		"policy list", "list the access policies", "ID\tNAME\tBUILT IN", target.policies, ofPolicy,
	),
	showing("policy show", "POLICY", "show a policy", target.policy, ofPolicy),
	{
		name: "policy add", takes: "POLICY FILE", about: "add a policy with the document in FILE",
		setup: addPolicy,
	},
	{
		name: "policy set", takes: "POLICY FILE", about: "give a policy the document in FILE",
		setup: setPolicy,
	},
	removal(
		"policy remove", "POLICY", "remove a policy that nothing uses", "removed policy %s",
		target.removePolicy,
	),
	listing(
		"attachment list", "list who has which policy", "POLICY\tTO\tID\tPRIORITY",
		target.attachments, ofAttachment,
	),
	attaching("attachment add", "attach a policy", "attached %s to %s %s", target.attach),
	attaching("attachment remove", "detach a policy", "detached %s from %s %s", target.detach),
}

func addPolicy(flags *flag.FlagSet, c *call) rowsAction {
	name := nameFlag(flags)
	return func(ctx context.Context, t target) error {
		text, err := textOf(ctx, c.second)
		if err != nil {
			return err
		}
		policy := svc.Policy{ID: c.operand, DisplayName: *name, Document: text}
		_, err = t.createPolicy(ctx, policy)
		return c.done(c.inDocument(err), "added policy %s", c.operand)
	}
}

func setPolicy(flags *flag.FlagSet, c *call) rowsAction {
	name := nameFlag(flags)
	return func(ctx context.Context, t target) error {
		text, err := textOf(ctx, c.second)
		if err != nil {
			return err
		}
		patch := svc.PolicyPatch{DisplayName: c.text("display-name", name), Document: text}
		_, err = t.patchPolicy(ctx, c.operand, patch)
		return c.done(c.inDocument(err), "changed policy %s", c.operand)
	}
}

// attaching returns a command that attaches a policy to a user or group, or detaches it.
func attaching(
	name, about, done string, change func(target, context.Context, svc.Attachment) error,
) rows {
	setup := func(flags *flag.FlagSet, c *call) rowsAction {
		user := flags.String("user", "", "the `ID` of a user")
		group := flags.String("group", "", "the `ID` of a group")
		priority := flags.Int("priority", 0,
			"which `NUMBER` wins where parameters differ: the greater")
		return func(ctx context.Context, t target) error {
			if (*user == "") == (*group == "") {
				return usageError(name + " needs exactly one of -user ID and -group ID")
			}
			to := svc.GrantedTo{Type: svc.GrantedToUser, ID: *user}
			if *user == "" {
				to = svc.GrantedTo{Type: svc.GrantedToGroup, ID: *group}
			}
			a := svc.Attachment{PolicyID: c.operand, Principal: to, Priority: int64(*priority)}
			return c.done(change(t, ctx, a), done, c.operand, to.Type, to.ID)
		}
	}
	return rows{name: name, takes: "POLICY", about: about, setup: setup}
}

func (t target) policies(ctx context.Context) iter.Seq2[svc.Policy, error] {
	if t.local != nil {
		return t.local.Policies.List(ctx, t.by, svc.RowQuery{})
	}
	return t.far.Policies.List(ctx, svc.RowQuery{})
}

func (t target) policy(ctx context.Context, id string) (svc.Policy, error) {
	if t.local != nil {
		return t.local.Policies.Read(ctx, t.by, id)
	}
	return t.far.Policies.Read(ctx, id)
}

func (t target) createPolicy(ctx context.Context, policy svc.Policy) (svc.Policy, error) {
	if t.local != nil {
		return t.local.Policies.Create(ctx, t.by, policy)
	}
	return t.far.Policies.Create(ctx, policy)
}

func (t target) patchPolicy(
	ctx context.Context, id string, patch svc.PolicyPatch,
) (svc.Policy, error) {
	if t.local != nil {
		return t.local.Policies.Patch(ctx, t.by, id, patch)
	}
	return t.far.Policies.Patch(ctx, id, patch)
}

func (t target) removePolicy(ctx context.Context, id string) error {
	if t.local != nil {
		return t.local.Policies.Delete(ctx, t.by, id)
	}
	return t.far.Policies.Delete(ctx, id)
}

func (t target) attachments(ctx context.Context) iter.Seq2[svc.Attachment, error] {
	if t.local != nil {
		return t.local.Policies.Attachments(ctx, t.by, svc.AttachmentQuery{})
	}
	return t.far.Policies.Attachments(ctx, svc.AttachmentQuery{})
}

func (t target) attach(ctx context.Context, a svc.Attachment) error {
	if t.local != nil {
		return t.local.Policies.Attach(ctx, t.by, a)
	}
	return t.far.Policies.Attach(ctx, a)
}

func (t target) detach(ctx context.Context, a svc.Attachment) error {
	key := svc.AttachmentKey{PolicyID: a.PolicyID, Principal: a.Principal}
	if t.local != nil {
		return t.local.Policies.Detach(ctx, t.by, key)
	}
	return t.far.Policies.Detach(ctx, key)
}

// resolve answers a question about access.
func (t target) resolve(ctx context.Context, q svc.Question) (svc.Resolution, error) {
	if t.local != nil {
		return t.local.Policies.Resolve(ctx, t.by, q)
	}
	return t.far.Policies.Resolve(ctx, q)
}
