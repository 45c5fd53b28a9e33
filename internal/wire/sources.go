package wire

import "time"

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
