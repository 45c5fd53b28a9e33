package svc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/extsvc/svc/internal/keyring"
	"github.com/extsvc/svc/internal/token"
)

// KeyImport describes the keys of another system: their prefix and their hash. Bearers with its
// Prefix are keys: the host's [Authenticator] never sees them.
type KeyImport struct {
	// Prefix starts every key of the other system: 1 to 32 visible ASCII characters. No prefix of
	// keys may be the start of another.
	Prefix string
	// Hash returns what the other system keeps of a key, prefix included: 16 to 64 bytes. It
	// returns the same hash for the same key, so it uses no salt of its own. The Service calls it
	// for every bearer with the prefix, concurrently. Nil: SHA-256.
	Hash func(key string) []byte
}

// ImportedKey is a key that another system has issued. Only its hash is known here.
type ImportedKey struct {
	NewAPIKey
	Prefix string // the Prefix of a [KeyImport]
	Hash   []byte // as the Hash of that KeyImport returns it
}

// Import takes over a key of another system. From then on the Service accepts it like a key issued
// here, so its users need no new key. The rules for callers are those of [Keys.Issue].
//
// The store keeps a hash of the hash, under the pepper. The key's ID follows from the hash, without
// the pepper. [Keys.Rotate] replaces the key by one in the form of the Service. An invented bearer
// with the prefix costs a read of the store; an invented key in the form of the Service costs none.
//
// Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodeLimit and CodeUnauthenticated (as Issue),
// CodeExists (the key was imported before, even if it is revoked now).
func (s *Keys) Import(
	ctx context.Context, by Principal, holder Identity, in ImportedKey,
) (APIKey, error) {
	now := s.now()
	var c checker
	if c.holder(holder); holder == Me {
		c.add("user_id", "must name a holder: keys cannot be imported for the caller")
	}
	in.NewAPIKey.check(&c, now)
	if !s.keys.Imports(in.Prefix) {
		c.add("prefix", "must be that of one of Config.Keys.Imports")
	}
	if n := len(in.Hash); n < keyring.MinDigest || n > keyring.MaxDigest {
		c.add("hash", fmt.Sprintf("must be %d to %d bytes", keyring.MinDigest, keyring.MaxDigest))
	}
	if in.IdempotencyKey != "" {
		c.add(idempotencyHeader, "must be empty: a key cannot be imported twice")
	}
	if err := c.err(); err != nil {
		return APIKey{}, err
	}
	if err := s.authorizeIssue(ctx, by, holder); err != nil {
		return APIKey{}, err
	}
	if err := s.checkScoping(ctx, by, holder, in.ScopingPolicyID); err != nil {
		return APIKey{}, err
	}
	key := s.newKey(holder, token.Imported(in.Prefix, in.Hash)).APIKey
	s.stamp(&key, in.NewAPIKey, now)
	err := s.addKey(ctx, by, key, EventAPIKeyImported, nil)
	if errors.Is(err, ErrExists) {
		return APIKey{}, taken("hash", "this key was imported before")
	} else if err != nil {
		return APIKey{}, fault("import API key", err)
	}
	return key, nil
}

// Mask replaces with "***" what may be a key of another system: at least 16 visible characters,
// other than quotes, brackets and separators, after a prefix of Config.Keys.Imports. The prefix
// stays. Use it for logs and answers that repeat a caller's text.
func (s *Keys) Mask(text string) string { return s.keys.Mask(text) }

// stamp sets the requested fields of a new key, and seals it.
func (s *Keys) stamp(key *APIKey, in NewAPIKey, now time.Time) {
	key.Description, key.ScopingPolicyID = in.Description, in.ScopingPolicyID
	key.CreatedAt, key.ExpiresAt = now, in.ExpiresAt
	s.seal(key)
}
