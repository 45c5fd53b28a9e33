package svc

import (
	"slices"
	"strconv"
	"time"
)

// AnyETag matches every template that there is.
const AnyETag = "*"

// ETag is the template's entity tag (RFC 9110, section 8.8.3), quotes included: it changes with whatever of it can be read, and a
// template that is made anew has another. It follows from InstalledAt and UpdatedAt.
func (t Template) ETag() string {
	var room [32]byte
	b := strconv.AppendInt(append(room[:0], '"'), t.InstalledAt.UnixMicro(), 36)
	b = strconv.AppendInt(append(b, '-'), t.UpdatedAt.UnixMicro(), 36)
	return string(append(b, '"'))
}

// touch stamps a template that was changed, later than before whatever the clock shows.
func (t *Template) touch(now time.Time) {
	t.UpdatedAt = t.UpdatedAt.Add(time.Microsecond)
	if now.After(t.UpdatedAt) {
		t.UpdatedAt = now
	}
}

// matches refuses a template that is none of those that a caller has seen; no tags: whatever it is will do.
func (t Template) matches(ifMatch []string) error {
	if len(ifMatch) == 0 || slices.Contains(ifMatch, AnyETag) || slices.Contains(ifMatch, t.ETag()) {
		return nil
	}
	return &Error{Code: CodePrecondition, Message: "the template is not what it was when it was read: read it again"}
}
