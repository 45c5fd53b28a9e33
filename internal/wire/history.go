package wire

import (
	"encoding/json"
	"time"
)

// TemplateVersion is a former version of a template.
type TemplateVersion struct {
	Version        int64           `json:"version"`
	Name           string          `json:"name"`
	Description    *string         `json:"description"`
	Category       *string         `json:"category"`
	Integrations   []string        `json:"integrations"`
	Tags           []string        `json:"tags"`
	SourceRevision *string         `json:"source_revision"`
	UpdatedAt      time.Time       `json:"updated_at"`
	Manifest       json.RawMessage `json:"manifest"`
}

// Append appends the JSON of v.
func (v TemplateVersion) Append(b []byte) []byte {
	o := open(b)
	o.number("version", v.Version)
	o.content(v.Name, v.Description, v.Category, v.Integrations, v.Tags)
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

// Append appends the JSON of d.
func (d TemplateDiff) Append(b []byte) []byte {
	o := open(b)
	o.text("current_revision", d.CurrentRevision)
	o.text("latest_revision", d.LatestRevision)
	o.key("changes")
	o.b = append(o.b, '[')
	for i, change := range d.Changes {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = change.Append(o.b)
	}
	o.b = append(o.b, ']')
	return o.close()
}

// Append appends the JSON of c.
func (c ContentChange) Append(b []byte) []byte {
	o := open(b)
	o.text("path", c.Path)
	o.bool("conflict", c.Conflict)
	for _, value := range []struct {
		of  string
		raw []byte
	}{{"base", c.Base}, {"ours", c.Ours}, {"theirs", c.Theirs}} {
		if value.raw != nil {
			o.raw(value.of, value.raw)
		}
	}
	return o.close()
}
