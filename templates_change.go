package svc

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"time"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/etag"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/merge3"
	"github.com/extsvc/svc/limits"
)

// Templates manages the installed templates of one half: those of the server (Service.Templates),
// or those of the caller itself (Service.MyTemplates). Its methods may be called concurrently.
//
// Each method on the server's templates needs [action.TemplateAdmin], except for [Host]. A method
// on the caller's own needs its own action: [action.TemplateList], [action.TemplateCreate],
// [action.TemplateManage] or [action.TemplateInstall]. There, a service account works on the
// templates of its owner, with its own rights, and Host and unmapped senders get CodeForbidden.
// Templates of the other half or of another user are CodeNotFound.
//
// A method that fails has changed no template. A write and the records of its events are one
// transaction. With ifMatch, a method acts on a template with one of these ETags only:
// CodePrecondition.
type Templates struct {
	*base
	*scoped
	*committer
	*contentChecker
	*upstreams
	*templateReader
	*installedCache
	checks *checkCache
	// edits is what an update does with fields edited locally; "": EditsConflict.
	edits LocalEdits
}

// Read returns a template, with Origin.Base. While the server's templates are cached
// ([Memory].Templates) with the template's base, which the first Read adds, it makes no store call,
// and the result is shared. Otherwise it makes one, and after a change a few. Errors: CodeNotFound.
func (s *Templates) Read(ctx context.Context, by Principal, id string) (Template, error) {
	at, err := s.admitTo(ctx, by, action.TemplateList, id)
	if err != nil {
		return Template{}, err
	}
	if list := s.templateList(ctx); list != nil {
		return s.copiedTemplate(ctx, list, id)
	}
	return s.storedTemplate(ctx, at.template(id))
}

// template is [Templates.Read] without the cached list, for a method that needs action. Decisions
// that depend on a template read the store: another process may have changed it a moment ago.
func (s *Templates) template(
	ctx context.Context, by Principal, action, id string,
) (Template, error) {
	at, err := s.admitTo(ctx, by, action, id)
	if err != nil {
		return Template{}, err
	}
	return s.storedTemplate(ctx, at.template(id))
}

// admitTo returns the area of a template that the caller names. It checks the id before the rights,
// in the order in which HTTP answers: 400, then 403. It does not look for the template: a caller
// without rights learns nothing of it.
func (s *Templates) admitTo(
	ctx context.Context, by Principal, action, id string,
) (place, error) {
	if err := checkID("template_id", id); err != nil {
		return place{}, err
	}
	return s.admit(ctx, by, action)
}

// List lists the templates by name, then id. It reads the list in chunks, and holds no connection
// while the caller works. Changes made during the call may or may not be in it. When the server's
// templates are cached ([Memory].Templates), their list is of one generation and makes no store
// call for its rows. Origin.Base is zero. The error, if any, is the last thing yielded.
//
// With ifMatch, the whole list, whatever query asks for, must have one of these ETags
// ([Templates.ETag]): CodePrecondition. A list that is not cached has none, so only [AnyETag]
// matches it.
func (s *Templates) List(
	ctx context.Context, by Principal, query TemplateQuery, ifMatch ...string,
) iter.Seq2[Template, error] {
	return func(yield func(Template, error) bool) {
		at, err := s.admitList(ctx, by, query)
		if err != nil {
			yield(Template{}, err)
			return
		}
		list := s.templateList(ctx)
		if !etag.Matches(list.tag(), ifMatch) {
			yield(Template{}, &Error{
				Code:    CodePrecondition,
				Message: "the list has changed since you read its ETag: read it again",
			})
		} else if list != nil {
			list.part(ctx, query)(yield)
		} else {
			s.storedTemplates(ctx, at, query)(yield)
		}
	}
}

// ETag returns the entity tag of the list of all templates of the server, quotes included. "": it
// is not known, because the list is not cached ([Memory].Templates). Lists of personal templates
// are never cached. Lists with the same templates have the same tag, in every process. After a
// change, ETag asks the store what has changed.
func (s *Templates) ETag(ctx context.Context, by Principal) (string, error) {
	if _, err := s.admit(ctx, by, action.TemplateList); err != nil {
		return "", err
	}
	return s.templateList(ctx).tag(), nil
}

