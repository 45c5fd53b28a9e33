package client

import (
	"context"
	"iter"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// APIKeys lists a user's keys that are not revoked, newest first. It reads row by row, as
// [Client.Templates] does. Errors: CodeInvalid, CodeForbidden, CodeNotFound.
//
// The interface does not show all fields of a key. So Hash, Pepper, Seal and RevokedAt are zero in
// every key that the Client returns. In keys from methods with My, the Holder is zero as well.
func (c *Client) APIKeys(ctx context.Context, user string) iter.Seq2[svc.APIKey, error] {
	r := at("GET /users/{user_id}/api-keys", user).where("view", "full")
	return list(ctx, c, r, "", keyOf(holder(user)))
}

// MyAPIKeys lists the caller's keys that are not revoked, newest first. It reads row by row, as
// [Client.Templates] does. Errors: CodeForbidden.
func (c *Client) MyAPIKeys(ctx context.Context) iter.Seq2[svc.APIKey, error] {
	return list(ctx, c, at("GET /me/api-keys").where("view", "full"), "", keyOf(svc.Identity{}))
}

// IssueAPIKey issues a key for a user. Errors: CodeInvalid, CodeForbidden, CodeNotFound,
// CodeKeyReused.
func (c *Client) IssueAPIKey(
	ctx context.Context, user string, in svc.NewAPIKey,
) (svc.IssuedKey, error) {
	r := at("POST /users/{user_id}/api-keys", user).where("view", "full")
	return call(ctx, c, r.with(newKey(in)).repeatable(in.IdempotencyKey), issuedTo(holder(user)))
}

// IssueMyAPIKey issues a key for the caller. Errors: CodeInvalid, CodeForbidden, CodeKeyReused.
func (c *Client) IssueMyAPIKey(ctx context.Context, in svc.NewAPIKey) (svc.IssuedKey, error) {
	r := at("POST /me/api-keys").where("view", "full").with(newKey(in))
	return call(ctx, c, r.repeatable(in.IdempotencyKey), issuedTo(svc.Identity{}))
}

// PatchAPIKey changes some fields of a user's key. Errors: CodeInvalid, CodeForbidden, CodeNotFound
// (also for a key of another holder), CodeChanged.
func (c *Client) PatchAPIKey(
	ctx context.Context, user, id string, patch svc.APIKeyPatch,
) (svc.APIKey, error) {
	r := at("PATCH /users/{user_id}/api-keys/{key_id}", user, id)
	return call(ctx, c, r.with(keyPatch(patch)), keyOf(holder(user)))
}

// PatchMyAPIKey changes some fields of a key of the caller. Errors: CodeInvalid, CodeForbidden,
// CodeNotFound, CodeChanged.
func (c *Client) PatchMyAPIKey(
	ctx context.Context, id string, patch svc.APIKeyPatch,
) (svc.APIKey, error) {
	r := at("PATCH /me/api-keys/{key_id}", id).with(keyPatch(patch))
	return call(ctx, c, r, keyOf(svc.Identity{}))
}

// RotateAPIKey issues the successor of a user's key. The server accepts the old key for overlap
// more: whole seconds, 0 to [svc.MaxKeyOverlap]. Errors: CodeInvalid, CodeForbidden, CodeNotFound
// (also for a key of another holder).
func (c *Client) RotateAPIKey(
	ctx context.Context, user, id string, overlap time.Duration,
) (svc.IssuedKey, error) {
	r := at("POST /users/{user_id}/api-keys/{key_id}/rotate", user, id)
	return c.rotate(ctx, r, overlap, holder(user))
}

// RotateMyAPIKey issues the successor of a key of the caller, as RotateAPIKey does. Errors:
// CodeInvalid, CodeForbidden, CodeNotFound.
func (c *Client) RotateMyAPIKey(
	ctx context.Context, id string, overlap time.Duration,
) (svc.IssuedKey, error) {
	return c.rotate(ctx, at("POST /me/api-keys/{key_id}/rotate", id), overlap, svc.Identity{})
}

// RevokeAPIKey revokes a user's key. After it returns, the server no longer accepts the key.
// Errors: CodeInvalid, CodeForbidden, CodeNotFound (also for a key of another holder).
func (c *Client) RevokeAPIKey(ctx context.Context, user, id string) error {
	return c.do(ctx, at("DELETE /users/{user_id}/api-keys/{key_id}", user, id))
}

// RevokeMyAPIKey revokes a key of the caller. Errors: CodeInvalid, CodeForbidden, CodeNotFound
// (also for a key of another holder).
func (c *Client) RevokeMyAPIKey(ctx context.Context, id string) error {
	return c.do(ctx, at("DELETE /me/api-keys/{key_id}", id))
}

// RevokeAPIKeys revokes all keys of a user. A user without keys is no error. Errors: CodeInvalid,
// CodeForbidden, CodeNotFound.
func (c *Client) RevokeAPIKeys(ctx context.Context, user string) error {
	return c.do(ctx, at("DELETE /users/{user_id}/api-keys", user))
}

// RevokeMyAPIKeys revokes all keys of the caller, including the key that authenticates the call.
// Errors: CodeForbidden.
func (c *Client) RevokeMyAPIKeys(ctx context.Context) error {
	return c.do(ctx, at("DELETE /me/api-keys"))
}

func (c *Client) rotate(
	ctx context.Context, r request, overlap time.Duration, holder svc.Identity,
) (svc.IssuedKey, error) {
	if overlap%time.Second != 0 {
		return svc.IssuedKey{}, invalid("/overlap_seconds", "must be whole seconds")
	}
	seconds := int64(overlap / time.Second)
	r = r.where("view", "full").with(wire.RotateAPIKey{OverlapSeconds: &seconds})
	return call(ctx, c, r, issuedTo(holder))
}

func holder(user string) svc.Identity { return svc.Identity{Kind: svc.KindUser, ID: user} }

func newKey(in svc.NewAPIKey) wire.CreateAPIKey {
	body := wire.CreateAPIKey{Description: in.Description}
	if !in.ExpiresAt.IsZero() {
		at := instant(in.ExpiresAt)
		body.ExpiresAt = &at
	}
	if in.ScopingPolicyID != "" {
		body.ScopingPolicyID = &in.ScopingPolicyID
	}
	return body
}

func keyPatch(patch svc.APIKeyPatch) wire.PatchAPIKey {
	body := wire.PatchAPIKey{
		Description: optionalText(patch.Description), Disabled: optional(patch.Disabled),
	}
	if at := patch.ExpiresAt; at != nil {
		e := &body.ExpiresAt
		e.Set, e.Null, e.Value = true, at.IsZero(), instant(*at)
	}
	return body
}

// instant formats a time by RFC 3339 in full precision.
func instant(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// keyOf returns the reader of a holder's key.
func keyOf(holder svc.Identity) func(wire.FullAPIKey) svc.APIKey {
	return func(in wire.FullAPIKey) svc.APIKey {
		return svc.APIKey{
			ID: in.ID, Holder: holder, Prefix: in.APIKeyPrefix, Description: in.Description,
			CreatedAt: in.CreatedAt, ExpiresAt: orZero(in.ExpiresAt), Disabled: in.Disabled,
			LastUsedAt: orZero(in.LastUsedAt), ScopingPolicyID: orEmpty(in.ScopingPolicyID),
		}
	}
}

// issuedTo returns the reader of a holder's new key.
func issuedTo(holder svc.Identity) func(wire.FullCreatedAPIKey) svc.IssuedKey {
	return func(in wire.FullCreatedAPIKey) svc.IssuedKey {
		return svc.IssuedKey{APIKey: keyOf(holder)(in.FullAPIKey), Key: svc.Secret(in.APIKey)}
	}
}
