package testscript

import (
	"regexp"
	"strconv"
	"strings"
)

var variable = regexp.MustCompile(`\$(\w+)|\$\(([^()*]+)\*(\d+)\)`)

// Expand puts values for names "$NAME", also within values, and repetitions for "$(x*100)", in which
// names may be. Names without a value stay.
func Expand(text string, value func(name string) (string, bool)) string {
	return variable.ReplaceAllStringFunc(text, func(found string) string {
		parts := variable.FindStringSubmatch(found)
		if parts[1] == "" {
			times, _ := strconv.Atoi(parts[3])
			return strings.Repeat(Expand(parts[2], value), times)
		}
		if text, bound := value(parts[1]); bound {
			return Expand(text, value)
		}
		return found
	})
}

// Like reports whether a text is a pattern, in which "…" stands for any text.
func Like(text, pattern string) bool {
	parts := strings.Split(pattern, "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile("(?s)^" + strings.Join(parts, ".*") + "$").MatchString(text)
}
