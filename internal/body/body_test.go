package body_test

import (
	"errors"
	"io"
	"maps"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/body"
)

const kind = "application/x-www-form-urlencoded"

// The limits hold to the byte and to the parameter, also for a form that a handler has parsed.
func TestForm(t *testing.T) {
	for name, c := range map[string]struct {
		kind, body string
		code       svc.Code
		field      string
	}{
		"form":       {kind, "a=1&b=%C3%A9", "", ""},
		"charset":    {kind + "; charset=ISO-8859-1", "a=1&b=%C3%A9", "", ""},
		"latin-1":    {kind + "; charset=ISO-8859-1", "a=1&b=\xfc", body.BadType, ""},
		"utf-16":     {kind + "; charset=utf-16", "a=1", body.BadType, ""},
		"empty":      {"", "", "", ""},
		"type":       {"text/plain", "a=1", body.BadType, ""},
		"no type":    {"", "a=1", body.BadType, ""},
		"twice":      {kind, "a=1&b=2&a=3", svc.CodeInvalid, "a"},
		"no name":    {kind, "=1&=2", svc.CodeInvalid, ""},
		"pointer":    {kind, "/a=1&/a=2", svc.CodeInvalid, ""},
		"parameters": {kind, strings.Repeat("&", body.MaxParameters), svc.CodeInvalid, ""},
		"semi":       {kind, "a=1;b=2", svc.CodeInvalid, ""},
		"escape":     {kind, "a=%z", svc.CodeInvalid, ""},
		"full":       {kind, strings.Repeat("x", 100), "", ""},
		"too long":   {kind, strings.Repeat("x", 101), body.TooLarge, ""},
		"many":       {kind, "b=%C3%A9" + some(body.MaxParameters-1), "", ""},
		"one more":   {kind, "b=%C3%A9" + some(body.MaxParameters), svc.CodeInvalid, ""},
	} {
		limit := int64(100)
		if name == "many" || name == "one more" {
			limit = 1000
		}
		for _, length := range []int64{int64(len(c.body)), -1} {
			for _, parsed := range []bool{false, true} {
				r := httptest.NewRequest("POST", "/", strings.NewReader(c.body))
				r.ContentLength = length
				if c.kind != "" {
					r.Header.Set("Content-Type", c.kind)
				}
				if parsed && (r.ParseForm() != nil || name == "parameters" || strings.Contains(c.kind, "charset")) {
					continue // what it left out and how it was written are not known
				}
				values, err := body.Form(httptest.NewRecorder(), r, limit)
				wrong, _ := errors.AsType[*svc.Error](err)
				if c.code == "" && (err != nil || strings.Contains(c.body, "b=") && values.Get("b") != "é") {
					t.Errorf("%s: %v, %v", name, values, err)
				} else if c.code != "" && (wrong == nil || wrong.Code != c.code || wrong.Field != c.field) {
					t.Errorf("%s, parsed %v: %v", name, parsed, err)
				}
			}
		}
	}
}

// some are so many parameters behind another one.
func some(n int) (form string) {
	for i := range n {
		form += "&" + strconv.Itoa(i)
	}
	return form
}

// Identity is no coding (RFC 9110, section 8.4.1).
func TestCodings(t *testing.T) {
	for _, codings := range [][]string{{"identity"}, {"IDENTITY"}, {"identity, identity"}, {"", "identity"}, {"gzip"}, {"identity, gzip"}, {"", "gzip"}, {"x-identity"}} {
		for _, of := range []string{kind, "application/json"} {
			r := httptest.NewRequest("POST", "/", strings.NewReader("{}"))
			r.Header.Set("Content-Type", of)
			r.Header["Content-Encoding"] = codings
			var err error
			if of == kind {
				_, err = body.Form(httptest.NewRecorder(), r, 100)
			} else {
				_, err = body.Read(httptest.NewRecorder(), r, 100, body.JSON)
			}
			wrong, _ := errors.AsType[*svc.Error](err)
			plain := !strings.Contains(strings.Join(codings, ""), "gzip") && codings[0] != "x-identity"
			if plain && err != nil || !plain && (wrong == nil || wrong.Code != body.BadType) {
				t.Errorf("%q of %s: %v", codings, of, err)
			}
		}
	}
}

// A form that is read has each parameter once, and is written again as one that is read the same.
func FuzzForm(f *testing.F) {
	for _, raw := range []string{"", "token=a", "token=a&token=b", "token=%zz", "token;a", "=a&=b", "&&", "/a&/a", "token=a+b%20c", "\xff&\xff"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		read, err := body.ParseForm([]byte(raw))
		if err != nil {
			return
		}
		for name, values := range read {
			if len(values) != 1 {
				t.Fatalf("%q has %d values of %q", raw, len(values), name)
			}
		}
		written := url.Values(read).Encode()
		if again, err := body.ParseForm([]byte(written)); err != nil || !maps.EqualFunc(again, read, slices.Equal) {
			t.Fatalf("%q is %q, and as %q it is %q: %v", raw, read, written, again, err)
		}
	})
}

// A body that ends too early is none, whatever its beginning says.
func TestReadToTheEnd(t *testing.T) {
	for _, fault := range []error{io.ErrUnexpectedEOF, errors.New("reset")} {
		r := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader(`{}`), iotest.ErrReader(fault)))
		r.Header.Set("Content-Type", "application/json")
		for _, r.ContentLength = range []int64{3, -1} {
			_, err := body.Read(httptest.NewRecorder(), r, 100, body.JSON)
			if wrong, _ := errors.AsType[*svc.Error](err); wrong == nil || wrong.Code != svc.CodeInvalid {
				t.Errorf("%v: %v", fault, err)
			}
		}
	}
}
