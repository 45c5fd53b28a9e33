package sqlstore

import (
	"context"
	"math/bits"
	"slices"
	"strconv"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

// chunkBytes is how many bytes of manifests a chunk of a list holds before it ends early.
const chunkBytes = 512 << 10

// CreateTemplate implements [svc.TemplateStore].
func (s *Store) CreateTemplate(ctx context.Context, template svc.Template) error {
	target := template.Target()
	return s.change(ctx, "create template", target, func(ctx context.Context, tx session) error {
		args := templateArgs(template,
			template.UpdatedAt.UnixMicro(), template.Version, template.InstalledAt.UnixMicro())
		err := tx.create(ctx, `INSERT INTO svc_templates (scope, owner, id, name, description,
			category, integrations, tags, manifest, source_scope, source_owner, source_name,
			source_id, source_revision, source_url, edited, updated_at, version, installed_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
			$19)
			ON CONFLICT DO NOTHING`, args...)
		if err != nil {
			return err
		}
		return tx.createTemplateParts(ctx, template)
	})
}

// createTemplateParts adds the tags and the base. Lists filter by tag; because each tag's row has
// the category and the name, an index serves every filtered list in order.
func (s session) createTemplateParts(ctx context.Context, t svc.Template) error {
	for _, tag := range t.Tags {
		_, err := s.exec(ctx, `INSERT INTO svc_template_tags (scope, owner, id, category, name, tag)
			VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
			t.Scope, t.Owner, t.ID, t.Category, t.Name, tag)
		if err != nil {
			return err
		}
	}
	if t.Origin == nil {
		return nil
	}
	return s.create(ctx, `INSERT INTO svc_template_bases
		(scope, owner, id, name, description, category, integrations, tags, manifest)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING`,
		contentArgs(t.TemplateKey, t.Origin.Base)...)
}

// Template implements [svc.TemplateStore].
func (s *Store) Template(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
	template, err := s.db.reading().template(ctx, key)
	return template, s.fault(ctx, "read template", err)
}

const templateColumns = `t.scope, t.owner, t.id, t.name, t.description, t.category, t.integrations,
	t.tags, t.manifest, t.source_scope, t.source_owner, t.source_name, t.source_id,
	t.source_revision, t.source_url, t.edited, t.installed_at, t.updated_at, t.version`

func (s session) template(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
	return one(ctx, s, scanTemplate, `SELECT `+templateColumns+`,
		b.name, b.description, b.category, b.integrations, b.tags, b.manifest
		FROM svc_templates t
		LEFT JOIN svc_template_bases b ON b.scope = t.scope AND b.owner = t.owner AND b.id = t.id
		WHERE t.scope = $1 AND t.owner = $2 AND t.id = $3`, key.Scope, key.Owner, key.ID)
}

// Templates implements [svc.TemplateStore].
func (s *Store) Templates(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
	var chunk []svc.Template
	size := 0
	l := listTemplates(page)
	err := each(ctx, s.db.reading(), func(row scanner) (bool, error) {
		template, err := scanTemplateColumns(row)
		chunk = append(chunk, template)
		size += len(template.Manifest)
		return size > chunkBytes || len(chunk) == page.Limit, err
	}, l.query, l.parameters...)
	return chunk, s.fault(ctx, "list templates", err)
}

// listTemplates returns one of four queries: each filter has an index in the order of the list.
func listTemplates(page svc.TemplatePage) *listing {
	from, of := `svc_templates t`, `t`
	if page.Tag != "" {
		from = `svc_template_tags k
			JOIN svc_templates t ON t.scope = k.scope AND t.owner = k.owner AND t.id = k.id`
		of = `k`
	}
	l := list(`SELECT ` + templateColumns + ` FROM ` + from)
	l.where(of + `.scope = ` + l.add(page.Scope))
	l.where(of + `.owner = ` + l.add(page.Owner))
	l.after(of+`.name, `+of+`.id`, page.AfterName, page.AfterID)
	l.equal(`k.tag`, page.Tag)
	l.equal(of+`.category`, page.Category)
	l.query += ` ORDER BY ` + of + `.name, ` + of + `.id LIMIT ` + limit(page.Limit)
	l.skip(page.Skip)
	return l
}

// limit returns n, at most 1,024, rounded up to three binary digits, as a literal: 8, 10, 12, 14,
// 16 and so on. SQLite prepares a statement again on each use when its LIMIT is just a parameter; a
// few literals need only a few prepared statements. Where query plans do not depend on the limit,
// ($1 + 0) works as well.
func limit(n int) string {
	n = min(n, 1024)
	step := max(1, 1<<bits.Len(uint(n-1))/8)
	return strconv.Itoa((n + step - 1) / step * step)
}

// ChangeTemplate implements [svc.TemplateStore].
func (s *Store) ChangeTemplate(
	ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error),
) error {
	target := key.Target()
	return s.change(ctx, "change template", target, func(ctx context.Context, tx session) error {
		template, err := tx.lockTemplate(ctx, key)
		if err != nil {
			return err
		}
		version := template.Version
		if err := ask(change, &template); err != nil {
			return err
		}
		template.TemplateKey = key
		if template.Version > version {
			if err := tx.keepVersion(ctx, template); err != nil {
				return err
			}
		}
		return tx.updateTemplate(ctx, template)
	})
}

// lockTemplate reads a template. Writing the row first makes other changes of the template wait, in
// every database.
func (s session) lockTemplate(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
	err := s.hit(ctx, `UPDATE svc_templates SET updated_at = updated_at
		WHERE scope = $1 AND owner = $2 AND id = $3`, key.Scope, key.Owner, key.ID)
	if err != nil {
		return svc.Template{}, err
	}
	return s.template(ctx, key)
}

// keepVersion copies the stored row of a template to its versions, and deletes versions too old for
// t, the new state.
func (s session) keepVersion(ctx context.Context, t svc.Template) error {
	const columns = `scope, owner, id, version, name, description, category, integrations, tags,
		manifest, source_revision, updated_at`
	err := s.hit(ctx, `INSERT INTO svc_template_versions (`+columns+`)
		SELECT `+columns+` FROM svc_templates
		WHERE scope = $1 AND owner = $2 AND id = $3`, t.Scope, t.Owner, t.ID)
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, `DELETE FROM svc_template_versions
		WHERE scope = $1 AND owner = $2 AND id = $3 AND version < $4`,
		t.Scope, t.Owner, t.ID, t.Version-limits.TemplateVersions)
	return err
}

// TemplateVersions implements [svc.TemplateStore].
func (s *Store) TemplateVersions(
	ctx context.Context, key svc.TemplateKey, before int64, limit int,
) ([]svc.TemplateVersion, error) {
	var chunk []svc.TemplateVersion
	size := 0
	err := each(ctx, s.db.reading(), func(row scanner) (bool, error) {
		version, err := scanVersion(row)
		chunk = append(chunk, version)
		size += len(version.Manifest)
		return size > chunkBytes, err
	}, `SELECT version, name, description, category, integrations, tags, manifest,
		source_revision, updated_at FROM svc_template_versions
		WHERE scope = $1 AND owner = $2 AND id = $3 AND version < $4
		ORDER BY version DESC LIMIT ($5 + 0)`,
		key.Scope, key.Owner, key.ID, before, limit)
	return chunk, s.fault(ctx, "list versions", err)
}

func scanVersion(row scanner) (v svc.TemplateVersion, err error) {
	var content contentRow
	columns := slices.Concat([]any{&v.Number}, content.columns(),
		[]any{orZero[string]{&v.SourceRevision}, micro{&v.UpdatedAt}})
	if err = row.Scan(columns...); err != nil {
		return v, err
	}
	v.Content, err = content.content()
	return v, err
}

// updateTemplate writes all of an existing template except InstalledAt.
func (s session) updateTemplate(ctx context.Context, t svc.Template) error {
	args := templateArgs(t, t.UpdatedAt.UnixMicro(), t.Version)
	key, columns := args[:3], args[3:]
	err := s.hit(ctx, `UPDATE svc_templates SET name = $1, description = $2, category = $3,
		integrations = $4, tags = $5, manifest = $6, source_scope = $7, source_owner = $8,
		source_name = $9, source_id = $10, source_revision = $11, source_url = $12,
		edited = $13, updated_at = $14, version = $15
		WHERE scope = $16 AND owner = $17 AND id = $18`,
		append(columns, key...)...)
	if err != nil {
		return err
	}
	for _, parts := range []string{`svc_template_tags`, `svc_template_bases`} {
		_, err := s.exec(ctx, `DELETE FROM `+parts+` WHERE scope = $1 AND owner = $2 AND id = $3`,
			t.Scope, t.Owner, t.ID)
		if err != nil {
			return err
		}
	}
	return s.createTemplateParts(ctx, t)
}

// DeleteTemplate implements [svc.TemplateStore].
func (s *Store) DeleteTemplate(
	ctx context.Context, key svc.TemplateKey, check func(svc.Template) error,
) error {
	target := key.Target()
	return s.change(ctx, "delete template", target, func(ctx context.Context, tx session) error {
		if check != nil {
			template, err := tx.lockTemplate(ctx, key)
			if err != nil {
				return err
			}
			if err := check(template); err != nil {
				return refusal{err}
			}
		}
		return tx.hit(ctx, `DELETE FROM svc_templates WHERE scope = $1 AND owner = $2 AND id = $3`,
			key.Scope, key.Owner, key.ID)
	})
}

// templateArgs returns a template's key, content and origin as parameters, and then more.
func templateArgs(t svc.Template, more ...any) []any {
	origin := []any{nil, nil, nil, nil, nil, nil, 0} // null: the template has no source
	if o := t.Origin; o != nil {
		origin = []any{o.Source.Scope, o.Source.Owner, o.Source.Name, o.ID, o.Revision, o.URL,
			flag(o.Edited)}
	}
	return slices.Concat(contentArgs(t.TemplateKey, t.Content), origin, more)
}

func contentArgs(key svc.TemplateKey, c svc.Content) []any {
	return []any{key.Scope, key.Owner, key.ID, c.Name, c.Description, c.Category,
		encodeList(c.Integrations), encodeList(c.Tags), string(c.Manifest)}
}

// contentRow holds the columns of a content. All are null when the template has no base.
type contentRow struct {
	name, description, category *string
	integrations, tags          []byte
	manifest                    []byte
}

func (r *contentRow) columns() []any {
	return []any{&r.name, &r.description, &r.category, &r.integrations, &r.tags, &r.manifest}
}

func (r *contentRow) content() (svc.Content, error) {
	content := svc.Content{
		Name: *r.name, Description: r.description, Category: r.category, Manifest: r.manifest,
	}
	var err error
	if content.Integrations, err = decodeList(r.integrations); err != nil {
		return content, err
	}
	content.Tags, err = decodeList(r.tags)
	return content, err
}

// scanTemplate reads a template and its base.
func scanTemplate(row scanner) (svc.Template, error) {
	var base contentRow
	template, err := scanTemplateColumns(row, base.columns()...)
	if err == nil && template.Origin != nil && base.name != nil {
		template.Origin.Base, err = base.content()
	}
	return template, err
}

func scanTemplateColumns(row scanner, more ...any) (t svc.Template, err error) {
	var content contentRow
	var scope, owner, name, id, revision, url *string
	var edited int64
	err = row.Scan(slices.Concat([]any{&t.Scope, &t.Owner, &t.ID}, content.columns(),
		[]any{&scope, &owner, &name, &id, &revision, &url, &edited, micro{&t.InstalledAt},
			micro{&t.UpdatedAt}, &t.Version}, more)...)
	if err != nil {
		return t, err
	}
	if scope != nil {
		source := svc.SourceKey{Scope: svc.Scope(*scope), Owner: *owner, Name: *name}
		t.Origin = &svc.Origin{
			Source: source, ID: *id, URL: *url, Revision: *revision, Edited: edited != 0,
		}
	}
	t.Content, err = content.content()
	return t, err
}
