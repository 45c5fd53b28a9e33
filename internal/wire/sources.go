package wire

import "github.com/extsvc/svc/internal/strictjson"

// RegisterSource is the request to trust a source.
type RegisterSource struct {
	URL         string  `json:"url"`
	Alias       *string `json:"alias,omitempty"`
	AuthToken   *string `json:"auth_token,omitempty"`
	Description *string `json:"description,omitempty"`
	SigningKey  *string `json:"signing_key,omitempty"` // base64
}

// PatchSource changes the fields that are set.
type PatchSource struct {
	AuthToken   strictjson.Optional[string] `json:"auth_token,omitzero"`
	Description strictjson.Optional[string] `json:"description,omitzero"`
}

// Source is a marketplace source. It has no field for the access token.
type Source struct {
	Name        string  `json:"name"`
	URL         string  `json:"url"`
	Scope       string  `json:"scope"`
	Owner       *string `json:"owner"`
	HasAuth     bool    `json:"has_auth"`
	Description *string `json:"description"`
	CreatedAt   Time    `json:"created_at"`
	UpdatedAt   Time    `json:"updated_at"`
}

// FullSource is a source in the full view.
type FullSource struct {
	Source
	SigningKey *string `json:"signing_key"` // base64
	Serial     *int64  `json:"serial"`
}

// SourceTemplates is what a source offers.
type SourceTemplates struct {
	Templates []SourceTemplate `json:"templates"`
	Bad       []BadEntry       `json:"bad"`
	Stale     bool             `json:"stale"`
	FetchedAt *Time            `json:"fetched_at"` // null: never; the problem says why
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
