package svc

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"time"
)

// seal seals a key's row under the pepper that the key is hashed under.
func (r *keyring) seal(key *APIKey) {
	p, _ := r.pepper(key.Pepper)
	key.Seal = p.seal(*key)
}

// sealed reports whether a key's row is as it was sealed. Where there is no pepper, or one that is not known, it cannot be told.
func (r *keyring) sealed(key APIKey) bool {
	p, known := r.pepper(key.Pepper)
	switch {
	case !known, p.sealKey == nil, !key.RevokedAt.IsZero():
		return true
	case len(key.Seal) == 0:
		return p.lenient
	}
	return hmac.Equal(key.Seal, p.seal(key))
}

// seal is the HMAC-SHA256 of all that says what a key is good for.
func (p pepper) seal(key APIKey) []byte {
	if p.sealKey == nil {
		return nil
	}
	mac := hmac.New(sha256.New, p.sealKey)
	for _, part := range [...]string{
		key.ID, string(key.Holder.Kind), key.Holder.ID, key.Prefix, string(key.Hash), key.ScopingPolicyID,
		micro(key.CreatedAt), micro(key.ExpiresAt), strconv.FormatBool(key.Disabled),
	} {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // so that no two rows are written alike
		mac.Write([]byte(part))
	}
	return mac.Sum(nil)
}

// micro is a time as it is kept; "" for the zero time.
func micro(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMicro(), 10)
}

// changeable says why a key's row cannot be changed and sealed again.
func (s *Service) changeable(ctx context.Context, key APIKey) error {
	if _, known := s.keys.pepper(key.Pepper); !known {
		return invalid("key_id", "names a key under a pepper that is not in use here: revoke it")
	}
	if !s.keys.sealed(key) {
		s.reportEdited(ctx, key.ID)
		return invalid("key_id", "names a key that was changed in the database: revoke it")
	}
	return nil
}

// reportEdited tells the operator of a row that this service has not written.
func (s *Service) reportEdited(ctx context.Context, id string) {
	s.config.Logger.ErrorContext(ctx, "svc: an API key is refused, because its row was changed in the database by other means than this service", "api_key", id)
}