// admitList refuses a malformed query before it looks at the caller's rights.
func (s *Templates) admitList(
	ctx context.Context, by Principal, query TemplateQuery,
) (place, error) {
	var c checker
	c.filter(query.Category, query.Tag)
	c.text("name", query.AfterName, limits.NameLength)
	c.text("id", query.AfterID, limits.IDLength)
	c.count("skip", query.Skip)
	c.count("limit", query.Limit)
	if err := c.err(); err != nil {
		return place{}, err
	}
	return s.admit(ctx, by, action.TemplateList)
}

// Patch changes some fields of a template and returns it, in one transaction: concurrent patches of
// different fields all take effect. A patch that changes nothing to the letter writes nothing: no
// version, no event, the same UpdatedAt. Otherwise the replaced content becomes a version. Events:
// [event.TemplatePatched], and [event.TemplateDiverged] when the template was as its source gave
// it. Errors: CodeNotFound, CodePrecondition.
func (s *Templates) Patch(
	ctx context.Context, by Principal, id string, patch TemplatePatch, ifMatch ...string,
) (Template, error) {
	if err := patch.check(id); err != nil {
		return Template{}, err
	}
	at, err := s.admit(ctx, by, action.TemplateManage)
	if err != nil {
		return Template{}, err
	}
	var c checker
	if s.validate(&c, patch.Manifest); !c.ok() {
		return Template{}, c.err()
	}
	return s.editTemplate(ctx, by, at, id, event.TemplatePatched, ifMatch,
		func(t *Template) (Content, error) { return patch.apply(t.Content), nil })
}

// Delete removes a template, with its versions, for good. The id is free afterwards. Event:
// [event.TemplateDeleted]. Errors: CodeNotFound, CodePrecondition.
func (s *Templates) Delete(ctx context.Context, by Principal, id string, ifMatch ...string) error {
	at, err := s.admitTo(ctx, by, action.TemplateManage, id)
	if err != nil {
		return err
	}
	key := at.template(id)
	var check func(Template) error
	if len(ifMatch) > 0 {
		check = func(t Template) error { return t.matches(ifMatch) }
	}
	err = s.commit(ctx, change{by: by, basis: &at.basis, begin: s.changesTemplates, write: func(
		ctx context.Context, tx Store,
	) ([]Event, error) {
		return happened(s.now(), event.TemplateDeleted, key.Target()),
			tx.DeleteTemplate(ctx, key, check)
	}})
	if noRow(err) {
		return noTemplate()
	}
	return fault("delete template", err)
}

// editTemplate writes the content that edit returns, unless it is the same. The store may call the
// function again with a newer template: edit must not depend on an earlier call, and the last call
// counts. It asks before and after the edit whether the template is edited locally, because only
// the change from no to yes is an event.
func (s *Templates) editTemplate(
	ctx context.Context, by Principal, at place, id string,
	action event.Action, ifMatch []string, edit func(*Template) (Content, error),
) (Template, error) {
	var edited Template
	now, key := s.now(), at.template(id)
	err := s.commit(ctx, change{by: by, basis: &at.basis, begin: s.changesTemplates, write: func(
		ctx context.Context, tx Store,
	) (changed []Event, err error) {
		err = tx.ChangeTemplate(ctx, key, func(t *Template) (bool, error) {
			if err := t.matches(ifMatch); err != nil {
				return false, err
			}
			before := t.edited()
			content, err := edit(t)
			if err != nil {
				return false, err
			}
			if changed = nil; t.put(content) {
				t.touch(now)
				changed = happened(now, action, t.Target())
			}
			after := t.edited()
			if t.Origin != nil {
				t.Origin.Edited = after
			}
			if changed != nil && !before && after {
				changed = append(changed, happened(now, event.TemplateDiverged, t.Target())...)
			}
			edited = *t
			return changed != nil, nil
		})
		return changed, err
	}})
	if noRow(err) {
		return Template{}, noTemplate()
	} else if err != nil {
		return Template{}, fault("change template", err)
	}
	return edited, nil
}

// UpdateCheck compares an installed template with its source: revisions of what the source gave, so
// local edits do not count. It is zero for a template made by hand.
type UpdateCheck struct {
	HasUpdate       bool       // the source has another revision
	CurrentRevision *string    // nil: made by hand
	LatestRevision  *string    // nil: made by hand, or gone from the source
	Source          *SourceKey // nil: made by hand
}

