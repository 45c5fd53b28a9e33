package wire

import (
	"encoding/base64"
	"encoding/json"
)

// Cursor writes down where a page of a list ended: what the list is sorted by, and an id.
func Cursor(position []string) string {
	text, _ := json.Marshal(position) // strings always encode
	return base64.RawURLEncoding.EncodeToString(text)
}
