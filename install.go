package svc

import (
	"cmp"
	"context"
	"errors"
)

// Install is the request to install a template from a source.
type Install struct {
	TemplateID  string // within the source
	SourceName  string
	SourceScope Scope   // "" means ScopeServer; ScopePersonal is a source of the caller's own
	AliasID     *string // the id to install it under; nil: TemplateID
	// IdempotencyKey says which requests of the caller are one, as that of [NewAPIKey]: the first that succeeds installs, the others
	// get what it was answered, and ask no source. "": every request is one of its own.
	IdempotencyKey string
}

// UpdateCheck is what a source says about an installed template.
type UpdateCheck struct {
	HasUpdate       bool
	CurrentRevision *string    // nil: made by hand
	LatestRevision  *string    // nil: made by hand, or gone from the source
	Source          *SourceKey // nil: made by hand
}

// Update is what an update did.
type Update struct {
	Updated          bool
	PreviousRevision string // of the source's content that was installed before
	NewRevision      string // and after; the same when nothing was updated
	Template         Template
}

// InstallTemplate installs a template from a source for the server. An id that is taken is refused before anything is
// fetched. Errors: CodeInvalid, CodeForbidden, CodeNotFound (source or template), CodeExists, CodeKeyReused, CodeSourceFailed,
// CodeSourceTimeout.
func (s *Service) InstallTemplate(ctx context.Context, by Principal, in Install) (Template, error) {
	id, err := in.check()
	if err != nil {
		return Template{}, err
	}
	if err := s.authorize(ctx, by, ActionTemplateAdmin); err != nil {
		return Template{}, err
	}
	if in.SourceScope == ScopePersonal && by.Kind != KindUser {
		return Template{}, noSource() // only users have sources of their own
	}
	request, err := s.repeatable(by, in.IdempotencyKey, "install", in, s.now())
	if err != nil {
		return Template{}, err
	}
	return once(ctx, request, func() (Template, error) { return s.install(ctx, by, in, id, request) })
}

func (s *Service) install(ctx context.Context, by Principal, in Install, id string, request repeatable) (Template, error) {
	up, err := s.upstream(ctx, in.source(by))
	if errors.Is(err, ErrNotFound) {
		return Template{}, noSource()
	} else if err != nil {
		return Template{}, err
	}
	if _, err := s.storedTemplate(ctx, id); err == nil {
		return Template{}, templateTaken(in.idField())
	} else if ErrorCode(err) != CodeNotFound {
		return Template{}, err
	}
	content, revision, err := s.fetch(ctx, by, up, in.TemplateID)
	if err != nil {
		return Template{}, err
	}
	template := Template{TemplateKey: serverTemplate(id), Version: 1, InstalledAt: s.now()}
	template.Content = content
	template.originate(Origin{Source: up.Source, ID: in.TemplateID, URL: up.URL, Revision: revision}, content)
	template.UpdatedAt = template.InstalledAt
	return s.addTemplate(ctx, by, template, EventTemplateInstalled, in.idField(), request)
}

// check returns the id to install under.
func (in Install) check() (id string, err error) {
	var c checker
	c.lookup("template_id", in.TemplateID)
	if in.SourceName == "" {
		c.add("/source_name", "is required")
	} else {
		c.lookup("/source_name", in.SourceName)
	}
	if in.SourceScope != "" && in.SourceScope != ScopeServer && in.SourceScope != ScopePersonal {
		c.add("/source_scope", `must be "server" or "personal"`)
	}
	c.idempotencyKey(in.IdempotencyKey)
	if in.AliasID == nil {
		return in.TemplateID, c.err()
	}
	c.id("/alias_id", *in.AliasID)
	return *in.AliasID, c.err()
}

func (in Install) source(by Principal) SourceKey {
	if in.SourceScope == ScopePersonal {
		return SourceKey{Scope: ScopePersonal, Owner: by.ID, Name: in.SourceName}
	}
	return SourceKey{Scope: ScopeServer, Name: in.SourceName}
}

