package svc

import (
	"context"
	"errors"
)

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

// Install is the request to install a template from a source.
type Install struct {
	TemplateID  string // within the source
	SourceName  string
	SourceScope Scope   // "" means ScopeServer; ScopePersonal means a source of the caller
	AliasID     *string // the id to install the template under; nil: TemplateID
	// IdempotencyKey marks requests of one caller as the same request, as in [NewAPIKey]. The first
	// request that succeeds installs. The others get its answer and ask no source. "": every
	// request stands alone.
	IdempotencyKey string
}

// Install installs a template from a source for the server. It refuses an id that is taken before
// it fetches anything. Errors: CodeInvalid, CodeForbidden, CodeNotFound (source or template),
// CodeExists, CodeKeyReused, CodeSourceFailed, CodeSourceTimeout.
func (s *Templates) Install(ctx context.Context, by Principal, in Install) (Template, error) {
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
	return once(ctx, request, func() (Template, error) {
		return s.install(ctx, by, in, id, request)
	})
}

func (s *Templates) install(
	ctx context.Context, by Principal, in Install, id string, request repeatable,
) (Template, error) {
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
	origin := Origin{Source: up.Source, ID: in.TemplateID, URL: up.URL, Revision: revision}
	template.originate(origin, content)
	template.UpdatedAt = template.InstalledAt
	return s.addTemplate(ctx, by, template, EventTemplateInstalled, in.idField(), request)
}

// check validates the request and returns the id to install under.
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
