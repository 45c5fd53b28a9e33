package parameter

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

const maxName = 64 // characters

// reserved are the keys that stand next to parameters in documents and answers.
var reserved = []string{
	"effect", "actions", "banks", "allowed", "resolved_user_id", "scope", "value",
}

// Check returns an error that says what is wrong with a definition. Nil: nothing is.
func (d *Definition) Check() error {
	merges, narrows := d.sensible()
	switch {
	case slices.Contains(reserved, d.Name):
		return errors.New("the name is reserved")
	case !ValidName(d.Name):
		return fmt.Errorf("the name must have 1 to %d characters of a–z, 0–9 and _", maxName)
	case merges == nil:
		return errors.New("Type must be set")
	case d.Merge < Greatest || d.Merge > Closest:
		return errors.New("Merge must be set")
	case d.Narrow < Lesser || d.Narrow > Replace:
		return errors.New("Narrow must be set")
	case !slices.Contains(merges, d.Merge):
		return errors.New("Merge does not fit Type")
	case !slices.Contains(narrows, d.Narrow):
		return errors.New("Narrow does not fit Type")
	}
	return d.checkLevels()
}

// sensible returns the merges and the ways to narrow that fit the type. nil: the type is unknown.
func (d *Definition) sensible() ([]Merge, []Narrow) {
	switch d.Type {
	case Integer, Level:
		return []Merge{Greatest, Least, Closest}, []Narrow{Lesser, Greater, Replace}
	case Text:
		return []Merge{Closest}, []Narrow{Replace}
	case TextList:
		return []Merge{Union, All, Closest}, []Narrow{Intersect, Unite, Append, Replace}
	case ObjectList:
		return []Merge{All, Closest}, []Narrow{Intersect, Append, Replace}
	}
	return nil, nil
}

func (d *Definition) checkLevels() error {
	switch levels := slices.Compact(slices.Sorted(slices.Values(d.Levels))); {
	case d.Type != Level && len(levels) > 0:
		return errors.New("only a level has Levels")
	case d.Type == Level && len(levels) == 0:
		return errors.New("it has no Levels")
	case len(levels) < len(d.Levels):
		return errors.New("a level is twice in Levels")
	case slices.Contains(levels, ""):
		return errors.New("an empty text is no level")
	}
	return nil
}

// ValidName reports whether a parameter may have this name.
func ValidName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789_"
	return name != "" && len(name) <= maxName && strings.Trim(name, letters) == "" &&
		!slices.Contains(reserved, name)
}
