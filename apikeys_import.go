package svc

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc/internal/text"
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

// Limits for the keys of other systems.
const (
	minDigest      = 16 // bytes
	maxDigest      = 64
	maxImportedKey = 512
	maxImportName  = 32
)

func (r *keyring) setImports(imports []KeyImport) error {
	taken := []string{r.prefixes[KindUser], r.prefixes[KindServiceAccount]}
	for i, rule := range imports {
		field := fmt.Sprintf("svc: Config.Keys.Imports[%d].Prefix", i)
		if rule.Prefix == "" || len(rule.Prefix) > maxImportName || !text.Visible(rule.Prefix) {
			return fmt.Errorf("%s must be 1 to %d visible ASCII characters", field, maxImportName)
		}
		for _, other := range taken {
			if strings.HasPrefix(rule.Prefix, other) || strings.HasPrefix(other, rule.Prefix) {
				return fmt.Errorf("%s: %q and the prefix %q must not start with one another",
					field, rule.Prefix, other)
			}
		}
		taken = append(taken, rule.Prefix)
		if rule.Hash == nil {
			rule.Hash = func(key string) []byte {
				sum := sha256.Sum256([]byte(key))
				return sum[:]
			}
		}
		r.imports = append(r.imports, rule)
	}
	return nil
}

// claim reads a bearer that starts with the prefix.
func (k KeyImport) claim(bearer string) claim {
	if len(bearer) > maxImportedKey {
		return claim{}
	}
	digest := k.Hash(bearer)
	if len(digest) < minDigest || len(digest) > maxDigest {
		return claim{}
	}
	return claim{token.Imported(k.Prefix, digest), "", true}
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
		c.add("user_id", "must name the holder: keys are not imported for the caller")
	}
	in.NewAPIKey.check(&c, now)
	if !s.keys.imported(in.Prefix) {
		c.add("prefix", "must be that of one of Config.Keys.Imports")
	}
	if len(in.Hash) < minDigest || len(in.Hash) > maxDigest {
		c.add("hash", fmt.Sprintf("must be %d to %d bytes", minDigest, maxDigest))
	}
	if in.IdempotencyKey != "" {
		c.add(idempotencyHeader, "is not taken here: no key is taken over twice")
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
	key := s.keys.row(holder, token.Imported(in.Prefix, in.Hash))
	s.stamp(&key, in.NewAPIKey, now)
	err := s.addKey(ctx, by, key, EventAPIKeyImported, nil)
	if errors.Is(err, ErrExists) {
		return APIKey{}, taken("hash", "this key was taken over before")
	} else if err != nil {
		return APIKey{}, fault("import API key", err)
	}
	return key, nil
}

// leastMasked is how many characters after an import prefix may be a key, at least.
const leastMasked = 16

// Mask replaces with "***" what may be a key of another system: at least 16 visible characters,
// other than quotes, brackets and separators, after a prefix of Config.Keys.Imports. The prefix
// stays. Use it for logs and answers that repeat a caller's text.
func (s *Keys) Mask(text string) string {
	for i := range s.keys.imports {
		text = maskBehind(text, s.keys.imports[i].Prefix)
	}
	return text
}

// maskBehind masks what may be keys with that prefix.
func maskBehind(text, prefix string) string {
	var out strings.Builder
	for {
		before, behind, found := strings.Cut(text, prefix)
		if out.WriteString(before); !found {
			return out.String()
		}
		out.WriteString(prefix)
		end := strings.IndexFunc(behind, endsKey)
		if end < 0 {
			end = len(behind)
		}
		if end >= leastMasked {
			out.WriteString(masked)
			behind = behind[end:]
		}
		text = behind
	}
}

// endsKey reports whether a character ends a key and is not part of it.
func endsKey(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"'`,;&?<>(){}[]\\", r)
}

func (r *keyring) imported(prefix string) bool {
	return slices.ContainsFunc(r.imports, func(rule KeyImport) bool {
		return rule.Prefix == prefix
	})
}

// stamp sets the requested fields of a new key, and seals it.
func (s *Keys) stamp(key *APIKey, in NewAPIKey, now time.Time) {
	key.Description, key.ScopingPolicyID = in.Description, in.ScopingPolicyID
	key.CreatedAt, key.ExpiresAt = now, in.ExpiresAt
	s.keys.seal(key)
}