// CheckUpdate asks a template's source whether its content differs from the installed content. A
// template made by hand, or gone from its source, has no update. CheckUpdate never uses an old copy
// of the source. It changes no template; the first failure of a source, and its next answer, are
// events. Errors: CodeNotFound (the template, or its source: the message names it),
// CodeSourceMoved, CodeSourceFailed, CodeSourceTimeout.
func (s *Templates) CheckUpdate(ctx context.Context, by Principal, id string) (UpdateCheck, error) {
	template, err := s.template(ctx, by, action.TemplateList, id)
	if err != nil || template.Origin == nil {
		return UpdateCheck{}, err
	}
	origin := template.Origin
	result := UpdateCheck{CurrentRevision: &origin.Revision, Source: &origin.Source}
	up, err := s.originUpstream(ctx, template.Scope, origin)
	if err != nil {
		return UpdateCheck{}, err
	}
	_, revision, id, err := s.fetchPresent(ctx, by, up, origin.ID)
	if ErrorCode(err) == CodeNotFound {
		return result, nil
	} else if err != nil {
		return UpdateCheck{}, err
	}
	result.LatestRevision = &revision
	result.HasUpdate = revision != origin.Revision || id != origin.ID
	return result, nil
}

// fetchPresent is fetch for an installed template. It follows the renames of the source, and also
// returns the id that the template has there now.
func (s *upstreams) fetchPresent(
	ctx context.Context, by Principal, up Upstream, id string,
) (content Content, revision, present string, err error) {
	content, revision, err = s.fetch(ctx, by, up, id)
	if ErrorCode(err) != CodeNotFound {
		return content, revision, id, err
	}
	renamed, is := errors.AsType[*RenamedError](err)
	if !is {
		return content, "", id, err
	}
	if err := checkID("id", renamed.ID); err != nil {
		return content, "", id, badEntry(up, err)
	}
	content, revision, err = s.fetch(ctx, by, up, renamed.ID)
	return content, revision, renamed.ID, err
}

// offered is what a source offers for an installed template.
type offered struct {
	content  Content
	revision string
	id       string    // in the source
	from     time.Time // when the source was registered
}

// stillRegistered returns gone unless a source is the one that was asked, which was registered at
// that time. So nothing is written that came from a source which has been removed since then.
func stillRegistered(
	ctx context.Context, tx Store, source SourceKey, asked time.Time, gone error,
) error {
	now, err := tx.Source(ctx, source)
	if noRow(err) || err == nil && !now.CreatedAt.Equal(asked) {
		return gone
	}
	return err
}

// latest returns an installed template, and what its source offers now. For a template made by hand
// it returns CodeInvalid: a caller asked for something that it can never have.
func (s *Templates) latest(
	ctx context.Context, by Principal, at place, id string, ifMatch []string,
) (template Template, now offered, err error) {
	if template, err = s.storedTemplate(ctx, at.template(id)); err != nil {
		return template, now, err
	}
	if template.Origin == nil {
		return template, now, Invalid("template_id",
			"names a template that was created by hand: it has no source")
	}
	if err = template.matches(ifMatch); err != nil {
		return template, now, err
	}
	up, err := s.originUpstream(ctx, template.Scope, template.Origin)
	if err != nil {
		return template, now, err
	}
	now.from = up.Registered
	now.content, now.revision, now.id, err = s.fetchPresent(ctx, by, up, template.Origin.ID)
	return template, now, err
}

// TemplateDiff lists the differences between a template, its installed content and the content that
// its source has now. To update to exactly what it shows, give LatestRevision to
// [UpdateRequest].Revision and the template's ETag to Update.
type TemplateDiff struct {
	CurrentRevision string // of the installed content
	LatestRevision  string // of the source's content; equal: no update, unless renamed
	RenamedTo       string // its id in the source now; "": the one of its origin
	// Changes is in order of path, byte by byte for each key. It is never nil, and empty when all
	// three contents are the same. It has at most 1,000 places, of at most 16 keys.
	Changes []ContentChange
}

// ContentChange is a place where the three contents are not all the same. Each value is canonical
// JSON (RFC 8785). Nil: that content has no value there, which is not JSON null.
type ContentChange struct {
	Path   string // a JSON pointer (RFC 6901) into the content: /name, /tags, /manifest/steps
	Base   json.RawMessage
	Ours   json.RawMessage
	Theirs json.RawMessage
}

