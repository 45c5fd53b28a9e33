// Package keyring makes API keys and checks them: hashes under peppers, tags of ids, seals of rows.
// It reads no store.
package keyring

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/internal/token"
)

// Config says what keys look like, and under which peppers they are hashed.
type Config struct {
	Prefixes []Prefix // the first of a kind of holders starts new keys
	Imports  []Import
	Peppers  []Pepper // the first serves new keys; none: keys are hashed without a pepper
}

// Prefix starts the keys of holders of one kind.
type Prefix struct {
	Field string // its name in errors
	Kind  string
	Text  string // 1 to 16 of a-z, 0-9 and _, ending in _
}

// Import describes the keys of another system.
type Import struct {
	Prefix string                  // 1 to 32 visible ASCII characters
	Hash   func(key string) []byte // nil: SHA-256
}

// The lengths of hashes of other systems' keys, in bytes.
const (
	MinDigest = 16
	MaxDigest = 64
)

const (
	maxImportedKey = 512
	maxImportName  = 32
)

// Ring makes and checks keys. It is safe for concurrent use.
type Ring struct {
	forms   []form
	peppers []*pepper            // the first serves new keys
	tags    atomic.Pointer[Tags] // nil: not known yet
}

// form is a form of keys. No prefix is the start of another.
type form struct {
	field  string // its name in errors
	prefix string
	kind   string                  // of the holders; "": another system issued the keys
	hash   func(key string) []byte // only for keys of another system
	plain  bool                    // the hash is plainHash
}

var prefixes = regexp.MustCompile(`^[a-z0-9_]{0,15}_$`)

// New returns a Ring, or an error that starts with the wrong field.
func New(config Config) (*Ring, error) {
	r := &Ring{}
	for _, p := range config.Prefixes {
		if !prefixes.MatchString(p.Text) {
			return nil, fmt.Errorf("%s: %q must be 1 to 16 of a-z, 0-9 and _, ending in _",
				p.Field, p.Text)
		}
		if err := r.add(form{field: p.Field, prefix: p.Text, kind: p.Kind}); err != nil {
			return nil, err
		}
	}
	for i, in := range config.Imports {
		field := fmt.Sprintf("Imports[%d].Prefix", i)
		if in.Prefix == "" || len(in.Prefix) > maxImportName || !text.Visible(in.Prefix) {
			return nil, fmt.Errorf("%s must be 1 to %d visible ASCII characters",
				field, maxImportName)
		}
		f := form{field: field, prefix: in.Prefix, hash: in.Hash, plain: in.Hash == nil}
		if f.plain {
			f.hash = plainHash
		}
		// None is good: the function may know the form of its keys.
		if n := len(f.hash(in.Prefix + strings.Repeat("x", MinDigest))); n > 0 && (n < MinDigest || n > MaxDigest) {
			return nil, fmt.Errorf("Imports[%d].Hash returns %d bytes, and must return %d to %d",
				i, n, MinDigest, MaxDigest)
		}
		if err := r.add(f); err != nil {
			return nil, err
		}
	}
	return r, r.setPeppers(config.Peppers)
}

func (r *Ring) add(f form) error {
	for _, other := range r.forms {
		if strings.HasPrefix(f.prefix, other.prefix) || strings.HasPrefix(other.prefix, f.prefix) {
			return fmt.Errorf("%s: %q and the prefix %q of %s must not start with one another",
				f.field, f.prefix, other.prefix, other.field)
		}
	}
	r.forms = append(r.forms, f)
	return nil
}

func plainHash(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

// Claim is the key that a bearer claims to be.
type Claim struct {
	token.Token
	Kind string // of its holder; "": another system issued the key, and its row has the kind
	Good bool   // the bearer has the form of a key
}

// Claim reads a bearer. ours: the bearer starts with a prefix of keys, so it is nobody else's, even
// when it is mistyped.
func (r *Ring) Claim(bearer string) (c Claim, ours bool) {
	for i := range r.forms {
		if strings.HasPrefix(bearer, r.forms[i].prefix) {
			return r.forms[i].claim(bearer), true
		}
	}
	return Claim{}, false
}

func (f *form) claim(bearer string) Claim {
	if f.hash == nil {
		t, ok := token.Parse(bearer, f.prefix)
		return Claim{t, f.kind, ok}
	}
	if len(bearer) > maxImportedKey {
		return Claim{}
	}
	digest := f.hash(bearer)
	if len(digest) < MinDigest || len(digest) > MaxDigest {
		return Claim{}
	}
	return Claim{token.Imported(f.prefix, digest), "", true}
}

// CheckImport returns which field of a key to import is wrong, and why; two empty texts: none.
func (r *Ring) CheckImport(prefix string, hash []byte) (field, problem string) {
	i := slices.IndexFunc(r.forms, func(f form) bool { return f.hash != nil && f.prefix == prefix })
	switch n := len(hash); {
	case i < 0:
		return "prefix", "must be that of one of Config.Keys.Imports"
	case r.forms[i].plain && n != sha256.Size:
		return "hash", "must be the 32 bytes of a SHA-256: decode hexadecimal digits or Base64 first"
	case n < MinDigest || n > MaxDigest:
		return "hash", fmt.Sprintf("must be %d to %d bytes", MinDigest, MaxDigest)
	}
	return "", ""
}

// Draw returns a new key for a holder of that kind.
func (r *Ring) Draw(kind string, tags Tags) token.Token {
	i := slices.IndexFunc(r.forms, func(f form) bool { return f.kind == kind })
	return token.New(r.forms[i].prefix, tagger(tags[0]))
}

// Hash returns the hash of a new key of a holder of that kind, under the first pepper.
func (r *Ring) Hash(kind string, t token.Token) [sha256.Size]byte {
	return r.peppers[0].hash(kind, t)
}

// Matches reports whether the claim is the key of a row: with the kind of its holder, its hash, and
// the [Ring.Place] of its pepper. A key with NoPepper costs as much work, and never matches.
func (r *Ring) Matches(c Claim, kind string, hash [sha256.Size]byte, place int) bool {
	claimed := cmp.Or(c.Kind, kind)
	sum := r.peppers[max(0, place)].hash(claimed, c.Token)
	same := subtle.ConstantTimeCompare(sum[:], hash[:]) == 1
	return same && place != NoPepper && claimed == kind
}

// leastMasked is how many characters after the prefix of an [Import] may be a key, at least.
const leastMasked = 16

// Mask masks what may be a key: as [token.Mask] does, and at least 16 visible characters, other
// than quotes, brackets and separators, after a prefix of an [Import]. The prefix stays.
func (r *Ring) Mask(s string) string {
	for i := range r.forms {
		if r.forms[i].hash != nil {
			s = maskBehind(s, r.forms[i].prefix)
		}
	}
	return token.Mask(s)
}

// maskBehind masks what may be keys with that prefix.
func maskBehind(s, prefix string) string {
	var out strings.Builder
	for {
		before, behind, found := strings.Cut(s, prefix)
		if out.WriteString(before); !found {
			return out.String()
		}
		out.WriteString(prefix)
		end := strings.IndexFunc(behind, endsKey)
		if end < 0 {
			end = len(behind)
		}
		if end >= leastMasked {
			out.WriteString(text.Masked)
			behind = behind[end:]
		}
		s = behind
	}
}

// endsKey reports whether a character ends a key and is not part of it.
func endsKey(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"'`,;&?<>(){}[]\\", r)
}
