package svc

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"

	"github.com/extsvc/svc/internal/threeway"
)

// Templates manages the server's installed templates.
type Templates struct {
	*base
	*guard
	*journal
	*contents
	*upstreams
	*templateReader
	*installs
	edits LocalEdits // what an update does with fields edited locally; "": EditsConflict
}

// Read returns a template of the server. Errors: CodeInvalid, CodeForbidden, CodeNotFound.
func (s *Templates) Read(ctx context.Context, by Principal, id string) (Template, error) {
	if err := s.authorizeTemplate(ctx, by, id); err != nil {
		return Template{}, err
	}
	if list := s.templateList(); list != nil {
		return s.copiedTemplate(ctx, list, id)
	}
	return s.storedTemplate(ctx, id)
}

// template is [Templates.Read] without the cached list. Decisions that depend on a template read
// the store.
func (s *Templates) template(ctx context.Context, by Principal, id string) (Template, error) {
	if err := s.authorizeTemplate(ctx, by, id); err != nil {
		return Template{}, err
	}
	return s.storedTemplate(ctx, id)
}

func (s *Templates) authorizeTemplate(ctx context.Context, by Principal, id string) error {
	if err := checkID("template_id", id); err != nil {
		return err
	}
	return s.authorize(ctx, by, ActionTemplateAdmin)
}

// List lists the server's templates by name, then id. It reads the list in chunks, so the list need
// not fit into memory. Changes made during the call may or may not be in it. When templates are
// cached ([TemplateConfig].Cached), the list shows one moment. The error, if any, is the last thing
// yielded.
//
// With ifMatch, List lists only a list that has one of these ETags ([Templates.ETag]). Errors:
// CodeInvalid, CodeForbidden, CodePrecondition.
func (s *Templates) List(
	ctx context.Context, by Principal, query TemplateQuery, ifMatch ...string,
) iter.Seq2[Template, error] {
	return func(yield func(Template, error) bool) {
		if err := s.authorizeList(ctx, by, query); err != nil {
			yield(Template{}, err)
			return
		}
		list := s.templateList()
		if !matchesETag(list.tag(), ifMatch) {
			yield(Template{}, &Error{
				Code:    CodePrecondition,
				Message: "the list has changed since you read its ETag: read it again",
			})
		} else if list != nil {
			list.part(ctx, query)(yield)
		} else {
			s.storedTemplates(ctx, query)(yield)
		}
	}
}

// ETag returns the entity tag of the list of all templates of the server, quotes included. "": it
// is not known, because the list is not cached ([TemplateConfig].Cached) or is about to change.
//
// The tag changes whenever a template of the list changes, and when the list is read again. No two
// lists have the same tag, in any process. Errors: CodeForbidden.
func (s *Templates) ETag(ctx context.Context, by Principal) (string, error) {
	if err := s.authorize(ctx, by, ActionTemplateAdmin); err != nil {
		return "", err
	}
	return s.templateList().tag(), nil
}

func (s *Templates) authorizeList(ctx context.Context, by Principal, query TemplateQuery) error {
	var c checker
	c.filter(query.Category, query.Tag)
	c.text("name", query.AfterName, MaxNameLength)
	c.text("id", query.AfterID, MaxIDLength)
	c.count("skip", query.Skip)
	c.count("limit", query.Limit)
	if err := c.err(); err != nil {
		return err
	}
	return s.authorize(ctx, by, ActionTemplateAdmin)
}

// Patch changes some fields of a template of the server. A patch that changes nothing writes
// nothing. Concurrent patches of different fields all take effect. With ifMatch, Patch changes the
// template only when it has one of these ETags. Errors: CodeInvalid, CodeForbidden, CodeNotFound,
// CodePrecondition.
func (s *Templates) Patch(
	ctx context.Context, by Principal, id string, patch TemplatePatch, ifMatch ...string,
) (Template, error) {
	if err := patch.check(id); err != nil {
		return Template{}, err
	}
	if err := s.authorize(ctx, by, ActionTemplateAdmin); err != nil {
		return Template{}, err
	}
	var c checker
	if s.validate(&c, patch.Manifest); !c.ok() {
		return Template{}, c.err()
	}
	return s.editTemplate(ctx, by, id, EventTemplatePatched, ifMatch, patch.apply)
}

// Delete removes a template of the server. With ifMatch, Delete removes the template only when it
// has one of these ETags. Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodePrecondition.
func (s *Templates) Delete(ctx context.Context, by Principal, id string, ifMatch ...string) error {
	if err := s.authorizeTemplate(ctx, by, id); err != nil {
		return err
	}
	key := serverTemplate(id)
	var check func(Template) error
	if len(ifMatch) > 0 {
		check = func(t Template) error { return t.matches(ifMatch) }
	}
	err := s.commit(ctx, change{by: by, begin: s.changesTemplates, write: func(
		ctx context.Context, tx Store,
	) ([]Event, error) {
		return happened(s.now(), EventTemplateDeleted, key.Target()),
			tx.DeleteTemplate(ctx, key, check)
	}})
	if errors.Is(err, ErrNotFound) {
		return noTemplate()
	} else if err != nil {
		return fault("delete template", err)
	}
	return nil
}

// editTemplate writes the content that edit returns, unless it is the same.
func (s *Templates) editTemplate(
	ctx context.Context, by Principal, id string,
	action EventAction, ifMatch []string, edit func(Content) Content,
) (Template, error) {
	var edited Template
	now := s.now()
	err := s.commit(ctx, change{by: by, begin: s.changesTemplates, write: func(
		ctx context.Context, tx Store,
	) (changed []Event, err error) {
		err = tx.ChangeTemplate(ctx, serverTemplate(id), func(t *Template) (bool, error) {
			if err := t.matches(ifMatch); err != nil {
				return false, err
			}
			before := t.edited()
			if changed = nil; t.put(edit(t.Content)) {
				t.touch(now)
				changed = happened(now, action, t.Target())
			}
			if changed != nil && !before && t.edited() {
				changed = append(changed, happened(now, EventTemplateDiverged, t.Target())...)
			}
			edited = *t
			return changed != nil, nil
		})
		return changed, err
	}})
	if errors.Is(err, ErrNotFound) {
		return Template{}, noTemplate()
	} else if err != nil {
		return Template{}, fault("change template", err)
	}
	return edited, nil
}

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
