package client

import (
	"context"
	"encoding/base64"
	"iter"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// Source is an [svc.Source] without its access token, which the interface does not show.
type Source struct {
	svc.SourceKey
	URL         string
	Description *string // nil: none; nil and "" are different values
	HasAuth     bool    // the server asks the source with an access token
	SigningKey  []byte  // the key that must sign the catalogue; nil: no signature is required
	Serial      int64   // the greatest serial of the accepted signed catalogues; 0: none accepted
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// List lists the sources by name. It reads row by row, as [Templates.List] does. Errors:
// CodeForbidden.
func (c *Sources) List(ctx context.Context) iter.Seq2[Source, error] {
	return list(ctx, c.conn, c.at("GET /template-sources").where("view", "full"), "", source)
}

// Register registers a source that the server trusts. Errors: CodeInvalid, CodeForbidden,
// CodeExists, CodeLimit.
func (c *Sources) Register(ctx context.Context, in svc.NewSource) (Source, error) {
	body := wire.RegisterSource{
		URL: in.URL, Alias: in.Alias, AuthToken: (*string)(in.AuthToken),
		Description: in.Description,
	}
	if in.SigningKey != nil {
		body.SigningKey = new(base64.StdEncoding.EncodeToString(in.SigningKey))
	}
	register := c.at("POST /template-sources").where("view", "full").with(body)
	return call(ctx, c.conn, register, source)
}

// Patch changes the description or the access token of a source. Errors: CodeInvalid,
// CodeForbidden, CodeNotFound.
func (c *Sources) Patch(
	ctx context.Context, name string, patch svc.SourcePatch,
) (Source, error) {
	body := wire.PatchSource{Description: optionalText(patch.Description)}
	if token := patch.AuthToken; token != nil {
		body.AuthToken = optionalText(&svc.TextPatch{Value: (*string)(token.Value)})
	}
	r := c.at("PATCH /template-sources/{name}", name).where("view", "full").with(body)
	return call(ctx, c.conn, r, source)
}

// Remove removes a source; the server no longer trusts it. Errors: CodeInvalid, CodeForbidden,
// CodeNotFound.
func (c *Sources) Remove(ctx context.Context, name string) error {
	return c.do(ctx, c.at("DELETE /template-sources/{name}", name))
}

// Browse lists what a source offers and which of it is installed. The interface does not show
// Index, ManifestFile and Manifest; they are zero. Lists are never nil. Errors: CodeInvalid,
// CodeForbidden, CodeNotFound, CodeSourceFailed, CodeSourceTimeout.
func (c *Sources) Browse(
	ctx context.Context, name string, filter svc.CatalogFilter,
) (svc.SourceTemplates, error) {
	r := c.at("GET /template-sources/{name}/templates", name)
	r = r.where("category", filter.Category, "tag", filter.Tag, "q", filter.Text)
	return call(ctx, c.conn, r, sourceTemplates)
}

// Search lists what all sources of the half offer, sorted by the name of the source. A source that
// cannot be listed has a Problem. The interface does not show the owners of sources; they are "".
// Errors: CodeInvalid, CodeForbidden.
func (c *Sources) Search(
	ctx context.Context, filter svc.CatalogFilter,
) ([]svc.SourceListing, error) {
	r := c.at("GET /source-templates")
	r = r.where("category", filter.Category, "tag", filter.Tag, "q", filter.Text)
	return call(ctx, c.conn, r, func(in wire.SourceListings) []svc.SourceListing {
		return wire.Each(in.Sources, func(one wire.SourceListing) svc.SourceListing {
			return svc.SourceListing{
				Source:          sourceKey(c.scope(), one.SourceName),
				SourceTemplates: sourceTemplates(one.SourceTemplates),
				Problem:         orZero(one.Problem),
			}
		})
	})
}

// Rebind binds the templates of this half that came from a source with this name to its present
// address. It returns the ids of these templates. Errors: CodeInvalid, CodeForbidden, CodeNotFound.
func (c *Sources) Rebind(ctx context.Context, name string) ([]string, error) {
	r := c.at("POST /template-sources/{name}/rebind", name)
	return call(ctx, c.conn, r, func(in wire.Rebound) []string { return in.TemplateIDs })
}

func source(in wire.FullSource) Source {
	var key []byte
	if in.SigningKey != nil {
		key, _ = base64.StdEncoding.DecodeString(*in.SigningKey) // httpapi writes valid base64
	}
	return Source{
		SigningKey: key, Serial: orZero(in.Serial),
		SourceKey: svc.SourceKey{
			Scope: svc.Scope(in.Scope), Owner: orZero(in.Owner), Name: in.Name,
		},
		URL: in.URL, Description: in.Description, HasAuth: in.HasAuth,
		CreatedAt: in.CreatedAt.Time, UpdatedAt: in.UpdatedAt.Time,
	}
}

func sourceTemplates(in wire.SourceTemplates) svc.SourceTemplates {
	return svc.SourceTemplates{
		Templates: wire.Each(in.Templates, sourceTemplate),
		Bad: wire.Each(in.Bad, func(b wire.BadEntry) svc.CatalogProblem {
			return svc.CatalogProblem{Index: b.Index, ID: orZero(b.ID), Reason: b.Reason}
		}),
		FetchedAt: orZero(in.FetchedAt).Time, Stale: in.Stale,
	}
}

func sourceTemplate(t wire.SourceTemplate) svc.SourceTemplate {
	return svc.SourceTemplate{
		CatalogEntry: svc.CatalogEntry{ID: t.ID, Content: svc.Content{
			Name: t.Name, Description: t.Description, Category: t.Category,
			Integrations: t.Integrations, Tags: t.Tags,
		}},
		InstalledAs: t.InstalledAs, Behind: t.Behind,
	}
}
