// Package aead encrypts small secrets at rest. Each is bound to the place that stores it.
package aead

import (
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/crypto/chacha20poly1305"
)

// KeySize is the length of a sealing key in bytes.
const KeySize = chacha20poly1305.KeySize

// ErrOpen means that the key, the binding or the bytes differ from those of Seal.
var ErrOpen = errors.New("no sealing key opens this secret, or it was sealed for another place")

// Sealer seals with XChaCha20-Poly1305, whose nonces are long enough to be random. It seals with
// its first key and opens with each key. A nil Sealer has no key and opens nothing. It is safe for
// concurrent use.
type Sealer struct{ keys []key }

type key struct {
	bytes [KeySize]byte
	aead  cipher.AEAD
}

// New returns a Sealer with one key of [KeySize] bytes.
func New(first []byte) (*Sealer, error) { return (&Sealer{}).WithOld(first) }

// WithOld returns a Sealer that also opens what old sealed. old must have [KeySize] bytes and
// differ from the keys of s.
func (s *Sealer) WithOld(old []byte) (*Sealer, error) {
	if len(old) != KeySize {
		return nil, fmt.Errorf("must be %d bytes, not %d", KeySize, len(old))
	}
	if slices.ContainsFunc(s.keys, func(k key) bool { return k.bytes == [KeySize]byte(old) }) {
		return nil, errors.New("is listed twice: remove one")
	}
	aead, err := chacha20poly1305.NewX(old)
	if err != nil {
		return nil, err
	}
	return &Sealer{append(slices.Clip(s.keys), key{[KeySize]byte(old), aead})}, nil
}

// Keys returns the number of keys.
func (s *Sealer) Keys() int {
	if s == nil {
		return 0
	}
	return len(s.keys)
}

// Seal encrypts secret with the first key. Open needs the same binding.
func (s *Sealer) Seal(secret, binding []byte) []byte {
	aead := s.keys[0].aead
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(secret)+aead.Overhead())
	rand.Read(nonce) // never fails: it ends the program instead
	return aead.Seal(nonce, nonce, secret, binding)
}

// Open decrypts the result of Seal, or returns ErrOpen.
func (s *Sealer) Open(sealed, binding []byte) ([]byte, error) {
	secret, _, err := s.open(sealed, binding)
	return secret, err
}

// Reseal opens sealed and seals it with the first key. It returns nil when the first key had sealed
// it, or ErrOpen.
func (s *Sealer) Reseal(sealed, binding []byte) ([]byte, error) {
	secret, under, err := s.open(sealed, binding)
	if err != nil || under == 0 {
		return nil, err
	}
	return s.Seal(secret, binding), nil
}

// Under returns the index of the key that sealed, 0 for the first, or ErrOpen.
func (s *Sealer) Under(sealed, binding []byte) (int, error) {
	_, under, err := s.open(sealed, binding)
	return under, err
}

// open decrypts the result of Seal and returns the index of its key.
func (s *Sealer) open(sealed, binding []byte) (secret []byte, under int, err error) {
	if s == nil || len(sealed) < chacha20poly1305.NonceSizeX {
		return nil, 0, ErrOpen
	}
	nonce, box := sealed[:chacha20poly1305.NonceSizeX], sealed[chacha20poly1305.NonceSizeX:]
	for i, k := range s.keys {
		if secret, err = k.aead.Open(nil, nonce, box, binding); err == nil {
			return secret, i, nil
		}
	}
	return nil, 0, ErrOpen
}
