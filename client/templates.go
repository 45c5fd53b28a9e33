package client

import (
	"context"
	"iter"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/internal/wire"
)

// List lists the templates that match a query, sorted by name, then id. It reads row
// by row, so the list need not fit into memory. Each range over it sends a request; leaving the
// loop early ends the request. An error is the last thing yielded. Errors: CodeInvalid (also for a
// Skip, which the interface does not have), CodeForbidden.
//
// The interface does not show all fields of a template. So Version and the ID and Base of the
// Origin are zero in every template that the Client returns. Integrations and Tags are never nil.
func (c *Templates) List(
	ctx context.Context, query svc.TemplateQuery,
) iter.Seq2[svc.Template, error] {
	r := c.at("GET /templates").where("category", query.Category, "tag", query.Tag)
	r = r.unless("skip", query.Skip != 0)
	return list(ctx, c.conn, r.part(query.Limit, query.AfterName, query.AfterID),
		"templates", template)
}

// Read returns a template. Errors: CodeInvalid, CodeForbidden, CodeNotFound.
func (c *Templates) Read(ctx context.Context, id string) (svc.Template, error) {
	return call(ctx, c.conn, c.at("GET /templates/{template_id}", id), template)
}

// Create creates a template by hand. Errors: CodeInvalid, CodeForbidden, CodeExists, CodeLimit.
func (c *Templates) Create(ctx context.Context, in svc.NewTemplate) (svc.Template, error) {
	return call(ctx, c.conn, c.at("POST /templates").with(wire.CreateTemplate{
		ID: in.ID, Name: in.Name, Manifest: in.Manifest, Description: in.Description,
		Category: in.Category, Integrations: in.Integrations, Tags: in.Tags,
	}), template)
}

// Patch changes some fields of a template. With ifMatch, it changes the template only if it has one
// of these ETags. Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodePrecondition, CodeChanged.
func (c *Templates) Patch(
	ctx context.Context, id string, patch svc.TemplatePatch, ifMatch ...string,
) (svc.Template, error) {
	body := wire.PatchTemplate{
		Name: optional(patch.Name), Description: optionalText(patch.Description),
		Category: optionalText(patch.Category), Integrations: optionalList(patch.Integrations),
		Tags: optionalList(patch.Tags),
	}
	if patch.Manifest != nil {
		body.Manifest = optional(&patch.Manifest)
	}
	r := c.at("PATCH /templates/{template_id}", id).with(body).match(ifMatch)
	return call(ctx, c.conn, r, template)
}

// Delete deletes a template. With ifMatch, it deletes the template only if it has one of these
// ETags. Errors: CodeInvalid, CodeForbidden, CodeNotFound, CodePrecondition.
func (c *Templates) Delete(ctx context.Context, id string, ifMatch ...string) error {
	return c.do(ctx, c.at("DELETE /templates/{template_id}", id).match(ifMatch))
}

// Install installs a template from a source. Errors: CodeInvalid, CodeForbidden, CodeNotFound
// (source or template), CodeExists, CodeLimit, CodeKeyReused, CodeSourceFailed, CodeSourceTimeout.
func (c *Templates) Install(ctx context.Context, in svc.Install) (svc.Template, error) {
	r := c.at("POST /templates/{template_id}/install", in.TemplateID).with(wire.InstallTemplate{
		SourceName: in.SourceName, SourceScope: orAbsent(string(in.SourceScope)),
		AliasID: in.AliasID,
	})
	return call(ctx, c.conn, r.repeatable(in.IdempotencyKey), template)
}

// CheckUpdate asks the source of a template whether its content differs from the installed content.
// The interface does not show the Owner of the Source; it is "". Errors: CodeInvalid,
// CodeForbidden, CodeNotFound (template or source), CodeSourceMoved, CodeSourceFailed,
// CodeSourceTimeout.
func (c *Templates) CheckUpdate(ctx context.Context, id string) (svc.UpdateCheck, error) {
	return call(ctx, c.conn, c.at("GET /templates/{template_id}/check-update", id), updateCheckOf)
}

// updateCheck distinguishes has_update false from an answer without that key.
type updateCheck struct {
	wire.UpdateCheck
	HasUpdate *bool `json:"has_update"`
}

func updateCheckOf(in updateCheck) svc.UpdateCheck {
	check := svc.UpdateCheck{
		HasUpdate:       orZero(in.HasUpdate),
		CurrentRevision: in.CurrentRevision, LatestRevision: in.LatestRevision,
	}
	if in.SourceName != nil {
		check.Source = new(sourceKey(orZero(in.SourceScope), *in.SourceName))
	}
	return check
}

// Update updates a template to the content that its source has now. The request in says what to do
// with local edits. With ifMatch, it updates the template only if it has one of these ETags.
// Errors: CodeInvalid (also for a template that was created by hand), CodeForbidden, CodeNotFound
// (template or source, or the template is gone from the source), CodeEdited, CodePrecondition,
// CodeSourceMoved, CodeChanged, CodeSourceFailed, CodeSourceTimeout.
func (c *Templates) Update(
	ctx context.Context, id string, in svc.UpdateRequest, ifMatch ...string,
) (svc.Update, error) {
	edits := "local_edits"
	switch in.LocalEdits {
	case svc.TakeTheirs, svc.KeepOurs, svc.TakeMerged:
		edits = "resolution"
	}
	r := c.at("POST /templates/{template_id}/update", id).match(ifMatch).where(
		edits, string(in.LocalEdits), "revision", in.Revision,
	)
	if content := in.Content; content != nil {
		r = r.with(wire.UpdateTemplate{
			Name: &content.Name, Manifest: content.Manifest, Description: content.Description,
			Category: content.Category, Integrations: content.Integrations, Tags: content.Tags,
		})
	}
	return call(ctx, c.conn, r, func(in wire.Update) svc.Update {
		return svc.Update{
			Updated: in.Updated, PreviousRevision: orZero(in.PreviousRevision),
			NewRevision: orZero(in.NewRevision), Template: template(in.Template),
		}
	})
}

