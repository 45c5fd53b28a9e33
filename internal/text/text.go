// Package text says what a text, a name or an id may hold, and masks secrets in texts.
// Limits are the caller's, in Unicode code points.
package text

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Problem says why not every store can keep the text s, or "". No database keeps both NUL and bad
// UTF-8.
func Problem(s string, limit int) string {
	switch {
	case !utf8.ValidString(s):
		return "must be valid UTF-8"
	case strings.ContainsRune(s, 0):
		return "must hold no NUL character"
	case utf8.RuneCountInString(s) > limit:
		return fmt.Sprintf("must be at most %d characters", limit)
	}
	return ""
}

// NameProblem says why a name is not 1 to limit printable characters, or "".
func NameProblem(name string, limit int) string {
	if name == "" {
		return fmt.Sprintf("must be 1 to %d characters", limit)
	}
	if problem := Problem(name, limit); problem != "" {
		return problem
	}
	if strings.ContainsFunc(name, unprintable) {
		return "must hold no control, format or bidi characters"
	}
	return ""
}

// IDProblem says why id cannot stand in a path, or "". Ids are compared byte by byte and never
// normalized.
func IDProblem(id string, limit int) string {
	switch {
	case id == "." || id == "..":
		return `must not be "." or ".."`
	case strings.ContainsAny(id, `/\`):
		return "must hold no slash or backslash"
	}
	return NameProblem(id, limit)
}

// unprintable reports whether r is a control character, a format character (bidi characters are
// format characters) or a line separator.
func unprintable(r rune) bool {
	if r < 0x80 {
		return r < ' ' || r == 0x7f
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Hidden reports whether r is a control character, or shows nothing, or turns others around. Joiners
// show: they are part of words and pictures.
func Hidden(r rune) bool {
	if r == '\u200c' || r == '\u200d' {
		return false
	}
	const tags, endOfSelectors = 0xe0000, 0xe0fff
	return unprintable(r) || r >= tags && r <= endOfSelectors
}

// Clean returns s with U+FFFD in place of bytes and characters that could hide or forge others: bad
// UTF-8, control and bidi characters but line breaks and tabs.
func Clean(s string) string {
	return strings.Map(func(r rune) rune { // a bad byte is U+FFFD already
		if r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Bidi_Control) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Visible reports whether s has only visible ASCII characters, so that it fits in a header.
func Visible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// Masked stands in place of a secret.
const Masked = "***"

// minHidden is the length of the shortest secret that Hide hides. A shorter one can appear in a
// text by chance.
const minHidden = 8

// Hide returns s with [Masked] in place of the secret, plain or escaped for a URL. It is for texts
// of other systems, which may repeat the secret. A secret of less than 8 bytes is not hidden.
func Hide(secret, s string) string {
	if len(secret) < minHidden {
		return s
	}
	for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret)} {
		s = strings.ReplaceAll(s, form, Masked)
	}
	return s
}
