package secretleaks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/extsvc/svc"
)

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

// writer returns a writer that adds to a place.
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
