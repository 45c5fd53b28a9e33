package secretleaks

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc"
)

// window is the number of characters in a row that counts as a leak.
const window = 12

// hunt searches texts and files of any kind for secrets, whole or in part. Its zero value finds nothing.
type hunt struct {
	begins  [1 << 16]bool              // by the first two bytes of needles
	needles map[[window]byte][]spotted // by their first bytes
}

type spotted struct{ secret, encoding, text string }

// seek adds a secret to the search. Finds have its name.
func (h *hunt) seek(name, secret string) {
	if h.needles == nil {
		h.needles = map[[window]byte][]spotted{}
	}
	for i := range len(secret) - window + 1 {
		for encoding, text := range encodings([]byte(secret[i : i+window])) {
			h.begins[int(text[0])<<8|int(text[1])] = true
			begin := [window]byte([]byte(text))
			h.needles[begin] = append(h.needles[begin], spotted{name, encoding, text})
		}
	}
}

// encodings returns the ways in which a longer text may contain part.
func encodings(part []byte) map[string]string {
	texts := map[string]string{
		"raw":            string(part),
		"hex":            hex.EncodeToString(part),
		"HEX":            strings.ToUpper(hex.EncodeToString(part)),
		"a list":         strings.Trim(fmt.Sprint(part), "[]"),
		"a list in Go's": strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", part), "[]byte{"), "}"),
	}
	for before := range 3 {
		texts[fmt.Sprint("base64, ", before)] = within(base64.RawStdEncoding, before, part)
		texts[fmt.Sprint("base64 for URLs, ", before)] = within(base64.RawURLEncoding, before, part)
	}
	return texts
}

// within returns the encoding of part after so many other bytes, without the characters that depend
// on its neighbours.
func within(encoding *base64.Encoding, before int, part []byte) string {
	text := encoding.EncodeToString(append(make([]byte, before), part...))
	return text[(before*8+5)/6 : (before+len(part))*8/6]
}

// find returns the secrets with a part in text, each once per encoding, with the text around it.
func (h *hunt) find(text []byte) (finds []string) {
	seen := map[string]bool{}
	for i := 0; i+window <= len(text); i++ {
		if !h.begins[int(text[i])<<8|int(text[i+1])] {
			continue
		}
		for _, s := range h.needles[[window]byte(text[i:])] {
			name := s.secret + ", " + s.encoding
			if !seen[name] && strings.HasPrefix(string(text[i:min(len(text), i+len(s.text))]), s.text) {
				seen[name] = true
				finds = append(finds, fmt.Sprintf("%s: …%q…", name, text[max(0, i-100):min(len(text), i+len(s.text)+40)]))
			}
		}
	}
	slices.Sort(finds)
	return finds
}

// The search must find every encoding at every offset, and nothing shorter than a window.
func TestHuntFinds(t *testing.T) {
	const secret = "q7RkT0vW2mZx9LcHs4YdBn8EjUa5PgFi"
	var h hunt
	h.seek("it", secret)
	for i := range len(secret) - window + 1 {
		part := secret[i : i+window]
		for _, around := range []string{"", "\xff", "\xfe\xff", "\x00\x00\x00", "some more of it"} {
			in := []byte(around + part + around)
			for what, text := range map[string]string{
				"raw": string(in), "hex": hex.EncodeToString(in), "HEX": fmt.Sprintf("%X", in), "list": fmt.Sprint(in), "Go": fmt.Sprintf("%#v", in), "quoted": fmt.Sprintf("%q", in),
				"std": base64.StdEncoding.EncodeToString(in), "url": base64.URLEncoding.EncodeToString(in), "raw std": base64.RawStdEncoding.EncodeToString(in),
			} {
				if finds := h.find([]byte("x" + text + "x")); len(finds) == 0 {
					t.Errorf("%s of %q in %q is not found", what, part, around)
				}
			}
		}
	}
	for _, text := range []string{"", secret[:window-1], secret[:window-1] + "_" + secret[window-1:2*window-2], strings.ToLower(secret), hex.EncodeToString([]byte(secret[:window-1])), "%"} {
		if finds := h.find([]byte(text)); len(finds) > 0 {
			t.Errorf("found in %q: %q", text, finds)
		}
	}
}

