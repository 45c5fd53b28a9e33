// Package body reads the body of a request strictly, for all handlers by the same rules.
package body

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/extsvc/svc"
)

// The codes that only a body has, as package httpapi has them.
const (
	TooLarge svc.Code = "body_too_large"
	BadType  svc.Code = "unsupported_media_type"
)

// Type is a type that a body can have.
type Type struct {
	covers func(mediaType string) bool
	rule   string // for a body of another type
}

// JSON is application/json, and each type with the suffix +json (RFC 6839).
var JSON = Type{
	func(mediaType string) bool {
		return mediaType == "application/json" ||
			strings.HasPrefix(mediaType, "application/") && strings.HasSuffix(mediaType, "+json")
	},
	"the body must be JSON in UTF-8, unencoded, and say so: Content-Type: application/json",
}

// declared reports whether the headers declare a plain body of the type. It returns the charset
// that they name, in lower case; "": none.
func (t Type) declared(header http.Header) (charset string, ok bool) {
	types := header.Values("Content-Type")
	if len(types) != 1 || encoded(header) {
		return "", false
	}
	kind, params, err := mime.ParseMediaType(types[0])
	return strings.ToLower(params["charset"]), err == nil && t.covers(kind)
}

// encoded reports whether a Content-Encoding names a coding. The name identity stands for none (RFC
// 9110, section 8.4.1).
func encoded(header http.Header) bool {
	for coding := range strings.SplitSeq(strings.Join(header.Values("Content-Encoding"), ","), ",") {
		coding = strings.TrimSpace(coding)
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return true
		}
	}
	return false
}

// mostAtOnce limits, in bytes, the buffer that a request gets before its body has arrived.
const mostAtOnce = 256 << 10

// Read returns the body of a request, or an [*svc.Error], which repeats no value: one may be a
// secret. The body has that type and at most limit bytes. An empty body needs no Content-Type.
func Read(w http.ResponseWriter, r *http.Request, limit int64, of Type) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	charset, declared := of.declared(r.Header)
	if r.ContentLength != 0 && !declared {
		if r.ContentLength < 0 { // it may be empty
			if _, err := io.ReadFull(r.Body, make([]byte, 1)); err == io.EOF {
				return nil, nil
			}
		}
		return nil, &svc.Error{Code: BadType, Message: of.rule}
	}
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), mostAtOnce)) + bytes.MinRead)
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	if exceeded, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(exceeded.Limit) // a handler of the host may have set a lower one
	} else if errors.Is(err, http.ErrBodyReadAfterClose) || err == nil &&
		body.Len() == 0 && r.ContentLength > 0 {
		return nil, svc.Invalid("", "the body was read before it reached this handler: a handler of"+
			" the host application must put it back")
	} else if err != nil {
		return nil, &svc.Error{
			Code: svc.CodeInvalid, Message: "the body could not be read to its end", Err: err,
		}
	}
	return body.Bytes(), inUTF8(charset, body.Bytes())
}

func tooLarge(limit int64) error {
	return &svc.Error{
		Code: TooLarge, Message: fmt.Sprintf("the body is larger than %d bytes", limit),
	}
}

// inUTF8 refuses a body whose declared charset would give its bytes another meaning than UTF-8. For
// ASCII, most charsets give none.
func inUTF8(charset string, body []byte) error {
	switch charset {
	case "", "utf-8", "utf8":
		return nil
	}
	wide := slices.ContainsFunc([]string{"utf", "ucs", "ibm", "ebcdic", "iso-10646"},
		func(family string) bool { return strings.HasPrefix(charset, family) })
	beyond := func(c byte) bool { return c > unicode.MaxASCII }
	if len(body) == 0 || !wide && !slices.ContainsFunc(body, beyond) {
		return nil
	}
	return &svc.Error{Code: BadType, Message: fmt.Sprintf(
		"the body must be in UTF-8, and its Content-Type has the charset %.40q", charset)}
}
