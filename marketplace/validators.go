package marketplace

import (
	"net/http"
	"strings"
	"time"
)

// maxValidator is how many bytes of an ETag are sent back.
const maxValidator = 1024

// validators are by what a server can tell that an answer of its own is still good (RFC 9110, section 8.8). They mean
// nothing for another URL, nor for who asks without the token instead of with it.
type validators struct {
	url          string // the last of a chain of redirects
	authorized   bool   // it was asked with the token
	etag         string // "" none that can be used
	lastModified string // "" none that can be used
}

// validatorsOf returns those of an answer to a request for file.
func validatorsOf(file webFile, header http.Header) validators {
	v := validators{url: file.url.String(), authorized: file.token != ""}
	if tags := header.Values("ETag"); len(tags) == 1 && isEntityTag(tags[0]) {
		v.etag = tags[0]
	} else if modified := header.Get("Last-Modified"); isPast(modified, header.Get("Date")) {
		v.lastModified = modified
	}
	return v
}

// isEntityTag reports whether a server may be sent this again: "…" or W/"…".
func isEntityTag(tag string) bool {
	quoted := strings.TrimPrefix(tag, "W/")
	if len(tag) > maxValidator || len(quoted) < 2 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
		return false
	}
	return !strings.ContainsFunc(quoted[1:len(quoted)-1], func(r rune) bool { return r <= ' ' || r == '"' || r == 0x7f })
}

// isPast reports whether a file was modified at least a second before it was sent: were it modified again in the second
// in which it was sent, its date would not show it.
func isPast(modified, date string) bool {
	m, errM := http.ParseTime(modified)
	d, errD := http.ParseTime(date)
	return errM == nil && errD == nil && d.Sub(m) >= time.Second
}

// ask makes a request for file conditional, when they belong to it, and reports whether it is.
func (v validators) ask(request http.Header, file webFile) bool {
	if v.url != file.url.String() || v.authorized != (file.token != "") {
		return false
	}
	switch {
	case v.etag != "":
		request.Set("If-None-Match", v.etag)
	case v.lastModified != "":
		request.Set("If-Modified-Since", v.lastModified)
	default:
		return false
	}
	return true
}
