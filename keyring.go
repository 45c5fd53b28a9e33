package svc

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc/internal/copies"
	"github.com/extsvc/svc/internal/token"
)

// keyring makes and checks API keys under the host's peppers. It is immutable.
type keyring struct {
	prefixes map[Kind]string
	imports  []KeyImport
	peppers  []pepper // the first serves new keys
}

// pepper is one of the host's peppers, with the keys derived from it.
type pepper struct {
	version string
	hashKey []byte     // nil: keys are hashed without a pepper
	sealKey []byte     // nil: rows are not sealed
	answers []byte     // seals stored answers; nil: they are sealed without a pepper
	tagKey  []byte     // nil: the store keeps it, see ring
	retired bool       // true: no key is hashed under it
	lenient bool       // true: rows without a seal are accepted
	hashers *sync.Pool // of hasher
}

// hasher hashes the texts of keys, one at a time, in its own memory.
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

// isPrefix reports whether keys may begin with s.
func isPrefix(s string) bool {
	return len(s) <= 16 && strings.HasSuffix(s, "_") && strings.Trim(s, lowercase+digits+"_") == ""
}

func isPepperVersion(s string) bool {
	return 1 <= len(s) && len(s) <= 32 &&
		strings.Trim(s, lowercase+strings.ToUpper(lowercase)+digits+"._-") == ""
}

const (
	lowercase = "abcdefghijklmnopqrstuvwxyz"
	digits    = "0123456789"
)

const minPepper = 16 // bytes

func newKeyring(config KeyConfig) (*keyring, error) {
	ring := &keyring{prefixes: map[Kind]string{
		KindUser:           cmp.Or(config.UserPrefix, "svcu_"),
		KindServiceAccount: cmp.Or(config.ServiceAccountPrefix, "svcs_"),
	}}
	for kind, prefix := range ring.prefixes {
		if !isPrefix(prefix) {
			return nil, fmt.Errorf("svc: Config.Keys: the prefix %q of a %s's keys "+
				"must be 1 to 16 of a-z, 0-9 and _, ending in _", prefix, kind)
		}
	}
	user, account := ring.prefixes[KindUser], ring.prefixes[KindServiceAccount]
	if strings.HasPrefix(user, account) || strings.HasPrefix(account, user) {
		return nil, errors.New("svc: Config.Keys: UserPrefix and ServiceAccountPrefix " +
			"must not start with one another")
	}
	if err := ring.setImports(config.Imports); err != nil {
		return nil, err
	}
	return ring, ring.setPeppers(config.Peppers)
}

func (r *keyring) setPeppers(peppers []Pepper) error {
	if len(peppers) == 0 {
		peppers = []Pepper{{}}
	}
	for i, p := range peppers {
		field := fmt.Sprintf("svc: Config.Keys.Peppers[%d]", i)
		if slices.ContainsFunc(r.peppers, func(other pepper) bool {
			return other.version == p.Version
		}) {
			return fmt.Errorf("%s.Version: %q is there twice", field, p.Version)
		}
		if i == 0 && p.Retired {
			return fmt.Errorf("%s.Retired: new keys are hashed under the first pepper", field)
		}
		if p.Version == "" && len(p.Secret) == 0 {
			r.add(pepper{retired: p.Retired})
			continue
		}
		if !isPepperVersion(p.Version) {
			return fmt.Errorf("%s.Version must be 1 to 32 of 0-9, A-Z, a-z, '.', '_' and '-'",
				field)
		}
		if p.Retired && len(p.Secret) == 0 {
			r.add(pepper{version: p.Version, retired: true})
			continue
		}
		if len(p.Secret) < minPepper {
			return fmt.Errorf("%s.Secret must be at least %d bytes", field, minPepper)
		}
		r.add(pepper{
			version: p.Version, retired: p.Retired, lenient: p.AcceptUnsealed,
			hashKey: sum(p.Secret, "svc api key hash"),
			tagKey:  sum(p.Secret, "svc api key tag"),
			sealKey: sum(p.Secret, "svc api key row"),
			answers: sum(p.Secret, "svc answer"),
		})
	}
	return nil
}

func (r *keyring) add(p pepper) {
	p.hashers = &sync.Pool{New: p.newHasher}
	r.peppers = append(r.peppers, p)
}

// noPepper is the place of a pepper under which no key is checked.
const noPepper = -1

// place returns the index of the pepper for keys of that version, or noPepper.
func (r *keyring) place(version string) int {
	return slices.IndexFunc(r.peppers, func(p pepper) bool {
		return p.version == version && !p.retired
	})
}

// pepper returns the pepper under which keys of that version are checked.
func (r *keyring) pepper(version string) (pepper, bool) {
	place := r.place(version)
	if place == noPepper {
		return pepper{}, false
	}
	return r.peppers[place], true
}

// rings provides the keyring with its tag keys, some of which the store keeps.
type rings struct {
	*base
	keys     *keyring
	complete *atomic.Pointer[keyring] // see ring
}

