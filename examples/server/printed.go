package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// plain returns a text on one line, in which the characters that a terminal obeys, or that turn
// others around, are escaped as in JSON. Names, descriptions and patterns may have such characters:
// as they are, they could hide or forge lines.
func plain(text string) string {
	if !strings.ContainsFunc(text, obeyed) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if obeyed(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// obeyed reports whether a terminal may obey a character. All of them are below U+10000.
func obeyed(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
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
