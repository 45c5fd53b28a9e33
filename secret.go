package svc

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
)

// Secret is a string that does not show itself: fmt, slog and encoding/json print "***". Convert it with string to
// read it. They cannot help printing it where it is an unexported field of a struct (fmt) or the key of a map (encoding/json).
type Secret string

const masked = "***"

// minHidden is the length of the shortest secret that [Secret.Hide] hides: shorter ones may stand anywhere by chance.
const minHidden = 8

func (Secret) String() string               { return masked }
func (Secret) GoString() string             { return masked }
func (Secret) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(masked)) }
func (Secret) LogValue() slog.Value         { return slog.StringValue(masked) }
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }

// Format prints a pepper without its Secret.
func (p Pepper) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "{%s %s}", p.Version, masked) }

// Format prints no key.
func (c SourceConfig) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }

// Hide returns a text of somebody else's, which may repeat the secret, as it is or escaped for a URL, with "***" instead of it. A
// secret of less than 8 bytes is left as it is.
func (s Secret) Hide(text string) string {
	if len(s) < minHidden {
		return text
	}
	return strings.NewReplacer(string(s), masked, url.QueryEscape(string(s)), masked, url.PathEscape(string(s)), masked).Replace(text)
}

// hideIn returns err as it is unless its text holds the secret, else what is left of it: texts, and no chain that shows more.
func (s Secret) hideIn(err error) error {
	text := err.Error()
	hidden := s.Hide(text)
	if hidden == text {
		return err
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return errors.New(hidden)
	}
	left := &Error{Code: e.Code, Field: s.Hide(e.Field), Message: s.Hide(e.Message)}
	if e.Err != nil {
		left.Err = errors.New(s.Hide(e.Err.Error()))
	}
	return left
}
