package keyring

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/extsvc/svc/internal/token"
)

// Pepper is one version of the secret under which keys are hashed. The zero Pepper stands for "no
// pepper".
type Pepper struct {
	Version        string // 1 to 32 of 0-9, A-Z, a-z, '.', '_' and '-'
	Secret         []byte // at least 16 bytes; none: the pepper is Retired
	Retired        bool   // no key is hashed under it
	AcceptUnsealed bool   // rows without a seal are accepted
}

const minPepper = 16 // bytes

var versions = regexp.MustCompile(`^[0-9A-Za-z._-]{1,32}$`)

// pepper has the keys that are derived from a [Pepper].
type pepper struct {
	Pepper
	hashKey []byte    // nil: keys are hashed without a pepper
	sealKey []byte    // nil: rows are not sealed
	answers []byte    // see AnswerKeys
	tagKey  []byte    // nil: the store keeps it, see Tags
	hashers sync.Pool // of hasher
}

// hasher hashes the texts of keys, one at a time, in its own memory.
type hasher struct {
	hash.Hash
	text [192]byte
	sum  [sha256.Size]byte
}

func (r *Ring) setPeppers(peppers []Pepper) error {
	if len(peppers) == 0 {
		peppers = []Pepper{{}}
	}
	for i, p := range peppers {
		if problem := r.problem(p); problem != "" {
			return fmt.Errorf("Peppers[%d].%s", i, problem)
		}
		r.peppers = append(r.peppers, newPepper(p))
	}
	return nil
}

// problem says what is wrong with the next pepper, or "".
func (r *Ring) problem(p Pepper) string {
	secret := len(p.Secret) > 0
	switch {
	case slices.ContainsFunc(r.peppers, func(other *pepper) bool {
		return other.Version == p.Version
	}):
		return fmt.Sprintf("Version: %q is listed twice: remove one", p.Version)
	case p.Retired && len(r.peppers) == 0:
		return "Retired: the first pepper must not be retired, " +
			"because new keys are hashed under it"
	case (p.Version != "" || secret) && !versions.MatchString(p.Version):
		return "Version must be 1 to 32 of 0-9, A-Z, a-z, '.', '_' and '-'"
	case (p.Version != "" && !p.Retired || secret) && len(p.Secret) < minPepper:
		return fmt.Sprintf("Secret must be at least %d bytes", minPepper)
	}
	hashKey := newPepper(p).hashKey
	if i := slices.IndexFunc(r.peppers, func(other *pepper) bool {
		return secret && bytes.Equal(other.hashKey, hashKey)
	}); i >= 0 {
		return fmt.Sprintf("Secret: it is that of version %q: a new version needs a new secret",
			r.peppers[i].Version)
	}
	return ""
}

func newPepper(from Pepper) *pepper {
	p := &pepper{Pepper: from}
	if len(from.Secret) > 0 {
		p.hashKey = MAC(from.Secret, "svc api key hash")
		p.tagKey = MAC(from.Secret, "svc api key tag")
		p.sealKey = MAC(from.Secret, "svc api key row")
		p.answers = MAC(from.Secret, "svc answer")
		p.Secret = nil // no longer needed
	}
	p.hashers.New = func() any {
		if p.hashKey == nil {
			return &hasher{Hash: sha256.New()}
		}
		return &hasher{Hash: hmac.New(sha256.New, p.hashKey)}
	}
	return p
}

