package svc

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/limits"
)

// Create adds a template by hand: it has no Origin, and no update ever. Create checks the form of
// the request, then the caller's rights, then runs [TemplateConfig].ValidateManifest. It reports
// all faults of the form together, each with its JSON pointer.
//
// The new template has Version 1 and no history. A user has at most [limits.PersonalTemplates].
// Event: [event.TemplateCreated]. Errors: CodeExists (at "/id"), CodeLimit, CodeUnauthenticated
// (for its own, when the caller's issued key is revoked in the meantime).
func (s *Templates) Create(ctx context.Context, by Principal, in NewTemplate) (Template, error) {
	content := in.Content.clone()
	var c checker
	c.id("/id", in.ID)
	content.checkForm(&c)
	if err := c.err(); err != nil {
		return Template{}, err
	}
	at, err := s.admit(ctx, by, action.TemplateCreate)
	if err != nil {
		return Template{}, err
	}
	if s.validate(&c, content.Manifest); !c.ok() {
		return Template{}, c.err()
	}
	now := s.now()
	template := Template{
		TemplateKey: at.template(in.ID), Content: content, Version: 1,
		InstalledAt: now, UpdatedAt: now,
	}
	return s.addTemplate(ctx, by, addition{
		at: at, template: template, action: event.TemplateCreated, field: "/id",
	})
}

// Install is the request to install a template from a source.
type Install struct {
	TemplateID string // the template's id within the source; required
	SourceName string // the name of a registered source; required
	// SourceScope is [ScopeServer], or [ScopePersonal] for a source of the caller, or of the owner
	// of a service account that calls. "": ScopeServer. One name may exist in both scopes. The
	// caller needs no right to the source.
	SourceScope Scope
	// AliasID is the id to install the template under, so that one template can be installed more
	// than once. Nil: TemplateID. Updates keep it.
	AliasID *string
	// IdempotencyKey marks requests of one caller with equal fields as the same request, as in
	// [NewAPIKey]. The first that succeeds installs. For [IdempotencyPeriod], the others get the
	// template that it installed, as it is then, without an event; when that template is gone,
	// CodeKeyReused. "": none.
	IdempotencyKey string
}

// Install installs a template from a source. It refuses an id that is taken before it fetches
// anything. It asks the source before the write's transaction, never an old copy. Content that
// fails the checks of [Templates.Create], the host's included, is CodeSourceFailed.
//
// The template, its Origin and its base are one write, with the answer kept for the IdempotencyKey.
// If another call takes the id during the request to the source, Install returns CodeExists and
// writes nothing. Events: [event.TemplateInstalled], and [event.SourceFailing] or
// [event.SourceRecovered] when the source begins to fail or answers again. Errors: CodeNotFound
// (source or template), CodeExists, CodeLimit and CodeUnauthenticated (as Create), CodeKeyReused,
// CodeSourceFailed, CodeSourceTimeout.
func (s *Templates) Install(ctx context.Context, by Principal, in Install) (Template, error) {
	if err := in.check(); err != nil {
		return Template{}, err
	}
	at, err := s.admit(ctx, by, action.TemplateInstall)
	if err != nil {
		return Template{}, err
	}
	from := place{scope: ScopeServer}
	if in.SourceScope == ScopePersonal {
		if from, err = s.own(ctx, by, s.need(action.TemplateInstall)); err != nil {
			return Template{}, err
		}
	}
	// With its owner: another half, or an account that has another owner now, is another request.
	request, err := s.idempotent(
		by, at.basis, in.IdempotencyKey, "install"+at.owner, in, s.now())
	if err != nil {
		return Template{}, err
	}
	id, field := in.id()
	var installed Template
	answer, err := once(ctx, request, func() (answer installedAnswer, err error) {
		installed, err = s.install(ctx, by, in.TemplateID, from.source(in.SourceName), addition{
			at: at, template: Template{TemplateKey: at.template(id), Version: 1},
			action: event.TemplateInstalled, field: field, request: request,
		})
		return installed.answer(), err
	})
	if err == nil && answer != installed.answer() { // an earlier request installed it
		installed, err = s.installedBefore(ctx, at, answer)
	}
	return installed, err
}

// installedAnswer is what the store keeps of an installation, to answer the same request again: not
// the content, which may be large, and may be gone.
type installedAnswer struct {
	ID string
	At string // InstalledAt, which tells the template from a later one with that id
}

func (t Template) answer() installedAnswer {
	return installedAnswer{t.ID, t.InstalledAt.Format(time.RFC3339Nano)}
}

// installedBefore returns a template that an earlier request installed, as it is now. It refuses
// one that is gone: a caller must not take it for an installed template.
func (s *Templates) installedBefore(
	ctx context.Context, at place, answer installedAnswer,
) (Template, error) {
	template, err := s.storedTemplate(ctx, at.template(answer.ID))
	if ErrorCode(err) == CodeNotFound || err == nil && template.answer() != answer {
		return Template{}, keyReused(
			"the template that this request installed is gone: draw another idempotency key")
	}
	return template, err
}

