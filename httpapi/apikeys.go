package httpapi

import (
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/inbound"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/internal/wire"
	"github.com/extsvc/svc/limits"
)

// holder returns the holder of the keys in the path: a user or a service account, below /me the
// caller or one of its service accounts.
func (r *request) holder() svc.Identity {
	account, named := r.params["sa_id"]
	switch {
	case named && r.own():
		return svc.MyAccount(account)
	case named:
		return svc.Identity{Kind: svc.KindServiceAccount, ID: account}
	case r.own():
		return svc.Me
	}
	return svc.Identity{Kind: svc.KindUser, ID: r.params["user_id"]}
}

func (h *Handler) issueKey(w http.ResponseWriter, r *request) error {
	body, err := decode[wire.CreateAPIKey](h, w, r)
	if err != nil {
		return err
	}
	in := svc.NewAPIKey{Description: body.Description}
	if in.IdempotencyKey, err = r.idempotencyKey(); err != nil {
		return err
	}
	if body.ExpiresAt != nil {
		if in.ExpiresAt, err = instant("/expires_at", *body.ExpiresAt); err != nil {
			return err
		}
	}
	in.ScopingPolicyID, err = filled("/scoping_policy_id", body.ScopingPolicyID)
	if err != nil {
		return err
	}
	if body.Rate != nil {
		in.Rate = rateOf(*body.Rate)
	}
	issued, err := h.service.Keys.Issue(r.Context(), r.by, r.holder(), in)
	if err != nil {
		return err
	}
	return sendIssued(w, issued, r.full)
}

func (h *Handler) patchKey(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.PatchAPIKey](h, w, r)
	if err != nil {
		return err
	}
	patch := svc.APIKeyPatch{Description: textPatch(in.Description)}
	if patch.ExpiresAt, err = expiry(in.ExpiresAt); err != nil {
		return err
	}
	if err := required("/disabled", in.Disabled, &patch.Disabled); err != nil {
		return err
	}
	if rate := in.Rate; rate.Null {
		patch.Rate = &svc.Rate{}
	} else if rate.Set {
		patch.Rate = new(rateOf(rate.Value))
	}
	key, err := h.service.Keys.Patch(r.Context(), r.by, r.holder(), r.params["key_id"], patch)
	if err != nil {
		return err
	}
	return send(w, http.StatusOK, wireFullAPIKey(key))
}

// rateOf reads a rate. Package svc takes the zero Rate for none, and refuses what rateOf makes of
// an empty object.
func rateOf(in wire.Rate) svc.Rate {
	if in == (wire.Rate{}) {
		in.Burst = -1
	}
	return svc.Rate(in)
}

// rateOrNull returns nil for the zero Rate: "no limit" in package svc is null in JSON.
func rateOrNull(r svc.Rate) *wire.Rate {
	if r == (svc.Rate{}) {
		return nil
	}
	return new(wire.Rate(r))
}

// expiry reads a time of a patch. Absent is nil; null is the zero time, which clears it.
func expiry(in strictjson.Optional[string]) (*time.Time, error) {
	if !in.Set {
		return nil, nil
	}
	if in.Null {
		return &time.Time{}, nil
	}
	at, err := instant("/expires_at", in.Value)
	return &at, err
}

// instant reads an RFC 3339 time. It refuses the zero time, which means "no time" in package svc.
func instant(pointer, text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.IsZero() || !isStrict(text) {
		return time.Time{}, svc.Invalid(pointer,
			"must be an RFC 3339 time, such as 2030-12-31T23:59:59Z")
	}
	return at, nil
}

// isStrict reports whether a text that package time accepts follows RFC 3339. Package time also
// accepts hours of one digit, a comma before fractions of a second, and offsets of a day and more.
func isStrict(text string) bool {
	zone := text[len(text)-len("00:00"):]
	return text[len("2006-01-02T15")] == ':' && !strings.Contains(text, ",") &&
		(strings.HasSuffix(zone, "Z") || zone < "24" && zone[len("00:"):] < "60")
}

func (h *Handler) rotateKey(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.RotateAPIKey](h, w, r)
	if err != nil {
		return err
	}
	var rotation svc.Rotation
	if rotation.IdempotencyKey, err = r.idempotencyKey(); err != nil {
		return err
	}
	if in.OverlapSeconds != nil {
		// Clamp to the nearest invalid value: a larger one would overflow the Duration.
		most := int64(limits.KeyOverlap/time.Second) + 1
		rotation.Overlap = time.Duration(max(-1, min(*in.OverlapSeconds, most))) * time.Second
	}
	id := r.params["key_id"]
	issued, err := h.service.Keys.Rotate(r.Context(), r.by, r.holder(), id, rotation)
	if err != nil {
		return err
	}
	return sendIssued(w, issued, r.full)
}

