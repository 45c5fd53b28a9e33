package adminpage

import (
	"bytes"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/extsvc/svc/internal/text"
)

// isHidden reports whether a page has to show a character in another way.
func isHidden(r rune) bool { return r != '\n' && r != '\t' && r != '\r' && text.Hidden(r) }

// reveal shows the hidden characters in the texts of a page, escaped as in JSON. A text of a source
// could otherwise look like another one than an update writes. Attributes and inputs stay as they
// are: forms send them back.
func reveal(page []byte) []byte {
	if !bytes.ContainsFunc(page, isHidden) {
		return page // as most are
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
func appendRevealed(to, part []byte) []byte {
	for {
		at := bytes.IndexFunc(part, isHidden)
		if at < 0 {
			return append(to, part...)
		}
		r, size := utf8.DecodeRune(part[at:])
		to, part = append(to, part[:at]...), part[at+size:]
		for _, unit := range utf16.AppendRune(nil, r) {
			to = fmt.Appendf(to, `\u%04x`, unit)
		}
	}
}
