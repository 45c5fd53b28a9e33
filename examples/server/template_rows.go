package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"iter"

	"github.com/extsvc/svc"
)

// templateRow is a template as the API shows it.
type templateRow struct {
	ID             string          `json:"id"`
	Name           string          `json:"name"`
	Category       *string         `json:"category"`
	SourceName     *string         `json:"source_name"`
	SourceRevision *string         `json:"source_revision"`
	Manifest       json.RawMessage `json:"manifest,omitempty"`
}

func ofTemplate(t svc.Template) templateRow {
	row := templateRow{ID: t.ID, Name: t.Name, Category: t.Category, Manifest: t.Manifest}
	if t.Origin != nil {
		row.SourceName, row.SourceRevision = &t.Origin.Source.Name, &t.Origin.Revision
	}
	return row
}

// ofListedTemplate leaves out the manifest: it may be long.
func ofListedTemplate(t svc.Template) templateRow {
	row := ofTemplate(t)
	row.Manifest = nil
	return row
}

func (t templateRow) cells() []any { return []any{t.ID, t.Name, t.Category, t.SourceName} }

// updateRow is whether a template has an update.
type updateRow struct {
	ID     string `json:"id"`
	Source string `json:"source_name"`
	Update bool   `json:"update"`
}

func ofUpdate(u svc.TemplateUpdate) updateRow {
	return updateRow{u.ID, u.Source.Name, u.HasUpdate()}
}

func (u updateRow) cells() []any { return []any{u.ID, u.Source, u.Update} }

// changeRow is one difference between a template and its source.
type changeRow struct {
	Path   string          `json:"path"`
	Base   json.RawMessage `json:"base"`
	Ours   json.RawMessage `json:"ours"`
	Theirs json.RawMessage `json:"theirs"`
}

func ofChange(d svc.ContentChange) changeRow { return changeRow(d) }

func (d changeRow) cells() []any {
	return []any{d.Path, string(d.Base), string(d.Ours), string(d.Theirs)}
}

var templateCommands = []rows{
	listing(
		"template list", "list the templates", "ID\tNAME\tCATEGORY\tSOURCE",
		target.templates, ofListedTemplate,
	),
	showing("template show", "TEMPLATE", "show a template", target.template, ofTemplate),
	{
		name: "template install", takes: "TEMPLATE", secrets: true,
		about: "install a template of a source", setup: installTemplate,
	},
	{
		name: "template check", secrets: true, about: "print which templates have an update",
		setup: flagless(checkUpdates),
	},
	{
		name: "template update", takes: "TEMPLATE", secrets: true,
		about: "update a template from its source", setup: updateTemplate,
	},
	{
		name: "template diff", takes: "TEMPLATE", secrets: true,
		about: "print what differs from the source; exit with 2 if anything does",
		setup: flagless(diffTemplate),
	},
	removal(
		"template remove", "TEMPLATE", "remove a template", "removed template %s",
		target.removeTemplate,
	),
}

// checkUpdates prints the templates that have an update, and the sources that could not be asked.
func checkUpdates(ctx context.Context, c *call, t target) error {
	report, err := t.checkUpdates(ctx)
	if err != nil {
		return err
	}
	failed := 0
	for _, s := range report.Sources {
		if s.Problem != "" {
			failed++
			_ = printLine(c.stderr, "source %s: %s", s.Source.Name, s.Problem)
		}
	}
	err = show(c, sequence(report.Templates, nil), "TEMPLATE\tSOURCE\tUPDATE", ofUpdate)
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %d sources could not be asked", failed, len(report.Sources))
	}
	return err
}

func installTemplate(flags *flag.FlagSet, c *call) rowsAction {
	source := flags.String("source", "", "the `NAME` of the source")
	as := flags.String("as", "", "the `ID` here; without it, that of the source")
	return func(ctx context.Context, t target) error {
		in := svc.Install{TemplateID: c.operand, SourceName: *source, AliasID: orNil(*as)}
		installed, err := t.install(ctx, in)
		return c.done(err, "installed template %s", installed.ID)
	}
}

func updateTemplate(flags *flag.FlagSet, c *call) rowsAction {
	force := flags.Bool("force", false, "discard local edits")
	return func(ctx context.Context, t target) error {
		var in svc.UpdateRequest
		if *force {
			in.LocalEdits = svc.TakeTheirs
		}
		update, err := t.update(ctx, c.operand, in)
		if err == nil && !update.Updated {
			return c.done(nil, "template %s is up to date", c.operand)
		}
		return c.done(err, "updated template %s", c.operand)
	}
}

func diffTemplate(ctx context.Context, c *call, t target) error {
	diff, err := t.diff(ctx, c.operand)
	if err != nil {
		return err
	}
	err = show(c, sequence(diff.Changes, nil), "PATH\tBASE\tOURS\tTHEIRS", ofChange)
	if err == nil && len(diff.Changes) > 0 {
		err = silent(2)
	}
	return err
}

func (t target) templates(ctx context.Context) iter.Seq2[svc.Template, error] {
	if t.local != nil {
		return t.local.Templates.List(ctx, t.by, svc.TemplateQuery{})
	}
	return t.far.Templates.List(ctx, svc.TemplateQuery{})
}

func (t target) template(ctx context.Context, id string) (svc.Template, error) {
	if t.local != nil {
		return t.local.Templates.Read(ctx, t.by, id)
	}
	return t.far.Templates.Read(ctx, id)
}

func (t target) install(ctx context.Context, in svc.Install) (svc.Template, error) {
	if t.local != nil {
		return t.local.Templates.Install(ctx, t.by, in)
	}
	return t.far.Templates.Install(ctx, in)
}

func (t target) checkUpdates(ctx context.Context) (svc.UpdateReport, error) {
	if t.local != nil {
		return t.local.Templates.CheckUpdates(ctx, t.by, nil)
	}
	return t.far.Templates.CheckUpdates(ctx)
}

func (t target) update(
	ctx context.Context, id string, in svc.UpdateRequest,
) (svc.Update, error) {
	if t.local != nil {
		return t.local.Templates.Update(ctx, t.by, id, in)
	}
	return t.far.Templates.Update(ctx, id, in)
}

func (t target) diff(ctx context.Context, id string) (svc.TemplateDiff, error) {
	if t.local != nil {
		return t.local.Templates.Diff(ctx, t.by, id)
	}
	return t.far.Templates.Diff(ctx, id)
}

func (t target) removeTemplate(ctx context.Context, id string) error {
	if t.local != nil {
		return t.local.Templates.Delete(ctx, t.by, id)
	}
	return t.far.Templates.Delete(ctx, id)
}