func (h *Handler) revokeKey(w http.ResponseWriter, r *request) error {
	err := h.service.Keys.Revoke(r.Context(), r.by, r.holder(), r.params["key_id"])
	return sendNothing(w, err)
}

func (h *Handler) revokeKeys(w http.ResponseWriter, r *request) error {
	if r.ContentLength != 0 { // one key, perhaps, that the path should name
		return svc.Invalid("", "the request must have no body: it revokes all keys of the holder")
	}
	_, err := h.service.Keys.RevokeAll(r.Context(), r.by, r.holder())
	return sendNothing(w, err)
}

func (h *Handler) sweepKeys(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.SweepAPIKeys](h, w, r)
	if err != nil {
		return err
	}
	var before time.Time
	if in.ExpiredBefore != nil {
		if before, err = instant("/expired_before", *in.ExpiredBefore); err != nil {
			return err
		}
	}
	n, err := h.service.Keys.Sweep(r.Context(), r.by, before)
	return sendResult(w, n, err, func(n int) wire.SweptAPIKeys {
		return wire.SweptAPIKeys{Revoked: &n}
	})
}

// listKeys answers with a list of a holder's keys in the requested view.
func (h *Handler) listKeys(w http.ResponseWriter, r *request) error {
	if r.full {
		return sendKeys(h, w, r, r.holder(), svc.KeyQuery{}, wireFullAPIKey)
	}
	return sendKeys(h, w, r, r.holder(), svc.KeyQuery{}, wireAPIKey)
}

// sendKeys answers with a list of keys, whole or a page of it. filter says which keys, and in which
// order.
func sendKeys[A appender](
	h *Handler, w http.ResponseWriter, r *request, holder svc.Identity, filter svc.KeyQuery,
	answer func(svc.APIKey) A,
) error {
	p, err := r.page()
	if err != nil {
		return err
	}
	query, err := keyQuery(p, filter)
	if err != nil {
		return err
	}
	query.Bare = true
	form := listForm[svc.APIKey, A]{"[", "]", answer, func(k svc.APIKey) []string {
		return []string{filter.Position(k).UTC().Format(wire.TimeFormat), k.ID}
	}, filter == svc.KeyQuery{}} // the keys of a holder are listed newest first
	return sendPart(w, r, p, form, func(skip, limit int) iter.Seq2[svc.APIKey, error] {
		query.Limit = skip + limit // a query for keys skips none
		return lists.Skip(skip, h.service.Keys.List(r.Context(), r.by, holder, query))
	})
}

// keyQuery asks for the keys of a page and those after it. Its position is that of filter.
func keyQuery(p inbound.Page, filter svc.KeyQuery) (query svc.KeyQuery, err error) {
	query = filter
	if p.After == nil {
		return query, nil
	}
	at, err := time.Parse(wire.TimeFormat, p.After[0])
	if err != nil || at.IsZero() || at.Format(wire.TimeFormat) != p.After[0] {
		return query, svc.Invalid("cursor", inbound.NotACursor)
	}
	query.AfterTime, query.AfterID = at, p.After[1]
	return query, nil
}

func wireAPIKey(k svc.APIKey) wire.APIKey {
	return wire.APIKey{ID: k.ID, APIKeyPrefix: k.Prefix, Description: k.Description}
}

func wireFullAPIKey(k svc.APIKey) wire.FullAPIKey {
	return wire.FullAPIKey{
		ID: k.ID, APIKeyPrefix: k.Prefix, Description: k.Description, CreatedAt: k.CreatedAt,
		ExpiresAt: timeOrNull(k.ExpiresAt), Disabled: k.Disabled,
		LastUsedAt: timeOrNull(k.LastUsedAt), ScopingPolicyID: orNull(k.ScopingPolicyID),
		Rate: rateOrNull(k.Rate),
	}
}

func sendIssued(w http.ResponseWriter, issued svc.IssuedKey, full bool) error {
	if full {
		return send(w, http.StatusCreated, wire.FullCreatedAPIKey{
			APIKey: string(issued.Key), FullAPIKey: wireFullAPIKey(issued.APIKey),
		})
	}
	return sendJSON(w, http.StatusCreated, wire.CreatedAPIKey{
		ID: issued.ID, APIKey: string(issued.Key), Description: issued.Description,
	})
}
