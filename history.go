package svc

import (
	"context"
	"errors"
	"iter"
	"math"
	"time"
)

// MaxTemplateVersions is how many former versions of a template are kept: the newest.
const MaxTemplateVersions = 20

// TemplateVersion is a template as it was.
type TemplateVersion struct {
	Number int64 // counts its contents: 1 is what was created or installed
	Content
	SourceRevision string    // of what was installed then; "" made by hand
	UpdatedAt      time.Time // since when it was so
}

// TemplateHistory lists the former versions of a template of the server, newest first: what patches, updates and rollbacks have
// replaced, at most [MaxTemplateVersions]. They go with the template. Errors: CodeInvalid, CodeForbidden, CodeNotFound. The
// error, if any, is the last thing yielded.
func (s *Service) TemplateHistory(ctx context.Context, by Principal, id string) iter.Seq2[TemplateVersion, error] {
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

// RollbackTemplate gives a template of the server the content of a former version. What it replaces becomes a version, too, so
// that a rollback can be rolled back. To updates it is an edit as a patch is: Origin stays, and with it what counts as
// edited here. Where the content is the same nothing is written. With ifMatch, only a template with one of these ETags is rolled
// back. Errors: CodeInvalid, CodeForbidden, CodeNotFound (the template, or the version), CodePrecondition.
func (s *Service) RollbackTemplate(ctx context.Context, by Principal, id string, number int64, ifMatch ...string) (Template, error) {
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
	return s.editTemplate(ctx, by, id, EventTemplateRolledBack, ifMatch, func(Content) Content { return version.Content.clone() })
}

func (s *Service) version(ctx context.Context, key TemplateKey, number int64) (TemplateVersion, error) {
	found, err := s.store.TemplateVersions(ctx, key, number+1, 1)
	if err != nil {
		return TemplateVersion{}, fault("read version", err)
	}
	if len(found) == 0 || found[0].Number != number {
		return TemplateVersion{}, notFound("there is no such version of this template")
	}
	return found[0], nil
}

// editTemplate changes the content of a template, if edit does.
func (s *Service) editTemplate(ctx context.Context, by Principal, id string, action EventAction, ifMatch []string, edit func(Content) Content) (Template, error) {
	var edited Template
	now := s.now()
	defer s.changesTemplates()()
	err := s.mutate(ctx, by, func(ctx context.Context, store Store) (changed []Event, err error) {
		err = store.ChangeTemplate(ctx, serverTemplate(id), func(t *Template) (bool, error) {
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
	})
	if errors.Is(err, ErrNotFound) {
		return Template{}, noTemplate()
	} else if err != nil {
		return Template{}, fault("change template", err)
	}
	return edited, nil
}

// edited reports whether a template is not what its source gave. One made by hand never is.
func (t *Template) edited() bool {
	return t.Origin != nil && len(differences(t.Content, t.Origin.Base)) > 0
}

// put gives a template its content, as a new version if it is another one to the letter.
func (t *Template) put(content Content) (changed bool) {
	if changed = !t.Content.same(content); changed {
		t.Version++
		t.Content = content
	}
	return changed
}
