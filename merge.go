package svc

import (
	"context"
	"slices"

	"github.com/extsvc/svc/internal/threeway"
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

// merge puts together what two have made of a content. conflicts are the fields in which they
// cannot be. Its error is that of ctx, or says that a manifest is not valid JSON.
func merge(ctx context.Context, base, ours, theirs Content) (merged Content, conflicts []string, err error) {
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
	merged.Manifest, clash, err = threeway.Merge(ctx, base.Manifest, ours.Manifest, theirs.Manifest)
	field("manifest", clash)
	return merged.clone(), conflicts, err
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
