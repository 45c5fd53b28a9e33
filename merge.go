package svc

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/extsvc/svc/internal/jcs"
)

// LocalEdits says what [Service.UpdateTemplate] does with a template that was edited here when its source has changed, too.
type LocalEdits string

// What is done with local edits. force replaces them whatever is chosen.
const (
	// EditsConflict refuses the update, with CodeEdited. It is the default.
	EditsConflict LocalEdits = "conflict"
	// EditsOverwrite replaces them with what the source has. What was edited becomes a version.
	EditsOverwrite LocalEdits = "overwrite"
	// EditsMerge keeps what was changed here alone, and takes what the source has changed alone: texts and lists whole, the objects of a
	// manifest key by key. Where both have changed the same, and not alike, the update is refused, with CodeEdited.
	EditsMerge LocalEdits = "merge"
)

// merge puts together what two have made of a content. conflicts are the fields in which they cannot be.
func merge(base, ours, theirs Content) (merged Content, conflicts []string) {
	field := func(name string, clash bool) {
		if clash {
			conflicts = append(conflicts, name)
		}
	}
	var clash bool
	merged.Name, clash = either(base.Name, ours.Name, theirs.Name, func(a, b string) bool { return a == b })
	field("name", clash)
	merged.Description, clash = either(base.Description, ours.Description, theirs.Description, equalText)
	field("description", clash)
	merged.Category, clash = either(base.Category, ours.Category, theirs.Category, equalText)
	field("category", clash)
	merged.Integrations, clash = either(base.Integrations, ours.Integrations, theirs.Integrations, slices.Equal)
	field("integrations", clash)
	merged.Tags, clash = either(base.Tags, ours.Tags, theirs.Tags, slices.Equal)
	field("tags", clash)
	merged.Manifest, clash = mergeJSON(base.Manifest, ours.Manifest, theirs.Manifest)
	field("manifest", clash)
	return merged.clone(), conflicts
}

// either returns what one of two has made of a value, or that both have, and not alike.
func either[V any](base, ours, theirs V, equal func(V, V) bool) (v V, clash bool) {
	switch {
	case equal(base, theirs):
		return ours, false
	case equal(base, ours), equal(ours, theirs):
		return theirs, false
	}
	return ours, true
}

// mergeJSON merges values, nil where there is none: objects key by key, others whole. What is taken is taken as it is written.
func mergeJSON(base, ours, theirs json.RawMessage) (merged json.RawMessage, clash bool) {
	merged, clash = either(base, ours, theirs, sameOrNone)
	if !clash {
		return merged, false
	}
	of, all := objectsOf([3]json.RawMessage{base, ours, theirs})
	if !all {
		return nil, true
	}
	b := []byte("{")
	for _, key := range slices.Sorted(maps.Keys(keysOf(of))) {
		value, clash := mergeJSON(of[0][key], of[1][key], of[2][key])
		if clash {
			return nil, true
		}
		if value == nil {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(jcs.AppendString(b, key), ':'), value...)
	}
	return append(b, '}'), false
}

func sameOrNone(a, b json.RawMessage) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return sameJSON(a, b)
}