// ring returns the complete keyring. The store keeps the tag keys that do not follow from a
// pepper's secret; ring reads them once. In a transaction of the host it does not remember them,
// because a rollback may undo them.
func (s *rings) ring(ctx context.Context) (*keyring, error) {
	if !slices.ContainsFunc(s.keys.peppers, pepper.incomplete) {
		return s.keys, nil
	}
	if complete := s.complete.Load(); complete != nil {
		return complete, nil
	}
	complete := &keyring{
		prefixes: s.keys.prefixes, imports: s.keys.imports, peppers: slices.Clone(s.keys.peppers),
	}
	for i, p := range complete.peppers {
		if !p.incomplete() {
			continue
		}
		drawn := make([]byte, sha256.Size)
		rand.Read(drawn) // never returns an error: it ends the program instead
		kept, err := s.store.KeepValue(ctx, p.tagName(), drawn)
		if err != nil {
			return nil, fault("read the key of API key ids", err)
		}
		complete.peppers[i].tagKey = kept
	}
	if !s.inTransaction {
		s.complete.Store(complete)
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

// keepTags stores the tag keys of the older peppers. Keys that got a new hash are then still
// recognised when the older secrets are gone. No secret follows from a tag key.
func (s *rings) keepTags(ctx context.Context) error {
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

// claim is the key that a bearer claims to be.
type claim struct {
	token.Token
	kind Kind // of its holder; "": another system issued the key, and its row has the kind
	good bool // the bearer has the form of a key
}

// claim reads a bearer. The host's Authenticator never sees a bearer that starts with a prefix of
// keys: a mistyped key is still nearly a key.
func (r *keyring) claim(bearer string) (c claim, ours bool) {
	for kind, prefix := range r.prefixes {
		if strings.HasPrefix(bearer, prefix) {
			t, ok := token.Parse(bearer, prefix)
			return claim{t, kind, ok}, true
		}
	}
	for i := range r.imports {
		if strings.HasPrefix(bearer, r.imports[i].Prefix) {
			return r.imports[i].claim(bearer), true
		}
	}
	return claim{}, false
}

func (r *keyring) generate(holder Identity) IssuedKey {
	t := token.New(r.prefixes[holder.Kind], r.peppers[0].tag)
	return IssuedKey{Key: Secret(t.String()), APIKey: r.row(holder, t)}
}

// row returns the row of a new key.
func (r *keyring) row(holder Identity, t token.Token) APIKey {
	p := r.peppers[0]
	hash := p.hash(holder.Kind, t)
	return APIKey{
		ID: t.ID, Holder: holder, Prefix: t.Prefix + t.ID, Hash: hash[:], Pepper: p.version,
	}
}

// issued reports whether the id may belong to an issued key. It is false for an invented id.
func (r *keyring) issued(c claim) bool {
	return c.kind == "" || slices.ContainsFunc(r.peppers, func(p pepper) bool {
		return c.Tagged(p.tag)
	})
}

// matches reports whether the claim is that key.
func (r *keyring) matches(c claim, key copies.Key) bool {
	known := key.Pepper != noPepper
	p := r.peppers[max(0, key.Pepper)] // an unknown key costs as much work
	kind := cmp.Or(c.kind, Kind(key.Holder.Kind))
	hash := p.hash(kind, c.Token)
	same := subtle.ConstantTimeCompare(hash[:], key.Hash[:]) == 1
	return same && known && kind == Kind(key.Holder.Kind)
}

func (p pepper) tag(drawn string) uint32 {
	return binary.BigEndian.Uint32(sum(p.tagKey, drawn))
}

// hash returns the hash of kind, id and secret, under the pepper.
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

// copyOf returns the cached form of a key.
func (r *keyring) copyOf(k *APIKey) copies.Key {
	key := copies.Key{
		Holder: k.Holder.narrowed(k.ScopingPolicyID), Pepper: r.place(k.Pepper),
		Closed: k.Disabled || !k.RevokedAt.IsZero(), Unsealed: len(k.Seal) == 0,
	}
	copy(key.Hash[:], k.Hash)
	if !k.ExpiresAt.IsZero() {
		key.Expires = k.ExpiresAt.UnixMicro()
	}
	if !k.LastUsedAt.IsZero() {
		key.Used = minuteOf(k.LastUsedAt)
	}
	return key
}

// seal seals a key's row under the pepper of its hash.
func (r *keyring) seal(key *APIKey) {
	p, _ := r.pepper(key.Pepper)
	key.Seal = p.seal(*key)
}

// sealed reports whether a key's row matches its seal. Without a pepper, or with an unknown one, it
// cannot tell and reports true; so it does for a revoked key.
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

// seal returns the HMAC-SHA256 of every field that decides what a key is good for.
func (p pepper) seal(key APIKey) []byte {
	if p.sealKey == nil {
		return nil
	}
	mac := hmac.New(sha256.New, p.sealKey)
	for _, part := range [...]string{
		key.ID, string(key.Holder.Kind), key.Holder.ID,
		key.Prefix, string(key.Hash), key.ScopingPolicyID,
		micro(key.CreatedAt), micro(key.ExpiresAt), strconv.FormatBool(key.Disabled),
	} {
		// The length keeps the encodings of two different rows different.
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		mac.Write([]byte(part))
	}
	return mac.Sum(nil)
}

// micro returns a time in its stored form; "" for the zero time.
func micro(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMicro(), 10)
}

// changeable returns an Error when a key's row cannot be changed and sealed again.
func (s *rings) changeable(ctx context.Context, key APIKey) error {
	if _, known := s.keys.pepper(key.Pepper); !known {
		return invalid("key_id", "names a key under a pepper that is not in use here: revoke it")
	}
	if !s.keys.sealed(key) {
		s.reportEdited(ctx, key.ID)
		return invalid("key_id", "names a key that was changed in the database: revoke it")
	}
	return nil
}

// reportEdited logs a key whose row this service has not written.
func (s *rings) reportEdited(ctx context.Context, id string) {
	s.log.ErrorContext(ctx, "svc: an API key is refused, because its row "+
		"was changed in the database by other means than this service", "api_key", id)
}
