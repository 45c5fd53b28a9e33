package svc

import (
	"context"
	"encoding/json"
	"iter"
	"math"
	"time"

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

// Diff asks a template's source, and says what an update would change, and what was changed here: base is what was
// installed, ours the template, theirs what the source has. Lists are compared whole, objects key by key; where that comes to
// too many places, or too deep ones, the object above them stands for them. Errors: those of [Templates.Update], but for CodeEdited.
func (s *Templates) Diff(ctx context.Context, by Principal, id string) (TemplateDiff, error) {
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

// MaxTemplateVersions is how many former versions of a template are kept: the newest.
const MaxTemplateVersions = 20

// TemplateVersion is a template as it was.
type TemplateVersion struct {
	Number int64 // counts its contents: 1 is what was created or installed
	Content
	SourceRevision string    // of what was installed then; "" made by hand
	UpdatedAt      time.Time // since when it was so
}

// History lists the former versions of a template of the server, newest first: what patches, updates and rollbacks have
// replaced, at most [MaxTemplateVersions]. They go with the template. Errors: CodeInvalid, CodeForbidden, CodeNotFound. The
// error, if any, is the last thing yielded.
func (s *Templates) History(ctx context.Context, by Principal, id string) iter.Seq2[TemplateVersion, error] {
	before := int64(math.MaxInt64)
	return list(ctx, "list versions", anyLength,
		func() error {
			_, err := s.template(ctx, by, id)
			return err
		},
		func() ([]TemplateVersion, error) {
			return s.store.TemplateVersions(ctx, serverTemplate(id), before, MaxTemplateVersions)
		},
		func(last TemplateVersion) { before = last.Number })
}

// Rollback gives a template of the server the content of a former version. What it replaces becomes a version, too, so
// that a rollback can be rolled back. To updates it is an edit as a patch is: Origin stays, and with it what counts as
// edited here. Where the content is the same nothing is written. With ifMatch, only a template with one of these ETags is rolled
// back. Errors: CodeInvalid, CodeForbidden, CodeNotFound (the template, or the version), CodePrecondition.
func (s *Templates) Rollback(ctx context.Context, by Principal, id string, number int64, ifMatch ...string) (Template, error) {
	var c checker
	c.lookup("template_id", id)
	if number < 1 || number == math.MaxInt64 {
		c.add("/version", "must be the number of a version")
	}
	if err := c.err(); err != nil {
		return Template{}, err
	}
	if err := s.authorize(ctx, by, ActionTemplateAdmin); err != nil {
		return Template{}, err
	}
	version, err := s.version(ctx, serverTemplate(id), number)
	if err != nil {
		return Template{}, err
	}
	return s.editTemplate(ctx, by, id, EventTemplateRolledBack, ifMatch, func(Content) Content { return version.Content.clone() })
}

func (s *Templates) version(ctx context.Context, key TemplateKey, number int64) (TemplateVersion, error) {
	found, err := s.store.TemplateVersions(ctx, key, number+1, 1)
	if err != nil {
		return TemplateVersion{}, fault("read version", err)
	}
	if len(found) == 0 || found[0].Number != number {
		return TemplateVersion{}, notFound("there is no such version of this template")
	}
	return found[0], nil
}
