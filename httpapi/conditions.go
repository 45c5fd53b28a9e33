package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

// maxTags is the most entity tags that a condition may list.
const maxTags = 100

// ifMatch returns the entity tags of the If-Match header (RFC 9110, section 13.1.1); nil when there
// is no such header.
func (r *request) ifMatch() ([]string, error) { return tags(r.Header, "If-Match") }

// idempotencyKey returns the unchanged value of the Idempotency-Key header; "" when there is no
// such header.
func (r *request) idempotencyKey() (string, error) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 || values[0] == "" {
		return "", svc.Invalid("Idempotency-Key", "must be given once and must not be empty")
	}
	return values[0], nil
}

// tags returns the entity tags of a header. The list may be "*" alone.
func tags(header http.Header, name string) ([]string, error) {
	values := header.Values(name)
	if len(values) == 0 {
		return nil, nil
	}
	rest := strings.Trim(strings.Join(values, ","), " \t")
	if rest == svc.AnyETag {
		return []string{rest}, nil
	}
	malformed := svc.Invalid(name, `must be "*" or a list of at most 100 entity tags in quotes`)
	var all []string
	for rest != "" {
		if rest = strings.TrimLeft(rest, ", \t"); rest == "" {
			break
		}
		tag, behind, ok := cutTag(rest)
		behind = strings.TrimLeft(behind, " \t")
		if !ok || len(all) == maxTags || behind != "" && behind[0] != ',' {
			return nil, malformed
		}
		all, rest = append(all, tag), behind
	}
	if all == nil {
		return nil, malformed
	}
	return all, nil
}

// has reports whether the tags of an If-None-Match header contain an ETag. The comparison is weak
// (RFC 9110, section 13.1.2).
func has(known []string, etag string) bool {
	return slices.ContainsFunc(known, func(tag string) bool {
		return tag == svc.AnyETag || strings.TrimPrefix(tag, "W/") == etag
	})
}

// cutTag cuts the first entity tag (RFC 9110, section 8.8.3) off a list.
func cutTag(list string) (tag, behind string, ok bool) {
	opaque, begins := strings.CutPrefix(strings.TrimPrefix(list, "W/"), `"`)
	opaque, behind, ends := strings.Cut(opaque, `"`)
	unprintable := func(r rune) bool { return r <= ' ' || r == 0x7f }
	ok = begins && ends && !strings.ContainsFunc(opaque, unprintable)
	return list[:len(list)-len(behind)], behind, ok
}

// tagged is a row with an entity tag.
type tagged interface{ ETag() string }

// sendRow answers with what a method of the Service has returned, and its entity tag.
func sendRow[R tagged, A appender](
	w http.ResponseWriter, status int, row R, err error, answer func(R) A,
) error {
	if err != nil {
		return err
	}
	w.Header().Set("ETag", row.ETag())
	return send(w, status, answer(row))
}

// sendIfChanged is sendRow, or a 304 when the client's copy is current.
func sendIfChanged[R tagged, A appender](
	w http.ResponseWriter, r *request, row R, err error, answer func(R) A,
) error {
	if err != nil {
		return err
	}
	known, err := tags(r.Header, "If-None-Match")
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "private, no-cache") // the client may cache and must revalidate
	if etag := row.ETag(); has(known, etag) {
		w.Header().Set("ETag", etag)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return sendRow(w, http.StatusOK, row, nil, answer)
}

func sendTemplate(w http.ResponseWriter, template svc.Template, err error) error {
	return sendRow(w, http.StatusOK, template, err, wireTemplate)
}