// evidence holds the kept texts by place. Its zero value is empty.
type evidence struct {
	mu     sync.Mutex
	places map[string][]byte
}

func (e *evidence) add(place string, text []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.places == nil {
		e.places = map[string][]byte{}
	}
	e.places[place] = append(append(e.places[place], text...), '\n')
}

// forget removes all texts.
func (e *evidence) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.places = nil
}

func (e *evidence) writer(place string) io.Writer {
	return writerFunc(func(p []byte) { e.add(place, p) })
}

type writerFunc func(p []byte)

func (w writerFunc) Write(p []byte) (int, error) { w(p); return len(p), nil }

// value adds what fmt and encoding/json make of a value. (With verbs other than %v, fmt looks
// behind pointers, into memory that other goroutines may use.)
func (e *evidence) value(place string, v any) {
	e.add(place, fmt.Appendf(nil, "%v\n%+v\n%#v", v, v, v))
	if text, err := json.Marshal(v); err == nil {
		e.add(place, text)
	}
}

// fault adds an error and everything that it wraps.
func (e *evidence) fault(err error) {
	if err == nil {
		return
	}
	e.value("errors", err)
	switch wrapper := err.(type) {
	case interface{ Unwrap() error }:
		e.fault(wrapper.Unwrap())
	case interface{ Unwrap() []error }:
		for _, wrapped := range wrapper.Unwrap() {
			e.fault(wrapped)
		}
	}
}

// leaks returns the secrets found, by place.
func (e *evidence) leaks(h *hunt) map[string][]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	leaks := map[string][]string{}
	for place, text := range e.places {
		if finds := h.find(text); len(finds) > 0 {
			leaks[place] = finds
		}
	}
	return leaks
}

// has fails when a place does not hold a text: then the search had nothing to search.
func (e *evidence) has(t *testing.T, place, text string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !bytes.Contains(e.places[place], []byte(text)) {
		t.Errorf("there is no %q in %q", text, place)
	}
}

// must is the value of a call that does not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// The evidence holds the whole chain of an error, and a value as deep as fmt goes.
func TestEvidenceIsWhole(t *testing.T) {
	const secret = "q7RkT0vW2mZx9LcHs4YdBn8EjUa5PgFi"
	var h hunt
	h.seek("it", secret)
	inside := errors.New(secret)
	for name, leak := range map[string]func(e *evidence){
		"in a chain":  func(e *evidence) { e.fault(&svc.Error{Message: "m", Err: silent{fmt.Errorf("at: %w", inside)}}) },
		"joined":      func(e *evidence) { e.fault(silent{errors.Join(io.EOF, silent{inside})}) },
		"unexported":  func(e *evidence) { e.value("values", struct{ key svc.Secret }{secret}) }, // as its comment says
		"a map's key": func(e *evidence) { e.value("values", map[svc.Secret]int{secret: 1}) },
		"as bytes":    func(e *evidence) { e.value("values", svc.APIKey{Hash: []byte(secret)}) },
		"as a string": func(e *evidence) { e.value("values", svc.APIKey{Prefix: secret}) },
	} {
		var e evidence
		if leak(&e); len(e.leaks(&h)) == 0 {
			t.Errorf("%s: not found", name)
		}
	}
	var e evidence
	e.value("values", svc.IssuedKey{Key: secret})
	e.value("values", []any{svc.Secret(secret), map[string]svc.Secret{"": secret}, svc.NewSource{AuthToken: new(svc.Secret(secret))}, svc.Upstream{Token: secret}})
	e.fault(fmt.Errorf("%w: %v %+v %#v %s %q %x %d", io.EOF, svc.Secret(secret), svc.Secret(secret), svc.Secret(secret), svc.Secret(secret), svc.Secret(secret), svc.Secret(secret), svc.Secret(secret)))
	if leaks := e.leaks(&h); len(leaks) > 0 {
		t.Errorf("a Secret shows itself: %q", leaks)
	}
}

// silent is an error whose text says nothing of the error that it wraps.
type silent struct{ error }

func (silent) Error() string                 { return "silent" }
func (silent) Format(s fmt.State, verb rune) { _, _ = io.WriteString(s, "silent") }
func (s silent) Unwrap() error               { return s.error }
