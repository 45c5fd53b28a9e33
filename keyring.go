package svc

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/extsvc/svc/internal/token"
)

// keyring makes and checks API keys under the host's peppers. It does not change.
type keyring struct {
	prefixes map[Kind]string
	peppers  []pepper // the first for new keys
}

// pepper is one of the host's, and the keys derived from it.
type pepper struct {
	version string
	hashKey []byte     // nil: keys are hashed without a pepper
	tagKey  []byte     // nil: it is kept in the store, see ring
	retired bool       // no key is hashed under it
	hashers *sync.Pool // of hasher
}

// hasher hashes the texts of keys, one at a time, in memory of its own.
type hasher struct {
	hash.Hash
	text [192]byte
	sum  [sha256.Size]byte
}

func (p pepper) newHasher() any {
	if p.hashKey == nil {
		return &hasher{Hash: sha256.New()}
	}
	return &hasher{Hash: hmac.New(sha256.New, p.hashKey)}
}

var (
	prefixForm  = regexp.MustCompile(`^[a-z0-9_]{0,15}_$`)
	versionForm = regexp.MustCompile(`^[0-9A-Za-z._-]{1,32}$`)
)

const minPepper = 16 // bytes

func newKeyring(config KeyConfig) (*keyring, error) {
	ring := &keyring{prefixes: map[Kind]string{
		KindUser:           orElse(config.UserPrefix, "svcu_"),
		KindServiceAccount: orElse(config.ServiceAccountPrefix, "svcs_"),
	}}
	for kind, prefix := range ring.prefixes {
		if !prefixForm.MatchString(prefix) {
			return nil, fmt.Errorf("svc: Config.Keys: the prefix %q of a %s's keys must be 1 to 16 of a-z, 0-9 and _, ending in _", prefix, kind)
		}
	}
	if user, account := ring.prefixes[KindUser], ring.prefixes[KindServiceAccount]; strings.HasPrefix(user, account) || strings.HasPrefix(account, user) {
		return nil, errors.New("svc: Config.Keys: UserPrefix and ServiceAccountPrefix must not start with one another")
	}
	return ring, ring.setPeppers(config.Peppers)
}

func (r *keyring) setPeppers(peppers []Pepper) error {
	if len(peppers) == 0 {
		peppers = []Pepper{{}}
	}
	for i, p := range peppers {
		field := fmt.Sprintf("svc: Config.Keys.Peppers[%d]", i)
		if slices.ContainsFunc(r.peppers, func(other pepper) bool { return other.version == p.Version }) {
			return fmt.Errorf("%s.Version: %q is there twice", field, p.Version)
		}
		if i == 0 && p.Retired {
			return fmt.Errorf("%s.Retired: new keys are hashed under the first pepper", field)
		}
		if p.Version == "" && len(p.Secret) == 0 {
			r.add(pepper{retired: p.Retired})
			continue
		}
		if !versionForm.MatchString(p.Version) {
			return fmt.Errorf("%s.Version must be 1 to 32 of 0-9, A-Z, a-z, '.', '_' and '-'", field)
		}
		if p.Retired && len(p.Secret) == 0 {
			r.add(pepper{version: p.Version, retired: true})
			continue
		}
		if len(p.Secret) < minPepper {
			return fmt.Errorf("%s.Secret must be at least %d bytes", field, minPepper)
		}
		r.add(pepper{
			version: p.Version, retired: p.Retired,
			hashKey: sum(p.Secret, "svc api key hash"), tagKey: sum(p.Secret, "svc api key tag"),
		})
	}
	return nil
}