// Diff returns what an update would change and what was edited locally. Errors: those of Update
// except CodeEdited.
func (c *Templates) Diff(ctx context.Context, id string) (svc.TemplateDiff, error) {
	r := c.at("GET /templates/{template_id}/diff", id)
	return call(ctx, c.conn, r, func(in wire.TemplateDiff) svc.TemplateDiff {
		change := func(c wire.ContentChange) svc.ContentChange {
			return svc.ContentChange{Path: c.Path, Base: c.Base, Ours: c.Ours, Theirs: c.Theirs}
		}
		return svc.TemplateDiff{
			CurrentRevision: in.CurrentRevision, LatestRevision: in.LatestRevision,
			RenamedTo: in.RenamedTo, Changes: wire.Each(in.Changes, change),
		}
	})
}

// History lists the former versions of a template, newest first. It reads row by row, as List
// does. Errors: CodeInvalid, CodeForbidden, CodeNotFound.
func (c *Templates) History(
	ctx context.Context, id string,
) iter.Seq2[svc.TemplateVersion, error] {
	r := c.at("GET /templates/{template_id}/history", id)
	return list(ctx, c.conn, r, "versions", func(in wire.TemplateVersion) svc.TemplateVersion {
		return svc.TemplateVersion{
			Number: in.Version, Content: svc.Content(in.Content),
			SourceRevision: orZero(in.SourceRevision), UpdatedAt: in.UpdatedAt,
		}
	})
}

// Rollback gives a template the content of a former version. With ifMatch, it changes the template
// only if it has one of these ETags. Errors: CodeInvalid, CodeForbidden, CodeNotFound (template or
// version), CodePrecondition, CodeChanged.
func (c *Templates) Rollback(
	ctx context.Context, id string, number int64, ifMatch ...string,
) (svc.Template, error) {
	r := c.at("POST /templates/{template_id}/rollback", id).match(ifMatch)
	return call(ctx, c.conn, r.with(wire.RollbackTemplate{Version: number}), template)
}

func template(in wire.Template) svc.Template {
	t := svc.Template{
		TemplateKey: svc.TemplateKey{
			Scope: svc.Scope(in.Scope), Owner: orZero(in.Owner), ID: in.ID,
		},
		Content: svc.Content(in.Content), InstalledAt: in.InstalledAt, UpdatedAt: in.UpdatedAt,
	}
	if in.SourceName != nil {
		source := sourceKey(orZero(in.SourceScope), *in.SourceName)
		source.Owner = orZero(in.SourceOwner)
		t.Origin = &svc.Origin{Source: source, Revision: orZero(in.SourceRevision)}
	}
	return t
}

// optional returns a patch field that cannot be null; nil: the field is absent.
func optional[T any](value *T) strictjson.Optional[T] {
	if value == nil {
		return strictjson.Optional[T]{}
	}
	return strictjson.Optional[T]{Set: true, Value: *value}
}

// optionalList returns a list field of a patch. A nil list becomes an empty one.
func optionalList(list *[]string) strictjson.Optional[[]string] {
	if list == nil {
		return strictjson.Optional[[]string]{}
	}
	return strictjson.Optional[[]string]{Set: true, Value: append([]string{}, *list...)}
}

// optionalText returns a text field of a patch that can be null.
func optionalText(patch *svc.TextPatch) strictjson.Optional[string] {
	if patch == nil {
		return strictjson.Optional[string]{}
	}
	return strictjson.Optional[string]{
		Set: true, Null: patch.Value == nil, Value: orZero(patch.Value),
	}
}

// orZero returns the pointed-to value; for nil the zero value.
func orZero[T any](value *T) (zero T) {
	if value == nil {
		return zero
	}
	return *value
}

// orAbsent returns a text that is absent when it is "".
func orAbsent(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// CheckUpdates compares all templates of the half with their sources. It asks each source once. The
// interface does not show the owners of sources; they are "". Errors: CodeForbidden.
func (c *Templates) CheckUpdates(ctx context.Context) (svc.UpdateReport, error) {
	r := c.at("POST /templates/check-updates")
	return call(ctx, c.conn, r, func(in wire.UpdateReport) svc.UpdateReport {
		return svc.UpdateReport{
			Checked: int(in.Checked), Templates: wire.Each(in.Templates, templateUpdate),
			Sources: wire.Each(in.Sources, func(s wire.SourceReport) svc.SourceReport {
				return svc.SourceReport{
					Source:  sourceKey(s.SourceScope, s.SourceName),
					Checked: int(s.Checked), Problem: orZero(s.Problem),
				}
			}),
		}
	})
}

func templateUpdate(t wire.TemplateUpdate) svc.TemplateUpdate {
	return svc.TemplateUpdate{
		ID: t.TemplateID, Source: sourceKey(t.SourceScope, t.SourceName),
		CurrentRevision: t.CurrentRevision, LatestRevision: t.LatestRevision,
		Problem: orZero(t.Problem),
	}
}

func sourceKey(scope, name string) svc.SourceKey {
	return svc.SourceKey{Scope: svc.Scope(scope), Name: name}
}
