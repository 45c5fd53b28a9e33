package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// plain returns a text on one line, in which the characters that a terminal obeys, that turn others
// around or that nobody sees are escaped as in JSON. Names, descriptions and patterns may have such
// characters: as they are, they could hide or forge lines.
func plain(text string) string {
	if !strings.ContainsFunc(text, isHidden) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if !isHidden(r) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}

// isHidden reports whether a terminal may obey a character, or shows nothing. Joiners are part of
// words and pictures.
func isHidden(r rune) bool {
	if r == '\u200c' || r == '\u200d' {
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) || r >= 0xe0000 && r <= 0xe0fff
}

// plainLines is plain for each line of a text.
func plainLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = plain(line)
	}
	return strings.Join(lines, "\n")
}

// printLine prints a plain line.
func printLine(out io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintln(out, plain(fmt.Sprintf(format, args...)))
	return err
}
