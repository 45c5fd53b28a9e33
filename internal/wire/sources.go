package wire

import "time"

// RegisterSource asks to trust a source.
type RegisterSource struct {
	URL         string  `json:"url"`
	Alias       *string `json:"alias,omitempty"`
	AuthToken   *string `json:"auth_token,omitempty"`
	Description *string `json:"description,omitempty"`
}

// Source is a marketplace source. It has no field for a token.
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

// Append appends the JSON of s.
func (s Source) Append(b []byte) []byte {
	o := open(b)
	o.text("name", s.Name)
	o.text("url", s.URL)
	o.text("scope", s.Scope)
	o.optional("owner", s.Owner)
	o.bool("has_auth", s.HasAuth)
	o.optional("description", s.Description)
	o.time("created_at", s.CreatedAt)
	o.time("updated_at", s.UpdatedAt)
	return o.close()
}
