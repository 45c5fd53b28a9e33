package svc

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc/internal/token"
)

// KeyImport says how the keys look that another system has issued, and how it has hashed them. Bearers that start with its
// Prefix are keys, and never shown to the host's [Authenticator].
type KeyImport struct {
	// Prefix is what all of them start with: 1 to 32 visible ASCII characters. No prefix of keys is the start of another.
	Prefix string
	// Hash is what the other system keeps of a key, prefix included: 16 to 64 bytes, the same for the same key, so without a salt
	// of its own. It is called for every bearer with the prefix, concurrently. Nil: SHA-256.
	Hash func(key string) []byte
}

// ImportedKey is a key that another system has issued, of which only the hash is known.
type ImportedKey struct {
	NewAPIKey
	Prefix string // that of a [KeyImport]
	Hash   []byte // as its Hash returns it
}

// What is looked at of the keys of other systems.
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
		if rule.Prefix == "" || len(rule.Prefix) > maxImportName || !visible(rule.Prefix) {
			return fmt.Errorf("%s must be 1 to %d visible ASCII characters", field, maxImportName)
		}
		for _, other := range taken {
			if strings.HasPrefix(rule.Prefix, other) || strings.HasPrefix(other, rule.Prefix) {
				return fmt.Errorf("%s: %q and the prefix %q must not start with one another", field, rule.Prefix, other)
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

// Import takes over a key of another system, which is accepted from then on like one issued
// here: its users go on with what they have. Who may call it is as for [Keys.Issue]. What
// is kept is a hash of the hash, under the pepper. The key's ID follows from the hash, without the
// pepper; [Keys.Rotate] replaces the key by one of our own. An invented bearer with the
// prefix costs a read of the store, where one of our own form costs none. Errors: CodeInvalid,
// CodeForbidden, CodeNotFound, CodeLimit and CodeUnauthenticated (as IssueAPIKey), CodeExists (it
// was taken over before, whether or not it was revoked since).
func (s *Keys) Import(ctx context.Context, by Principal, holder Identity, in ImportedKey) (APIKey, error) {
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
	err := s.mutateKeys(ctx, by, holder, func(ctx context.Context, tx Store, live int) ([]Event, error) {
		return happened(now, EventAPIKeyImported, key.Target()), s.createKey(ctx, tx, key, live)
	})
	if errors.Is(err, ErrExists) {
		return APIKey{}, taken("hash", "this key was taken over before")
	} else if err != nil {
		return APIKey{}, fault("import API key", err)
	}
	return key, nil
}

// leastMasked is how many characters behind a prefix of imports, at least, may be a key.
const leastMasked = 16

// Mask returns the text with "***" for what may be a key of another system: a prefix of
// Config.Keys.Imports, which stays, and at least 16 visible characters behind it that are no
// quotes, brackets or separators. It is for logs and answers that repeat what a caller has sent.
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

// endsKey reports whether a character stands behind a key rather than in it.
func endsKey(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"'`,;&?<>(){}[]\\", r)
}

func (r *keyring) imported(prefix string) bool {
	return slices.ContainsFunc(r.imports, func(rule KeyImport) bool { return rule.Prefix == prefix })
}

// stamp fills in what was asked for of a new key, and seals it.
func (s *Keys) stamp(key *APIKey, in NewAPIKey, now time.Time) {
	key.Description, key.CreatedAt, key.ExpiresAt, key.ScopingPolicyID = in.Description, now, in.ExpiresAt, in.ScopingPolicyID
	s.keys.seal(key)
}
