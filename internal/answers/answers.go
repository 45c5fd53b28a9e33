// Package answers seals the answers that are kept for repetitions of a request.
package answers

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"slices"

	"github.com/extsvc/svc/internal/aead"
	"github.com/extsvc/svc/internal/keyring"
)

// Request identifies a request that may come again.
//
// Its digests have constant keys. So a reader of the database can test guesses of an idempotency
// key, which is best drawn at random.
type Request struct {
	key    string // the idempotency key
	ID     []byte // a digest of the caller and the idempotency key
	Digest []byte // of what the request asks for
	Caller []byte // a digest of the caller
}

// New returns the request of a caller, named by two texts or more, under an idempotency key. The
// values in what distinguish it from other requests.
func New(caller []string, key string, what ...any) (r Request, err error) {
	names := slices.Insert(slices.Clone(caller), 2, key)
	id, err := json.Marshal(names)
	if err != nil {
		return r, err
	}
	text, err := json.Marshal(what)
	if err != nil {
		return r, err
	}
	return Request{
		key:    key,
		ID:     keyring.MAC([]byte("svc idempotency key"), string(id)),
		Digest: keyring.MAC([]byte("svc request"), string(text)),
		Caller: Caller(caller),
	}, nil
}

// Caller returns the digest of a caller, named as for New.
func Caller(names []string) []byte {
	text, _ := json.Marshal(names) // a list of texts
	return keyring.MAC([]byte("svc answers of a caller"), string(text))
}

// Seal seals an answer under one of the answer keys. Each call uses a new nonce: the store sees
// nothing of the answer but its length.
func (r Request) Seal(data, answerKey []byte) ([]byte, error) {
	sealer, err := r.sealer(answerKey)
	if err != nil {
		return nil, err
	}
	return sealer.Seal(data, r.binding()), nil
}

// Open opens what was sealed under any of the answer keys. So a change of the first key loses no
// answer, as long as the old one stays in the list. Only the right key and request open it: a wrong
// key fails and cannot return other data.
func (r Request) Open(sealed []byte, answerKeys [][]byte) ([]byte, error) {
	for _, key := range answerKeys {
		sealer, err := r.sealer(key)
		if err != nil {
			return nil, err
		}
		if opened, err := sealer.Open(sealed, r.binding()); err == nil {
			return opened, nil
		}
	}
	return nil, aead.ErrOpen
}

// sealer returns a Sealer whose key is derived (HKDF, RFC 5869) from the idempotency key and one of
// the answer keys. The store keeps neither, so a reader of the database cannot read answers.
// With a nil answerKey, an answer is as safe as its idempotency key is hard to guess.
func (r Request) sealer(answerKey []byte) (*aead.Sealer, error) {
	key, err := hkdf.Key(sha256.New, []byte(r.key), answerKey, "svc answer", aead.KeySize)
	if err != nil {
		return nil, err
	}
	return aead.New(key)
}

// binding ties an answer to its caller and its request: moved to another row, it does not open.
func (r Request) binding() []byte { return slices.Concat(r.ID, r.Digest) }
