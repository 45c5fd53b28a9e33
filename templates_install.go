package svc

import (
	"context"
	"errors"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/copies"
)

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

// installed holds the server's templates that came from sources. It does not change.
type installed struct {
	count    int
	bySource map[SourceKey][]Installation // each list in order of id
}

func (i *installed) size() int64 { return cache.Size(i.bySource) }

// maxInstalled limits the bytes of the cached sources of all templates.
const maxInstalled = 64 << 20

// installs knows which templates came from which source.
type installs struct {
	*base
	checks *checks
	kept   *copies.One[*installed]
}

func newInstalls(b *base, checks *checks) *installs {
	i := &installs{b, checks, copies.NewOne(b.copies, maxInstalled, (*installed).size)}
	b.onChange(func(changed Target, _ int64) {
		if changed.Kind == TargetTemplate {
			i.kept.Clear()
		}
	})
	return i
}

// installed returns the server's templates that came from sources. It returns the cached copy while
// that is valid, else it reads the store.
func (s *installs) installed(ctx context.Context) (*installed, error) {
	return s.kept.Load(ctx, func(known int64) (*installed, int64, error) {
		all, err := s.readInstalled(ctx)
		return all, known, err
	})
}

func (s *installs) readInstalled(ctx context.Context) (*installed, error) {
	all := &installed{bySource: map[SourceKey][]Installation{}}
	page := InstallationPage{Scope: ScopeServer, Limit: installedChunk}
	for i, err := range list(ctx, "list installations", page.Limit,
		func() error { return nil },
		func() ([]Installation, error) { return s.store.Installations(ctx, page) },
		func(last Installation) { page.After = last.ID }) {
		if err != nil {
			return nil, err
		}
		all.count++
		all.bySource[i.Origin.Source] = append(all.bySource[i.Origin.Source], i)
	}
	return all, nil
}

const installedChunk = 1024

// byEntry groups installations by the id of the catalogue entry that they came from.
func byEntry(list []Installation) map[string][]Installation {
	by := make(map[string][]Installation, len(list))
	for _, i := range list {
		by[i.Origin.ID] = append(by[i.Origin.ID], i)
	}
	return by
}
