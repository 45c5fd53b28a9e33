package svc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strconv"
	"time"
)

// TemplateKey names an installed template. Its three fields together are unique. Owner is ""
// exactly when Scope is [ScopeServer].
type TemplateKey struct {
	Scope Scope
	Owner string
	ID    string
}

// Template is an installed template.
type Template struct {
	TemplateKey
	Content
	Version     int64   // counts contents: 1 for a new template, one more with each content change
	Origin      *Origin // where the template came from; nil: made by hand
	InstalledAt time.Time
	UpdatedAt   time.Time
}

// Origin records where a template was installed from. It stays when the source is removed.
type Origin struct {
	Source   SourceKey
	ID       string  // the template's id within the source
	URL      string  // the source's URL at the last install, update or re-bind; "": not known
	Revision string  // the revision of the installed content: Base.Revision()
	Base     Content // the installed content; zero in lists
}

// TemplateQuery asks for a part of a list of templates. The zero query asks for the whole list.
type TemplateQuery struct {
	// A template must match both texts, byte by byte. "" matches all templates.
	Category string // the template's category
	Tag      string // one of the template's tags

	// The list starts after the template with that name and id, which need not exist any more.
	// "" and "": from the start.
	AfterName, AfterID string
	Skip               int // the number of matching templates to leave out first, not negative
	Limit              int // the most templates to list, not negative; 0: all
}

// NewTemplate is the request to add a template by hand.
type NewTemplate struct {
	ID string
	Content
}

// TemplatePatch is a partial update: nil leaves a field untouched.
type TemplatePatch struct {
	Name         *string
	Description  *TextPatch
	Category     *TextPatch
	Integrations *[]string
	Tags         *[]string
	Manifest     json.RawMessage // nil: untouched
}

// TextPatch is a new value for a text that may be null. A nil Value means null.
type TextPatch struct{ Value *string }

func serverTemplate(id string) TemplateKey { return TemplateKey{Scope: ScopeServer, ID: id} }

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

// Create adds a template to the server by hand. Errors: CodeInvalid, CodeForbidden, CodeExists.
func (s *Templates) Create(ctx context.Context, by Principal, in NewTemplate) (Template, error) {
	content := in.Content.clone()
	var c checker
	c.id("/id", in.ID)
	content.checkForm(&c)
	if err := c.err(); err != nil {
		return Template{}, err
	}
	if err := s.authorize(ctx, by, ActionTemplateAdmin); err != nil {
		return Template{}, err
	}
	if s.validate(&c, content.Manifest); !c.ok() {
		return Template{}, c.err()
	}
	now := s.now()
	template := Template{
		TemplateKey: serverTemplate(in.ID), Content: content, Version: 1,
		InstalledAt: now, UpdatedAt: now,
	}
	return s.addTemplate(ctx, by, template, EventTemplateCreated, "/id", repeatable{})
}

// addTemplate stores a new template and records it as the answer to the request. field is the input
// field in which the caller chose the id.
func (s *Templates) addTemplate(
	ctx context.Context, by Principal, template Template,
	action EventAction, field string, request repeatable,
) (Template, error) {
	answer, err := request.answer(template)
	if err != nil {
		return Template{}, err
	}
	err = s.commit(ctx, change{by: by, begin: s.changesTemplates, answer: answer, write: func(
		ctx context.Context, tx Store,
	) ([]Event, error) {
		return happened(template.InstalledAt, action, template.Target()),
			tx.CreateTemplate(ctx, template)
	}})
	if errors.Is(err, ErrExists) {
		return Template{}, templateTaken(field)
	} else if err != nil {
		return Template{}, fault("add template", err)
	}
	return template, nil
}

func templateTaken(field string) *Error {
	return taken(field, "a template with this id already exists")
}

// noTemplate does not repeat the requested id: it may be an API key pasted into the wrong place.
func noTemplate() *Error { return notFound("there is no such template") }

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

