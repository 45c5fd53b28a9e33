package svc

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/extsvc/svc/internal/strictjson"
)

// TemplateDiff is how a template, what was installed of it, and what its source has now differ.
type TemplateDiff struct {
	CurrentRevision string          // of what was installed
	LatestRevision  string          // of what the source has
	Changes         []ContentChange // by path; never nil
}

// ContentChange is a place where not all three contents are the same. A value is JSON; nil: there is none in that content.
type ContentChange struct {
	Path   string // a JSON pointer (RFC 6901) into the content: /name, /tags, /manifest/steps
	Base   json.RawMessage
	Ours   json.RawMessage
	Theirs json.RawMessage
}

// Conflict reports whether the place was changed both here and by the source, and not alike.
func (c ContentChange) Conflict() bool {
	return !sameValue(c.Base, c.Ours) && !sameValue(c.Base, c.Theirs) && !sameValue(c.Ours, c.Theirs)
}

// DiffTemplate asks a template's source, and says what an update would change, and what was changed here: base is what was
// installed, ours the template, theirs what the source has. Lists are compared whole, objects key by key; where that comes to
// too many places, or too deep ones, the object above them stands for them. Errors: those of [Service.UpdateTemplate], but for CodeEdited.
func (s *Service) DiffTemplate(ctx context.Context, by Principal, id string) (TemplateDiff, error) {
	template, content, revision, err := s.latest(ctx, by, id)
	if err != nil {
		return TemplateDiff{}, err
	}
	diff := TemplateDiff{CurrentRevision: template.Origin.Revision, LatestRevision: revision}
	diff.Changes, err = contentChanges(template.Origin.Base, template.Content, content)
	return diff, fault("compare contents", err)
}

// Bounds of a diff, so that it is not much longer than the contents.
const (
	maxChanges    = 1000
	maxDiffDepth  = 16
	maxDiffPrefix = 256 // bytes of a path that is looked into
)

// contentChanges compares contents as deeply as bounds allow.
func contentChanges(base, ours, theirs Content) ([]ContentChange, error) {
	var three [3]json.RawMessage
	for i, content := range []Content{base, ours, theirs} {
		text, err := content.canonical()
		if err != nil {
			return nil, err
		}
		three[i] = text
	}
	for depth := maxDiffDepth; ; depth-- {
		d := differ{changes: []ContentChange{}, bounded: depth > 1}
		d.compare("", three, depth)
		if len(d.changes) <= maxChanges || depth == 1 {
			return d.changes, nil
		}
	}
}

// differ collects the places where three canonical JSON values differ.
type differ struct {
	changes []ContentChange
	bounded bool // it stops where there are too many
}

func (d *differ) compare(path string, three [3]json.RawMessage, depth int) {
	if d.bounded && len(d.changes) > maxChanges || sameValue(three[0], three[1]) && sameValue(three[1], three[2]) {
		return
	}
	objects, all := objectsOf(three)
	if !all || depth == 0 || len(path) > maxDiffPrefix {
		d.changes = append(d.changes, ContentChange{path, three[0], three[1], three[2]})
		return
	}
	for _, key := range slices.Sorted(maps.Keys(keysOf(objects))) {
		d.compare(path+"/"+strictjson.Token(key), [3]json.RawMessage{objects[0][key], objects[1][key], objects[2][key]}, depth-1)
	}
}

// objectsOf reads values that are all objects.
func objectsOf(three [3]json.RawMessage) (objects [3]map[string]json.RawMessage, all bool) {
	for i, value := range three {
		if len(value) == 0 || value[0] != '{' || json.Unmarshal(value, &objects[i]) != nil {
			return objects, false
		}
	}
	return objects, true
}

// keysOf are those that any of three objects has.
func keysOf(objects [3]map[string]json.RawMessage) map[string]bool {
	keys := map[string]bool{}
	for _, object := range objects {
		for key := range object {
			keys[key] = true
		}
	}
	return keys
}

// sameValue compares canonical values, either of which may be missing.
func sameValue(a, b json.RawMessage) bool { return string(a) == string(b) }