// install installs the template with that id of a source, for an authorized caller; add lacks its
// content. It reads the id from the store, not from the cache, so that a taken id costs no request
// to the source. The commit checks the id once more.
func (s *Templates) install(
	ctx context.Context, by Principal, id string, source SourceKey, add addition,
) (Template, error) {
	up, err := s.upstream(ctx, source)
	if noRow(err) {
		return Template{}, noSource()
	} else if err != nil {
		return Template{}, err
	}
	template := &add.template
	if _, err := s.storedTemplate(ctx, template.TemplateKey); err == nil {
		return Template{}, templateTaken(add.field)
	} else if ErrorCode(err) != CodeNotFound {
		return Template{}, err
	}
	if s.readOnly {
		return Template{}, errReadOnly
	}
	content, revision, err := s.fetch(ctx, by, up, id)
	if err != nil {
		return Template{}, err
	}
	template.Content, template.InstalledAt = content, s.now()
	template.UpdatedAt = template.InstalledAt
	template.originate(Origin{Source: up.Source, ID: id, URL: up.URL, Revision: revision}, content)
	add.from = up.Registered
	return s.addTemplate(ctx, by, add)
}

// check validates the request. TemplateID and SourceName are only looked up: an API key pasted
// there finds nothing. AliasID is stored, so it is checked as the id of a new template.
func (in Install) check() error {
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
	if in.AliasID != nil {
		c.id("/alias_id", *in.AliasID)
	}
	return c.err()
}

// id returns the id to install under, and the field in which the caller chose it, for errors.
func (in Install) id() (id, field string) {
	if in.AliasID != nil {
		return *in.AliasID, "/alias_id"
	}
	return in.TemplateID, "template_id"
}

// addition is a template to add to an area.
type addition struct {
	at       place
	template Template
	action   event.Action
	field    string // the input field in which the caller chose the id
	request  idempotentRequest
	from     time.Time // when its source was registered
}

// addTemplate stores a new template and records it as the answer to the request, in one
// transaction. The answer is encoded before the commit, so that a template is never stored without
// its answer.
func (s *Templates) addTemplate(
	ctx context.Context, by Principal, add addition,
) (Template, error) {
	template := add.template
	answer, err := add.request.answer(template.answer())
	if err != nil {
		return Template{}, err
	}
	locks := add.at.locks()
	if o := template.Origin; o != nil && add.at.scope == ScopeServer {
		locks = o.Source.locks()
	}
	err = s.commit(ctx, change{
		by: by, basis: &add.at.basis, locks: locks, room: add.room(),
		begin: s.changesTemplates, answer: answer,
		write: func(ctx context.Context, tx Store) ([]Event, error) {
			if o := template.Origin; o != nil {
				err := stillRegistered(ctx, tx, o.Source, add.from, noSource())
				if err != nil {
					return nil, err
				}
			}
			return happened(template.InstalledAt, add.action, template.Target()),
				tx.CreateTemplate(ctx, template)
		},
	})
	if rowExists(err) {
		return Template{}, templateTaken(add.field)
	} else if err != nil {
		return Template{}, fault("add template", err)
	}
	return template, nil
}

// room returns the check of the change that adds the template: the area may be full.
func (add addition) room() func(ctx context.Context, tx Store) error {
	const most = limits.PersonalTemplates
	last := TemplatePage{Scope: add.at.scope, Owner: add.at.owner}
	last.Skip, last.Limit = most-1, 1
	return add.at.room(most, "templates", func(ctx context.Context, tx Store) (bool, error) {
		found, err := tx.Templates(ctx, last)
		return len(found) > 0, err
	}, func(ctx context.Context, tx Store) error {
		_, err := tx.Template(ctx, add.template.TemplateKey)
		return err
	})
}

// templateTaken names the field, not the id: the caller knows it, and an id may be an API key
// pasted into the wrong place.
func templateTaken(field string) *Error {
	return taken(field, "a template with this id already exists")
}

// room returns the check of a change that adds a row to a personal area, which may be full; nil for
// the server's area. The change must have the locks of the area. full reports whether the area has
// the most rows that are allowed, which noun names for people. A full area still answers ErrExists
// for a row that is in it: present reads that row.
//
// All changes that add to an area take the lock on the keys of its owner, as does the deletion of
// the owner. So no call counts too few rows, and none adds a row for a user that is deleted. A
// deletion revokes the caller's key, so the key also tells the user from another one with that id.
func (a place) room(
	most int, noun string, full func(ctx context.Context, tx Store) (bool, error),
	present func(ctx context.Context, tx Store) error,
) func(ctx context.Context, tx Store) error {
	if a.scope == ScopeServer {
		return nil
	}
	return func(ctx context.Context, tx Store) error {
		if is, err := full(ctx, tx); !is || err != nil {
			return err
		}
		if err := present(ctx, tx); !noRow(err) {
			return cmp.Or(err, ErrExists)
		}
		return &Error{
			Code: CodeLimit,
			Message: fmt.Sprintf("the user has %d %s, and more are not allowed: remove one first",
				most, noun),
		}
	}
}
