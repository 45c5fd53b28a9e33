package svc

import (
	"fmt"
	"log/slog"
)

// Secret is a string that does not show itself: fmt, slog and encoding/json print "***". Convert it with string to
// read it.
type Secret string

const masked = "***"

func (Secret) String() string               { return masked }
func (Secret) GoString() string             { return masked }
func (Secret) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(masked)) }
func (Secret) LogValue() slog.Value         { return slog.StringValue(masked) }
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }
