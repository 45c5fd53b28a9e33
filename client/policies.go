package client

import (
	"context"
	"iter"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// List lists policies by id, with the built-in ones. It reads row by row, as [Templates.List] does.
// Errors: CodeInvalid (also for a Skip, which the interface does not have), CodeForbidden.
func (c *Policies) List(ctx context.Context, query svc.RowQuery) iter.Seq2[svc.Policy, error] {
	return list(ctx, c.conn, at("GET /policies").rows(query, query.After, ""), "", policy)
}

// Read returns a policy. Errors: CodeInvalid, CodeForbidden, CodeNotFound.
func (c *Policies) Read(ctx context.Context, id string) (svc.Policy, error) {
	return call(ctx, c.conn, at("GET /policies/{policy_id}", id), policy)
}

// Create adds a policy and returns it. Errors: CodeInvalid, CodeForbidden, CodeExists (also for the
// id of a built-in policy).
func (c *Policies) Create(ctx context.Context, in svc.Policy) (svc.Policy, error) {
	return call(ctx, c.conn, at("POST /policies").with(wire.CreatePolicy{
		ID: in.ID, DisplayName: orAbsent(in.DisplayName), Document: in.Document,
	}), policy)
}

// Patch changes some fields of a policy and returns it. With ifMatch, it changes the policy only if
// it has one of these ETags. Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodePrecondition,
// CodeBuiltin, CodeLastAdministrator.
func (c *Policies) Patch(
	ctx context.Context, id string, patch svc.PolicyPatch, ifMatch ...string,
) (svc.Policy, error) {
	body := wire.PatchPolicy{DisplayName: optional(patch.DisplayName)}
	if patch.Document != nil {
		body.Document = optional(&patch.Document)
	}
	r := at("PUT /policies/{policy_id}", id).match(ifMatch).with(body)
	return call(ctx, c.conn, r, policy)
}

// Delete removes a policy that nothing uses. With ifMatch, it removes the policy only if it has one
// of these ETags. Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodePrecondition, CodeBuiltin,
// CodeInUse.
func (c *Policies) Delete(ctx context.Context, id string, ifMatch ...string) error {
	return c.do(ctx, at("DELETE /policies/{policy_id}", id).match(ifMatch))
}

// Attachments lists attachments by principal type, principal id and policy. An unknown policy or
// principal has none, which is no error. Errors: CodeInvalid, CodeForbidden.
func (c *Policies) Attachments(
	ctx context.Context, query svc.AttachmentQuery,
) iter.Seq2[svc.Attachment, error] {
	id, principal, _ := strings.Cut(query.After, "/") // as AttachmentKey.String writes it
	r := at("GET /policy-attachments").where("policy_id", query.PolicyID,
		"principal_type", query.Principal.Type, "principal_id", query.Principal.ID)
	return list(ctx, c.conn, r.rows(query.RowQuery, principal, id), "", attachment)
}

// Attach attaches a policy to a user or a group, or changes the priority of the attachment. Errors:
// CodeInvalid (also a policy or a principal that does not exist), CodeForbidden,
// CodeLastAdministrator.
func (c *Policies) Attach(ctx context.Context, in svc.Attachment) error {
	r := at("PUT /policy-attachments").with(wire.Attachment{
		PolicyID: in.PolicyID, PrincipalType: in.Principal.Type, PrincipalID: in.Principal.ID,
		Priority: in.Priority,
	})
	_, err := call(ctx, c.conn, r, attachment)
	return err
}

// Detach ends an attachment. Errors: CodeInvalid, CodeForbidden, CodeNotFound,
// CodeLastAdministrator.
func (c *Policies) Detach(ctx context.Context, key svc.AttachmentKey) error {
	const route = "DELETE /policy-attachments/{policy_id}/{principal_type}/{principal_id}"
	return c.do(ctx, at(route, key.PolicyID, key.Principal.Type, key.Principal.ID))
}

func policy(in wire.Policy) svc.Policy {
	return svc.Policy{ID: in.ID, DisplayName: in.DisplayName, Document: in.Document}
}

func attachment(in wire.Attachment) svc.Attachment {
	return svc.Attachment{
		PolicyID: in.PolicyID, Priority: in.Priority,
		Principal: svc.GrantedTo{Type: in.PrincipalType, ID: in.PrincipalID},
	}
}
