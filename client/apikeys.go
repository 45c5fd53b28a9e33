package client

import (
	"context"
	"iter"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// APIKeys lists a user's keys that are not revoked, newest first; it is a list as that of Templates. Errors: CodeInvalid,
// CodeForbidden, CodeNotFound.
//
// Of every key, here and elsewhere, Hash, Pepper, Seal and RevokedAt are zero: the interface does not tell them, nor whose the caller's
// own keys are: the Holder of what the methods with My return is zero, too.
func (c *Client) APIKeys(ctx context.Context, user string) iter.Seq2[svc.APIKey, error] {
	return list(ctx, c, at("GET /users/{user_id}/api-keys", user).where("view", "full"), "", keyOf(holder(user)))
}

// MyAPIKeys lists the caller's keys that are not revoked, newest first; it is a list as that of Templates. Errors: CodeForbidden.
func (c *Client) MyAPIKeys(ctx context.Context) iter.Seq2[svc.APIKey, error] {
	return list(ctx, c, at("GET /me/api-keys").where("view", "full"), "", keyOf(svc.Identity{}))
}

// IssueAPIKey issues a key for a user. Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodeKeyReused.
func (c *Client) IssueAPIKey(ctx context.Context, user string, in svc.NewAPIKey) (svc.IssuedKey, error) {
	r := at("POST /users/{user_id}/api-keys", user).where("view", "full").with(newKey(in)).repeatable(in.IdempotencyKey)
	return call(ctx, c, r, issuedTo(holder(user)))
}

// IssueMyAPIKey issues a key for the caller. Errors: CodeInvalid, CodeForbidden, CodeKeyReused.
func (c *Client) IssueMyAPIKey(ctx context.Context, in svc.NewAPIKey) (svc.IssuedKey, error) {
	return call(ctx, c, at("POST /me/api-keys").where("view", "full").with(newKey(in)).repeatable(in.IdempotencyKey), issuedTo(svc.Identity{}))
}

// PatchAPIKey changes some fields of a user's key. Errors: CodeInvalid, CodeForbidden, CodeNotFound (another's key, too), CodeChanged.
func (c *Client) PatchAPIKey(ctx context.Context, user, id string, patch svc.APIKeyPatch) (svc.APIKey, error) {
	return call(ctx, c, at("PATCH /users/{user_id}/api-keys/{key_id}", user, id).with(keyPatch(patch)), keyOf(holder(user)))
}

// PatchMyAPIKey changes some fields of a key of the caller. Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodeChanged.
func (c *Client) PatchMyAPIKey(ctx context.Context, id string, patch svc.APIKeyPatch) (svc.APIKey, error) {
	return call(ctx, c, at("PATCH /me/api-keys/{key_id}", id).with(keyPatch(patch)), keyOf(svc.Identity{}))
}

// RotateAPIKey issues a successor to a user's key, which is accepted for overlap more: whole seconds, 0 to [svc.MaxKeyOverlap]. Errors:
// CodeInvalid, CodeForbidden, CodeNotFound (another's key, too).
func (c *Client) RotateAPIKey(ctx context.Context, user, id string, overlap time.Duration) (svc.IssuedKey, error) {
	return c.rotate(ctx, at("POST /users/{user_id}/api-keys/{key_id}/rotate", user, id), overlap, holder(user))
}

// RotateMyAPIKey issues a successor to a key of the caller: see RotateAPIKey. Errors: CodeInvalid, CodeForbidden, CodeNotFound.
func (c *Client) RotateMyAPIKey(ctx context.Context, id string, overlap time.Duration) (svc.IssuedKey, error) {
	return c.rotate(ctx, at("POST /me/api-keys/{key_id}/rotate", id), overlap, svc.Identity{})
}

// RevokeAPIKey revokes a user's key: nothing accepts it after this returns. Errors: CodeInvalid, CodeForbidden, CodeNotFound (another's
// key, too).
func (c *Client) RevokeAPIKey(ctx context.Context, user, id string) error {
	return c.do(ctx, at("DELETE /users/{user_id}/api-keys/{key_id}", user, id))
}

// RevokeMyAPIKey revokes a key of the caller. Errors: CodeInvalid, CodeForbidden, CodeNotFound (another's key, too).
func (c *Client) RevokeMyAPIKey(ctx context.Context, id string) error {
	return c.do(ctx, at("DELETE /me/api-keys/{key_id}", id))
}

// RevokeAPIKeys revokes all keys of a user; that there is none is no error. Errors: CodeInvalid, CodeForbidden, CodeNotFound.
func (c *Client) RevokeAPIKeys(ctx context.Context, user string) error {
	return c.do(ctx, at("DELETE /users/{user_id}/api-keys", user))
}

// RevokeMyAPIKeys revokes all keys of the caller, the one that it calls with included. Errors: CodeForbidden.
func (c *Client) RevokeMyAPIKeys(ctx context.Context) error {
	return c.do(ctx, at("DELETE /me/api-keys"))
}

func (c *Client) rotate(ctx context.Context, r request, overlap time.Duration, holder svc.Identity) (svc.IssuedKey, error) {
	if overlap%time.Second != 0 {
		return svc.IssuedKey{}, invalid("/overlap_seconds", "must be whole seconds")
	}
	seconds := int64(overlap / time.Second)
	return call(ctx, c, r.where("view", "full").with(wire.RotateAPIKey{OverlapSeconds: &seconds}), issuedTo(holder))
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
	body := wire.PatchAPIKey{Description: optionalText(patch.Description), Disabled: optional(patch.Disabled)}
	if at := patch.ExpiresAt; at != nil {
		body.ExpiresAt.Set, body.ExpiresAt.Null, body.ExpiresAt.Value = true, at.IsZero(), instant(*at)
	}
	return body
}

// instant is a time as RFC 3339 writes it, as exactly as it is known.
func instant(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// keyOf reads a holder's key.
func keyOf(holder svc.Identity) func(wire.FullAPIKey) svc.APIKey {
	return func(in wire.FullAPIKey) svc.APIKey {
		return svc.APIKey{
			ID: in.ID, Holder: holder, Prefix: in.APIKeyPrefix, Description: in.Description, CreatedAt: in.CreatedAt,
			ExpiresAt: orZero(in.ExpiresAt), Disabled: in.Disabled, LastUsedAt: orZero(in.LastUsedAt),
			ScopingPolicyID: orEmpty(in.ScopingPolicyID),
		}
	}
}

// issuedTo reads a holder's new key.
func issuedTo(holder svc.Identity) func(wire.FullCreatedAPIKey) svc.IssuedKey {
	return func(in wire.FullCreatedAPIKey) svc.IssuedKey {
		return svc.IssuedKey{APIKey: keyOf(holder)(in.FullAPIKey), Key: svc.Secret(in.APIKey)}
	}
}