func (r *keyring) add(p pepper) {
	p.hashers = &sync.Pool{New: p.newHasher}
	r.peppers = append(r.peppers, p)
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// pepper returns the one under which keys of that version are checked.
func (r *keyring) pepper(version string) (pepper, bool) {
	for _, p := range r.peppers {
		if p.version == version && !p.retired {
			return p, true
		}
	}
	return pepper{}, false
}

// ring returns the keyring, complete: tag keys that follow from no pepper's secret are kept in the store, and read once. In a
// transaction of the host they are not remembered, because a rollback may undo them.
func (s *Service) ring(ctx context.Context) (*keyring, error) {
	if !slices.ContainsFunc(s.keys.peppers, pepper.incomplete) {
		return s.keys, nil
	}
	if complete := s.completeKeys.Load(); complete != nil {
		return complete, nil
	}
	complete := &keyring{prefixes: s.keys.prefixes, peppers: slices.Clone(s.keys.peppers)}
	for i, p := range complete.peppers {
		if !p.incomplete() {
			continue
		}
		drawn := make([]byte, sha256.Size)
		rand.Read(drawn) // never fails: it ends the program rather
		kept, err := s.store.KeepValue(ctx, p.tagName(), drawn)
		if err != nil {
			return nil, fault("read the key of API key ids", err)
		}
		complete.peppers[i].tagKey = kept
	}
	if !s.outbox {
		s.completeKeys.Store(complete)
	}
	return complete, nil
}

func (p pepper) incomplete() bool { return p.tagKey == nil }

// tagName is the name under which the store keeps the tag key.
func (p pepper) tagName() string {
	if p.version == "" {
		return "api-key-tag"
	}
	return "api-key-tag-" + p.version
}

// keepTags keeps the tag keys of the older peppers, so that keys that were hashed anew are recognised when their secrets are gone.
// No secret follows from a tag key.
func (s *Service) keepTags(ctx context.Context) error {
	for _, p := range s.keys.peppers[1:] {
		if p.incomplete() {
			continue
		}
		if _, err := s.store.KeepValue(ctx, p.tagName(), p.tagKey); err != nil {
			return err
		}
	}
	return nil
}

// kind tells whose key the bearer claims to be. What starts with a prefix of ours is never shown to the host's
// Authenticator: a mistyped key is still nearly a key.
func (r *keyring) kind(bearer string) (Kind, bool) {
	for kind, prefix := range r.prefixes {
		if strings.HasPrefix(bearer, prefix) {
			return kind, true
		}
	}
	return "", false
}

func (r *keyring) generate(holder Identity) IssuedKey {
	p := r.peppers[0]
	t := token.New(r.prefixes[holder.Kind], p.tag)
	hash := p.hash(holder.Kind, t)
	return IssuedKey{Key: Secret(t.String()), APIKey: APIKey{
		ID: t.ID, Holder: holder, Prefix: t.Prefix + t.ID, Hash: hash[:], Pepper: p.version,
	}}
}

// issued reports whether a token's id may have been issued here: it is false for one that was made up.
func (r *keyring) issued(t token.Token) bool {
	return slices.ContainsFunc(r.peppers, func(p pepper) bool { return t.Tagged(p.tag) })
}

// matches reports whether the token is the one that key was made from.
func (r *keyring) matches(kind Kind, t token.Token, key keyCopy) bool {
	p, known := r.pepper(key.pepper)
	if !known {
		p = r.peppers[0] // as much work as for a known one
	}
	hash := p.hash(kind, t)
	same := subtle.ConstantTimeCompare(hash[:], key.hash[:]) == 1
	return same && known && kind == key.holder.Kind
}

func (p pepper) tag(drawn string) uint32 {
	return binary.BigEndian.Uint32(sum(p.tagKey, drawn))
}

// hash is that of kind, id and secret, under the pepper.
func (p pepper) hash(kind Kind, t token.Token) [sha256.Size]byte {
	h := p.hashers.Get().(*hasher)
	defer p.hashers.Put(h)
	text := append(append(h.text[:0], kind...), 0)
	text = append(append(text, t.ID...), 0)
	text = append(text, t.Secret...)
	defer clear(text)
	h.Reset()
	h.Write(text)
	h.Sum(h.sum[:0])
	return h.sum
}

func sum(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
