package wire

import (
	"encoding/json"
	"time"

	"github.com/extsvc/svc/internal/strictjson"
)

// CreateTemplate is the request to create a template by hand.
type CreateTemplate struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Manifest     json.RawMessage `json:"manifest"`
	Description  *string         `json:"description,omitempty"`
	Category     *string         `json:"category,omitempty"`
	Integrations []string        `json:"integrations,omitempty"`
	Tags         []string        `json:"tags,omitempty"`
}

// PatchTemplate changes the fields that are set.
type PatchTemplate struct {
	Name         strictjson.Optional[string]          `json:"name,omitzero"`
	Description  strictjson.Optional[string]          `json:"description,omitzero"`
	Category     strictjson.Optional[string]          `json:"category,omitzero"`
	Integrations strictjson.Optional[[]string]        `json:"integrations,omitzero"`
	Tags         strictjson.Optional[[]string]        `json:"tags,omitzero"`
	Manifest     strictjson.Optional[json.RawMessage] `json:"manifest,omitzero"`
}

// InstallTemplate is the request to install a template from a source.
type InstallTemplate struct {
	SourceName  string  `json:"source_name"`
	SourceScope *string `json:"source_scope,omitempty"`
	AliasID     *string `json:"alias_id,omitempty"`
}

// UpdateTemplate is the content that an update with the resolution "merged" writes. The fields are
// those of CreateTemplate without the id. Other updates send no content.
type UpdateTemplate struct {
	Name         *string         `json:"name,omitempty"`
	Manifest     json.RawMessage `json:"manifest,omitempty"`
	Description  *string         `json:"description,omitempty"`
	Category     *string         `json:"category,omitempty"`
	Integrations []string        `json:"integrations,omitempty"`
	Tags         []string        `json:"tags,omitempty"`
}

// Empty reports whether no field is set.
func (u UpdateTemplate) Empty() bool {
	return u.Name == nil && u.Manifest == nil && u.Description == nil && u.Category == nil &&
		u.Integrations == nil && u.Tags == nil
}

// Content is the content of a template or of a former version.
type Content struct {
	Name         string          `json:"name"`
	Description  *string         `json:"description"`
	Category     *string         `json:"category"`
	Integrations []string        `json:"integrations"`
	Tags         []string        `json:"tags"`
	Manifest     json.RawMessage `json:"manifest"`
}

// Template is an installed template.
type Template struct {
	ID string `json:"id"`
	Content
	Scope          string    `json:"scope"`
	Owner          *string   `json:"owner"`
	SourceName     *string   `json:"source_name"`
	SourceScope    *string   `json:"source_scope"`
	SourceOwner    *string   `json:"source_owner"`
	SourceRevision *string   `json:"source_revision"`
	InstalledAt    time.Time `json:"installed_at"`
	UpdatedAt      time.Time `json:"updated_at"`
}

// Append appends the JSON of t.
func (t Template) Append(b []byte) []byte {
	o := open(b)
	o.text("id", t.ID)
	o.content(&t.Content)
	o.text("scope", t.Scope)
	o.optional("owner", t.Owner)
	o.optional("source_name", t.SourceName)
	o.optional("source_scope", t.SourceScope)
	o.optional("source_owner", t.SourceOwner)
	o.optional("source_revision", t.SourceRevision)
	o.time("installed_at", t.InstalledAt)
	o.time("updated_at", t.UpdatedAt)
	o.raw("manifest", t.Manifest)
	return o.close()
}

// MarshalJSON writes t as Append does, inside of other answers.
func (t Template) MarshalJSON() ([]byte, error) { return t.Append(nil), nil }

// content appends the content of a template without its manifest.
func (o *object) content(c *Content) {
	o.text("name", c.Name)
	o.optional("description", c.Description)
	o.optional("category", c.Category)
	o.texts("integrations", c.Integrations)
	o.texts("tags", c.Tags)
}

// Update is the result of an update.
type Update struct {
	Updated          bool     `json:"updated"`
	PreviousRevision *string  `json:"previous_revision"`
	NewRevision      *string  `json:"new_revision"`
	Template         Template `json:"template"`
}

// UpdateCheck compares an installed template with what its source offers now.
type UpdateCheck struct {
	HasUpdate       bool    `json:"has_update"`
	CurrentRevision *string `json:"current_revision"`
	LatestRevision  *string `json:"latest_revision"`
	SourceName      *string `json:"source_name"`
	SourceScope     *string `json:"source_scope"`
}

// TemplateVersion is a former version of a template.
type TemplateVersion struct {
	Version int64 `json:"version"`
	Content
	SourceRevision *string   `json:"source_revision"`
	UpdatedAt      time.Time `json:"updated_at"`
}

// Append appends the JSON of v.
func (v TemplateVersion) Append(b []byte) []byte {
	o := open(b)
	o.number("version", v.Version)
	o.content(&v.Content)
	o.optional("source_revision", v.SourceRevision)
	o.time("updated_at", v.UpdatedAt)
	o.raw("manifest", v.Manifest)
	return o.close()
}

// RollbackTemplate is the request to go back to a version.
type RollbackTemplate struct {
	Version int64 `json:"version"`
}

// TemplateDiff lists what an update would change and what was edited locally.
type TemplateDiff struct {
	CurrentRevision string          `json:"current_revision"`
	LatestRevision  string          `json:"latest_revision"`
	RenamedTo       string          `json:"renamed_to,omitempty"`
	Changes         []ContentChange `json:"changes"`
}

// ContentChange is a place where base, ours and theirs differ. A content without a value at this
// place has no key.
type ContentChange struct {
	Path     string          `json:"path"`
	Conflict bool            `json:"conflict"`
	Base     json.RawMessage `json:"base,omitempty"`
	Ours     json.RawMessage `json:"ours,omitempty"`
	Theirs   json.RawMessage `json:"theirs,omitempty"`
}

// UpdateReport compares all installed templates with what their sources offer now.
type UpdateReport struct {
	Checked   int64            `json:"checked"`
	Templates []TemplateUpdate `json:"templates"`
	Sources   []SourceReport   `json:"sources"`
}

// TemplateUpdate is a template that differs from its source or could not be compared.
type TemplateUpdate struct {
	TemplateID      string  `json:"template_id"`
	HasUpdate       bool    `json:"has_update"`
	CurrentRevision string  `json:"current_revision"`
	LatestRevision  *string `json:"latest_revision"`
	SourceName      string  `json:"source_name"`
	SourceScope     string  `json:"source_scope"`
	Problem         *string `json:"problem"`
}

// SourceReport is the result of asking one source.
type SourceReport struct {
	SourceName  string  `json:"source_name"`
	SourceScope string  `json:"source_scope"`
	Checked     int64   `json:"checked"`
	Problem     *string `json:"problem"`
}

// Rebound lists the templates that a rebind changed.
type Rebound struct {
	TemplateIDs []string `json:"template_ids"`
}
