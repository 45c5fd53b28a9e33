package wire

import (
	"strconv"
	"time"
)

// SourceTemplates is what a source offers.
type SourceTemplates struct {
	Templates []SourceTemplate `json:"templates"`
	Bad       []BadEntry       `json:"bad"`
	Stale     bool             `json:"stale"`
	FetchedAt time.Time        `json:"fetched_at"`
}

// SourceTemplate is a template of a source, and what is installed of it.
type SourceTemplate struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Description  *string  `json:"description"`
	Category     *string  `json:"category"`
	Integrations []string `json:"integrations"`
	Tags         []string `json:"tags"`
	InstalledAs  []string `json:"installed_as"`
	Behind       *bool    `json:"behind"`
}

// BadEntry is an entry of a catalogue that cannot be installed.
type BadEntry struct {
	Index  int     `json:"index"` // in the catalogue's templates, from 0
	ID     *string `json:"id"`
	Reason string  `json:"reason"`
}

// Append appends the JSON of s.
func (s SourceTemplates) Append(b []byte) []byte {
	o := open(b)
	list(&o, "templates", s.Templates)
	list(&o, "bad", s.Bad)
	o.bool("stale", s.Stale)
	o.time("fetched_at", s.FetchedAt)
	return o.close()
}

// Append appends the JSON of t.
func (t SourceTemplate) Append(b []byte) []byte {
	o := open(b)
	o.text("id", t.ID)
	o.content(t.Name, t.Description, t.Category, t.Integrations, t.Tags)
	o.texts("installed_as", t.InstalledAs)
	o.optionalBool("behind", t.Behind)
	return o.close()
}

// Append appends the JSON of e.
func (e BadEntry) Append(b []byte) []byte {
	o := open(b)
	o.key("index")
	o.b = strconv.AppendInt(o.b, int64(e.Index), 10)
	o.optional("id", e.ID)
	o.text("reason", e.Reason)
	return o.close()
}
