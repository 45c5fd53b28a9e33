package svc

import (
	"context"
	"encoding/json"

	"github.com/extsvc/svc/internal/threeway"
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
	if diff.Changes, err = contentChanges(ctx, template.Origin.Base, template.Content, content); err != nil {
		return TemplateDiff{}, fault("compare contents", err)
	}
	return diff, nil
}

// contentChanges compares contents as deeply as the bounds of package threeway allow.
func contentChanges(ctx context.Context, base, ours, theirs Content) ([]ContentChange, error) {
	var three [3]json.RawMessage
	for i, content := range []Content{base, ours, theirs} {
		text, err := content.canonical()
		if err != nil {
			return nil, err
		}
		three[i] = text
	}
	found, err := threeway.Diff(ctx, three[0], three[1], three[2])
	changes := make([]ContentChange, len(found))
	for i, change := range found {
		changes[i] = ContentChange(change)
	}
	return changes, err
}

// sameValue compares canonical values, either of which may be missing.
func sameValue(a, b json.RawMessage) bool { return string(a) == string(b) }
