package wire

import (
	"strconv"
	"time"
)

// RegisterSource is the request to trust a source.
type RegisterSource struct {
	URL         string  `json:"url"`
	Alias       *string `json:"alias,omitempty"`
	AuthToken   *string `json:"auth_token,omitempty"`
	Description *string `json:"description,omitempty"`
	SigningKey  *string `json:"signing_key,omitempty"` // base64
}

// Source is a marketplace source. It has no field for the access token.
type Source struct {
	Name        string    `json:"name"`
	URL         string    `json:"url"`
	Scope       string    `json:"scope"`
	Owner       *string   `json:"owner"`
	HasAuth     bool      `json:"has_auth"`
	Description *string   `json:"description"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
}

// FullSource is a source in the full view.
type FullSource struct {
	Source
	SigningKey *string `json:"signing_key"` // base64
	Serial     *int64  `json:"serial"`
}

// Append appends the JSON of s.
func (s Source) Append(b []byte) []byte {
	o := open(b)
	s.append(&o)
	return o.close()
}

// Append appends the JSON of s.
func (s FullSource) Append(b []byte) []byte {
	o := open(b)
	s.append(&o)
	o.optional("signing_key", s.SigningKey)
	o.optionalNumber("serial", s.Serial)
	return o.close()
}

func (s Source) append(o *object) {
	o.text("name", s.Name)
	o.text("url", s.URL)
	o.text("scope", s.Scope)
	o.optional("owner", s.Owner)
	o.bool("has_auth", s.HasAuth)
	o.optional("description", s.Description)
	o.time("created_at", s.CreatedAt)
	o.time("updated_at", s.UpdatedAt)
}

// SourceTemplates is what a source offers.
type SourceTemplates struct {
	Templates []SourceTemplate `json:"templates"`
	Bad       []BadEntry       `json:"bad"`
	Stale     bool             `json:"stale"`
	FetchedAt *time.Time       `json:"fetched_at"` // null: never; the problem says why
}

// SourceListings is what several sources offer.
type SourceListings struct {
	Sources []SourceListing `json:"sources"`
}

// SourceListing is what one source offers, or the problem that prevents a list.
type SourceListing struct {
	SourceName string `json:"source_name"`
	SourceTemplates
	Problem *string `json:"problem"`
}

// SourceTemplate is a template of a source, with the ids it is installed under.
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

// BadEntry is a catalogue entry that cannot be installed.
type BadEntry struct {
	Index  int     `json:"index"` // in the catalogue's templates, from 0
	ID     *string `json:"id"`
	Reason string  `json:"reason"`
}

// Append appends the JSON of s.
func (s SourceTemplates) Append(b []byte) []byte {
	o := open(b)
	s.append(&o)
	return o.close()
}

func (s SourceTemplates) append(o *object) {
	list(o, "templates", s.Templates)
	list(o, "bad", s.Bad)
	o.bool("stale", s.Stale)
	o.optionalTime("fetched_at", s.FetchedAt)
}

// Append appends the JSON of s.
func (s SourceListings) Append(b []byte) []byte {
	o := open(b)
	list(&o, "sources", s.Sources)
	return o.close()
}

// Append appends the JSON of s.
func (s SourceListing) Append(b []byte) []byte {
	o := open(b)
	o.text("source_name", s.SourceName)
	s.append(&o)
	o.optional("problem", s.Problem)
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