func (s *templateReader) storedTemplate(ctx context.Context, id string) (Template, error) {
	template, err := s.store.Template(ctx, serverTemplate(id))
	switch {
	case errors.Is(err, ErrNotFound):
		s.shown(id, nil)
		return Template{}, noTemplate()
	case err != nil:
		return Template{}, fault("read template", err)
	}
	s.shown(id, &template)
	return template, nil
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

func (s *templateReader) storedTemplates(
	ctx context.Context, query TemplateQuery,
) iter.Seq2[Template, error] {
	page := TemplatePage{Scope: ScopeServer, TemplateQuery: query}
	page.Limit = chunkOf(query.Limit)
	return upTo(query.Limit, list(ctx, "list templates", anyLength,
		func() error { return nil },
		func() ([]Template, error) { return s.store.Templates(ctx, page) },
		func(last Template) { page.AfterName, page.AfterID, page.Skip = last.Name, last.ID, 0 }))
}

func (c *checker) filter(category, tag string) {
	c.text("category", category, MaxNameLength)
	c.text("tag", tag, MaxNameLength)
}

// count refuses a negative number.
func (c *checker) count(field string, n int) {
	if n < 0 {
		c.add(field, "must not be negative")
	}
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

// check validates the form of the fields that a patch touches, and compacts its manifest.
func (p *TemplatePatch) check(id string) error {
	var c checker
	c.lookup("template_id", id)
	if p.Name != nil && *p.Name == "" {
		c.add("/name", "must not be empty")
	}
	p.apply(Content{}).checkTexts(&c)
	if p.Manifest != nil {
		p.Manifest = c.manifest(p.Manifest)
	}
	return c.err()
}

// apply returns content with the patch applied.
func (p TemplatePatch) apply(content Content) Content {
	if p.Name != nil {
		content.Name = *p.Name
	}
	if p.Description != nil {
		content.Description = p.Description.Value
	}
	if p.Category != nil {
		content.Category = p.Category.Value
	}
	if p.Integrations != nil {
		content.Integrations = *p.Integrations
	}
	if p.Tags != nil {
		content.Tags = *p.Tags
	}
	if p.Manifest != nil {
		content.Manifest = p.Manifest
	}
	return content.clone()
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

// edited reports whether a template is edited locally: its content differs from the content that
// its source gave. A template made by hand is never edited locally.
func (t *Template) edited() bool {
	return t.Origin != nil && len(differences(t.Content, t.Origin.Base)) > 0
}

// put sets a template's content. A content that differs to the letter makes a new version.
func (t *Template) put(content Content) (changed bool) {
	if changed = !t.Content.same(content); changed {
		t.Version++
		t.Content = content
	}
	return changed
}

// Compare orders by scope, owner and id, byte by byte, as package cmp does.
func (k TemplateKey) Compare(other TemplateKey) int {
	return cmp.Or(
		cmp.Compare(k.Scope, other.Scope),
		cmp.Compare(k.Owner, other.Owner),
		cmp.Compare(k.ID, other.ID),
	)
}

// Target returns the template as the target of events and change feeds.
func (k TemplateKey) Target() Target {
	return Target{Kind: TargetTemplate, ID: k.ID, Scope: k.Scope, Owner: k.Owner}
}

// AnyETag matches every existing template.
const AnyETag = "*"

// ETag returns the template's entity tag (RFC 9110, section 8.8.3), quotes included. It changes
// with everything that a caller can read of the template. A template that is deleted and created
// again has another tag. The tag follows from InstalledAt and UpdatedAt.
func (t Template) ETag() string {
	var room [32]byte
	b := strconv.AppendInt(append(room[:0], '"'), t.InstalledAt.UnixMicro(), 36)
	b = strconv.AppendInt(append(b, '-'), t.UpdatedAt.UnixMicro(), 36)
	return string(append(b, '"'))
}

// touch stamps a changed template. UpdatedAt always grows, even when the clock goes back.
func (t *Template) touch(now time.Time) {
	t.UpdatedAt = t.UpdatedAt.Add(time.Microsecond)
	if now.After(t.UpdatedAt) {
		t.UpdatedAt = now
	}
}

// matches refuses a template that has none of the ETags in ifMatch. Without ETags it accepts every
// template.
func (t Template) matches(ifMatch []string) error {
	if matchesETag(t.ETag(), ifMatch) {
		return nil
	}
	return &Error{
		Code:    CodePrecondition,
		Message: "the template has changed since you read it: read it again",
	}
}

// matchesETag reports whether ifMatch has an ETag, or is empty.
func matchesETag(etag string, ifMatch []string) bool {
	return len(ifMatch) == 0 ||
		slices.Contains(ifMatch, AnyETag) || slices.Contains(ifMatch, etag)
}

// originate sets a template's origin. base, the content that came from there, becomes its base.
func (t *Template) originate(origin Origin, base Content) {
	origin.Base = base.clone()
	t.Origin = &origin
}
