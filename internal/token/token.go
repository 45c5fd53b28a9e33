// Package token defines the format of API keys:
//
//	prefix + 16-character id + 32-character secret + 6-character CRC-32 of all before it
//
// Everything after the prefix is base62. A key is one word: a double click selects it whole, and a
// secret scanner finds it. The last six characters of the id are a keyed tag, which tells an
// invented id from an issued one without a lookup.
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"strings"
)

const (
	drawnLength  = 10 // the random part of the id: 59 bits
	tagLength    = 6  // the tag in the id: 32 bits
	IDLength     = drawnLength + tagLength
	SecretLength = 32 // 190 bits
	sumLength    = 6  // CRC-32
	// Length is the length of a key without its prefix.
	Length = IDLength + SecretLength + sumLength
)

// Alphabet holds the characters of ids, secrets and checksums.
const Alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Token is an API key, split into its parts.
type Token struct{ Prefix, ID, Secret string }

// Tagger computes the keyed tag of the random part of an id.
type Tagger func(drawn string) uint32

// New returns a random token.
func New(prefix string, tag Tagger) Token {
	drawn := draw(drawnLength)
	return Token{Prefix: prefix, ID: drawn + encode(tag(drawn)), Secret: draw(SecretLength)}
}

// Parse splits a key that starts with prefix. It returns false for a text that String did not
// write, such as a key with a typo.
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

// Imported returns the token of a key from another system, of which only a digest is known. The
// digest determines its id and secret. The id has no tag.
func Imported(prefix string, digest []byte) Token {
	sum := sha256.Sum256(append([]byte(prefix+"\x00"), digest...))
	id := make([]byte, IDLength)
	for i := range id {
		id[i] = Alphabet[sum[i]%62]
	}
	return Token{Prefix: prefix, ID: string(id), Secret: hex.EncodeToString(digest)}
}

// Whole reports whether a text is a key with any prefix and a valid checksum. One in 2^32 texts
// that only look like a key passes.
func Whole(text string) bool {
	at := len(text) - Length
	if at < 1 || text[at-1] != '_' {
		return false
	}
	_, ok := Parse(text, text[:at])
	return ok
}

// String returns the whole key.
func (t Token) String() string {
	body := t.Prefix + t.ID + t.Secret
	return body + encode(checksum(body))
}

// checksum returns the CRC-32 (IEEE) of a text. The standard library's function takes bytes, so
// each check would copy the text to the heap.
func checksum(text string) uint32 {
	crc := ^uint32(0)
	for i := range len(text) {
		crc = crc32.IEEETable[byte(crc)^text[i]] ^ crc>>8
	}
	return ^crc
}

// Tagged reports whether the id has the tag that tag computes.
func (t Token) Tagged(tag Tagger) bool {
	drawn := t.ID[:drawnLength]
	return t.ID[drawnLength:] == encode(tag(drawn))
}

func encode(n uint32) string {
	b := encoded(n)
	return string(b[:])
}

// encoded returns n as six base62 characters, the most significant first.
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

// draw returns n random characters, all equally likely. It skips bytes from 248 up, which would
// favour the first characters.
func draw(n int) string {
	out := make([]byte, 0, n)
	buf := make([]byte, n+n/4)
	for len(out) < n {
		rand.Read(buf) // never fails: it ends the program instead
		for _, b := range buf {
			if b < 248 && len(out) < n {
				out = append(out, Alphabet[b%62])
			}
		}
	}
	return string(out)
}

// leastSecret is the fewest letters and digits after "_" and an id that look like the secret of an
// API key. It is less than a whole secret, to mask mistyped keys.
const leastSecret = 30

// Mask masks text that looks like an API key. It leaves the id, which an administrator needs to
// revoke the key.
func Mask(text string) string {
	if len(text) < len("_")+IDLength+leastSecret {
		return text
	}
	var masked strings.Builder
	rest := text
	for {
		_, behind, found := strings.Cut(rest, "_")
		if !found {
			masked.WriteString(rest)
			return masked.String()
		}
		masked.WriteString(rest[:len(rest)-len(behind)])
		rest = behind
		end := len(rest) - len(strings.TrimLeft(rest, Alphabet))
		if end >= IDLength+leastSecret {
			masked.WriteString(rest[:IDLength] + "***")
			rest = rest[end:]
		}
	}
}
