package marketplace

import (
	"fmt"
	"maps"
	"slices"

	"github.com/extsvc/svc/internal/jcs"
)

// parseRenames parses the renames of a catalogue: an object of former ids and present ones. Its
// errors are faults of the catalogue.
func parseRenames(object []byte, limits Limits) (map[string]string, error) {
	bad := func(key, problem string) error {
		return newFault("is bad: /renames/"+clip(key, 200)+" "+problem, nil)
	}
	switch {
	case object == nil || string(object) == "null":
		return nil, nil
	case object[0] != '{':
		return nil, newFault("is bad: /renames must be an object of texts", nil)
	}
	renames := map[string]string{}
	for key, value := range members(object) {
		if len(renames) == limits.Entries {
			return nil, newFault(fmt.Sprintf("has more than %d renames", limits.Entries), nil)
		}
		if value[0] != '"' {
			return nil, bad(key, "must be a text")
		}
		if renames[key] = jcs.Unquote(value); key == "" || renames[key] == "" {
			return nil, bad(key, "must name two ids")
		}
	}
	walked := map[string]string{} // an id: the id at which the walk to it began
	// Sorted, so that the error is the same each time.
	for _, first := range slices.Sorted(maps.Keys(renames)) {
		for id := first; id != "" && walked[id] != first; id = renames[id] {
			if walked[id] != "" {
				break
			}
			if walked[id] = first; walked[renames[id]] == first {
				return nil, bad(id, "leads back to itself")
			}
		}
	}
	return renames, nil
}
