package adminpage

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// isHidden reports whether a character shows nothing, or turns others around. Joiners are part of
// words and pictures.
func isHidden(r rune) bool {
	switch {
	case r < 0x80:
		return r < ' ' && r != '\n' && r != '\t' && r != '\r' || r == 0x7f
	case r == '\u200c' || r == '\u200d':
		return false
	}
	const tags, endOfSelectors = 0xe0000, 0xe0fff
	return r >= tags && r <= endOfSelectors || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// reveal shows the hidden characters in the texts of a page, escaped as in JSON. A text of a source
// could otherwise look like another one than an update writes. Attributes and inputs stay as they
// are: forms send them back.
func reveal(page []byte) []byte {
	if !bytes.ContainsFunc(page, isHidden) {
		return page
	}
	shown := make([]byte, 0, 2*len(page))
	for len(page) > 0 {
		end := bytes.IndexByte(page, '<')
		if end < 0 {
			end = len(page)
		}
		shown, page = appendRevealed(shown, page[:end]), page[end:]
		until := ">"
		if bytes.HasPrefix(page, []byte("<textarea")) {
			until = "</textarea>"
		}
		_, rest, _ := bytes.Cut(page, []byte(until))
		shown, page = append(shown, page[:len(page)-len(rest)]...), rest
	}
	return shown
}

// appendRevealed appends a text to which no tags belong.
func appendRevealed(to, text []byte) []byte {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if isHidden(r) {
			for _, unit := range utf16.AppendRune(nil, r) {
				to = fmt.Appendf(to, `\u%04x`, unit)
			}
		} else {
			to = append(to, text[:size]...)
		}
		text = text[size:]
	}
	return to
}