// hash returns the hash of kind, id and secret, under the pepper.
func (p *pepper) hash(kind string, t token.Token) [sha256.Size]byte {
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

// MAC returns the HMAC-SHA256 of a text.
func MAC(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// NoPepper is the place of a pepper under which no key is checked.
const NoPepper = -1

// Place returns the place of the pepper for keys of that version, or NoPepper.
func (r *Ring) Place(version string) int {
	return slices.IndexFunc(r.peppers, func(p *pepper) bool {
		return p.Version == version && !p.Retired
	})
}

// Version returns the version of the first pepper.
func (r *Ring) Version() string { return r.peppers[0].Version }

// Outdated reports whether a key should get a new hash and seal, under the first pepper: it has
// another pepper, or no seal.
func (r *Ring) Outdated(place int, unsealed bool) bool {
	return place != 0 || unsealed && r.peppers[0].sealKey != nil
}

// AnswerKeys returns the keys that seal stored answers, one for each pepper: the first seals, all
// of them open. nil: without a pepper.
func (r *Ring) AnswerKeys() (keys [][]byte) {
	for _, p := range r.peppers {
		keys = append(keys, p.answers)
	}
	return keys
}

// Values keeps values under names. It returns the value that was kept first.
type Values interface {
	KeepValue(ctx context.Context, name string, value []byte) ([]byte, error)
}

// Tags are the keys of the tags in ids, one for each pepper. Nil: they are not known.
type Tags [][]byte

// Tags returns the tag keys. Those that do not follow from a pepper's secret are in store. Without a
// store, which must not be written to, they are not known. The ring remembers them, if it may: a
// transaction that is rolled back undoes them.
func (r *Ring) Tags(ctx context.Context, store Values, remember bool) (Tags, error) {
	if known := r.tags.Load(); known != nil {
		return *known, nil
	}
	tags := make(Tags, len(r.peppers))
	for i, p := range r.peppers {
		if tags[i] = p.tagKey; p.tagKey != nil {
			continue
		}
		if store == nil {
			return nil, nil
		}
		drawn := make([]byte, sha256.Size)
		rand.Read(drawn) // never returns an error: it ends the program instead
		var err error
		if tags[i], err = store.KeepValue(ctx, p.tagName(), drawn); err != nil {
			return nil, err
		}
	}
	if remember {
		r.tags.Store(&tags)
	}
	return tags, nil
}

// KeepTags stores the tag keys of the older peppers. Keys that got a new hash are then still
// recognised when the older secrets are gone. No secret follows from a tag key.
func (r *Ring) KeepTags(ctx context.Context, store Values) error {
	for _, p := range r.peppers[1:] {
		if p.tagKey == nil {
			continue
		}
		if _, err := store.KeepValue(ctx, p.tagName(), p.tagKey); err != nil {
			return err
		}
	}
	return nil
}

// tagName is the name under which the store keeps the tag key.
func (p *pepper) tagName() string {
	if p.Version == "" {
		return "api-key-tag"
	}
	return "api-key-tag-" + p.Version
}

func tagger(key []byte) token.Tagger {
	return func(drawn string) uint32 { return binary.BigEndian.Uint32(MAC(key, drawn)) }
}

// Issued reports whether the id may belong to a key that was issued or imported. It is false for an
// invented id of an issued key.
func (t Tags) Issued(c Claim) bool {
	return c.Kind == "" || t == nil || slices.ContainsFunc(t, func(key []byte) bool {
		return c.Tagged(tagger(key))
	})
}

// Row is what the row of a key says about it. The seal covers the fields up to Disabled.
type Row struct {
	ID, Kind, Holder, Prefix string
	Hash                     []byte
	ScopingPolicyID          string
	CreatedAt, ExpiresAt     time.Time
	Disabled                 bool

	Pepper  string // its version
	Revoked bool
	Seal    []byte
}

// Seal returns the seal of a row under the pepper of its hash. nil: that pepper is unknown or seals
// no rows.
func (r *Ring) Seal(row Row) []byte {
	place := r.Place(row.Pepper)
	if place == NoPepper || r.peppers[place].sealKey == nil {
		return nil
	}
	mac := hmac.New(sha256.New, r.peppers[place].sealKey)
	for _, part := range [...]string{
		row.ID, row.Kind, row.Holder, row.Prefix, string(row.Hash), row.ScopingPolicyID,
		micro(row.CreatedAt), micro(row.ExpiresAt), strconv.FormatBool(row.Disabled),
	} {
		// The length keeps the encodings of two different rows different.
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		mac.Write([]byte(part))
	}
	return mac.Sum(nil)
}

// Sealed reports whether a row matches its seal. Without a pepper, or with an unknown one, it
// cannot tell and reports true; so it does for a revoked key.
func (r *Ring) Sealed(row Row) bool {
	place := r.Place(row.Pepper)
	switch {
	case place == NoPepper, r.peppers[place].sealKey == nil, row.Revoked:
		return true
	case len(row.Seal) == 0:
		return r.peppers[place].AcceptUnsealed
	}
	return hmac.Equal(row.Seal, r.Seal(row))
}

// micro returns a time in its stored form; "" for the zero time.
func micro(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMicro(), 10)
}