func (in Install) idField() string {
	if in.AliasID != nil {
		return "/alias_id"
	}
	return "template_id"
}

// fetch asks a source for a template and checks what it answers as strictly as what a caller sends.
func (s *Service) fetch(ctx context.Context, by Principal, up Upstream, id string) (Content, string, error) {
	if s.config.Marketplace == nil {
		return Content{}, "", takesNoSources()
	}
	content, err := s.config.Marketplace.Template(ctx, up, id)
	if err != nil {
		err = sourceFault(up, err)
	}
	if s.asked(ctx, by, up, err); err != nil {
		return Content{}, "", err
	}
	content = content.clone()
	var c checker
	s.checkContent(&c, &content)
	if err := c.err(); err != nil {
		return Content{}, "", badEntry(up, err)
	}
	revision, err := content.Revision()
	if err != nil {
		return Content{}, "", badEntry(up, err)
	}
	return content, revision, nil
}

func takesNoSources() *Error {
	return &Error{Code: CodeSourceFailed, Message: "this server takes no sources"}
}

func badEntry(up Upstream, err error) *Error {
	return &Error{
		Code: CodeSourceFailed, Message: "source " + quote(up.Source.Name) + ": this template of it is bad: " + firstMessage(err),
		Err: errors.Join(ErrBadEntry, err),
	}
}

// firstMessage is what the first of some errors says, with its field.
func firstMessage(err error) string {
	first, is := errors.AsType[*Error](err)
	if !is {
		return "it cannot be read"
	}
	return first.Field + " " + first.Message
}

// sourceFault passes on what a Marketplace says in an Error, and hides everything else.
func sourceFault(up Upstream, err error) error {
	err = up.Token.hideIn(err) // a source may repeat what it was told
	if _, ok := errors.AsType[*Error](err); ok || errors.Is(err, context.Canceled) {
		return fault("ask source", err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: CodeSourceTimeout, Message: "source " + quote(up.Source.Name) + " did not answer in time", Err: err}
	}
	return &Error{Code: CodeSourceFailed, Message: "source " + quote(up.Source.Name) + " could not be asked", Err: err}
}

// originUpstream returns how to ask the source that a template came from. CodeNotFound, naming it, when it was removed;
// CodeSourceMoved when it is registered at another address now.
func (s *Service) originUpstream(ctx context.Context, origin *Origin) (Upstream, error) {
	up, err := s.upstream(ctx, origin.Source)
	switch {
	case errors.Is(err, ErrNotFound):
		return up, sourceGone(origin)
	case err == nil && up.URL != origin.URL:
		return up, sourceMoved(origin, up)
	}
	return up, err
}

func sourceGone(origin *Origin) *Error {
	return notFound("the source " + quote(origin.Source.Name) + ", from which this template came, is registered no longer")
}

// originate says where a template is from: what came from there is its base from now on.
func (t *Template) originate(origin Origin, base Content) {
	origin.Base = base.clone()
	t.Origin = &origin
}

// CheckUpdate asks a template's source whether it has another content than what was installed. A template made by hand
// has no update; one that is gone from its source has none either. Errors: CodeInvalid, CodeForbidden, CodeNotFound (the
// template, or its source by name), CodeSourceMoved, CodeSourceFailed, CodeSourceTimeout.
func (s *Service) CheckUpdate(ctx context.Context, by Principal, id string) (UpdateCheck, error) {
	template, err := s.template(ctx, by, id)
	if err != nil || template.Origin == nil {
		return UpdateCheck{}, err
	}
	origin := template.Origin
	result := UpdateCheck{CurrentRevision: &origin.Revision, Source: &origin.Source}
	up, err := s.originUpstream(ctx, origin)
	if err != nil {
		return UpdateCheck{}, err
	}
	_, revision, err := s.fetch(ctx, by, up, origin.ID)
	if ErrorCode(err) == CodeNotFound {
		return result, nil
	} else if err != nil {
		return UpdateCheck{}, err
	}
	result.LatestRevision, result.HasUpdate = &revision, revision != origin.Revision
	return result, nil
}

