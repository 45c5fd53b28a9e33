package wire

// CreateAPIKey asks for a new key.
type CreateAPIKey struct {
	Description *string `json:"description,omitempty"`
}

// APIKey is a listed key. It has no field that could hold the key itself.
type APIKey struct {
	ID           string  `json:"id"`
	APIKeyPrefix string  `json:"api_key_prefix"`
	Description  *string `json:"description"`
}

// Append appends the JSON of k.
func (k APIKey) Append(b []byte) []byte {
	o := open(b)
	o.text("id", k.ID)
	o.text("api_key_prefix", k.APIKeyPrefix)
	o.optional("description", k.Description)
	return o.close()
}

// CreatedAPIKey is a new key, shown this once.
type CreatedAPIKey struct {
	ID          string  `json:"id"`
	APIKey      string  `json:"api_key"`
	Description *string `json:"description"`
}

// Append appends the JSON of k.
func (k CreatedAPIKey) Append(b []byte) []byte {
	o := open(b)
	o.text("id", k.ID)
	o.text("api_key", k.APIKey)
	o.optional("description", k.Description)
	return o.close()
}
