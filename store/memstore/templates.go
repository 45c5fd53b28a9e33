package memstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

// CreateTemplate implements [svc.TemplateStore].
func (s *Store) CreateTemplate(ctx context.Context, template svc.Template) error {
	return create(ctx, s, s.templates, template.TemplateKey, cloneTemplate(template))
}

// Template implements [svc.TemplateStore].
func (s *Store) Template(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
	if err := s.lock(ctx); err != nil {
		return svc.Template{}, err
	}
	defer s.mu.Unlock()
	return find(s.templates, key, cloneTemplate)
}

// Templates implements [svc.TemplateStore].
func (s *Store) Templates(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	rows := sortedRows(s.templates, func(t svc.Template) bool {
		return t.Scope == page.Scope && t.Owner == page.Owner &&
			compareNames(t.Name, t.ID, page.AfterName, page.AfterID) > 0 &&
			(page.Category == "" || t.Category != nil && *t.Category == page.Category) &&
			(page.Tag == "" || slices.Contains(t.Tags, page.Tag))
	}, func(a, b svc.Template) int { return compareNames(a.Name, a.ID, b.Name, b.ID) })
	return first(rows[min(page.Skip, len(rows)):], page.Limit, listed), nil
}

// listed returns a copy without the base.
func listed(t svc.Template) svc.Template {
	if t = cloneTemplate(t); t.Origin != nil {
		t.Origin.Base = svc.Content{}
	}
	return t
}

func compareNames(nameA, idA, nameB, idB string) int {
	return cmp.Or(cmp.Compare(nameA, nameB), cmp.Compare(idA, idB))
}

// ChangeTemplate implements [svc.TemplateStore].
func (s *Store) ChangeTemplate(
	ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error),
) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	template, err := find(s.templates, key, cloneTemplate)
	if err != nil {
		return err
	}
	was := s.templates[key]
	write, err := change(&template)
	if err != nil || !write {
		return err
	}
	template.TemplateKey, template.InstalledAt = key, was.InstalledAt
	if template.Version > was.Version {
		s.keepVersion(was, template.Version)
	}
	put(s, s.templates, key, cloneTemplate(template))
	s.recordChange(key.Target())
	return nil
}

// keepVersion adds the old template to its versions, and deletes those too old for its new number.
// The caller holds the lock.
func (s *Store) keepVersion(was svc.Template, number int64) {
	version := svc.TemplateVersion{
		Number: was.Version, Content: was.Content, UpdatedAt: was.UpdatedAt,
	}
	if was.Origin != nil {
		version.SourceRevision = was.Origin.Revision
	}
	kept := append([]svc.TemplateVersion{version}, s.versions[was.TemplateKey]...)
	put(s, s.versions, was.TemplateKey, slices.DeleteFunc(kept, func(v svc.TemplateVersion) bool {
		return v.Number < number-limits.TemplateVersions
	}))
}

// TemplateVersions implements [svc.TemplateStore].
func (s *Store) TemplateVersions(
	ctx context.Context, key svc.TemplateKey, before int64, limit int,
) ([]svc.TemplateVersion, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	older := slices.DeleteFunc(slices.Clone(s.versions[key]), func(v svc.TemplateVersion) bool {
		return v.Number >= before
	})
	return first(older, limit, func(v svc.TemplateVersion) svc.TemplateVersion {
		v.Content = cloneContent(v.Content)
		return v
	}), nil
}

// Installations implements [svc.TemplateStore].
func (s *Store) Installations(
	ctx context.Context, page svc.InstallationPage,
) ([]svc.Installation, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	rows := sortedRows(s.templates, func(t svc.Template) bool {
		return t.Origin != nil && t.Scope == page.Scope && t.Owner == page.Owner &&
			t.ID > page.After
	}, func(a, b svc.Template) int { return cmp.Compare(a.ID, b.ID) })
	return first(rows, page.Limit, func(t svc.Template) svc.Installation {
		origin := *listed(t).Origin
		origin.Edited = false
		return svc.Installation{ID: t.ID, Origin: origin}
	}), nil
}

// RebindTemplates implements [svc.TemplateStore].
func (s *Store) RebindTemplates(
	ctx context.Context, source svc.SourceKey, url string,
) ([]svc.TemplateKey, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var rebound []svc.TemplateKey
	var targets []svc.Target
	for key, t := range s.templates {
		own := key.Scope == source.Scope && key.Owner == source.Owner
		if !own || t.Origin == nil || t.Origin.Source != source || t.Origin.URL == url {
			continue
		}
		s.bind(t, url)
		rebound, targets = append(rebound, key), append(targets, key.Target())
	}
	if rebound != nil {
		s.recordChange(targets...)
	}
	slices.SortFunc(rebound, svc.TemplateKey.Compare)
	return rebound, nil
}

// bind writes the URL of a template's origin.
func (s *Store) bind(t svc.Template, url string) {
	origin := *t.Origin
	origin.URL = url
	t.Origin = &origin
	put(s, s.templates, t.TemplateKey, t)
}

// unbind takes the URL from the templates that came from the personal sources which of reports, and
// are not their owner's own. It returns those that had one.
func (s *Store) unbind(of func(svc.SourceKey) bool) (unbound []svc.Target) {
	for key, t := range s.templates {
		if t.Origin == nil || t.Origin.URL == "" {
			continue
		}
		source := t.Origin.Source
		own := key.Scope == svc.ScopePersonal && key.Owner == source.Owner
		if source.Scope == svc.ScopePersonal && !own && of(source) {
			s.bind(t, "")
			unbound = append(unbound, key.Target())
		}
	}
	return unbound
}

// DeleteTemplate implements [svc.TemplateStore].
func (s *Store) DeleteTemplate(
	ctx context.Context, key svc.TemplateKey, check func(svc.Template) error,
) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	template, err := find(s.templates, key, cloneTemplate)
	if err != nil {
		return err
	}
	if check != nil {
		if err := check(template); err != nil {
			return err
		}
	}
	drop(s, s.templates, key)
	drop(s, s.versions, key)
	s.recordChange(key.Target())
	return nil
}

func cloneTemplate(template svc.Template) svc.Template {
	template.Content = cloneContent(template.Content)
	if template.Origin != nil {
		origin := *template.Origin
		origin.Base = cloneContent(origin.Base)
		template.Origin = &origin
	}
	return template
}

func cloneContent(content svc.Content) svc.Content {
	content.Description = cloneText(content.Description)
	content.Category = cloneText(content.Category)
	content.Integrations = slices.Clone(content.Integrations)
	content.Tags = slices.Clone(content.Tags)
	content.Manifest = bytes.Clone(content.Manifest)
	return content
}
