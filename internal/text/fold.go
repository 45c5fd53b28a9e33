package text

import (
	"strings"
	"unicode"
)

// Fold returns a text in which upper and lower case are one, letter by letter: it has as many
// characters. Marks and normal forms stay.
func Fold(text string) string {
	return strings.Map(func(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }, text)
}