// Conflict reports whether local edits and the source have changed the place differently, so that
// EditsMerge cannot combine them. An object that stands for too many places may have a conflict
// although an update can merge its members.
func (c ContentChange) Conflict() bool {
	return !sameValue(c.Base, c.Ours) && !sameValue(c.Base, c.Theirs) &&
		!sameValue(c.Ours, c.Theirs)
}

// Diff asks a template's source and returns what an update would change and what was edited
// locally. Base is the installed content, Ours the template, Theirs the source's content. Lists are
// compared whole, objects key by key; for too many places, or too deep ones, the object above them
// stands. Diff changes no template. It reads the store, not the cache, and stops when ctx ends.
// Errors: those of [Templates.Update], except CodeEdited, CodePrecondition and CodeChanged.
func (s *Templates) Diff(ctx context.Context, by Principal, id string) (TemplateDiff, error) {
	at, err := s.admitTo(ctx, by, action.TemplateList, id)
	if err != nil {
		return TemplateDiff{}, err
	}
	template, now, err := s.latest(ctx, by, at, id, nil)
	if err != nil {
		return TemplateDiff{}, err
	}
	diff := TemplateDiff{CurrentRevision: template.Origin.Revision, LatestRevision: now.revision}
	if now.id != template.Origin.ID {
		diff.RenamedTo = now.id
	}
	diff.Changes, err = contentChanges(ctx, template.Origin.Base, template.Content, now.content)
	if err != nil {
		return TemplateDiff{}, fault("compare contents", err)
	}
	return diff, nil
}

// contentChanges compares contents as deeply as the bounds of package merge3 allow. Canonical
// forms make equal values equal byte by byte, which Conflict relies on.
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
	found, err := merge3.Diff(ctx, three[0], three[1], three[2])
	changes := make([]ContentChange, len(found))
	for i, change := range found {
		changes[i] = ContentChange(change)
	}
	return changes, err
}

// sameValue compares two canonical values. Either may be missing: no JSON text is empty, so a
// missing value equals only a missing one.
func sameValue(a, b json.RawMessage) bool { return string(a) == string(b) }

// History lists the former versions of a template, newest first, without the present content: at
// most [limits.TemplateVersions]. Patches, updates and rollbacks turn the content that they replace
// into a version. The error, if any, is the last thing yielded. Errors: CodeNotFound.
func (s *Templates) History(
	ctx context.Context, by Principal, id string,
) iter.Seq2[TemplateVersion, error] {
	type page struct {
		of     TemplateKey
		before int64
	}
	first := page{before: math.MaxInt64}
	return lists.Chunks(ctx, first, anyLength, doing("list versions"),
		func(p *page) error {
			template, err := s.template(ctx, by, action.TemplateList, id)
			p.of = template.TemplateKey
			return err
		},
		func(p page) ([]TemplateVersion, error) {
			return s.store.TemplateVersions(ctx, p.of, p.before, limits.TemplateVersions)
		},
		func(p *page, last TemplateVersion) { p.before = last.Number })
}

// Rollback gives a template the content of a former version. The replaced content becomes a
// version, so a rollback can be rolled back. For updates it is an edit, like a patch: Origin and
// its base stay. If the content is the same, Rollback writes nothing. The host's check does not run
// again. Events: [event.TemplateRolledBack], and [event.TemplateDiverged] as in Patch. Errors:
// CodeNotFound (the template or the version), CodePrecondition, CodeChanged (meanwhile, another
// template got the id).
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
	at, err := s.admit(ctx, by, action.TemplateManage)
	if err != nil {
		return Template{}, err
	}
	of, err := s.storedTemplate(ctx, at.template(id))
	if err != nil {
		return Template{}, err
	}
	version, err := s.version(ctx, of.TemplateKey, number)
	if err != nil {
		return Template{}, err
	}
	return s.editTemplate(ctx, by, at, id, event.TemplateRolledBack, ifMatch,
		func(t *Template) (Content, error) {
			if !t.InstalledAt.Equal(of.InstalledAt) { // another one has that id now
				return Content{}, ErrChanged
			}
			return version.Content.clone(), nil
		})
}

// version reads one former version. The store lists versions below a number, so it asks for the
// first below number+1. That is another version when number is not kept, or is the present one.
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
