package svc

import (
	"context"
	"encoding/json"
	"iter"
	"math"
	"time"

	"github.com/extsvc/svc/internal/threeway"
)

// TemplateDiff lists the differences between a template, its installed content and the content that
// its source has now.
type TemplateDiff struct {
	CurrentRevision string          // the revision of the installed content
	LatestRevision  string          // the revision of the source's content
	Changes         []ContentChange // in order of path; never nil
}

// ContentChange is a place where the three contents are not all the same. Each value is JSON; nil:
// that content has no value there.
type ContentChange struct {
	Path   string // a JSON pointer (RFC 6901) into the content: /name, /tags, /manifest/steps
	Base   json.RawMessage
	Ours   json.RawMessage
	Theirs json.RawMessage
}

// Conflict reports whether local edits and the source have changed the place differently.
func (c ContentChange) Conflict() bool {
	return !sameValue(c.Base, c.Ours) && !sameValue(c.Base, c.Theirs) &&
		!sameValue(c.Ours, c.Theirs)
}

// Diff asks a template's source and returns what an update would change and what was edited
// locally. Base is the installed content, Ours the template, Theirs the source's content. Diff
// compares lists whole, and objects key by key. When this gives too many places, or places that are
// too deep, the object above them stands for them. Errors: those of [Templates.Update], except
// CodeEdited.
func (s *Templates) Diff(ctx context.Context, by Principal, id string) (TemplateDiff, error) {
	template, content, revision, err := s.latest(ctx, by, id)
	if err != nil {
		return TemplateDiff{}, err
	}
	diff := TemplateDiff{CurrentRevision: template.Origin.Revision, LatestRevision: revision}
	diff.Changes, err = contentChanges(ctx, template.Origin.Base, template.Content, content)
	if err != nil {
		return TemplateDiff{}, fault("compare contents", err)
	}
	return diff, nil
}

// contentChanges compares contents as deeply as the bounds of package threeway allow.
func contentChanges(
	ctx context.Context, base, ours, theirs Content,
) ([]ContentChange, error) {
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

// sameValue compares two canonical values. Either may be missing.
func sameValue(a, b json.RawMessage) bool { return string(a) == string(b) }

// MaxTemplateVersions limits the former versions kept of a template. The newest are kept.
const MaxTemplateVersions = 20

// TemplateVersion is a former state of a template.
type TemplateVersion struct {
	Number int64 // counts the template's contents: 1 is the created or installed content
	Content
	SourceRevision string    // the revision installed at that time; "": made by hand
	UpdatedAt      time.Time // when the template got this content
}

// History lists the former versions of a template of the server, newest first. Patches, updates and
// rollbacks turn the content that they replace into a version. The list has at most
// [MaxTemplateVersions]. Deleting the template deletes its versions. Errors: CodeInvalid,
// CodeForbidden, CodeNotFound. The error, if any, is the last thing yielded.
func (s *Templates) History(
	ctx context.Context, by Principal, id string,
) iter.Seq2[TemplateVersion, error] {
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

// Rollback gives a template of the server the content of a former version. The replaced content
// becomes a version, so a rollback can be rolled back. For updates a rollback is an edit, like a
// patch: Origin and its base stay, and differences from the base count as edited locally. If the
// content is the same, Rollback writes nothing. With ifMatch, Rollback changes the template only
// when it has one of these ETags. Errors: CodeInvalid, CodeForbidden, CodeNotFound (the template or
// the version), CodePrecondition.
func (s *Templates) Rollback(
	ctx context.Context, by Principal, id string, number int64, ifMatch ...string,
) (Template, error) {
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
	return s.editTemplate(ctx, by, id, EventTemplateRolledBack, ifMatch, func(Content) Content {
		return version.Content.clone()
	})
}

func (s *Templates) version(
	ctx context.Context, key TemplateKey, number int64,
) (TemplateVersion, error) {
	found, err := s.store.TemplateVersions(ctx, key, number+1, 1)
	if err != nil {
		return TemplateVersion{}, fault("read version", err)
	}
	if len(found) == 0 || found[0].Number != number {
		return TemplateVersion{}, notFound("there is no such version of this template")
	}
	return found[0], nil
}
