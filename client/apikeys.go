package client

import (
	"context"
	"iter"
	"net/url"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// atKeys returns a request below the keys of a holder: a user or a service account, the caller
// ([svc.Me]) or one of its service accounts ([svc.MyAccount]). method and rest are those of the
// route.
func atKeys(method string, holder svc.Identity, rest string, ids ...string) request {
	path := ""
	switch {
	case holder == svc.Me:
		return at(method+" /me/api-keys"+rest, ids...)
	case holder.Kind == svc.KindUser:
		path = "/users/{user_id}/api-keys"
	case holder.Kind == svc.KindServiceAccount:
		path = "/service-accounts/{sa_id}/keys"
	case holder == svc.MyAccount(holder.ID):
		path = "/me/service-accounts/{sa_id}/keys"
	default:
		return request{wrong: svc.Invalid("kind", "must be a user or a service account")}
	}
	return at(method+" "+path+rest, append([]string{holder.ID}, ids...)...)
}

// List lists the keys of a holder that are not revoked, newest first. A holder is a user, a service
// account, the caller ([svc.Me]) or one of its service accounts ([svc.MyAccount]). List reads row
// by row, as [Templates.List] does. Errors: CodeInvalid, CodeForbidden, CodeNotFound (a service
// account).
//
// [svc.AllHolders] stands for all users and service accounts. Only with it may the query have an
// ExpireBefore or an UnusedSince.
//
// The interface does not show all fields of a key. So Hash, Pepper, Seal, SuccessorID and RevokedAt
// are zero in every key that the Client returns. In keys of the caller, Holder is zero as well.
func (c *Keys) List(
	ctx context.Context, holder svc.Identity, query svc.KeyQuery,
) iter.Seq2[svc.APIKey, error] {
	after := ""
	if at := query.AfterTime; !at.IsZero() {
		after = at.UTC().Format(wire.TimeFormat)
	}
	before, since := optionalInstant(query.ExpireBefore), optionalInstant(query.UnusedSince)
	if holder == svc.AllHolders {
		r := at("GET /admin/api-keys").where("expires_before", before, "unused_since", since)
		return list(ctx, c.conn, r.part(query.Limit, after, query.AfterID), "", heldKey)
	}
	// The server refuses the last two, which only the list of all holders has.
	r := atKeys("GET", holder, "").where(
		"view", "full", "expires_before", before, "unused_since", since)
	r = r.part(query.Limit, after, query.AfterID)
	return list(ctx, c.conn, r, "", keyOf(known(holder)))
}

// Issue issues a key for a holder. Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodeLimit,
// CodeKeyReused.
func (c *Keys) Issue(
	ctx context.Context, holder svc.Identity, in svc.NewAPIKey,
) (svc.IssuedKey, error) {
	r := atKeys("POST", holder, "").where("view", "full").with(newKey(in))
	return call(ctx, c.conn, r.repeatable(in.IdempotencyKey), issuedTo(known(holder)))
}

// Patch changes some fields of a key of a holder. Errors: CodeInvalid, CodeForbidden, CodeNotFound
// (also for a key of another holder), CodeChanged.
func (c *Keys) Patch(
	ctx context.Context, holder svc.Identity, id string, patch svc.APIKeyPatch,
) (svc.APIKey, error) {
	r := atKeys("PATCH", holder, "/{key_id}", id).with(keyPatch(patch))
	return call(ctx, c.conn, r, keyOf(known(holder)))
}

// Rotate issues the successor of a key of a holder. The overlap is in whole seconds. Errors:
// CodeInvalid, CodeForbidden, CodeNotFound (also for a key of another holder), CodeExists (it has a
// successor), CodeLimit, CodeKeyReused.
func (c *Keys) Rotate(
	ctx context.Context, holder svc.Identity, id string, in svc.Rotation,
) (svc.IssuedKey, error) {
	seconds := int64(in.Overlap / time.Second)
	r := atKeys("POST", holder, "/{key_id}/rotate", id).where("view", "full")
	r = r.with(wire.RotateAPIKey{OverlapSeconds: &seconds})
	if r.wrong == nil && in.Overlap%time.Second != 0 {
		r.wrong = svc.Invalid("/overlap_seconds", "must be whole seconds")
	}
	return call(ctx, c.conn, r.repeatable(in.IdempotencyKey), issuedTo(known(holder)))
}

// Revoke revokes a key of a holder. After it returns, the server no longer accepts the key. Errors:
// CodeInvalid, CodeForbidden, CodeNotFound (also for a key of another holder).
func (c *Keys) Revoke(ctx context.Context, holder svc.Identity, id string) error {
	return c.do(ctx, atKeys("DELETE", holder, "/{key_id}", id))
}

// RevokeAll revokes all keys of a holder, including the key that authenticates the call. A holder
// without keys is no error. Errors: CodeInvalid, CodeForbidden.
func (c *Keys) RevokeAll(ctx context.Context, holder svc.Identity) error {
	return c.do(ctx, atKeys("DELETE", holder, ""))
}

// Sweep revokes all keys that have expired before a time, and returns their number. The zero time
// stands for 24 hours ago. On an error, keys may be revoked: call it again for the rest. Errors:
// CodeInvalid (a time in the future), CodeForbidden.
func (c *Keys) Sweep(ctx context.Context, expiredBefore time.Time) (int, error) {
	before := orAbsent(optionalInstant(expiredBefore))
	r := at("POST /admin/api-keys/sweep").with(wire.SweepAPIKeys{ExpiredBefore: before})
	return call(ctx, c.conn, r, func(out wire.SweptAPIKeys) int { return *out.Revoked })
}

// Introspect says whether a token is an API key that the server accepts, and whose. ExpiresAt is
// rounded down to the second. No error shows the token. Errors: CodeInvalid (no token),
// CodeForbidden. A token that is not accepted is no error.
func (c *Keys) Introspect(ctx context.Context, token string) (svc.Introspection, error) {
	r := at("POST /introspect")
	r.form = url.Values{"token": {token}}
	asking := *c.conn
	asking.hidden = token
	in, err := call(ctx, &asking, r, func(in wire.Introspection) wire.Introspection { return in })
	if err != nil {
		return svc.Introspection{}, err
	}
	return introspection(in)
}

// introspection reads an answer about a token. It refuses an unknown scope: without it, a narrowed
// key would pass for one that is not narrowed.
func introspection(in wire.Introspection) (svc.Introspection, error) {
	policyID, known := wire.PolicyOf(in.Scope)
	switch {
	case in.Active == nil || *in.Active && (in.Sub == "" || !known):
		return svc.Introspection{}, &svc.Error{
			Code:    svc.CodeInternal,
			Message: "the server's answer about the token is not in the expected form",
		}
	case !*in.Active:
		return svc.Introspection{}, nil
	}
	out := svc.Introspection{
		Active: true, Holder: svc.Identity{Kind: svc.Kind(in.Kind), ID: in.Sub},
		ScopingPolicyID: policyID,
	}
	if in.Exp != nil {
		out.ExpiresAt = time.Unix(*in.Exp, 0).UTC()
	}
	return out, nil
}

// known returns the holder of a key as the Client knows it: it does not know the caller's id.
func known(holder svc.Identity) svc.Identity {
	switch holder {
	case svc.Me:
		return svc.Identity{}
	case svc.MyAccount(holder.ID):
		return svc.Identity{Kind: svc.KindServiceAccount, ID: holder.ID}
	}
	return holder
}

func newKey(in svc.NewAPIKey) wire.CreateAPIKey {
	body := wire.CreateAPIKey{
		Description: in.Description, ExpiresAt: orAbsent(optionalInstant(in.ExpiresAt)),
		ScopingPolicyID: orAbsent(in.ScopingPolicyID),
	}
	if in.Rate != (svc.Rate{}) {
		body.Rate = new(wire.Rate(in.Rate))
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
	if rate := patch.Rate; rate != nil {
		r := &body.Rate
		r.Set, r.Null, r.Value = true, *rate == (svc.Rate{}), wire.Rate(*rate)
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
			LastUsedAt: orZero(in.LastUsedAt), ScopingPolicyID: orZero(in.ScopingPolicyID),
			Rate: svc.Rate(orZero(in.Rate)),
		}
	}
}

// heldKey reads a key with its holder.
func heldKey(in wire.HeldAPIKey) svc.APIKey {
	return keyOf(identity(in.Holder))(in.FullAPIKey)
}

// issuedTo returns the reader of a holder's new key.
func issuedTo(holder svc.Identity) func(wire.FullCreatedAPIKey) svc.IssuedKey {
	return func(in wire.FullCreatedAPIKey) svc.IssuedKey {
		return svc.IssuedKey{APIKey: keyOf(holder)(in.FullAPIKey), Key: svc.Secret(in.APIKey)}
	}
}
