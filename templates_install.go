package svc

import (
	"context"
	"errors"
)

// Create adds a template to the server by hand: it has no Origin, and no update ever. Create checks
// the form of the request, then the caller's rights, then runs [TemplateConfig].ValidateManifest.
// It reports all faults of the form at once, each with the JSON pointer of its field.
//
// The new template has Version 1 and no history. It costs one write: the store alone decides
// whether the id is taken, so of two concurrent calls one succeeds. Event: [EventTemplateCreated].
// Errors: CodeInvalid, CodeForbidden, CodeExists (at "/id").
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

// Install is the request to install a template from a source. The Service keeps a digest of it for
// the IdempotencyKey, so a repeated request must have equal fields.
type Install struct {
	// TemplateID is the template's id within the source. Required.
	TemplateID string
	// SourceName is the name of a registered source. Required.
	SourceName string
	// SourceScope is [ScopeServer], or [ScopePersonal] for a source of the caller, which only users
	// have. "": ScopeServer. One name may exist in both scopes: no scope falls back to the other.
	SourceScope Scope
	// AliasID is the id to install the template under. Nil: TemplateID. With it, one template of a
	// source can be installed more than once. Updates keep it.
	AliasID *string
	// IdempotencyKey marks requests of one caller as the same request, as in [NewAPIKey]. The first
	// request that succeeds installs. The others get its answer for [IdempotencyPeriod], ask no
	// source, and report no event; a failed request keeps no answer. It has at most
	// [MaxIdempotencyKeyLength] visible ASCII characters. With a store that is no [AnswerStore], a
	// key is CodeInvalid. "": every request stands alone.
	IdempotencyKey string
}

// Install installs a template from a source for the server. It refuses an id that is taken before
// it fetches anything. It asks the source before the write's transaction, never an old copy. The
// source's content meets the same checks as that of [Templates.Create], the host's check included.
// A content that fails them is CodeSourceFailed.
//
// The template, its Origin and its base are one write; so are the answer kept for the
// IdempotencyKey and, with [EventConfig].Keep, the record. If another call takes the id during the
// request to the source, Install returns CodeExists and writes nothing. Several processes may
// install at once. Events: [EventTemplateInstalled], and [EventSourceFailing] or
// [EventSourceRecovered] when the source begins to fail or answers again.
//
// Errors: CodeInvalid, CodeForbidden, CodeNotFound (source or template), CodeExists, CodeKeyReused,
// CodeSourceFailed, CodeSourceTimeout.
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

// install carries out a checked request of an authorized caller. It reads the id from the store,
// not from the cache, so that a taken id costs no request to the source. The commit checks the id
// once more.
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

// check validates the request and returns the id to install under. TemplateID and SourceName are
// only looked up: an API key pasted there finds nothing. AliasID is stored, so it is checked as the
// id of a new template.
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

// source returns the key of the request's source. A personal source belongs to the caller: no
// request can name a source of another user.
func (in Install) source(by Principal) SourceKey {
	if in.SourceScope == ScopePersonal {
		return SourceKey{Scope: ScopePersonal, Owner: by.ID, Name: in.SourceName}
	}
	return SourceKey{Scope: ScopeServer, Name: in.SourceName}
}

// idField returns the field in which the caller chose the id, for errors about it.
func (in Install) idField() string {
	if in.AliasID != nil {
		return "/alias_id"
	}
	return "template_id"
}

// addTemplate stores a new template and records it as the answer to the request, in one
// transaction. field is the input field in which the caller chose the id. The answer is encoded
// before the commit, so that a template is never stored without its answer.
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

// templateTaken names the field, not the id: the caller knows it, and an id may be an API key
// pasted into the wrong place.
func templateTaken(field string) *Error {
	return taken(field, "a template with this id already exists")
}
