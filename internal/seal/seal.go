// Package seal encrypts small secrets at rest, each bound to the place where it is kept.
package seal

import (
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
)

// KeySize is the length of a sealing key in bytes.
const KeySize = chacha20poly1305.KeySize

// Sealer seals with XChaCha20-Poly1305, whose nonces are long enough to be drawn at random. Safe for concurrent use.
type Sealer struct{ aead cipher.AEAD }

// New returns a Sealer for a key of [KeySize] bytes.
func New(key []byte) (*Sealer, error) {
	if len(key) != KeySize {
		return nil, fmt.Errorf("must be %d bytes, not %d", KeySize, len(key))
	}
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, err
	}
	return &Sealer{aead}, nil
}

// Seal encrypts secret. Only the same binding opens it.
func (s *Sealer) Seal(secret, binding []byte) []byte {
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(secret)+s.aead.Overhead())
	rand.Read(nonce) // never fails: it ends the program rather
	return s.aead.Seal(nonce, nonce, secret, binding)
}

// Open decrypts what Seal made, or says that key, binding or bytes are not the same.
func (s *Sealer) Open(sealed, binding []byte) ([]byte, error) {
	if len(sealed) < s.aead.NonceSize() {
		return nil, errors.New("sealed value is too short")
	}
	nonce, box := sealed[:s.aead.NonceSize()], sealed[s.aead.NonceSize():]
	return s.aead.Open(nil, nonce, box, binding)
}
