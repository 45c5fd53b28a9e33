package wire

import (
	"encoding/base64"
	"encoding/json"
)

// Cursor encodes the position at which a page ended: a sort key and an id.
func Cursor(position []string) string {
	text, _ := json.Marshal(position) // strings always encode
	return base64.RawURLEncoding.EncodeToString(text)
}
