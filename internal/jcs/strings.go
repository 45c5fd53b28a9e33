package jcs

import (
	"cmp"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// letters holds the two-character escapes; every other control character takes six characters.
// Above U+001F only the quote and the backslash are escaped.
var letters = [256]byte{'\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r', '"': '"', '\\': '\\'}

// AppendString appends s as one canonical JSON string, as ECMAScript's JSON.stringify writes it
// (RFC 8785, section 3.2.2.2). s must be valid UTF-8. AppendString copies invalid bytes unchanged;
// the result is then not JSON.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		if l := letters[c]; l != 0 {
			dst = append(dst, '\\', l)
		} else {
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		from = i + 1
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// compare orders keys by their UTF-16 code units (RFC 8785, section 3.2.3).
func compare(a, b string) int {
	for a != "" && b != "" {
		ra, na := utf8.DecodeRuneInString(a)
		rb, nb := utf8.DecodeRuneInString(b)
		if ra != rb {
			return cmp.Compare(rank(ra), rank(rb))
		}
		a, b = a[na:], b[nb:]
	}
	return cmp.Compare(len(a), len(b))
}

// rank returns the place of r among all code points in UTF-16 order. Code points above U+FFFF begin
// with a surrogate (U+D800 to U+DFFF), so they come before U+E000.
func rank(r rune) rune {
	if 0xE000 <= r && r <= 0xFFFF {
		return r + utf8.MaxRune
	}
	return r
}

// AppendStrings appends an array of canonical JSON strings to dst. A nil list gives an empty array.
func AppendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, s)
	}
	return append(dst, ']')
}
