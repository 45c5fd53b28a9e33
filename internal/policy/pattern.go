package policy

import (
	"errors"
	"math"
	"slices"
	"strings"
)

var (
	errEmptyPattern  = errors.New("must not be empty")
	errActionPattern = errors.New(`may hold "*" only at its end, after a ":"`)
	errBankPattern   = errors.New(`may hold "*" only alone or at its end, after "::"`)
)

// coveredByRecall are the actions that the literal pattern "bank:recall" also covers, in allows and
// in denies: a principal that may recall may look at what a recall would show. The reverse does not
// hold.
var coveredByRecall = []string{"bank:memories:list", "bank:memories:get"}

// recall is the action pattern that covers more than itself.
const recall = "bank:recall"

// meanings returns the patterns that an action pattern stands for. Each of them covers only what it
// says.
func meanings(pattern string) []string {
	if pattern == recall {
		return append([]string{recall}, coveredByRecall...)
	}
	return []string{pattern}
}

// ValidAction reports what is wrong with an action pattern. A valid pattern is a literal, or ends
// in ":*". A lone "*" is not valid.
func ValidAction(pattern string) error {
	switch star := strings.IndexByte(pattern, '*'); {
	case pattern == "":
		return errEmptyPattern
	case star < 0, star == len(pattern)-1 && strings.HasSuffix(pattern, ":*"):
		return nil
	}
	return errActionPattern
}

// validBank is ValidAction for bank patterns. A valid pattern is "*", a literal, or a pattern that
// ends in "::*".
func validBank(pattern string) error {
	switch star := strings.IndexByte(pattern, '*'); {
	case pattern == "":
		return errEmptyPattern
	case star < 0, pattern == "*", star == len(pattern)-1 && strings.HasSuffix(pattern, "::*"):
		return validVariables(pattern)
	}
	return errBankPattern
}

// MatchAction reports whether the pattern covers the action, byte by byte. The action is always a
// literal, even when it looks like a pattern. An invalid pattern covers nothing.
func MatchAction(pattern, action string) bool {
	return ValidAction(pattern) == nil && actionCovers(pattern, action)
}

// actionCovers is MatchAction for a valid pattern.
func actionCovers(pattern, action string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(action, prefix)
	}
	return pattern == action || pattern == recall && slices.Contains(coveredByRecall, action)
}

// MatchBank reports whether the pattern covers the bank, byte by byte: "a::*" covers "a::b" and
// "a::b::c", but not "a". The bank is always a literal: only the pattern "*" covers a request on
// bank "*". An invalid pattern covers nothing.
func MatchBank(pattern, bank string) bool {
	return validBank(pattern) == nil && bankCovers(pattern, bank)
}

// bankCovers is MatchBank for a valid pattern.
func bankCovers(pattern, bank string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(bank, prefix)
	}
	return pattern == bank
}

// firstAction returns the first pattern that covers the action. All patterns must be valid.
func firstAction(patterns []string, action string) (string, bool) {
	for _, p := range patterns {
		if actionCovers(p, action) {
			return p, true
		}
	}
	return "", false
}

// covers reports whether one of the patterns covers the action. All must be valid.
func covers(patterns []string, action string) bool {
	_, ok := firstAction(patterns, action)
	return ok
}

// closestBank returns the most specific pattern that covers the bank. All patterns must be valid.
func closestBank(patterns []string, bank string) (string, bool) {
	closest, found := "", false
	for _, p := range patterns {
		if bankCovers(p, bank) && (!found || specificity(p) > specificity(closest)) {
			closest, found = p, true
		}
	}
	return closest, found
}

// specificity orders the bank patterns that cover one bank: a literal is above all prefixes, a
// longer prefix above a shorter one, and "*" is last.
func specificity(bank string) int {
	if strings.HasSuffix(bank, "*") {
		return len(bank)
	}
	return math.MaxInt
}
