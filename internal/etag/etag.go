// Package etag has the entity tags of rows (RFC 9110, section 8.8.3).
package etag

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// Any matches every row.
const Any = "*"

// Of returns the tag of a row with these texts and flags.
func Of(body ...any) string {
	text, _ := json.Marshal(body) // texts and flags always encode
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// Matches reports whether ifMatch has a tag, or is empty. The tag "" is not known, so only [Any]
// matches it. The comparison is weak: a proxy that compresses answers may mark their tags as weak.
// The strong comparison of If-Match (RFC 9110, section 13.1.1) would not protect better, because
// each tag here stands for one state of a row.
func Matches(tag string, ifMatch []string) bool {
	return len(ifMatch) == 0 || slices.ContainsFunc(ifMatch, func(given string) bool {
		return given == Any || tag != "" && strings.TrimPrefix(given, "W/") == tag
	})
}
