package bench_test

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/extsvc/svc"
)

// contentRow holds the columns of a content; all are null where there is none.
type contentRow struct {
	name, description, category  *string
	integrations, tags, manifest []byte
}

func (r *contentRow) columns() []any {
	return []any{&r.name, &r.description, &r.category, &r.integrations, &r.tags, &r.manifest}
}

func (r *contentRow) content() (c svc.Content, err error) {
	if r.name == nil {
		return c, nil
	}
	c = svc.Content{Name: *r.name, Description: r.description, Category: r.category, Manifest: r.manifest}
	if err := json.Unmarshal(r.integrations, &c.Integrations); err != nil {
		return c, err
	}
	return c, json.Unmarshal(r.tags, &c.Tags)
}

// templateRow holds the columns of a template.
type templateRow struct {
	key                                       svc.TemplateKey
	content                                   contentRow
	scope, owner, name, origin, revision, url *string
	installed, updated, version               int64
	base                                      contentRow
}

func (r *templateRow) columns() []any {
	return append(append([]any{&r.key.Scope, &r.key.Owner, &r.key.ID}, r.content.columns()...),
		&r.scope, &r.owner, &r.name, &r.origin, &r.revision, &r.url, &r.installed, &r.updated, &r.version)
}

// template returns the row as a store returns it.
func (r *templateRow) template() (svc.Template, error) {
	t := svc.Template{TemplateKey: r.key, Version: r.version, InstalledAt: fromMicro(r.installed), UpdatedAt: fromMicro(r.updated)}
	var err error
	if t.Content, err = r.content.content(); err != nil || r.scope == nil {
		return t, err
	}
	t.Origin = &svc.Origin{Source: svc.SourceKey{Scope: svc.Scope(*r.scope), Owner: *r.owner, Name: *r.name}, ID: *r.origin, Revision: *r.revision}
	if r.url != nil {
		t.Origin.URL = *r.url
	}
	t.Origin.Base, err = r.base.content()
	return t, err
}

func (b *bare) get(ctx context.Context, id string) (templateRow, error) {
	var r templateRow
	err := b.template.QueryRowContext(ctx, svc.ScopeServer, "", id).Scan(append(r.columns(), r.base.columns()...)...)
	return r, err
}

// each reads a list in chunks, up to limit rows.
func (b *bare) each(ctx context.Context, filter svc.TemplateQuery, limit int, row func(*templateRow) error) error {
	name, id := "", ""
	for read := 0; read < limit; {
		stmt, args := b.listing(filter, name, id)
		n := 0
		err := scan(ctx, stmt, args, func(r *templateRow) error {
			n++
			name, id = *r.content.name, r.key.ID
			if read++; read > limit {
				return nil
			}
			return row(r)
		})
		if err != nil || n == 0 {
			return err
		}
	}
	return nil
}

func (b *bare) listing(filter svc.TemplateQuery, name, id string) (*sql.Stmt, []any) {
	args := []any{svc.ScopeServer, "", name, id}
	switch {
	case filter.Tag != "" && filter.Category != "":
		return b.both, append(args, filter.Tag, filter.Category)
	case filter.Tag != "":
		return b.tag, append(args, filter.Tag)
	case filter.Category != "":
		return b.category, append(args, filter.Category)
	}
	return b.list, args
}

// eachAtOnce reads a list with one statement.
func (b *bare) eachAtOnce(ctx context.Context, limit int, row func(*templateRow) error) error {
	return scan(ctx, b.whole, []any{svc.ScopeServer, "", limit}, row)
}

func scan(ctx context.Context, stmt *sql.Stmt, args []any, row func(*templateRow) error) error {
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var r templateRow
		if err := rows.Scan(r.columns()...); err != nil {
			return err
		}
		if err := row(&r); err != nil {
			return err
		}
	}
	return rows.Err()
}

// install is one durable insert of a template, with its tags and its base.
func (b *bare) install(ctx context.Context, id string, c svc.Content) error {
	key := svc.TemplateKey{Scope: svc.ScopeServer, ID: id}
	shop := svc.SourceKey{Scope: svc.ScopeServer, Name: "shop"}
	origin := svc.Origin{Source: shop, ID: id, URL: "https://shop.example/templates", Revision: "sha256:0"}
	return b.mutate(ctx, key.Target(), func(tx *sql.Tx) error {
		return b.insert(ctx, tx, key, c, origin)
	})
}

// insert adds a template that has the lists of [installed], with its tags and its base.
func (b *bare) insert(ctx context.Context, tx *sql.Tx, key svc.TemplateKey, c svc.Content, from svc.Origin) error {
	content := []any{key.Scope, key.Owner, key.ID, c.Name, c.Description, c.Category, `["mail"]`, `["one","two"]`, string(c.Manifest)}
	args := append(content[:len(content):len(content)],
		from.Source.Scope, from.Source.Owner, from.Source.Name, from.ID, from.Revision, from.URL, 0, 1, 0)
	if _, err := tx.StmtContext(ctx, b.createTemplate).ExecContext(ctx, args...); err != nil {
		return err
	}
	for _, tag := range c.Tags {
		if _, err := tx.StmtContext(ctx, b.createTag).ExecContext(ctx, key.Scope, key.Owner, key.ID, c.Category, c.Name, tag); err != nil {
			return err
		}
	}
	_, err := tx.StmtContext(ctx, b.createBase).ExecContext(ctx, content...)
	return err
}
