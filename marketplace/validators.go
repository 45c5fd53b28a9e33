package marketplace

import (
	"net/http"
	"regexp"
	"time"
)

// maxValidator is the length limit of a usable ETag in bytes.
const maxValidator = 1024

// validators let a server decide whether its earlier answer is still good (RFC 9110, section 8.8).
// They hold only for the same URL, and only for a request with or without the token, as before.
type validators struct {
	URL          string `json:"url"`                     // the last one of a chain of redirects
	Authorized   bool   `json:"authorized,omitempty"`    // the request had the token
	ETag         string `json:"etag,omitempty"`          // "": none that is usable
	LastModified string `json:"last_modified,omitempty"` // "": none that is usable
}

// validatorsOf returns the validators of an answer to a request for file.
func validatorsOf(file webFile, header http.Header) validators {
	v := validators{URL: file.url.String(), Authorized: file.token != ""}
	tags := header.Values("ETag")
	if len(tags) == 1 && len(tags[0]) <= maxValidator && entityTag.MatchString(tags[0]) {
		v.ETag = tags[0]
	} else if modified := header.Get("Last-Modified"); isPast(modified, header.Get("Date")) {
		v.LastModified = modified
	}
	return v
}

// entityTag matches a tag that a request can send back: "…" or W/"…".
var entityTag = regexp.MustCompile(`^(W/)?"[^\x00-\x20"\x7f]*"$`)

// isPast reports whether the file changed at least a second before the server sent it. A later
// change within the second of sending would give the same date.
func isPast(modified, date string) bool {
	m, errM := http.ParseTime(modified)
	d, errD := http.ParseTime(date)
	return errM == nil && errD == nil && d.Sub(m) >= time.Second
}

// ask makes a request for file conditional if v belongs to that request. It reports whether v does.
func (v validators) ask(request http.Header, file webFile) bool {
	if v.URL != file.url.String() || v.Authorized != (file.token != "") {
		return false
	}
	switch {
	case v.ETag != "":
		request.Set("If-None-Match", v.ETag)
	case v.LastModified != "":
		request.Set("If-Modified-Since", v.LastModified)
	default:
		return false
	}
	return true
}
