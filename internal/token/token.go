// Package token is the format of API keys:
//
//	prefix + 16-character id + 32-character secret + 6-character CRC-32 of all before it
//
// all base62, one word, so that a double click takes it whole and a secret scanner finds it. The last six characters of
// the id are a tag, keyed, so that an invented id is told from an issued one without looking it up.
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"strings"
)

const (
	drawnLength  = 10 // of the id, drawn at random: 59 bits
	tagLength    = 6  // of the id, the tag: 32 bits
	IDLength     = drawnLength + tagLength
	SecretLength = 32 // 190 bits
	sumLength    = 6  // CRC-32
	// Length is that of a key without its prefix.
	Length = IDLength + SecretLength + sumLength
)

// Alphabet is what ids, secrets and checksums are written in.
const Alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Token is an API key in its parts.
type Token struct{ Prefix, ID, Secret string }

// Tagger computes the keyed tag of the drawn part of an id.
type Tagger func(drawn string) uint32

// New draws a token.
func New(prefix string, tag Tagger) Token {
	drawn := draw(drawnLength)
	return Token{Prefix: prefix, ID: drawn + encode(tag(drawn)), Secret: draw(SecretLength)}
}

// Parse splits a key that starts with prefix. It is false for anything that was not made by String: a typo, for one.
func Parse(key, prefix string) (Token, bool) {
	rest, found := strings.CutPrefix(key, prefix)
	if !found || len(rest) != Length {
		return Token{}, false
	}
	for i := range len(rest) {
		if !inAlphabet[rest[i]] {
			return Token{}, false
		}
	}
	body := key[:len(key)-sumLength]
	t := Token{Prefix: prefix, ID: rest[:IDLength], Secret: rest[IDLength : IDLength+SecretLength]}
	return t, encoded(checksum(body)) == [sumLength]byte([]byte(key[len(body):]))
}

// Imported is the token that stands for a key of another system, of which only a digest is known: its id and its secret follow from
// that. The id carries no tag.
func Imported(prefix string, digest []byte) Token {
	sum := sha256.Sum256(append([]byte(prefix+"\x00"), digest...))
	id := make([]byte, IDLength)
	for i := range id {
		id[i] = Alphabet[sum[i]%62]
	}
	return Token{Prefix: prefix, ID: string(id), Secret: hex.EncodeToString(digest)}
}

// Whole reports whether a text is a key, with whatever prefix, its checksum included. Of texts that only look like one, one in
// 2^32 passes.
func Whole(text string) bool {
	at := len(text) - Length
	if at < 1 || text[at-1] != '_' {
		return false
	}
	_, ok := Parse(text, text[:at])
	return ok
}

// String is the whole key.
func (t Token) String() string {
	body := t.Prefix + t.ID + t.Secret
	return body + encode(checksum(body))
}

// checksum is the CRC-32 (IEEE) of a text. The standard library's takes bytes, which would be copied to the heap at each check.
func checksum(text string) uint32 {
	crc := ^uint32(0)
	for i := range len(text) {
		crc = crc32.IEEETable[byte(crc)^text[i]] ^ crc>>8
	}
	return ^crc
}

// Tagged reports whether the id carries that tag.
func (t Token) Tagged(tag Tagger) bool {
	drawn := t.ID[:drawnLength]
	return t.ID[drawnLength:] == encode(tag(drawn))
}

func encode(n uint32) string {
	b := encoded(n)
	return string(b[:])
}

// encoded is n in base62, six characters, the most significant first.
func encoded(n uint32) (b [sumLength]byte) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = Alphabet[n%62]
		n /= 62
	}
	return b
}

var inAlphabet = func() (in [256]bool) {
	for i := range len(Alphabet) {
		in[Alphabet[i]] = true
	}
	return in
}()

// draw returns n characters, each as likely as every other: bytes from 248 up would favour the first ones.
func draw(n int) string {
	out := make([]byte, 0, n)
	buf := make([]byte, n+n/4)
	for len(out) < n {
		rand.Read(buf) // never fails: it ends the program rather
		for _, b := range buf {
			if b < 248 && len(out) < n {
				out = append(out, Alphabet[b%62])
			}
		}
	}
	return string(out)
}