// latest reads a template that came from a source, and asks that what it has now.
func (s *Service) latest(ctx context.Context, by Principal, id string) (template Template, content Content, revision string, err error) {
	if template, err = s.template(ctx, by, id); err != nil {
		return template, content, "", err
	}
	if template.Origin == nil {
		return template, content, "", invalid("template_id", "names a template that was made by hand: it has no source to be updated from")
	}
	up, err := s.originUpstream(ctx, template.Origin)
	if err != nil {
		return template, content, "", err
	}
	content, revision, err = s.fetch(ctx, by, up, template.Origin.ID)
	return template, content, revision, err
}

// UpdateTemplate brings a template to what its source has now. What was edited here is kept while
// the source has not changed; when it has, in.LocalEdits says what becomes of it, unless
// in.Resolution settles it in both cases. The content is compared and merged before the store's
// transaction, and again when somebody else has changed the template meanwhile.
//
// Errors: CodeInvalid (made by hand, too), CodeForbidden, CodeNotFound (template, source, or gone
// from the source), CodeEdited, CodePrecondition (with ifMatch, a template that has none of these
// ETags; with in.Revision, a source that has another), CodeChanged (others keep changing the
// template, or it comes from elsewhere now), CodeSourceMoved, CodeSourceFailed, CodeSourceTimeout.
func (s *Service) UpdateTemplate(ctx context.Context, by Principal, id string, in UpdateRequest, ifMatch ...string) (Update, error) {
	u, err := s.updater(ctx, by, id, in)
	if err != nil {
		return Update{}, err
	}
	template, content, revision, err := s.latest(ctx, by, id)
	if err != nil {
		return Update{}, err
	}
	if u.in.Revision != "" && u.in.Revision != revision {
		return Update{}, &Error{
			Code:    CodePrecondition,
			Message: "the source has another revision than the one reviewed: review what it has now",
		}
	}
	u.content, u.ifMatch, u.now = content, ifMatch, s.now()
	u.origin = Origin{Source: template.Origin.Source, ID: template.Origin.ID, URL: template.Origin.URL, Revision: revision}
	return s.update(ctx, by, u, template)
}

// updater checks a request for an update, and lets the host check its content once the caller is
// authorized.
func (s *Service) updater(ctx context.Context, by Principal, id string, in UpdateRequest) (*updater, error) {
	in, err := in.check()
	if err != nil {
		return nil, err
	}
	in.LocalEdits = cmp.Or(in.LocalEdits, s.config.Templates.LocalEdits)
	u := &updater{in: in, check: s.checked}
	if in.Content == nil {
		return u, nil
	}
	if err := s.authorizeTemplate(ctx, by, id); err != nil {
		return nil, err
	}
	var c checker
	if s.validate(&c, in.Content.Manifest); !c.ok() {
		return nil, c.err()
	}
	u.given, err = in.Content.Revision()
	return u, fault("digest content", err)
}

// update makes an update of a template that was just read. When others change it meanwhile, so that
// the plan does not fit, it is read again.
func (s *Service) update(ctx context.Context, by Principal, u *updater, template Template) (Update, error) {
	defer s.changesTemplates()()
	err := errStale
	for try := 0; try < maxPlans && errors.Is(err, errStale); try++ {
		if try > 0 {
			if template, err = s.storedTemplate(ctx, template.ID); err != nil {
				return Update{}, err
			}
		}
		if err = u.prepare(ctx, template); err != nil {
			break
		}
		err = s.mutate(ctx, by, func(ctx context.Context, store Store) ([]Event, error) {
			err := store.ChangeTemplate(ctx, template.TemplateKey, u.change)
			return u.events, err
		})
	}
	if errors.Is(err, ErrNotFound) {
		return Update{}, noTemplate()
	} else if err != nil {
		return Update{}, fault("update template", err)
	}
	return u.result, nil
}
